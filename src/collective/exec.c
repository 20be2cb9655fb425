/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The polled executor: the one place where steps meet codec and transport.
 *
 * A request keeps a window of pieces in flight. Each piece walks the same step list at its own
 * pace: it runs steps until one must wait for a slot, so encoding one piece overlaps the wire of
 * another. Sends and receives are started and reaped here; a frame is checked before its payload is
 * looked at.
 */
#include "collective/exec.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/collective.h"
#include "collective/state.h"
#include "simd/array.h"

#include <string.h>

#define PATIENCE_MS 2 /* before asking whether a peer is still there */
#define WARN_MS 30000 /* before saying for whom this rank waits */

/* ---- messages -------------------------------------------------------------------------------- */

/* comm 16 | source 14 | operation 10 | message 24 bits. Tags are unique while in flight; the frame
 * tells whether a match was the right one. */
static uint64_t message_tag(const wring_request *request, const struct wri_piece *piece,
                            const struct wring_step *step, int source, bool payload)
{
    uint64_t message = ((uint64_t)piece->index * request->ntags + step->tag) * 2 + payload;
    return (uint64_t)(request->frame.epoch & 0xffff) << 48 | (uint64_t)(source & 0x3fff) << 34 |
           (request->frame.operation & 0x3ff) << 24 | message;
}

static unsigned char *payload_of(const struct wri_slot *slot)
{
    return slot->frame + WRI_FRAME_NBYTES;
}

/* The frame that STEP's message must have, sent by SOURCE. */
static struct wri_frame frame_of(const wring_request *request, const struct wri_piece *piece,
                                 const struct wring_step *step, int source)
{
    struct wri_frame frame = request->frame;
    frame.source = (uint32_t)source;
    frame.piece = piece->index;
    frame.tag = step->tag;
    frame.payload_count = wri_layout_count(&request->layout, (size_t)step->shard, piece->index);
    frame.payload_nbytes = wri_layout_nbytes(&request->layout, wri_step_dtype(request, step),
                                             (size_t)step->shard, piece->index);
    return frame;
}

/* Write the slot's frame. One frame serves all ranks that the slot is sent to. */
static void seal(wring_request *request, struct wri_piece *piece, const struct wring_step *step)
{
    struct wri_slot *slot = &piece->slot[step->slot];
    struct wri_frame frame = frame_of(request, piece, step, request->comm->rank);
    frame.flags |= request->nonfinite ? WRI_FRAME_NONFINITE : 0;
    wri_frame_seal(&frame, payload_of(slot));
    memcpy(slot->frame, &frame, sizeof(frame));
    slot->sealed = true;
}

static wring_status start_send(wring_request *request, struct wri_piece *piece,
                               const struct wring_step *step)
{
    const struct wring_transport_ops *transport = request->context->transport;
    wring_comm *comm = request->comm;
    struct wri_slot *slot = &piece->slot[step->slot];
    struct wri_transfer *transfer = &piece->transfer[piece->ntransfers];
    if (!slot->sealed)
        seal(request, piece, step);
    *transfer = (struct wri_transfer){.step = step};
    size_t nbytes = wri_layout_nbytes(&request->layout, wri_step_dtype(request, step),
                                      (size_t)step->shard, piece->index);
    size_t first = WRI_FRAME_NBYTES + (nbytes <= WRI_EAGER ? nbytes : 0);
    WRI_TRY(transport->send(comm->peer[step->peer],
                            message_tag(request, piece, step, comm->rank, false), slot->frame,
                            first, &transfer->request[0]));
    slot->sends++;
    piece->ntransfers++;
    request->wire_nbytes += WRI_FRAME_NBYTES + nbytes;
    if (nbytes > WRI_EAGER)
        WRI_TRY(transport->send(comm->peer[step->peer],
                                message_tag(request, piece, step, comm->rank, true),
                                payload_of(slot), nbytes, &transfer->request[1]));
    return WRING_OK;
}

static wring_status start_recv(wring_request *request, struct wri_piece *piece,
                               const struct wring_step *step)
{
    const struct wring_transport_ops *transport = request->context->transport;
    wring_comm *comm = request->comm;
    struct wri_slot *slot = &piece->slot[step->slot];
    struct wri_transfer *transfer = &piece->transfer[piece->ntransfers];
    *transfer = (struct wri_transfer){.step = step};
    slot->full = false;
    size_t nbytes = wri_layout_nbytes(&request->layout, wri_step_dtype(request, step),
                                      (size_t)step->shard, piece->index);
    WRI_TRY(transport->recv(comm->endpoint, comm->peer[step->peer],
                            message_tag(request, piece, step, step->peer, false), slot->frame,
                            WRI_FRAME_NBYTES + WRI_EAGER, &transfer->request[0]));
    slot->receiving = true;
    piece->ntransfers++;
    if (nbytes > WRI_EAGER)
        WRI_TRY(transport->recv(comm->endpoint, comm->peer[step->peer],
                                message_tag(request, piece, step, step->peer, true),
                                payload_of(slot), nbytes, &transfer->request[1]));
    return WRING_OK;
}

/* ---- data steps ------------------------------------------------------------------------------ */

static void *accumulator_at(const wring_request *request, const struct wri_piece *piece,
                            const struct wri_run *run)
{
    return (char *)piece->accumulator + run->done * wring_dtype_size(request->acc_dtype);
}

static const void *input_at(const wring_request *request, const struct wri_run *run)
{
    return (const char *)request->segment[run->segment].send +
           run->begin * wring_dtype_size(request->dtype);
}

static void *output_at(const wring_request *request, const struct wri_run *run)
{
    return (char *)request->segment[run->segment].recv +
           run->begin * wring_dtype_size(request->dtype);
}

/* Which residual and which random numbers the run is encoded with. */
static void set_state(const wring_request *request, const struct wring_step *step,
                      const struct wri_run *run, struct wri_encode_run *encode)
{
    const wring_segment *segment = &request->segment[run->segment];
    const wring_tensor *tensor = segment->tensor;
    bool owner = step->buffer == WRING_BUFFER_ACCUMULATOR;
    encode->first = segment->offset + run->begin;
    encode->random = (struct wring_random_key){
        .seed = (uint64_t)request->context->config.seed,
        .tensor = tensor ? tensor->id : run->segment,
        .step = tensor ? tensor->step : request->frame.operation,
        .rank = (uint32_t)request->comm->rank | (owner ? 0x80000000u : 0)};
    if (tensor == NULL || !encode->codec->feedback)
        return;
    if (step->flags & WRING_STEP_LOCAL_RESIDUAL)
        wri_residual_at(&tensor->local, encode->first, &encode->residual_in, &encode->residual_out);
    else if (step->flags & WRING_STEP_OWNER_RESIDUAL)
        wri_residual_at(&tensor->owner, encode->first, &encode->residual_in, &encode->residual_out);
}

static bool must_scale(const wring_request *request, const struct wring_step *step)
{
    return step->flags & WRING_STEP_SCALE && request->op == WRING_AVG;
}

static wring_status encode(wring_request *request, struct wri_piece *piece,
                           const struct wring_step *step)
{
    struct wri_slot *slot = &piece->slot[step->slot];
    bool input = step->buffer == WRING_BUFFER_INPUT;
    unsigned char *dst = payload_of(slot);
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        void *accumulator = accumulator_at(request, piece, &run);
        if (must_scale(request, step))
            wri_array_divide(request->acc_dtype, accumulator, request->comm->nranks, run.count);
        struct wri_encode_run call = {.codec = request->plan.codec,
                                      .dtype = wri_step_dtype(request, step),
                                      .src_dtype = input ? request->dtype : request->acc_dtype,
                                      .src = input ? input_at(request, &run) : accumulator,
                                      .count = run.count,
                                      .dst = dst,
                                      .scratch = request->scratch};
        set_state(request, step, &run, &call);
        WRI_TRY(wri_codec_encode_run(&call));
        request->nonfinite |= call.nonfinite;
        dst += wri_codec_nbytes(call.codec, call.dtype, run.count);
    }
    slot->full = true;
    slot->sealed = false;
    return WRING_OK;
}

static wring_status decode(wring_request *request, struct wri_piece *piece,
                           const struct wring_step *step)
{
    const unsigned char *src = payload_of(&piece->slot[step->slot]);
    bool output = step->buffer == WRING_BUFFER_OUTPUT;
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        struct wri_decode_run call = {.codec = request->plan.codec,
                                      .dtype = wri_step_dtype(request, step),
                                      .dst_dtype = output ? request->dtype : request->acc_dtype,
                                      .src = src,
                                      .dst = output ? output_at(request, &run)
                                                    : accumulator_at(request, piece, &run),
                                      .count = run.count,
                                      .add = step->kind == WRING_STEP_DECODE_ADD,
                                      .op = request->op,
                                      .scratch = request->scratch};
        call.nbytes = wri_codec_nbytes(call.codec, call.dtype, run.count);
        WRI_TRY(wri_codec_decode_run(&call));
        src += call.nbytes;
    }
    return WRING_OK;
}

static void load(wring_request *request, struct wri_piece *piece, const struct wring_step *step)
{
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        void *accumulator = accumulator_at(request, piece, &run);
        if (step->flags & WRING_STEP_REDUCE)
            wri_array_reduce(request->op, request->acc_dtype, accumulator, request->dtype,
                             input_at(request, &run), run.count);
        else
            wri_array_convert(request->acc_dtype, accumulator, request->dtype,
                              input_at(request, &run), run.count);
    }
}

static void store(wring_request *request, struct wri_piece *piece, const struct wring_step *step)
{
    struct wri_run run = {0};
    while (wri_layout_next(&request->layout, (size_t)step->shard, piece->index, &run)) {
        void *accumulator = accumulator_at(request, piece, &run);
        if (must_scale(request, step))
            wri_array_divide(request->acc_dtype, accumulator, request->comm->nranks, run.count);
        request->nonfinite |= wri_array_convert(request->dtype, output_at(request, &run),
                                                request->acc_dtype, accumulator, run.count);
    }
}

/* ---- the walk -------------------------------------------------------------------------------- */

static bool runnable(const struct wri_piece *piece, const struct wring_step *step)
{
    const struct wri_slot *slot = &piece->slot[step->slot];
    switch (step->kind) {
    case WRING_STEP_ENCODE:
    case WRING_STEP_RECV:
        return slot->sends == 0 && !slot->receiving;
    case WRING_STEP_DECODE_SET:
    case WRING_STEP_DECODE_ADD:
    case WRING_STEP_SEND:
        return slot->full;
    default:
        return true;
    }
}

static wring_status run_step(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step)
{
    switch (step->kind) {
    case WRING_STEP_ENCODE:
        return encode(request, piece, step);
    case WRING_STEP_DECODE_SET:
    case WRING_STEP_DECODE_ADD:
        return decode(request, piece, step);
    case WRING_STEP_SEND:
        return start_send(request, piece, step);
    case WRING_STEP_RECV:
        return start_recv(request, piece, step);
    case WRING_STEP_LOAD:
        load(request, piece, step);
        return WRING_OK;
    case WRING_STEP_STORE:
        store(request, piece, step);
        return WRING_OK;
    default:
        WRI_FAIL(WRING_E_UNSUPPORTED,
                 "algorithm %s asks for step %d, which no built-in codec needs",
                 request->plan.algorithm->name, step->kind);
    }
}

/* A message that came: is it what was expected? */
static wring_status accept_frame(wring_request *request, struct wri_piece *piece,
                                 const struct wring_step *step, size_t nbytes)
{
    struct wri_frame frame;
    const struct wri_slot *slot = &piece->slot[step->slot];
    struct wri_frame expected = frame_of(request, piece, step, step->peer);
    memcpy(&frame, slot->frame, sizeof(frame));
    WRI_TRY(wri_frame_check(&frame, nbytes, &expected));
    size_t first = WRI_FRAME_NBYTES;
    first += expected.payload_nbytes <= WRI_EAGER ? expected.payload_nbytes : 0;
    if (nbytes != first)
        WRI_FAIL(WRING_E_CORRUPT, "%zu bytes instead of %zu", nbytes, first);
    request->nonfinite |= (frame.flags & WRI_FRAME_NONFINITE) != 0;
    return WRING_OK;
}

static wring_status accept_payload(const struct wri_slot *slot)
{
    struct wri_frame frame;
    memcpy(&frame, slot->frame, sizeof(frame));
    return wri_frame_check_payload(&frame, payload_of(slot));
}

/* Ask after one transfer: WRING_AGAIN while it is in flight. */
static wring_status reap(wring_request *request, struct wri_piece *piece,
                         struct wri_transfer *transfer)
{
    const struct wring_transport_ops *transport = request->context->transport;
    bool receives = transfer->step->kind == WRING_STEP_RECV;
    for (int part = 0; part < 2; part++) {
        size_t nbytes = 0;
        if (transfer->request[part] == NULL)
            continue;
        wring_status status =
            transport->test(request->context->link, transfer->request[part], &nbytes);
        if (status == WRING_AGAIN)
            return WRING_AGAIN;
        transfer->request[part] = NULL;
        WRI_TRY(status);
        if (receives && part == 0)
            WRI_TRY(accept_frame(request, piece, transfer->step, nbytes));
    }
    struct wri_slot *slot = &piece->slot[transfer->step->slot];
    if (!receives) {
        slot->sends--;
        return WRING_OK;
    }
    slot->receiving = false;
    slot->full = true;
    slot->sealed = false;
    return accept_payload(slot);
}

static wring_status blame(wring_request *request, const struct wri_piece *piece,
                          const struct wring_step *step, wring_status status)
{
    const char *doing = step->kind == WRING_STEP_RECV   ? "receiving from"
                        : step->kind == WRING_STEP_SEND ? "sending to"
                                                        : NULL;
    if (doing == NULL)
        return wri_fail_context(status, "%s %llu", wri_kind_name(request->kind),
                                (unsigned long long)request->frame.operation);
    return wri_fail_context(status, "%s %llu, %s rank %d, piece %u", wri_kind_name(request->kind),
                            (unsigned long long)request->frame.operation, doing, step->peer,
                            piece->index);
}

/* Advance one piece; *moved_out is set if anything moved. */
static wring_status advance_piece(wring_request *request, struct wri_piece *piece, bool *moved_out)
{
    size_t kept = 0, n = piece->ntransfers;
    wring_status failed = WRING_OK;
    for (size_t i = 0; i < n; i++) {
        struct wri_transfer transfer = piece->transfer[i];
        wring_status status = failed == WRING_OK ? reap(request, piece, &transfer) : WRING_AGAIN;
        if (status == WRING_AGAIN) {
            piece->transfer[kept++] = transfer;
            continue;
        }
        *moved_out = true;
        if (status != WRING_OK) {
            failed = blame(request, piece, transfer.step, status);
            piece->transfer[kept++] = transfer;
        }
    }
    piece->ntransfers = kept;
    while (failed == WRING_OK && piece->position < request->nsteps &&
           runnable(piece, &request->step[piece->position])) {
        const struct wring_step *step = &request->step[piece->position++];
        wring_status status = run_step(request, piece, step);
        *moved_out = true;
        if (status != WRING_OK)
            failed = blame(request, piece, step, status);
    }
    return failed;
}

/* Give a free place of the window to the next piece. */
static void start_piece(wring_request *request, struct wri_piece *piece)
{
    for (size_t i = 0; i < request->nslots; i++)
        piece->slot[i].full = false;
    piece->busy = true;
    piece->index = (uint32_t)request->started++;
    piece->position = 0;
    piece->ntransfers = 0;
}

static wring_status advance_all(wring_request *request, bool *moved_out)
{
    for (size_t i = 0; i < request->window; i++) {
        struct wri_piece *piece = &request->piece[i];
        if (!piece->busy && request->started < request->layout.npieces)
            start_piece(request, piece);
        if (!piece->busy)
            continue;
        WRI_TRY(advance_piece(request, piece, moved_out));
        if (piece->position == request->nsteps && piece->ntransfers == 0) {
            piece->busy = false;
            request->finished++;
        }
    }
    return WRING_OK;
}

/* Nothing moved for IDLE_MS: what is known about the peer of a transfer? */
static wring_status check_peer(wring_request *request, const struct wri_piece *piece,
                               const struct wring_step *step, int64_t idle_ms)
{
    wring_context *context = request->context;
    wring_status status = context->transport->peer_status(request->comm->peer[step->peer]);
    if (status == WRING_OK && idle_ms >= context->config.timeout_ms)
        status = wri_fail(WRING_E_TIMEOUT, "nothing moved for %lld ms", (long long)idle_ms);
    if (status != WRING_OK)
        return blame(request, piece, step, status);
    if (idle_ms >= WARN_MS && !request->warned) {
        request->warned = true;
        wri_log(WRING_LOG_WARN, "%s %llu: rank %d waits for rank %d since %lld s",
                wri_kind_name(request->kind), (unsigned long long)request->frame.operation,
                request->comm->rank, step->peer, (long long)(idle_ms / 1000));
    }
    return WRING_OK;
}

/* Nothing moved: has a peer gone, or has it been too long? */
static wring_status check_peers(wring_request *request)
{
    int64_t idle_ms = (wri_clock_ns() - request->moved_ns) / 1000000;
    for (size_t i = 0; idle_ms >= PATIENCE_MS && i < request->window; i++) {
        const struct wri_piece *piece = &request->piece[i];
        for (size_t j = 0; piece->busy && j < piece->ntransfers; j++)
            WRI_TRY(check_peer(request, piece, piece->transfer[j].step, idle_ms));
    }
    return WRING_OK;
}

static void cancel_all(wring_request *request)
{
    const struct wring_transport_ops *transport = request->context->transport;
    for (size_t i = 0; i < request->window; i++) {
        struct wri_piece *piece = &request->piece[i];
        for (size_t j = 0; piece->busy && j < piece->ntransfers; j++)
            for (int part = 0; part < 2; part++)
                if (piece->transfer[j].request[part] != NULL)
                    transport->cancel(request->context->link, piece->transfer[j].request[part]);
        piece->ntransfers = 0;
        piece->busy = false;
    }
    request->cancelled = true;
}

void wri_exec_abort(wring_request *request, wring_status status)
{
    cancel_all(request);
    wri_request_finish(request, status);
}

bool wri_exec_advance(wring_request *request)
{
    bool moved = false;
    wring_status status = wri_comm_check(request->comm);
    if (status == WRING_OK) {
        unsigned saved = wri_float_mode_enter();
        status = advance_all(request, &moved);
        wri_float_mode_leave(saved);
    }
    if (status == WRING_OK && request->finished == request->layout.npieces) {
        wri_request_finish(request, WRING_OK);
        return true;
    }
    if (moved)
        request->moved_ns = wri_clock_ns();
    else if (status == WRING_OK)
        status = check_peers(request);
    if (status != WRING_OK)
        wri_exec_abort(request, status);
    return moved || status != WRING_OK;
}
