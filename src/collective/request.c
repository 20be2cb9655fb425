/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a request: everything it needs is sized and taken when it starts, nothing is allocated
 * while it runs; what it changed in its tensors becomes visible when it ends well. */
#include "collective/exec.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "collective/collective.h"
#include "collective/state.h"
#include "simd/array.h"

#include <stdio.h>
#include <string.h>

static bool by_rank(wring_kind kind)
{
    return kind == WRING_REDUCE_SCATTER || kind == WRING_ALLGATHER;
}

/* The call's segments; for by-rank kinds one per rank, each a part of the one buffer. A barrier has
 * a single empty one. */
static void fill_segments(wring_request *request, const wring_call *call)
{
    if (!by_rank(call->kind)) {
        if (call->nsegments > 0)
            memcpy(request->segment, call->segments, call->nsegments * sizeof(wring_segment));
        return;
    }
    const wring_segment *whole = call->segments;
    size_t nbytes = whole->count * wring_dtype_size(call->dtype);
    for (int q = 0; q < request->comm->nranks; q++) {
        bool own = q == request->comm->rank, scatter = call->kind == WRING_REDUCE_SCATTER;
        const char *send = whole->send;
        char *recv = whole->recv;
        request->segment[q] = (wring_segment){
            .send = scatter ? send + (size_t)q * nbytes
                    : own   ? send
                            : NULL,
            .recv = !scatter ? recv + (size_t)q * nbytes
                    : own    ? recv
                             : NULL,
            .count = whole->count,
        };
    }
}

static wring_status emit_steps(wring_request *request, const wring_call *call)
{
    struct wring_emit emit = {.size = sizeof(emit),
                              .kind = call->kind,
                              .rank = request->comm->rank,
                              .nranks = request->comm->nranks,
                              .root = call->root,
                              .exact = request->plan.codec->exact,
                              .steps = request->step,
                              .max_steps = request->nsteps};
    wring_status status = request->plan.algorithm->emit(&emit);
    if (status != WRING_OK)
        WRI_FAIL(status, "algorithm %s has no %s", request->plan.algorithm->name,
                 wri_kind_name(call->kind));
    request->nsteps = emit.nsteps;
    request->nslots = emit.nslots;
    request->nshards = emit.nshards;
    return WRING_OK;
}

/* First arena: segments, step list, cut. */
static wring_status plan_request(wring_request *request, const wring_call *call)
{
    request->nsegments = by_rank(call->kind) ? (size_t)request->comm->nranks : call->nsegments;
    WRI_TRY(emit_steps(request, call)); /* counts */
    for (int pass = 0; pass < 2; pass++) {
        struct wri_arena *arena = &request->plan_arena;
        request->step = wri_arena_take(arena, request->nsteps, sizeof(struct wring_step));
        request->segment = wri_arena_take(arena, request->nsegments, sizeof(wring_segment));
        request->change = wri_arena_take(arena, request->nsegments, sizeof(struct wri_change));
        if (pass == 1)
            fill_segments(request, call);
        request->layout = (struct wri_layout){.codec = request->plan.codec,
                                              .dtype = call->dtype,
                                              .segment = request->segment,
                                              .nsegments = request->nsegments};
        wri_layout_init(&request->layout, arena, request->nshards, by_rank(call->kind),
                        request->plan.piece_count);
        if (pass == 0)
            WRI_TRY(wri_arena_open(arena));
    }
    WRI_TRY(emit_steps(request, call));
    for (size_t i = 0; i < request->nsteps; i++) {
        const struct wring_step *step = &request->step[i];
        bool transfer = step->kind == WRING_STEP_SEND || step->kind == WRING_STEP_RECV;
        request->ntransfers_max += transfer;
        if (transfer && step->tag >= request->ntags)
            request->ntags = step->tag + 1u;
    }
    return WRING_OK;
}

/* The type in which the slot of STEP travels. */
wring_dtype wri_step_dtype(const wring_request *request, const struct wring_step *step)
{
    return step->flags & WRING_STEP_PARTIAL ? request->acc_dtype : request->dtype;
}

size_t wri_step_nbytes(const wring_request *request, const struct wring_step *step, size_t piece)
{
    return wri_layout_nbytes(&request->layout, wri_step_dtype(request, step), (size_t)step->shard,
                             piece);
}

static uint32_t tensor_digest(const wring_request *request)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < request->nsegments; i++) {
        const wring_segment *segment = &request->segment[i];
        if (segment->tensor != NULL) {
            uint64_t part[3] = {segment->tensor->id, segment->offset, segment->count};
            digest = wri_hash(part, sizeof(part), digest);
        }
    }
    return (uint32_t)digest;
}

/* Between hosts, TCP's 16-bit sum lets one damaged packet in some millions pass. */
static bool must_hash(const wring_comm *comm)
{
    bool guarded = !(comm->context->transport->caps & WRING_TRANSPORT_CHECKSUM);
    int setting = comm->context->config.checksum;
    return setting == 2 ? !guarded && comm->local_nranks < comm->nranks : setting == 1;
}

/* What all frames of the call say alike. */
static void fill_frame(wring_request *request, const wring_call *call)
{
    wring_comm *comm = request->comm;
    const wring_codec *codec = request->plan.codec;
    uint64_t plan[4] = {request->layout.piece_units, request->layout.npieces, request->nshards,
                        (uint64_t)call->root};
    bool hash = must_hash(comm);
    struct wri_frame *frame = &request->frame;
    *frame = (struct wri_frame){
        .magic = WRI_FRAME_MAGIC,
        .version = WRI_FRAME_VERSION,
        .header_nbytes = WRI_FRAME_NBYTES,
        .flags = hash ? WRI_FRAME_HASHED : 0,
        .kind = (uint8_t)call->kind,
        .op = (uint8_t)call->op,
        .dtype = (uint8_t)call->dtype,
        .nstages = (uint8_t)codec->nstages,
        .spec_digest = codec->digest,
        .nonce = comm->nonce,
        .epoch = comm->epoch,
        .source = (uint32_t)comm->rank,
        .operation = comm->operation,
        .step = comm->operation,
        /* Of calls in the order of a stream the host does not know yet which went well. */
        .last_good_step = request->ordered ? 0 : comm->last_good,
        .tensor_digest = tensor_digest(request),
        .plan_digest = (uint32_t)wri_hash(
            plan, sizeof(plan),
            wri_hash(request->plan.algorithm->name, strlen(request->plan.algorithm->name), 0))};
    for (size_t i = 0; i < codec->nstages; i++)
        frame->stage[i] = codec->stage[i].ops->wire_id;
    for (size_t i = 0; i < request->nsegments; i++)
        frame->count += request->segment[i].count;
}

static bool has_owner_residual(const wring_request *request)
{
    for (size_t i = 0; i < request->nsteps; i++)
        if (request->step[i].flags & WRING_STEP_OWNER_RESIDUAL)
            return true;
    return false;
}

/* What the call changes, and for tensors with feedback which range of it this rank owns. */
static wring_status list_changes(wring_request *request)
{
    bool owns = request->plan.codec->feedback && has_owner_residual(request);
    float weight = request->op == WRING_AVG ? (float)request->comm->nranks : 1.0f;
    for (size_t i = 0; i < request->nsegments; i++) {
        const wring_segment *segment = &request->segment[i];
        struct wri_change *change = &request->change[i];
        size_t begin, end;
        *change = (struct wri_change){segment->tensor, segment->offset, segment->count, NULL};
        if (segment->tensor == NULL)
            continue;
        segment->tensor->mean = request->op == WRING_AVG;
        if (!owns)
            continue;
        wri_layout_owned(&request->layout, (size_t)request->comm->rank, i, &begin, &end);
        WRI_TRY(wri_residual_own(segment->tensor, segment->offset + begin, segment->offset + end,
                                 weight, &change->owned));
    }
    return WRING_OK;
}

/* Tensors, and what they keep as owners, know how many calls they are in. */
static void count_calls(wring_request *request, int more)
{
    for (size_t i = 0; i < request->nsegments; i++) {
        const struct wri_change *change = &request->change[i];
        if (change->tensor != NULL)
            change->tensor->calls += more;
        if (change->owned != NULL)
            change->owned->calls += more;
    }
}

/* A single rank keeps what it has, unless told to run the codec. */
static void identity(wring_request *request)
{
    for (size_t i = 0; i < request->nsegments; i++) {
        const wring_segment *segment = &request->segment[i];
        if (segment->count > 0)
            request->nonfinite |= wri_array_convert(request->dtype, segment->recv, request->dtype,
                                                    segment->send, segment->count);
    }
}

/* Before anything is counted by pieces. */
static wring_status check_pieces(const wring_request *request)
{
    size_t npieces = request->layout.npieces;
    if (request->ntags > 0 && npieces > WRI_MESSAGES_MAX / request->ntags)
        WRI_FAIL(WRING_E_UNSUPPORTED, "%zu pieces are too many for one call; raise WRING_PIECE",
                 npieces);
    return WRING_OK;
}

static wring_status request_open(wring_comm *comm, const wring_call *call,
                                 const struct wri_plan *plan, wring_request **request_out)
{
    wring_request *request;
    WRI_TRY(wri_alloc(1, sizeof(*request), (void **)&request));
    request->context = comm->context;
    request->comm = comm;
    request->kind = call->kind;
    request->op = call->op;
    request->dtype = call->dtype;
    request->acc_dtype = wri_dtype_accumulator(call->dtype);
    request->plan = *plan;
    request->stream = call->stream;
    request->overlap = call->overlap;
    request->alone = comm->nranks == 1 && !comm->context->config.force;
    wring_status status = plan_request(request, call);
    if (status == WRING_OK)
        status = check_pieces(request);
    if (status != WRING_OK) {
        wri_request_free(request);
        return status;
    }
    *request_out = request;
    return WRING_OK;
}

wring_status wri_request_wire_nbytes(wring_comm *comm, const wring_call *call,
                                     const struct wri_plan *plan, uint64_t *nbytes_out)
{
    wring_request *request;
    WRI_TRY(request_open(comm, call, plan, &request));
    uint64_t nbytes = 0;
    for (size_t i = 0; i < request->nsteps; i++)
        for (size_t p = 0; request->step[i].kind == WRING_STEP_SEND && p < request->layout.npieces;
             p++)
            nbytes += WRI_FRAME_NBYTES + wri_step_nbytes(request, &request->step[i], p);
    wri_request_free(request);
    *nbytes_out = nbytes;
    return WRING_OK;
}

static void enlist(wring_request *request)
{
    wring_request **link = &request->context->active;
    while (*link != NULL)
        link = &(*link)->next;
    *link = request;
    wri_context_notify(request->context);
}

/* Where the call's data are, and so who drives it. */
static wring_status place_request(wring_request *request)
{
    wring_comm *comm = request->comm;
    bool ordered = wri_context_ordered(comm->context);
    request->window = wri_min((size_t)comm->context->config.window, request->layout.npieces);
    if (request->stream == NULL && !ordered)
        return WRING_OK;
    WRI_TRY(wri_lane_open(comm));
    request->device = comm->lane.device;
    request->ordered = ordered || request->alone;
    if (request->ordered)
        request->window = 1;
    return WRING_OK;
}

static wring_status prepare(wring_request *request)
{
    WRI_TRY(place_request(request));
    if (!request->alone || request->device != NULL)
        WRI_TRY(wri_window_open(request));
    if (request->alone)
        return WRING_OK;
    WRI_TRY(wri_witness_open(request));
    return list_changes(request);
}

static wring_status enter_transaction(wring_request *request, struct wri_step *transaction)
{
    request->transaction = transaction;
    if (transaction != NULL)
        return wri_step_enter(transaction, request->segment, request->nsegments);
    for (size_t i = 0; i < request->nsegments; i++)
        if (request->segment[i].tensor != NULL)
            WRI_TRY(wri_step_pass(request->segment[i].tensor));
    return WRING_OK;
}

/* Who receives nothing, like the root of a broadcast, sees no frame of the others'. */
static bool receives(const wring_request *request)
{
    for (size_t i = 0; i < request->nsteps; i++)
        if (request->step[i].kind == WRING_STEP_RECV)
            return true;
    return false;
}

/* Begin, now that nothing can be refused any more: a failure from here on is the communicator's. */
static void begin(wring_request *request)
{
    wring_status status = WRING_OK;
    count_calls(request, 1);
    enlist(request);
    if (request->alone && request->device == NULL) {
        identity(request);
        wri_request_finish(request, WRING_OK);
        return;
    }
    int was = wri_context_enter(request->context);
    request->starting = request->ordered;
    if (request->ordered)
        status = wri_stream_start(request);
    else if (request->device != NULL)
        status = wri_device_begin(request);
    request->starting = false;
    wri_context_leave(request->context, was);
    if (status != WRING_OK)
        wri_exec_abort(request, status);
}

wring_status wri_request_start(wring_comm *comm, const wring_call *call,
                               const struct wri_plan *plan, struct wri_step *transaction,
                               wring_request **request_out)
{
    wring_request *request;
    WRI_TRY(request_open(comm, call, plan, &request));
    int was = wri_context_enter(comm->context);
    wring_status status = enter_transaction(request, transaction);
    if (status == WRING_OK) {
        status = prepare(request);
        if (status != WRING_OK && transaction != NULL)
            wri_step_leave(transaction, NULL, 0, WRING_OK, false);
    }
    wri_context_leave(comm->context, was);
    if (status != WRING_OK) {
        wri_request_free(request);
        return status;
    }
    comm->refs++;
    fill_frame(request, call);
    if (comm->control != NULL)
        wri_control_note(comm->control, &request->frame, request->ordered || !receives(request));
    comm->operation++;
    request->moved_ns = wri_clock_ns();
    begin(request);
    *request_out = request;
    return WRING_OK;
}

/* State of the tensors of a call that ended well. */
static wring_status commit(wring_request *request)
{
    for (size_t i = 0; i < request->nsegments; i++) {
        const wring_segment *segment = &request->segment[i];
        if (segment->tensor == NULL)
            continue;
        segment->tensor->algorithm = request->plan.algorithm->name;
        segment->tensor->reason = request->plan.reason;
        segment->tensor->wire_nbytes = request->wire_nbytes;
    }
    if (request->nonfinite || request->transaction != NULL)
        return WRING_OK;
    if (request->device == NULL)
        WRI_TRY(wri_state_commit(request->comm, request->change, request->nsegments, NULL));
    else if (!request->ordered)
        WRI_TRY(wri_device_commit(request));
    wri_state_sweep(request->change, request->nsegments);
    return WRING_OK;
}

void wri_request_fail(wring_request *request, wring_status status)
{
    if (request->status != WRING_OK)
        return;
    request->status = status;
    snprintf(request->message, sizeof(request->message), "%s", wring_error_message());
    wri_comm_poison(request->comm, status);
}

void wri_request_finish(wring_request *request, wring_status status)
{
    wring_request **link = &request->context->active;
    while (*link != NULL && *link != request)
        link = &(*link)->next;
    bool ran = *link == request;
    if (ran)
        count_calls(request, -1);
    if (status == WRING_OK && ran)
        status = commit(request);
    if (ran && (status != WRING_OK || request->nonfinite))
        wri_state_abandon(request->change, request->nsegments);
    if (request->transaction != NULL && ran)
        wri_step_leave(request->transaction, request->change, request->nsegments, status,
                       request->nonfinite);
    if (status != WRING_OK)
        wri_request_fail(request, status);
    else
        request->comm->last_good++;
    if (ran)
        *link = request->next;
    request->next = NULL;
    request->done = true;
    wri_context_notify(request->context);
}

wring_request *wri_request_next(const wring_request *request)
{
    return request->next;
}

void wri_request_free(wring_request *request)
{
    wri_window_close(request);
    wri_arena_close(&request->plan_arena);
    wri_free(request->witness);
    wri_free(request);
}

/* The user is done with the request. What the transport may still look at stays, and with it the
 * communicator, until the context ends. Locked. */
static void release(wring_request *request)
{
    wring_context *context = request->context;
    wring_comm *comm = request->comm;
    if (request->cancelled) {
        request->next = context->buried;
        context->buried = request;
    } else {
        wri_window_give_back(request);
        wri_request_free(request);
        wri_comm_release(comm);
    }
}

static wring_status outcome(const wring_request *request)
{
    if (!request->done)
        return WRING_AGAIN;
    return request->status == WRING_OK ? WRING_OK
                                       : wri_fail(request->status, "%s", request->message);
}

wring_status wri_request_test(wring_request *request)
{
    wring_context *context = request->context;
    pthread_mutex_lock(&context->lock);
    if (!request->done && !context->threaded)
        wri_context_poll(context);
    wring_status status = outcome(request);
    pthread_mutex_unlock(&context->lock);
    return status;
}

wring_status wri_request_wait(wring_request *request, wring_result *result_out)
{
    wring_context *context = request->context;
    int idle = 0;
    pthread_mutex_lock(&context->lock);
    context->waiters++;
    while (!request->done)
        wri_context_drive(context, &idle);
    context->waiters--;
    wri_context_notify(context);
    wring_status status = outcome(request);
    if (status == WRING_OK && result_out != NULL)
        *result_out =
            (wring_result){request->wire_nbytes, request->dense_nbytes, request->nonfinite};
    release(request);
    pthread_mutex_unlock(&context->lock);
    return status;
}
