/* SPDX-License-Identifier: Apache-2.0 */
/* A request in flight, and the polled executor that advances it. */
#ifndef WRI_COLLECTIVE_EXEC_H
#define WRI_COLLECTIVE_EXEC_H

#include "base/memory.h"
#include "collective/comm.h"
#include "collective/frame.h"
#include "collective/layout.h"
#include "collective/request.h"

/* Messages of one call between two ranks: what the tag has room for. */
#define WRI_MESSAGES_MAX (1u << 23)

/* What the planner decided about a call. */
struct wri_plan {
    const wring_codec *codec;
    const struct wring_collective_ops *algorithm;
    size_t piece_count; /* elements of a shard that travel as one message */
    const char *reason; /* static text, for explain */
};

/* A frame with its payload, being filled, sent or received. */
struct wri_slot {
    unsigned char *frame; /* WRI_FRAME_NBYTES + payload */
    bool full;            /* holds a payload that steps may read */
    bool sealed;          /* and its frame is written */
    bool receiving;
    unsigned sends; /* in flight */
};

/* A SEND or RECV that was started. */
struct wri_transfer {
    const struct wring_step *step;
    void *request[2]; /* frame, payload; NULL: done or none */
};

/* A piece in flight: its position in the step list, and its slots. */
struct wri_piece {
    bool busy;
    uint32_t index;
    size_t position;
    struct wri_slot *slot;         /* nslots */
    struct wri_transfer *transfer; /* in flight: ntransfers of at most ntransfers_max */
    size_t ntransfers;
    void *accumulator;
};

struct wring_request {
    wring_request *next; /* in the context's list of active, or of buried ones */
    wring_context *context;
    wring_comm *comm; /* holds one of its references */
    wring_kind kind;
    wring_op op;
    wring_dtype dtype, acc_dtype;
    wring_segment *segment; /* nsegments: the call's, or for by-rank kinds one per rank */
    size_t nsegments;
    struct wri_plan plan;
    struct wri_layout layout;
    struct wring_step *step;
    size_t nsteps, nslots, nshards, ntransfers_max;
    unsigned ntags;                   /* 1 + largest tag of a step */
    struct wri_frame frame;           /* what all frames of the call have in common */
    struct wri_piece *piece;          /* window of pieces in flight */
    size_t window, started, finished; /* pieces */
    void *scratch;
    struct wri_arena plan_arena; /* segments, steps, layout */
    struct wri_arena buffers;    /* pieces and what they point to */

    bool done, nonfinite, cancelled, warned;
    wring_status status;
    char message[WRI_MESSAGE_MAX]; /* if status is an error */
    uint64_t wire_nbytes, dense_nbytes;
    int64_t moved_ns; /* when something last moved */
};

/* Start CALL as PLAN says: memory, steps, the place in the order of operations. Locked. */
wring_status wri_request_start(wring_comm *comm, const wring_call *call,
                               const struct wri_plan *plan, wring_request **request_out);

/* Bytes that rank would hand to the transport for the call under a plan, frames included. */
wring_status wri_request_wire_nbytes(wring_comm *comm, const wring_call *call,
                                     const struct wri_plan *plan, uint64_t *nbytes_out);

/* The type in which the slot of STEP travels. */
wring_dtype wri_step_dtype(const wring_request *request, const struct wring_step *step);

/* Where the payload of a slot stands. */
static inline unsigned char *wri_slot_payload(const struct wri_slot *slot)
{
    return slot->frame + WRI_FRAME_NBYTES;
}

/* The steps: each does what its enum wring_step_kind says, for one piece, at once. */
wring_status wri_exec_encode(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step);
wring_status wri_exec_decode(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step);
void wri_exec_load(wring_request *request, struct wri_piece *piece, const struct wring_step *step);
void wri_exec_store(wring_request *request, struct wri_piece *piece, const struct wring_step *step);

/* SEND and RECV only start; the piece's list of transfers grows by one. */
wring_status wri_exec_send(wring_request *request, struct wri_piece *piece,
                           const struct wring_step *step);
wring_status wri_exec_recv(wring_request *request, struct wri_piece *piece,
                           const struct wring_step *step);

/* Ask after a transfer: WRING_AGAIN while it is in flight; after WRING_OK its slot is free, or full
 * with a frame that was checked. */
wring_status wri_exec_reap(wring_request *request, struct wri_piece *piece,
                           struct wri_transfer *transfer);

/* Do all that can be done now; true if anything moved. Ends the request when its last piece ends,
 * or with an error. Locked. */
bool wri_exec_advance(wring_request *request);

/* Cancel what is in flight and end the request with STATUS and the thread's message. Locked. */
void wri_exec_abort(wring_request *request, wring_status status);

/* End the request: commit its tensors' state if all went well, wake its waiters. Locked. */
void wri_request_finish(wring_request *request, wring_status status);

wring_request *wri_request_next(const wring_request *request);
void wri_request_free(wring_request *request);

#endif
