/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm, codec, piece size? Today a rule over the algorithms' own cost functions; it
 * depends on nothing but what all ranks know alike, so they decide alike. */
#include "planner/planner.h"

#include <stdio.h>

#include "base/status.h"
#include "collective/collective.h"
#include "collective/exec.h"
#include "collective/request.h"
#include "collective/state.h"
#include "planner/cost.h"

/* The call as a whole against the communicator. */
static wring_status check_call(const wring_comm *comm, const wring_call *call)
{
    bool by_rank = call->kind == WRING_REDUCE_SCATTER || call->kind == WRING_ALLGATHER;
    if (call->root < 0 || call->root >= comm->nranks)
        WRI_FAIL(WRING_E_ARGUMENT, "root %d of %d ranks", call->root, comm->nranks);
    if (call->nsegments == 0 && call->kind != WRING_BARRIER)
        WRI_FAIL(WRING_E_ARGUMENT, "%s without a segment", wri_kind_name(call->kind));
    if (by_rank && (call->nsegments != 1 || call->segments[0].tensor != NULL))
        WRI_FAIL(WRING_E_ARGUMENT, "%s takes one plain buffer", wri_kind_name(call->kind));
    return WRING_OK;
}

/* Where the buffers are, and whether codec and transport can work there. */
static wring_status check_place(const wring_comm *comm, const wring_call *call,
                                const wring_codec *codec)
{
    wring_context *context = comm->context;
    if (call->kind == WRING_BARRIER)
        return WRING_OK;
    if (call->stream == NULL && wri_context_ordered(context))
        WRI_FAIL(
            WRING_E_ARGUMENT,
            "transport %s moves device memory, and the call has no stream: give it one, or use "
            "a context with transport ucx for host memory",
            context->transport->name);
    if (call->stream == NULL)
        return WRING_OK;
    WRI_TRY(wri_context_check_stream(context, call->stream));
    return wri_codec_on_device(codec, context->device);
}

/* Memory of this rank's, all of the right kind; SEND is NULL if nothing is read. */
static wring_status check_buffers(const wring_comm *comm, const wring_call *call, const void *send,
                                  const void *recv, size_t count)
{
    size_t nbytes = count * wring_dtype_size(call->dtype);
    uintptr_t from = (uintptr_t)send, to = (uintptr_t)recv;
    if (count == 0)
        return WRING_OK;
    if (send != NULL && from != to && from < to + nbytes && to < from + nbytes)
        WRI_FAIL(WRING_E_ARGUMENT,
                 "send %p and recv %p overlap in part: %zu bytes each, the same or apart", send,
                 recv, nbytes);
    bool device = call->stream != NULL;
    if (send != NULL)
        WRI_TRY(wri_context_check_buffer(comm->context, send, count, call->dtype, device));
    if (recv == NULL || recv == send)
        return WRING_OK;
    return wri_context_check_buffer(comm->context, recv, count, call->dtype, device);
}

static wring_status check_tensor(const wring_comm *comm, const wring_call *call,
                                 const wring_segment *segment, const wring_codec *codec)
{
    wring_tensor *tensor = segment->tensor;
    if (tensor->comm != comm)
        WRI_FAIL(WRING_E_ARGUMENT, "tensor '%s' belongs to another communicator", tensor->name);
    if (call->kind != WRING_ALLREDUCE) /* its residual is what sums of it lack */
        WRI_FAIL(WRING_E_ARGUMENT, "tensor '%s' in a %s, which takes plain buffers", tensor->name,
                 wri_kind_name(call->kind));
    if (tensor->dtype != call->dtype)
        WRI_FAIL(WRING_E_ARGUMENT, "tensor '%s' is %s, the call %s", tensor->name,
                 wring_dtype_name(tensor->dtype), wring_dtype_name(call->dtype));
    if (segment->offset > tensor->count || segment->count > tensor->count - segment->offset)
        WRI_FAIL(WRING_E_ARGUMENT, "elements %zu..%zu of tensor '%s', which has %zu",
                 segment->offset, segment->offset + segment->count, tensor->name, tensor->count);
    if (codec->digest != tensor->codec->digest)
        WRI_FAIL(WRING_E_ARGUMENT, "tensor '%s' has codec %s, the call %s", tensor->name,
                 tensor->codec->spec, codec->spec);
    size_t unit = wri_codec_unit(codec, tensor->count);
    if (tensor->marked == comm->checked)
        WRI_FAIL(WRING_E_ARGUMENT, "tensor '%s' is twice in the call", tensor->name);
    tensor->marked = comm->checked;
    bool to_end = segment->offset + segment->count == tensor->count;
    if (segment->offset % unit != 0 || (segment->count % unit != 0 && !to_end))
        WRI_FAIL(WRING_E_ARGUMENT, "a part of tensor '%s' must begin and end at multiples of %zu",
                 tensor->name, unit);
    if ((tensor->step_on_device != NULL) != (call->stream != NULL))
        WRI_FAIL(WRING_E_ARGUMENT, "tensor '%s' is in %s memory, the call's stream is %s",
                 tensor->name, tensor->step_on_device ? "device" : "host",
                 call->stream ? "not NULL" : "NULL");
    /* A stream-ordered call finds the state that the one before it left, without the host. */
    if (tensor->calls > 0 && !wri_context_ordered(comm->context))
        WRI_FAIL(WRING_E_STATE, "tensor '%s' is in a call that is not finished", tensor->name);
    return WRING_OK;
}

static wring_status check_segments(const wring_comm *comm, const wring_call *call,
                                   const wring_codec *codec)
{
    for (size_t i = 0; i < call->nsegments; i++) {
        const wring_segment *segment = &call->segments[i];
        bool reads = call->kind != WRING_BROADCAST || comm->rank == call->root;
        if (segment->count > 0 && ((segment->send == NULL && reads) || segment->recv == NULL))
            WRI_FAIL(WRING_E_ARGUMENT, "segment %zu has %zu elements but a NULL buffer", i,
                     segment->count);
        if (segment->count > SIZE_MAX / 16 / (size_t)comm->nranks)
            WRI_FAIL(WRING_E_ARGUMENT, "segment %zu has too many elements: %zu", i, segment->count);
        if (segment->tensor != NULL)
            WRI_TRY(check_tensor(comm, call, segment, codec));
        WRI_TRY(
            check_buffers(comm, call, reads ? segment->send : NULL, segment->recv, segment->count));
    }
    return WRING_OK;
}

static const wring_codec *codec_of(const wring_comm *comm, const wring_call *call)
{
    if (call->codec != NULL)
        return call->codec;
    if (call->nsegments > 0 && call->segments[0].tensor != NULL)
        return call->segments[0].tensor->codec;
    return comm->codec;
}

static bool can_carry(const struct wring_collective_ops *ops, const wring_call *call,
                      const wring_codec *codec)
{
    return ops->kinds & 1u << call->kind && (ops->whole_units || !wri_codec_whole_unit(codec));
}

/* A lossy codec is rounded once per hop of a ring: that is for the user to choose. */
static bool may_choose(const struct wring_collective_ops *ops, const wring_codec *codec)
{
    return codec->exact || !ops->rounds_per_hop;
}

static wring_status named_algorithm(const wring_comm *comm, const wring_call *call,
                                    const wring_codec *codec, struct wri_plan *plan)
{
    plan->algorithm = call->algorithm ? wri_collective_find(call->algorithm) : comm->algorithm;
    plan->reason = "named by the caller";
    if (plan->algorithm == NULL)
        WRI_FAIL(WRING_E_ARGUMENT, "unknown algorithm '%s'; wring-info lists them",
                 call->algorithm);
    if (can_carry(plan->algorithm, call, codec))
        return WRING_OK;
    if (call->algorithm == NULL && !(plan->algorithm->kinds & 1u << call->kind))
        return WRING_AGAIN; /* a default for allreduce says nothing about the other kinds */
    WRI_FAIL(WRING_E_UNSUPPORTED, "algorithm %s cannot carry %s with codec %s",
             plan->algorithm->name, wri_kind_name(call->kind), codec->spec);
}

static wring_status cheapest(const wring_comm *comm, const wring_call *call,
                             const wring_codec *codec, size_t count, struct wri_plan *plan)
{
    struct wring_cost cost = wri_cost_of(comm, call, codec, count);
    double least = 0;
    plan->algorithm = NULL;
    plan->reason = "cheapest by the cost model";
    const struct wring_collective_ops *ops;
    for (size_t i = 0; (ops = wri_collective_at(i)) != NULL; i++) {
        if (!can_carry(ops, call, codec) || !may_choose(ops, codec))
            continue;
        double cost_s = ops->cost_s(&cost);
        if (plan->algorithm == NULL || cost_s < least) {
            plan->algorithm = ops;
            least = cost_s;
        }
    }
    if (plan->algorithm == NULL)
        WRI_FAIL(WRING_E_UNSUPPORTED, "no algorithm carries %s with codec %s",
                 wri_kind_name(call->kind), codec->spec);
    return WRING_OK;
}

static wring_status choose(const wring_comm *comm, const wring_call *call, const wring_codec *codec,
                           struct wri_plan *plan_out)
{
    size_t count = 0;
    for (size_t i = 0; i < call->nsegments; i++)
        count += call->segments[i].count;
    struct wri_plan plan = {.codec = codec,
                            .piece_count = wri_cost_piece_count(comm, call->dtype, codec)};
    wring_status status = WRING_AGAIN;
    if (call->algorithm != NULL || comm->algorithm != NULL)
        status = named_algorithm(comm, call, codec, &plan);
    if (status == WRING_AGAIN)
        status = cheapest(comm, call, codec, count, &plan);
    *plan_out = plan;
    return status;
}

/* What the same call would hand over with codec none. */
static wring_status dense_nbytes(wring_comm *comm, const wring_call *call,
                                 const struct wri_plan *plan, uint64_t *nbytes_out)
{
    struct wri_plan dense = *plan;
    if (!plan->codec->exact) {
        WRI_TRY(choose(comm, call, comm->context->exact, &dense));
        dense.codec = comm->context->exact;
    }
    return wri_request_wire_nbytes(comm, call, &dense, nbytes_out);
}

struct planned {
    struct wri_plan plan;
    uint64_t dense_nbytes;
    wring_request *request; /* of a group's call */
};

/* All that can be said against CALL before it starts. */
static wring_status plan_call(wring_comm *comm, const wring_call *call, struct planned *planned)
{
    const wring_codec *codec = codec_of(comm, call);
    WRI_TRY(check_call(comm, call));
    WRI_TRY(wri_codec_accepts(codec, call->dtype, call->op));
    WRI_TRY(check_place(comm, call, codec));
    WRI_TRY(check_segments(comm, call, codec));
    WRI_TRY(choose(comm, call, codec, &planned->plan));
    return dense_nbytes(comm, call, &planned->plan, &planned->dense_nbytes);
}

static wring_status start_planned(wring_comm *comm, const wring_call *call, struct wri_step *step,
                                  const struct planned *planned, wring_request **request_out)
{
    struct wri_step *open = comm->context->step->open ? comm->context->step : step;
    wring_request *request;
    WRI_TRY(wri_request_start(comm, call, &planned->plan, open, &request));
    request->dense_nbytes = comm->nranks > 1 ? planned->dense_nbytes : 0;
    *request_out = request;
    return WRING_OK;
}

wring_status wri_planner_start(wring_comm *comm, const wring_call *call, struct wri_step *step,
                               wring_request **request_out)
{
    struct planned planned;
    pthread_mutex_lock(&comm->context->lock);
    comm->checked++;
    wring_status status = wri_comm_check(comm);
    if (status == WRING_OK)
        status = plan_call(comm, call, &planned);
    if (status == WRING_OK)
        status = start_planned(comm, call, step, &planned, request_out);
    pthread_mutex_unlock(&comm->context->lock);
    return status;
}

/* Locked. Nothing is started before everything is planned; *NSTARTED_OUT says how far it came. */
static wring_status start_group(wring_comm *comm, const wring_call *calls, size_t ncalls,
                                struct planned *planned, size_t *nstarted_out)
{
    *nstarted_out = 0;
    comm->checked++;
    WRI_TRY(wri_comm_check(comm));
    for (size_t i = 0; i < ncalls; i++) {
        wring_status status = plan_call(comm, &calls[i], &planned[i]);
        if (status != WRING_OK)
            return wri_fail_context(status, "call %zu of a group of %zu", i, ncalls);
    }
    for (size_t i = 0; i < ncalls; i++) {
        WRI_TRY(start_planned(comm, &calls[i], NULL, &planned[i], &planned[i].request));
        *nstarted_out = i + 1;
    }
    return WRING_OK;
}

/* A group broke off, for want of memory: the other ranks count on all its calls and must hear. */
static wring_status give_up_group(wring_comm *comm, const struct planned *planned, size_t nstarted,
                                  size_t ncalls, wring_status status)
{
    char message[WRI_MESSAGE_MAX];
    snprintf(message, sizeof message, "%s", wring_error_message());
    wri_comm_abort(comm);
    for (size_t i = 0; i < nstarted; i++)
        wri_request_wait(planned[i].request, NULL);
    WRI_FAIL(status, "%s; the communicator was aborted, with %zu of %zu calls started", message,
             nstarted, ncalls);
}

wring_status wri_planner_start_group(wring_comm *comm, const wring_call *calls, size_t ncalls,
                                     wring_request **requests_out)
{
    void *block;
    size_t nstarted;
    WRI_TRY(wri_alloc(ncalls, sizeof(struct planned), &block));
    struct planned *planned = block;
    pthread_mutex_lock(&comm->context->lock);
    wring_status status = start_group(comm, calls, ncalls, planned, &nstarted);
    pthread_mutex_unlock(&comm->context->lock);
    if (status != WRING_OK && nstarted > 0)
        status = give_up_group(comm, planned, nstarted, ncalls, status);
    for (size_t i = 0; status == WRING_OK && i < ncalls; i++)
        requests_out[i] = planned[i].request;
    wri_free(block);
    return status;
}
