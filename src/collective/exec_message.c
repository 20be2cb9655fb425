/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that cross: a slot's frame is sealed and sent, or received and checked before its
 * payload is looked at. */
#include "base/status.h"
#include "collective/exec.h"

#include <string.h>

/* comm 16 | source 14 | operation 10 | message 24 bits. Tags are unique while in flight; the frame
 * tells whether a match was the right one. */
static uint64_t message_tag(const wring_request *request, const struct wri_piece *piece,
                            const struct wring_step *step, int source, bool payload)
{
    uint64_t message = ((uint64_t)piece->index * request->ntags + step->tag) * 2 + payload;
    return (uint64_t)(request->frame.epoch & 0xffff) << 48 | (uint64_t)(source & 0x3fff) << 34 |
           (request->frame.operation & 0x3ff) << 24 | message;
}

struct wri_frame wri_exec_frame(const wring_request *request, const struct wri_piece *piece,
                                const struct wring_step *step, int source)
{
    struct wri_frame frame = request->frame;
    frame.source = (uint32_t)source;
    frame.piece = piece->index;
    frame.tag = step->tag;
    frame.payload_count = wri_layout_count(&request->layout, (size_t)step->shard, piece->index);
    frame.payload_nbytes = wri_step_nbytes(request, step, piece->index);
    return frame;
}

/* Write the slot's frame. One frame serves all ranks that the slot is sent to. */
static void seal(wring_request *request, struct wri_piece *piece, const struct wring_step *step)
{
    struct wri_slot *slot = &piece->slot[step->slot];
    struct wri_frame frame = wri_exec_frame(request, piece, step, request->comm->rank);
    if (request->device != NULL)
        request->nonfinite |= piece->found->nonfinite != 0;
    frame.flags |= request->nonfinite ? WRI_FRAME_NONFINITE : 0;
    wri_frame_seal(&frame, wri_slot_payload(slot));
    memcpy(slot->frame, &frame, sizeof(frame));
    slot->sealed = true;
}

wring_status wri_exec_send(wring_request *request, struct wri_piece *piece,
                           const struct wring_step *step)
{
    const struct wring_transport_ops *transport = request->context->transport;
    wring_comm *comm = request->comm;
    struct wri_slot *slot = &piece->slot[step->slot];
    struct wri_transfer *transfer = &piece->transfer[piece->ntransfers];
    if (!slot->sealed)
        seal(request, piece, step);
    *transfer = (struct wri_transfer){.step = step};
    size_t nbytes = wri_step_nbytes(request, step, piece->index);
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
                                wri_slot_payload(slot), nbytes, &transfer->request[1]));
    return WRING_OK;
}

wring_status wri_exec_recv(wring_request *request, struct wri_piece *piece,
                           const struct wring_step *step)
{
    const struct wring_transport_ops *transport = request->context->transport;
    wring_comm *comm = request->comm;
    struct wri_slot *slot = &piece->slot[step->slot];
    struct wri_transfer *transfer = &piece->transfer[piece->ntransfers];
    *transfer = (struct wri_transfer){.step = step};
    slot->full = false;
    size_t nbytes = wri_step_nbytes(request, step, piece->index);
    WRI_TRY(transport->recv(comm->endpoint, comm->peer[step->peer],
                            message_tag(request, piece, step, step->peer, false), slot->frame,
                            WRI_FRAME_NBYTES + WRI_EAGER, &transfer->request[0]));
    slot->receiving = true;
    piece->ntransfers++;
    if (nbytes > WRI_EAGER)
        WRI_TRY(transport->recv(comm->endpoint, comm->peer[step->peer],
                                message_tag(request, piece, step, step->peer, true),
                                wri_slot_payload(slot), nbytes, &transfer->request[1]));
    return WRING_OK;
}

/* A message that came: is it what was expected? */
static wring_status accept_frame(wring_request *request, struct wri_piece *piece,
                                 const struct wring_step *step, size_t nbytes)
{
    struct wri_frame frame;
    const struct wri_slot *slot = &piece->slot[step->slot];
    struct wri_frame expected = wri_exec_frame(request, piece, step, step->peer);
    memcpy(&frame, slot->frame, sizeof(frame));
    WRI_TRY(wri_frame_check(&frame, nbytes, &expected));
    size_t first = WRI_FRAME_NBYTES;
    first += expected.payload_nbytes <= WRI_EAGER ? expected.payload_nbytes : 0;
    if (nbytes != first)
        WRI_FAIL(WRING_E_CORRUPT, "%zu bytes instead of %zu", nbytes, first);
    request->nonfinite |= (frame.flags & WRI_FRAME_NONFINITE) != 0;
    return WRING_OK;
}

/* A payload that came in a message of its own. */
static wring_status accept_length(const wring_request *request, const struct wri_piece *piece,
                                  const struct wring_step *step, size_t nbytes)
{
    size_t expected = wri_step_nbytes(request, step, piece->index);
    if (nbytes != expected)
        WRI_FAIL(WRING_E_CORRUPT, "a payload of %zu bytes instead of %zu", nbytes, expected);
    return WRING_OK;
}

static wring_status accept_payload(const struct wri_slot *slot)
{
    struct wri_frame frame;
    memcpy(&frame, slot->frame, sizeof(frame));
    return wri_frame_check_payload(&frame, wri_slot_payload(slot));
}

wring_status wri_exec_reap(wring_request *request, struct wri_piece *piece,
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
        else if (receives)
            WRI_TRY(accept_length(request, piece, transfer->step, nbytes));
    }
    struct wri_slot *slot = &piece->slot[transfer->step->slot];
    if (!receives) {
        slot->sends--;
        return WRING_OK;
    }
    slot->receiving = false;
    slot->full = true;
    slot->on_device = false;
    slot->sealed = false;
    return accept_payload(slot);
}
