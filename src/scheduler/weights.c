/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mean over samples is sum(w g) / sum(w) over micro-steps and ranks, so the total weight must
 * be known before a gradient can be divided and sent. It is one float64, reduced exactly and ahead
 * of the step's buckets, usually while the forward pass of the last micro-step runs: buckets that
 * are ready before it is known wait for it, callers do not.
 */
#include "scheduler/weights.h"

#include "base/status.h"
#include "collective/comm.h"
#include "collective/request.h"
#include "planner/planner.h"

void wri_weights_fix(struct wri_weights *weights, double value)
{
    weights->fixed = true;
    weights->current = value;
    weights->sum += value;
}

wring_status wri_weights_start(struct wri_weights *weights, wring_comm *comm)
{
    if (weights->request || weights->known)
        return WRING_OK;
    weights->total = weights->sum;
    void *value = weights->there ? weights->there : &weights->total;
    if (weights->there)
        WRI_TRY(wri_lane_move(comm, weights->there, &weights->total, sizeof(double)));
    wring_segment segment = {.send = value, .recv = value, .count = 1};
    wring_call call = WRING_CALL_INIT;
    call.kind = WRING_ALLREDUCE;
    call.op = WRING_SUM;
    call.dtype = WRING_FLOAT64;
    call.segments = &segment;
    call.nsegments = 1;
    call.codec = comm->context->exact;
    call.stream = weights->there ? comm->lane.stream : NULL;
    return wri_planner_start(comm, &call, NULL, &weights->request);
}

wring_status wri_weights_test(struct wri_weights *weights, wring_comm *comm, bool wait)
{
    if (weights->known)
        return WRING_OK;
    if (!wait && wri_request_test(weights->request) == WRING_AGAIN)
        return WRING_AGAIN;
    wring_request *request = weights->request;
    weights->request = NULL;
    WRI_TRY(wri_request_wait(request, NULL));
    if (weights->there)
        WRI_TRY(wri_lane_move(comm, &weights->total, weights->there, sizeof(double)));
    weights->known = true;
    return WRING_OK;
}

void wri_weights_next_micro(struct wri_weights *weights)
{
    weights->fixed = false;
}

void wri_weights_next_step(struct wri_weights *weights)
{
    *weights = (struct wri_weights){.there = weights->there};
}
