/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call on device memory over a transport of the host. Every piece has a stream: its codec steps
 * and its copies stand there in order, and those of other pieces overlap with them. Only encoded
 * bytes cross, through pinned memory:
 *
 *     ENCODE   kernel, copy down, event     SEND waits for the event
 *     DECODE   copy up, event, kernel       a RECV into the same slot waits for the event
 *
 * What the device finds (non-finite values, malformed bytes) comes down with each encoding.
 */
#include "base/status.h"
#include "collective/collective.h"
#include "collective/exec.h"
#include "collective/state.h"

wring_status wri_device_begin(wring_request *request)
{
    wring_comm *comm = request->comm;
    if (request->stream != NULL)
        WRI_TRY(wri_lane_order(comm, request->stream, comm->lane.stream));
    WRI_TRY(request->device->zero(comm->lane.stream, request->verdict, sizeof(*request->verdict)));
    for (size_t i = 0; !request->ordered && i < request->window; i++)
        WRI_TRY(wri_lane_order(comm, comm->lane.stream, request->piece[i].stream));
    return WRING_OK;
}

/* The slot's copy has been enqueued last. */
static wring_status mark(wring_request *request, struct wri_piece *piece, struct wri_slot *slot)
{
    slot->copying = true;
    slot->on_device = true;
    WRI_TRY(request->device->event_record(request->device, slot->copied, piece->stream));
    return wri_context_wake_after(request->context, piece->stream);
}

static wring_status ask_verdict(wring_request *request, struct wri_piece *piece)
{
    return request->device->copy(request->device, piece->stream, piece->found, request->verdict,
                                 sizeof(*piece->found));
}

wring_status wri_device_download(wring_request *request, struct wri_piece *piece,
                                 struct wri_slot *slot, size_t nbytes)
{
    WRI_TRY(request->device->copy(request->device, piece->stream, wri_slot_payload(slot),
                                  wri_slot_data(slot), nbytes));
    WRI_TRY(ask_verdict(request, piece));
    return mark(request, piece, slot);
}

wring_status wri_device_upload(wring_request *request, struct wri_piece *piece,
                               struct wri_slot *slot, size_t nbytes)
{
    if (slot->on_device)
        return WRING_OK;
    WRI_TRY(request->device->copy(request->device, piece->stream, wri_slot_data(slot),
                                  wri_slot_payload(slot), nbytes));
    return mark(request, piece, slot);
}

wring_status wri_device_poll(wring_request *request, struct wri_piece *piece, bool *moved_out)
{
    for (size_t i = 0; i < request->nslots; i++) {
        struct wri_slot *slot = &piece->slot[i];
        if (!slot->copying)
            continue;
        wring_status status = request->device->event_test(request->device, slot->copied);
        if (status == WRING_AGAIN)
            continue;
        WRI_TRY(status);
        slot->copying = false;
        *moved_out = true;
    }
    return WRING_OK;
}

wring_status wri_device_verdict(wring_request *request, const struct wri_verdict *found)
{
    request->nonfinite |= found->nonfinite != 0;
    if (found->error == 0)
        return WRING_OK;
    const struct wring_step *step = &request->step[found->error - 1];
    if (step->kind == WRING_STEP_RECV)
        WRI_FAIL(WRING_E_MISMATCH,
                 "%s %llu: the message from rank %d about shard %d belongs to another call",
                 wri_kind_name(request->kind), (unsigned long long)request->frame.operation,
                 step->peer, step->shard);
    WRI_FAIL(WRING_E_CORRUPT, "%s %llu: a payload of shard %d is malformed",
             wri_kind_name(request->kind), (unsigned long long)request->frame.operation,
             step->shard);
}

wring_status wri_device_drain(wring_request *request, struct wri_piece *piece)
{
    if (!piece->draining) {
        piece->draining = true;
        WRI_TRY(ask_verdict(request, piece));
        WRI_TRY(request->device->event_record(request->device, piece->drained, piece->stream));
        WRI_TRY(wri_context_wake_after(request->context, piece->stream));
    }
    WRI_TRY(request->device->event_test(request->device, piece->drained));
    piece->draining = false;
    return wri_device_verdict(request, piece->found);
}

wring_status wri_device_commit(wring_request *request)
{
    struct wri_lane *lane = &request->comm->lane;
    WRI_TRY(lane->device->copy(lane->device, lane->stream, &request->verdict->failed, lane->failed,
                               sizeof(*lane->failed)));
    return wri_state_commit(request->comm, request->change, request->nsegments, request->verdict);
}

void wri_device_give_up(wring_request *request)
{
    const struct wri_device *device = request->device;
    void *stream = request->comm->lane.stream;
    int was = wri_context_enter(request->context);
    for (size_t i = 0; i < request->window; i++) {
        struct wri_piece *piece = &request->piece[i];
        if (device->event_record(device, piece->drained, piece->stream) == WRING_OK)
            device->event_wait(device, piece->drained, stream);
    }
    wri_context_leave(request->context, was);
}

bool wri_device_is_quiet(const wring_request *request)
{
    for (size_t i = 0; i < request->window; i++)
        if (request->device->event_test(request->device, request->piece[i].drained) == WRING_AGAIN)
            return false;
    return true;
}
