/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When does which gradient leave? A bucket starts once all its parameters are ready and the bucket
 * before it has started, so every rank issues the same collectives in the same order, whatever
 * order its gradients come in. Everything is sized at the first `ready`; after it nothing is
 * allocated here.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/comm.h"
#include "collective/request.h"
#include "collective/tensor.h"
#include "planner/planner.h"
#include "scheduler/accumulate.h"
#include "scheduler/bucket.h"
#include "scheduler/scheduler.h"
#include "simd/array.h"

struct wring_scheduler {
    wring_comm *comm;
    wring_scheduler_options options;

    struct wri_parameter *params;
    size_t nparams, capacity;

    struct wri_arena arena; /* buckets, segments, accumulators; open: parameters are sealed */
    struct wri_arena there; /* accumulators on a device */
    struct wri_bucket *buckets;
    size_t nbuckets;

    int micro;       /* current micro-step, 0..accumulate-1 */
    size_t nready;   /* parameters ready in it */
    size_t nstarted; /* buckets started in this step */

    wring_status failure; /* of the first failed collective */
    char message[512];
};

wring_status wri_scheduler_create(wring_comm *comm, const wring_scheduler_options *options,
                                  wring_scheduler **scheduler_out)
{
    void *block;
    WRI_TRY(wri_alloc(1, sizeof(wring_scheduler), &block));
    wring_scheduler *scheduler = block;
    scheduler->comm = comm;
    scheduler->options = *options;
    *scheduler_out = scheduler;
    return WRING_OK;
}

/* ---- registration ---------------------------------------------------------------------------- */

static wring_status make_room(wring_scheduler *scheduler)
{
    if (scheduler->nparams < scheduler->capacity)
        return WRING_OK;
    size_t capacity = scheduler->capacity ? 2 * scheduler->capacity : 64;
    void *params;
    WRI_TRY(wri_alloc(capacity, sizeof(struct wri_parameter), &params));
    if (scheduler->nparams)
        memcpy(params, scheduler->params, scheduler->nparams * sizeof(struct wri_parameter));
    wri_free(scheduler->params);
    scheduler->params = params;
    scheduler->capacity = capacity;
    return WRING_OK;
}

static wring_status check_name(const wring_scheduler *scheduler, const char *name)
{
    for (size_t i = 0; i < scheduler->nparams; i++)
        if (strcmp(scheduler->params[i].name, name) == 0)
            WRI_FAIL(WRING_E_ARGUMENT, "parameter '%s' is registered already", name);
    return WRING_OK;
}

static void param_fini(struct wri_parameter *param)
{
    wri_tensor_destroy(param->tensor);
    wri_free(param->name);
}

static wring_status param_init(const wring_scheduler *scheduler, const char *name,
                               wring_dtype dtype, int ndim, const size_t *shape, void *grad,
                               struct wri_parameter *param)
{
    *param = (struct wri_parameter){.dtype = dtype, .grad = grad};
    wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
    options.codec = scheduler->options.codec;
    options.device = scheduler->options.stream != NULL;
    WRI_TRY(wri_tensor_create(scheduler->comm, name, dtype, ndim, shape, &options, &param->tensor));
    param->count = wri_tensor_count(param->tensor);
    param->codec = wri_tensor_codec(param->tensor);
    wring_status status = wri_codec_accepts(param->codec, dtype, scheduler->options.op);
    if (status != WRING_OK)
        status = wri_fail_context(status, "parameter '%s'", name);
    else
        status = wri_strdup(name, &param->name);
    if (status != WRING_OK)
        param_fini(param);
    return status;
}

wring_status wri_scheduler_add(wring_scheduler *scheduler, const char *name, wring_dtype dtype,
                               int ndim, const size_t *shape, void *grad, int *param_out)
{
    if (scheduler->arena.base)
        WRI_FAIL(WRING_E_STATE, "parameter '%s' comes after the first gradient was ready", name);
    WRI_TRY(check_name(scheduler, name));
    WRI_TRY(make_room(scheduler));
    struct wri_parameter *param = &scheduler->params[scheduler->nparams];
    WRI_TRY(param_init(scheduler, name, dtype, ndim, shape, grad, param));
    *param_out = (int)scheduler->nparams++;
    return WRING_OK;
}

/* ---- sealing --------------------------------------------------------------------------------- */

/* Run twice: to size the arena, and to hand it out. */
static wring_segment *carve(wring_scheduler *scheduler)
{
    struct wri_arena *arena = &scheduler->arena;
    struct wri_arena *sums = scheduler->options.stream ? &scheduler->there : arena;
    scheduler->buckets = wri_arena_take(arena, scheduler->nbuckets, sizeof(struct wri_bucket));
    wring_segment *segments = wri_arena_take(arena, scheduler->nparams, sizeof(wring_segment));
    for (size_t i = 0; i < scheduler->nparams && scheduler->options.accumulate > 1; i++) {
        struct wri_parameter *param = &scheduler->params[i];
        size_t element_nbytes = wring_dtype_size(wri_dtype_accumulator(param->dtype));
        param->accumulator = wri_arena_take(sums, param->count, element_nbytes);
    }
    return segments;
}

static wring_status seal(wring_scheduler *scheduler)
{
    const wring_scheduler_options *options = &scheduler->options;
    scheduler->arena = (struct wri_arena){0};
    scheduler->nbuckets = wri_bucket_assign(scheduler->params, scheduler->nparams,
                                            options->bucket_nbytes, options->first_bucket_nbytes);
    carve(scheduler);
    if (options->stream)
        WRI_TRY(wri_lane_buffers(scheduler->comm, &scheduler->there));
    WRI_TRY(wri_arena_open(&scheduler->arena));
    wring_segment *segments = carve(scheduler);
    wri_bucket_fill(scheduler->params, scheduler->nparams, segments, scheduler->buckets);
    wri_log(WRING_LOG_DEBUG, "scheduler: %zu parameters in %zu buckets, %zu bytes",
            scheduler->nparams, scheduler->nbuckets, scheduler->arena.capacity);
    return WRING_OK;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Keep the first failure with its message, which later calls on this thread would overwrite. */
static void remember(wring_scheduler *scheduler, wring_status status)
{
    if (status == WRING_OK || scheduler->failure != WRING_OK)
        return;
    scheduler->failure = status;
    snprintf(scheduler->message, sizeof scheduler->message, "%s", wring_error_message());
}

static wring_status failure(const wring_scheduler *scheduler)
{
    if (scheduler->failure != WRING_OK)
        WRI_FAIL(scheduler->failure, "%s", scheduler->message);
    return WRING_OK;
}

static bool last_micro(const wring_scheduler *scheduler)
{
    return scheduler->micro + 1 == scheduler->options.accumulate;
}

static wring_status start_bucket(wring_scheduler *scheduler, struct wri_bucket *bucket)
{
    wring_call call = WRING_CALL_INIT;
    call.kind = WRING_ALLREDUCE;
    call.op = scheduler->options.op;
    call.dtype = bucket->dtype;
    call.segments = bucket->segments;
    call.nsegments = bucket->nsegments;
    call.stream = scheduler->options.stream;
    call.overlap = true; /* with the rest of backward; `finish` waits */
    return wri_planner_start(scheduler->comm, &call, &bucket->request);
}

static void start_ready_buckets(wring_scheduler *scheduler)
{
    while (scheduler->failure == WRING_OK && scheduler->nstarted < scheduler->nbuckets) {
        struct wri_bucket *bucket = &scheduler->buckets[scheduler->nstarted];
        if (bucket->nready < bucket->nsegments)
            return;
        remember(scheduler, start_bucket(scheduler, bucket));
        scheduler->nstarted++;
    }
}

/* Add the gradient to the others of this step; the last micro-step puts the result in its place. */
static wring_status accumulate(wring_scheduler *scheduler, struct wri_parameter *param)
{
    const wring_scheduler_options *options = &scheduler->options;
    if (param->accumulator == NULL || param->count == 0)
        return WRING_OK;
    if (options->stream)
        return wri_accumulate_device(scheduler->comm->lane.device, options->stream, options->op,
                                     param->dtype, param->accumulator, param->grad, param->count,
                                     scheduler->micro, options->accumulate);
    wri_accumulate(options->op, param->dtype, param->accumulator, param->grad, param->count,
                   scheduler->micro, options->accumulate);
    return WRING_OK;
}

static wring_status check_ready(const wring_scheduler *scheduler, int param)
{
    if (param < 0 || (size_t)param >= scheduler->nparams)
        WRI_FAIL(WRING_E_ARGUMENT, "parameter %d is not among the %zu registered", param,
                 scheduler->nparams);
    if (scheduler->params[param].ready)
        WRI_FAIL(WRING_E_STATE, "parameter '%s' is ready already in micro-step %d",
                 scheduler->params[param].name, scheduler->micro);
    return WRING_OK;
}

wring_status wri_scheduler_ready(wring_scheduler *scheduler, int param_index)
{
    WRI_TRY(failure(scheduler));
    WRI_TRY(check_ready(scheduler, param_index));
    if (!scheduler->arena.base)
        WRI_TRY(seal(scheduler));
    struct wri_parameter *param = &scheduler->params[param_index];
    param->ready = true;
    scheduler->nready++;
    WRI_TRY(accumulate(scheduler, param));
    if (!last_micro(scheduler))
        return WRING_OK;
    scheduler->buckets[param->bucket].nready++;
    start_ready_buckets(scheduler);
    return failure(scheduler);
}

/* ---- end of a micro-step --------------------------------------------------------------------- */

static wring_status check_all_ready(const wring_scheduler *scheduler)
{
    if (scheduler->nready == scheduler->nparams)
        return WRING_OK;
    char names[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < scheduler->nparams && length < sizeof names; i++)
        if (!scheduler->params[i].ready)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s'%s'",
                                       length ? ", " : "", scheduler->params[i].name);
    WRI_FAIL(WRING_E_STATE, "%zu of %zu parameters are not ready in micro-step %d: %s%s",
             scheduler->nparams - scheduler->nready, scheduler->nparams, scheduler->micro, names,
             length < sizeof names ? "" : " ...");
}

/* Every started bucket is waited for, also after a failure: their buffers are the caller's. */
static wring_result wait_buckets(wring_scheduler *scheduler)
{
    wring_result total = {0};
    for (size_t i = 0; i < scheduler->nstarted; i++) {
        struct wri_bucket *bucket = &scheduler->buckets[i];
        wring_result result = {0};
        if (bucket->request)
            remember(scheduler, wri_request_wait(bucket->request, &result));
        bucket->request = NULL;
        bucket->nready = 0;
        total.wire_nbytes += result.wire_nbytes;
        total.dense_nbytes += result.dense_nbytes;
        total.nonfinite |= result.nonfinite;
    }
    scheduler->nstarted = 0;
    return total;
}

static void next_micro(wring_scheduler *scheduler)
{
    for (size_t i = 0; i < scheduler->nparams; i++)
        scheduler->params[i].ready = false;
    scheduler->nready = 0;
    scheduler->micro = last_micro(scheduler) ? 0 : scheduler->micro + 1;
}

wring_status wri_scheduler_finish(wring_scheduler *scheduler, wring_result *result_out)
{
    if (scheduler->failure == WRING_OK)
        WRI_TRY(check_all_ready(scheduler));
    wring_result result = wait_buckets(scheduler);
    WRI_TRY(failure(scheduler));
    next_micro(scheduler);
    if (result_out)
        *result_out = result;
    return WRING_OK;
}

void wri_scheduler_destroy(wring_scheduler *scheduler)
{
    if (!scheduler)
        return;
    wait_buckets(scheduler);
    if (scheduler->there.base) /* before the tensors, which keep the communicator */
        wri_lane_buffers_close(scheduler->comm, &scheduler->there, scheduler->options.stream);
    for (size_t i = 0; i < scheduler->nparams; i++)
        param_fini(&scheduler->params[i]);
    wri_free(scheduler->params);
    wri_arena_close(&scheduler->arena);
    wri_free(scheduler);
}
