/* SPDX-License-Identifier: Apache-2.0 */
/* A request in flight, and the polled executor that advances it. */
#ifndef WRI_COLLECTIVE_EXEC_H
#define WRI_COLLECTIVE_EXEC_H

#include "base/memory.h"
#include "collective/comm.h"
#include "collective/frame.h"
#include "collective/layout.h"
#include "collective/request.h"
#include "collective/transaction.h"

/* Messages of one call between two ranks: what the tag has room for. */
#define WRI_MESSAGES_MAX (1u << 23)

/* What the planner decided about a call. */
struct wri_plan {
    const wring_codec *codec;
    const struct wring_collective_ops *algorithm;
    size_t piece_count; /* elements of a shard that travel as one message */
    const char *reason; /* static text, for explain */
};

/* A frame with its payload, being filled, sent or received. Of a call on a device both stand in
 * device memory as well, and with a polled transport a copy of them in pinned memory is what
 * travels. */
struct wri_slot {
    unsigned char *frame;  /* WRI_FRAME_NBYTES + payload; NULL on stream-ordered transports */
    unsigned char *device; /* the same on the device; NULL: on the host */
    bool full;             /* holds a payload that steps may read */
    bool sealed;           /* and its frame is written */
    bool receiving;
    bool on_device; /* the device has the payload that the host has */
    bool copying;   /* between the two: until `copied` has passed */
    void *copied;   /* event */
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
    bool draining; /* all steps done: until `drained` has passed */
    uint32_t index;
    size_t position;
    struct wri_slot *slot;         /* nslots */
    struct wri_transfer *transfer; /* in flight: ntransfers of at most ntransfers_max */
    size_t ntransfers;
    void *accumulator, *scratch;
    float *residual;           /* of a run, widened; NULL: residuals are float32 */
    void *stream, *drained;    /* of a call on a device: the order of its steps, and an event */
    struct wri_verdict *found; /* pinned: what the device had found when the piece last asked */
};

struct wring_request {
    wring_request *next; /* in the context's list of active, or of buried ones */
    wring_context *context;
    wring_comm *comm; /* holds one of its references */
    wring_kind kind;
    wring_op op;
    wring_dtype dtype, acc_dtype;
    wring_segment *segment;       /* nsegments: the call's, or for by-rank kinds one per rank */
    struct wri_change *change;    /* nsegments */
    struct wri_step *transaction; /* whose commit they wait for; NULL: the call's own end */
    size_t nsegments;
    struct wri_plan plan;
    struct wri_layout layout;
    struct wring_step *step;
    size_t nsteps, nslots, nshards, ntransfers_max;
    unsigned ntags;                             /* 1 + largest tag of a step */
    struct wri_frame frame;                     /* what all frames of the call have in common */
    struct wri_piece *piece;                    /* window of pieces in flight */
    size_t window, started, finished;           /* pieces */
    struct wri_arena plan_arena;                /* segments, steps, layout */
    struct wri_arena buffers[WRI_MEMORY_KINDS]; /* pieces and what they point to */

    const struct wri_device *device; /* NULL: the host */
    void *stream;                    /* the caller's; NULL: the communicator's alone */
    bool overlap;                    /* the caller's stream goes on meanwhile */
    bool ordered;                    /* enqueued as a whole; done when piece[0] has drained */
    bool starting;                   /* being enqueued, by a thread that may give up the lock */
    struct wri_verdict *verdict;     /* on the device */
    uint64_t *witness;               /* nsteps x npieces: hashes of the input; NULL: no check */

    bool alone; /* a single rank, that keeps what it has */
    bool done, nonfinite, cancelled, warned;
    bool noted;                    /* compared with the others' calls, because it does not get on */
    wring_status status;           /* an error before `done`: it ends when its device is quiet */
    char message[WRI_MESSAGE_MAX]; /* if status is an error */
    uint64_t wire_nbytes, dense_nbytes;
    int64_t moved_ns;  /* when something last moved */
    int64_t blamed_ns; /* when the transport first said that it failed; 0: it has not */
};

/* Start CALL as PLAN says: memory, steps, the place in the order of operations. Its changes wait
 * for TRANSACTION, if it is not NULL. Locked. */
wring_status wri_request_start(wring_comm *comm, const wring_call *call,
                               const struct wri_plan *plan, struct wri_step *transaction,
                               wring_request **request_out);

/* Bytes that rank would hand to the transport for the call under a plan, frames included. */
wring_status wri_request_wire_nbytes(wring_comm *comm, const wring_call *call,
                                     const struct wri_plan *plan, uint64_t *nbytes_out);

/* The type in which the slot of STEP travels. */
wring_dtype wri_step_dtype(const wring_request *request, const struct wring_step *step);

/* Bytes of the payload of STEP for piece number PIECE. */
size_t wri_step_nbytes(const wring_request *request, const struct wring_step *step, size_t piece);

/* Where a run of the caller's input stands. */
static inline const void *wri_exec_input(const wring_request *request, const struct wri_run *run)
{
    return (const char *)request->segment[run->segment].send +
           run->begin * wring_dtype_size(request->dtype);
}

/* The window of pieces, with buffers, streams and events (window.c). What is given back serves the
 * communicator's next call, if it has nothing larger; close frees the rest. */
wring_status wri_window_open(wring_request *request);
void wri_window_give_back(wring_request *request);
void wri_window_close(wring_request *request);

/* Where the payload of a slot stands: for the transport, and for codecs. */
static inline unsigned char *wri_slot_payload(const struct wri_slot *slot)
{
    return slot->frame + WRI_FRAME_NBYTES;
}
static inline unsigned char *wri_slot_data(const struct wri_slot *slot)
{
    return (slot->device ? slot->device : slot->frame) + WRI_FRAME_NBYTES;
}

/* The steps: each does what its enum wring_step_kind says, for one piece, at once. */
wring_status wri_exec_encode(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step);
wring_status wri_exec_decode(wring_request *request, struct wri_piece *piece,
                             const struct wring_step *step);
wring_status wri_exec_load(wring_request *request, struct wri_piece *piece,
                           const struct wring_step *step);
wring_status wri_exec_store(wring_request *request, struct wri_piece *piece,
                            const struct wring_step *step);

/* With WRING_CHECK_INPUT: hash the input; WRING_E_STATE if what STEP has read of it is not what it
 * was then (witness.c). */
wring_status wri_witness_open(wring_request *request);
wring_status wri_witness_check(const wring_request *request, const struct wri_piece *piece,
                               const struct wring_step *step);

/* A step that looks at data, by its kind; WRING_E_UNSUPPORTED for the others. */
wring_status wri_exec_local(wring_request *request, struct wri_piece *piece,
                            const struct wring_step *step);

/* The frame that STEP's message must have, sent by SOURCE. */
struct wri_frame wri_exec_frame(const wring_request *request, const struct wri_piece *piece,
                                const struct wring_step *step, int source);

/* STATUS, its message with the call's name in front. */
wring_status wri_exec_blame(const wring_request *request, wring_status status);

/* Nothing moved for IDLE_MS: past the time-out an error, past half a minute once a warning; STEP is
 * the transfer that it waits for, NULL if that is not known. */
wring_status wri_exec_patience(wring_request *request, int64_t idle_ms,
                               const struct wring_step *step);

/* ---- a call on a device, over a polled transport (exec_device.c) ---- */

/* Join the streams that the call uses to the caller's; afterwards everything stays on them. */
wring_status wri_device_begin(wring_request *request);
/* After ENCODE into a slot: NBYTES to the host. Before DECODE: to the device, if not there. */
wring_status wri_device_download(wring_request *request, struct wri_piece *piece,
                                 struct wri_slot *slot, size_t nbytes);
wring_status wri_device_upload(wring_request *request, struct wri_piece *piece,
                               struct wri_slot *slot, size_t nbytes);
/* Look which copies have ended; true in *MOVED_OUT if one has. */
wring_status wri_device_poll(wring_request *request, struct wri_piece *piece, bool *moved_out);
/* The piece has no step left: WRING_AGAIN until the device is through, then what it found. */
wring_status wri_device_drain(wring_request *request, struct wri_piece *piece);
/* Take over what the device found, now that it is on the host. */
wring_status wri_device_verdict(wring_request *request, const struct wri_verdict *found);
/* Make the next generation of the call's tensors current, unless the device found anything. */
wring_status wri_device_commit(wring_request *request);
/* Mark on the streams where a call that was given up ends; what is freed in the communicator's
 * order is freed after that. */
void wri_device_give_up(wring_request *request);
/* Whether all that was enqueued before that is through. */
bool wri_device_is_quiet(const wring_request *request);

/* ---- a call that is enqueued as a whole (exec_stream.c) ---- */

wring_status wri_stream_start(wring_request *request);
bool wri_stream_advance(wring_request *request);

/* Over a stream-ordered transport: NBYTES from every rank to RECV, in rank order. Blocks, up to the
 * time-out; for what must be known before anything is enqueued. */
wring_status wri_stream_gather(wring_comm *comm, const void *send, void *recv, size_t nbytes);

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

/* Cancel what is in flight and end the request with STATUS and the thread's message: at once, but
 * on a device when nothing enqueued can touch its memory any more, or after WRI_QUIET_NS; then that
 * memory stays until the context ends. Locked. */
void wri_exec_abort(wring_request *request, wring_status status);

/* Keep the first failure, STATUS and the thread's message, of a request and its communicator. */
void wri_request_fail(wring_request *request, wring_status status);

/* End the request: commit its tensors' state if all went well, wake its waiters. Locked. */
void wri_request_finish(wring_request *request, wring_status status);

wring_request *wri_request_next(const wring_request *request);
void wri_request_free(wring_request *request);

#endif
