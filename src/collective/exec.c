/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The polled executor: how far can each piece of a request go?
 *
 * A request keeps a window of pieces in flight. Each walks the same step list at its own pace: it
 * runs steps until one must wait for a slot, so encoding one piece overlaps the wire of another.
 * What steps do stands in exec_data.c (codec) and exec_message.c (transport).
 */
#include "collective/exec.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/collective.h"

#include <stdio.h>

#define PATIENCE_MS 2 /* before asking whether a peer is still there */
#define NOTE_MS 20    /* before asking whether all ranks are in the same call */
#define LEFT_MS 2000  /* before asking whether a rank has left the communicator */
#define WARN_MS 30000 /* before saying for whom this rank waits */

static bool runnable(const struct wri_piece *piece, const struct wring_step *step)
{
    const struct wri_slot *slot = &piece->slot[step->slot];
    switch (step->kind) {
    case WRING_STEP_ENCODE:
        return slot->sends == 0 && !slot->receiving;
    case WRING_STEP_RECV:
        return slot->sends == 0 && !slot->receiving && !slot->copying;
    case WRING_STEP_DECODE_SET:
    case WRING_STEP_DECODE_ADD:
        return slot->full;
    case WRING_STEP_SEND:
        return slot->full && !slot->copying;
    default:
        return true;
    }
}

static wring_status run_step(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step)
{
    if (step->kind == WRING_STEP_SEND)
        return wri_exec_send(request, piece, step);
    if (step->kind == WRING_STEP_RECV)
        return wri_exec_recv(request, piece, step);
    return wri_exec_local(request, piece, step);
}

wring_status wri_exec_blame(const wring_request *request, wring_status status)
{
    return wri_fail_context(status, "%s %llu", wri_kind_name(request->kind),
                            (unsigned long long)request->frame.operation);
}

static wring_status blame(wring_request *request, const struct wri_piece *piece,
                          const struct wring_step *step, wring_status status)
{
    const char *doing = step->kind == WRING_STEP_RECV   ? "receiving from"
                        : step->kind == WRING_STEP_SEND ? "sending to"
                                                        : NULL;
    if (doing == NULL)
        return wri_exec_blame(request, status);
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
        wring_status status =
            failed == WRING_OK ? wri_exec_reap(request, piece, &transfer) : WRING_AGAIN;
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
    if (failed == WRING_OK && request->device != NULL)
        failed = wri_device_poll(request, piece, moved_out);
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
        piece->slot[i].full = piece->slot[i].on_device = false;
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
        if (piece->position < request->nsteps || piece->ntransfers > 0)
            continue;
        if (request->device != NULL) {
            wring_status status = wri_device_drain(request, piece);
            if (status == WRING_AGAIN)
                continue;
            WRI_TRY(status);
            *moved_out = true;
        }
        piece->busy = false;
        request->finished++;
    }
    return WRING_OK;
}

wring_status wri_exec_patience(wring_request *request, int64_t idle_ms,
                               const struct wring_step *step)
{
    char whom[32] = "";
    struct wri_control *control = request->comm->control;
    if (control != NULL && idle_ms >= NOTE_MS && !request->noted) {
        request->noted = true;
        wri_control_note(control, &request->frame, true);
    }
    int left = control != NULL && idle_ms >= LEFT_MS ? wri_control_left(control) : -1;
    if (left >= 0)
        WRI_FAIL(WRING_E_PEER_LOST, "rank %d has left the communicator", left);
    if (idle_ms >= request->context->config.timeout_ms)
        WRI_FAIL(WRING_E_TIMEOUT, "nothing moved for %lld ms", (long long)idle_ms);
    if (idle_ms < WARN_MS || request->warned)
        return WRING_OK;
    request->warned = true;
    if (step != NULL)
        snprintf(whom, sizeof(whom), " for rank %d", step->peer);
    wri_log(WRING_LOG_WARN, "%s %llu: rank %d waits%s since %lld s", wri_kind_name(request->kind),
            (unsigned long long)request->frame.operation, request->comm->rank, whom,
            (long long)(idle_ms / 1000));
    return WRING_OK;
}

/* Nothing moved for IDLE_MS: what is known about the peer of a transfer? */
static wring_status check_peer(wring_request *request, const struct wri_piece *piece,
                               const struct wring_step *step, int64_t idle_ms)
{
    wring_status status = request->context->transport->peer_status(request->comm->peer[step->peer]);
    if (status == WRING_OK)
        status = wri_exec_patience(request, idle_ms, step);
    return status == WRING_OK ? status : blame(request, piece, step, status);
}

/* Nothing moved: has a peer gone, or has it been too long? */
static wring_status check_peers(wring_request *request)
{
    int64_t idle_ms = (wri_clock_ns() - request->moved_ns) / 1000000;
    bool waits = false;
    for (size_t i = 0; idle_ms >= PATIENCE_MS && i < request->window; i++) {
        const struct wri_piece *piece = &request->piece[i];
        for (size_t j = 0; piece->busy && j < piece->ntransfers; j++)
            WRI_TRY(check_peer(request, piece, piece->transfer[j].step, idle_ms));
        waits |= piece->busy && piece->ntransfers > 0;
    }
    return waits ? WRING_OK : wri_exec_patience(request, idle_ms, NULL); /* for the device */
}

static void cancel_all(wring_request *request)
{
    const struct wring_transport_ops *transport = request->context->transport;
    if (request->comm->lane.device != NULL)
        *request->comm->lane.failed = 1;
    if (request->ordered && transport->group_abort != NULL)
        transport->group_abort(request->comm->endpoint);
    for (size_t i = 0; i < request->window; i++) {
        struct wri_piece *piece = &request->piece[i];
        for (size_t j = 0; piece->busy && j < piece->ntransfers; j++)
            for (int part = 0; part < 2; part++)
                if (piece->transfer[j].request[part] != NULL)
                    transport->cancel(request->context->link, piece->transfer[j].request[part]);
        piece->ntransfers = 0;
        piece->busy = false;
    }
    if (request->device != NULL)
        wri_device_give_up(request);
    request->cancelled = true;
}

void wri_exec_abort(wring_request *request, wring_status status)
{
    if (request->starting) /* whoever starts it looks at the communicator */
        wri_comm_poison(request->comm, status);
    if (request->starting || request->status != WRING_OK)
        return;
    wri_request_fail(request, status);
    cancel_all(request);
    request->moved_ns = wri_clock_ns();
    if (request->device == NULL)
        wri_request_finish(request, status);
}

/* A call on a device that was given up. */
static bool advance_end(wring_request *request)
{
    if (!wri_device_is_quiet(request) && wri_clock_ns() - request->moved_ns < WRI_QUIET_NS)
        return false;
    wri_request_finish(request, request->status);
    return true;
}

static bool advance(wring_request *request)
{
    bool moved = false;
    wring_status status = wri_comm_check(request->comm);
    if (status != WRING_OK)
        status = wri_exec_blame(request, status);
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

bool wri_exec_advance(wring_request *request)
{
    if (request->device == NULL)
        return advance(request);
    if (request->starting)
        return false;
    int was = wri_context_enter(request->context);
    bool moved = request->status != WRING_OK ? advance_end(request)
                 : request->ordered          ? wri_stream_advance(request)
                                             : advance(request);
    wri_context_leave(request->context, was);
    return moved;
}
