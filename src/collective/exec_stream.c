/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream-ordered driver: the whole call is enqueued when it starts, on the communicator's
 * stream, joined to the caller's by events on both sides. Every rank emits pieces and rounds in the
 * same order, a round as one group of the transport:
 *
 *     local steps of the round | frames of what it sends | exchange | frames of what came, compared
 *
 * One stream keeps order, so slots need no bookkeeping. Nothing comes back to the host before the
 * end: non-finite values and frames that are not the expected ones are noted on the device, poison
 * what is decoded after them, and hold back the commit.
 *
 * What a frame cannot catch is a message of another size, which the transport would wait for or
 * mangle. Ranks note their calls on the control path, where a difference is found; so when the
 * transport reports an error, that path has a moment to say what was really wrong.
 */
#include "base/clock.h"
#include "base/status.h"
#include "collective/collective.h"
#include "collective/exec.h"

#include <stdio.h>
#include <string.h>

#define BATCH 64             /* ranks that are gathered from in one group */
#define HEARSAY_NS 200000000 /* for the control path to say why the transport failed */

/* ---- waiting ------------------------------------------------------------------------------- */

/* Leave the lock to others for a moment, until END_NS at most: what this rank waits for may need
 * what they do on another communicator. */
static wring_status give_way(wring_comm *comm, int64_t end_ns)
{
    if (wri_clock_ns() > end_ns)
        WRI_FAIL(WRING_E_TIMEOUT, "some rank did not come within %lld ms",
                 (long long)comm->context->config.timeout_ms);
    wri_context_yield(comm->context);
    return wri_comm_check(comm);
}

static int64_t patience_end_ns(const wring_comm *comm)
{
    return wri_clock_ns() + comm->context->config.timeout_ms * NS_PER_MS;
}

/* The transport may take a while to enqueue a group, when nothing else may go on the stream. */
static wring_status exchange(wring_comm *comm, const struct wring_exchange *list, size_t n)
{
    const struct wring_transport_ops *transport = comm->context->transport;
    int64_t end_ns = patience_end_ns(comm);
    wring_status status = transport->exchange(comm->endpoint, list, n, comm->lane.stream);
    while (status == WRING_AGAIN) {
        WRI_TRY(give_way(comm, end_ns));
        status = transport->group_status(comm->endpoint);
    }
    return status;
}

/* Wait until EVENT has passed, the transport reports an error, or time is up. */
static wring_status wait_event(wring_comm *comm, void *event)
{
    const struct wri_device *device = comm->lane.device;
    int64_t end_ns = patience_end_ns(comm);
    wring_status status;
    while ((status = device->event_test(device, event)) == WRING_AGAIN) {
        status = comm->context->transport->group_status(comm->endpoint);
        if (status != WRING_OK && status != WRING_AGAIN)
            break;
        WRI_TRY(give_way(comm, end_ns));
    }
    return status;
}

static wring_status exchange_all(wring_comm *comm, unsigned char *device, size_t nbytes)
{
    struct wring_exchange list[2 * BATCH];
    int n = comm->nranks, sent = 0;
    while (sent < n) { /* rank + i in group i / BATCH, on every rank */
        size_t used = 0;
        for (int i = 0; i < BATCH && sent < n; i++, sent++) {
            int to = wri_rank_add(comm->rank, sent, n), from = wri_rank_add(comm->rank, -sent, n);
            if (sent == 0)
                continue;
            list[used++] =
                (struct wring_exchange){to, true, device + (size_t)comm->rank * nbytes, nbytes};
            list[used++] =
                (struct wring_exchange){from, false, device + (size_t)from * nbytes, nbytes};
        }
        if (used > 0)
            WRI_TRY(exchange(comm, list, used));
    }
    return WRING_OK;
}

static wring_status gather(wring_comm *comm, const void *send, unsigned char *device, void *recv,
                           size_t nbytes)
{
    const struct wri_device *d = comm->lane.device;
    void *stream = comm->lane.stream;
    WRI_TRY(d->copy(d, stream, device + (size_t)comm->rank * nbytes, send, nbytes));
    WRI_TRY(exchange_all(comm, device, nbytes));
    WRI_TRY(d->copy(d, stream, recv, device, nbytes * (size_t)comm->nranks));
    void *event;
    WRI_TRY(d->event_open(d, &event));
    wring_status status = d->event_record(d, event, stream);
    if (status == WRING_OK)
        status = wait_event(comm, event);
    d->event_close(d, event);
    return status;
}

wring_status wri_stream_gather(wring_comm *comm, const void *send, void *recv, size_t nbytes)
{
    struct wri_arena device = {0}, pinned = {0};
    size_t total = nbytes * (size_t)comm->nranks;
    wri_arena_take(&device, total, 1);
    wri_arena_take(&pinned, total + nbytes, 1);
    wring_status status = wri_buffers_open(comm, WRI_MEMORY_DEVICE, &device);
    if (status == WRING_OK)
        status = wri_buffers_open(comm, WRI_MEMORY_PINNED, &pinned);
    if (status == WRING_OK) {
        memcpy(pinned.base + total, send, nbytes);
        status = gather(comm, pinned.base + total, device.base, pinned.base, nbytes);
    }
    if (status == WRING_OK) {
        memcpy(recv, pinned.base, total);
    } else {
        comm->context->transport->group_abort(comm->endpoint);
        wri_lane_is_quiet(comm);
    }
    wri_buffers_close(comm, WRI_MEMORY_DEVICE, &device);
    wri_buffers_close(comm, WRI_MEMORY_PINNED, &pinned);
    return status;
}

/* ---- enqueuing ------------------------------------------------------------------------------- */

/* Messages of one round, with the frames that they carry or must carry. Never cut into several
 * groups: each would wait for what is in the other's second one. */
struct round {
    struct wring_exchange *message;
    struct wri_device_frame *sealed, *expected;
    size_t nmessages, nsealed, nexpected;
};

static void add_message(wring_request *request, const struct wri_piece *piece,
                        const struct wring_step *step, struct round *round)
{
    bool sends = step->kind == WRING_STEP_SEND;
    const struct wri_slot *slot = &piece->slot[step->slot];
    struct wri_frame frame =
        wri_exec_frame(request, piece, step, sends ? request->comm->rank : step->peer);
    struct wri_device_frame *entry =
        sends ? &round->sealed[round->nsealed++] : &round->expected[round->nexpected++];
    entry->at = slot->device;
    entry->error = (uint32_t)(step - request->step) + 1;
    memcpy(entry->frame, &frame, sizeof(frame));
    size_t nbytes = WRI_FRAME_NBYTES + frame.payload_nbytes;
    round->message[round->nmessages++] =
        (struct wring_exchange){step->peer, sends, slot->device, nbytes};
    request->wire_nbytes += sends ? nbytes : 0;
}

static wring_status close_round(wring_request *request, struct round *round)
{
    wring_comm *comm = request->comm;
    void *stream = comm->lane.stream;
    const struct wri_device *device = request->device;
    if (round->nmessages == 0)
        return WRING_OK;
    if (round->nsealed > 0)
        WRI_TRY(device->seal(round->sealed, round->nsealed, request->verdict, stream));
    WRI_TRY(exchange(comm, round->message, round->nmessages));
    if (round->nexpected > 0)
        WRI_TRY(device->verify(round->expected, round->nexpected, request->verdict, stream));
    round->nmessages = round->nsealed = round->nexpected = 0;
    return WRING_OK;
}

static bool is_transfer(const struct wring_step *step)
{
    return step->kind == WRING_STEP_SEND || step->kind == WRING_STEP_RECV;
}

/* Steps [first, end), which are one round. */
static wring_status enqueue_round(wring_request *request, struct wri_piece *piece, size_t first,
                                  size_t end, struct round *round)
{
    for (size_t i = first; i < end; i++)
        if (!is_transfer(&request->step[i]))
            WRI_TRY(wri_exec_local(request, piece, &request->step[i]));
    for (size_t i = first; i < end; i++)
        if (is_transfer(&request->step[i]))
            add_message(request, piece, &request->step[i], round);
    return close_round(request, round);
}

static wring_status enqueue_piece(wring_request *request, struct wri_piece *piece,
                                  struct round *round)
{
    for (size_t first = 0, end; first < request->nsteps; first = end) {
        uint8_t number = request->step[first].round;
        for (end = first; end < request->nsteps && request->step[end].round == number; end++)
            ;
        WRI_TRY(enqueue_round(request, piece, first, end, round));
    }
    return WRING_OK;
}

/* A single rank keeps what it has. */
static wring_status enqueue_identity(wring_request *request)
{
    for (size_t i = 0; i < request->nsegments; i++) {
        const wring_segment *segment = &request->segment[i];
        struct wri_device_convert copy = {.dst_dtype = request->dtype,
                                          .src_dtype = request->dtype,
                                          .dst = segment->recv,
                                          .src = segment->send,
                                          .count = segment->count,
                                          .verdict = request->verdict,
                                          .stream = request->comm->lane.stream};
        if (segment->count > 0)
            WRI_TRY(request->device->convert(&copy));
    }
    return WRING_OK;
}

static wring_status enqueue_pieces(wring_request *request)
{
    struct wri_piece *piece = &request->piece[0];
    struct wri_arena arena = {0};
    struct round round;
    if (request->alone)
        return enqueue_identity(request);
    for (int pass = 0; pass < 2; pass++) {
        size_t n = request->ntransfers_max;
        round = (struct round){wri_arena_take(&arena, n, sizeof(*round.message)),
                               wri_arena_take(&arena, n, sizeof(*round.sealed)),
                               wri_arena_take(&arena, n, sizeof(*round.expected)),
                               0,
                               0,
                               0};
        if (pass == 0)
            WRI_TRY(wri_arena_open(&arena));
    }
    wring_status status = WRING_OK;
    for (size_t p = 0; status == WRING_OK && p < request->layout.npieces; p++) {
        piece->index = (uint32_t)p;
        status = enqueue_piece(request, piece, &round);
    }
    wri_arena_close(&arena);
    return status;
}

/* State is committed and the verdict comes down; the caller's stream goes on after that, unless it
 * goes on anyway and the host waits. */
static wring_status enqueue_end(wring_request *request)
{
    const struct wri_device *device = request->device;
    struct wri_piece *piece = &request->piece[0];
    void *stream = request->comm->lane.stream;
    if (!request->alone && request->transaction == NULL)
        WRI_TRY(wri_device_commit(request));
    WRI_TRY(device->copy(device, stream, piece->found, request->verdict, sizeof(*piece->found)));
    WRI_TRY(device->event_record(device, piece->drained, stream));
    if (request->stream != NULL && !request->overlap)
        WRI_TRY(device->event_wait(device, piece->drained, request->stream));
    return wri_context_wake_after(request->context, stream);
}

static wring_status enqueue(wring_request *request)
{
    WRI_TRY(wri_device_begin(request));
    WRI_TRY(enqueue_pieces(request));
    return enqueue_end(request);
}

/* What the control path says within HEARSAY_NS, else STATUS with its message. */
static wring_status hear(wring_comm *comm, wring_status status)
{
    char message[WRI_MESSAGE_MAX];
    int64_t end_ns = wri_clock_ns() + HEARSAY_NS;
    snprintf(message, sizeof(message), "%s", wring_error_message());
    while (comm->control != NULL && wri_clock_ns() < end_ns)
        WRI_TRY(give_way(comm, INT64_MAX));
    return wri_fail(status, "%s", message);
}

wring_status wri_stream_start(wring_request *request)
{
    wring_status status = enqueue(request);
    return status == WRING_OK ? WRING_OK : hear(request->comm, status);
}

/* ---- until it is through --------------------------------------------------------------------- */

/* Not through yet: does the transport know of a failure, or has it been too long? */
static wring_status check_waiting(wring_request *request)
{
    wring_context *context = request->context;
    int64_t now_ns = wri_clock_ns(), idle_ms = (now_ns - request->moved_ns) / 1000000;
    wring_status status = WRING_OK;
    if (context->transport->group_status != NULL)
        status = context->transport->group_status(request->comm->endpoint);
    if (status == WRING_AGAIN)
        status = WRING_OK;
    if (status != WRING_OK && request->comm->control != NULL) {
        request->blamed_ns = request->blamed_ns ? request->blamed_ns : now_ns;
        status = now_ns - request->blamed_ns < HEARSAY_NS ? WRING_OK : status;
    }
    if (status == WRING_OK)
        status = wri_exec_patience(request, idle_ms, NULL);
    return status == WRING_OK ? WRING_OK : wri_exec_blame(request, status);
}

bool wri_stream_advance(wring_request *request)
{
    wring_status status = wri_comm_check(request->comm);
    if (status == WRING_OK)
        status = request->device->event_test(request->device, request->piece[0].drained);
    if (status == WRING_AGAIN) {
        status = check_waiting(request);
        if (status == WRING_OK)
            return false;
    } else if (status == WRING_OK) {
        status = wri_device_verdict(request, request->piece[0].found);
    }
    if (status == WRING_OK)
        wri_request_finish(request, WRING_OK);
    else
        wri_exec_abort(request, status);
    return true;
}
