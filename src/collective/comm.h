/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator: ranks, how to reach them, the operation counter, and the first failure. */
#ifndef WRI_COLLECTIVE_COMM_H
#define WRI_COLLECTIVE_COMM_H

#include "base/device.h"
#include "base/memory.h"
#include "collective/control.h"

/* What a call's buffers are made of. */
enum wri_memory { WRI_MEMORY_HOST, WRI_MEMORY_PINNED, WRI_MEMORY_DEVICE, WRI_MEMORY_KINDS };

/* A communicator's part of a device: opened at the first call or tensor there. */
struct wri_lane {
    const struct wri_device *device; /* NULL: not opened */
    void *stream;                    /* of what concerns the communicator as a whole */
    void *order;                     /* event: that joins streams */
    void **piece_stream;             /* config.window: pieces overlap */
    uint32_t *failed;                /* pinned: 1 holds back every commit that is still to come */
    struct wri_verdict *clean;       /* on the device: has found nothing */
};

struct wring_comm {
    wring_context *context;
    int rank, nranks, local_nranks;
    void *endpoint;
    void **peer; /* nranks; NULL for this rank */
    uint64_t nonce;
    uint32_t epoch;     /* the nonce's low half; names the communicator in tags */
    wring_codec *codec; /* of calls and tensors that name none; owned */
    const struct wring_collective_ops *algorithm; /* NULL: the planner chooses */
    uint64_t operation;                           /* started so far: numbers the next one */
    uint64_t checked;                             /* calls looked at: marks the tensors of each */
    uint64_t last_good;                           /* operations that ended well */
    wring_tensor *tensors;                        /* list, for explain */
    struct wri_arena spare[WRI_MEMORY_KINDS];     /* buffers of an earlier call, for the next one */
    struct wri_lane lane;
    int refs;                    /* the user's, one per tensor and per request not waited for */
    bool met;                    /* the first barrier is through */
    bool leaving;                /* it is being destroyed: what fails now concerns nobody else */
    struct wri_alarm alarm;      /* first failure; later calls return it at once */
    struct wri_control *control; /* NULL: alone, or all ranks are in this process */
};

wring_status wri_comm_create(wring_context *context, const wring_comm_options *options,
                             wring_comm **comm_out);
wring_status wri_comm_create_local(wring_context *context, int nranks,
                                   const wring_comm_options *options, wring_comm **comms_out);
void wri_comm_destroy(wring_comm *comm);

/* The steps of creating one: without peers, with the caller's defaults; where this rank can be
 * reached, and of a group, its name, if this is rank 0; its control path, not yet started; and
 * everything else once the cards of all are here. */
wring_status wri_comm_open(wring_context *context, int rank, int nranks,
                           const wring_comm_options *options, wring_comm **comm_out);
wring_status wri_comm_introduce(wring_comm *comm, struct wri_card *card_out);
wring_status wri_comm_open_control(wring_comm *comm, const char *host, struct wri_card *card);
wring_status wri_comm_connect(wring_comm *comm, const struct wri_card *cards, uint64_t nonce);

/* Contracts as of wring_comm_abort, _agree, _shrink and _split. Not locked. */
void wri_comm_abort(wring_comm *comm);
wring_status wri_comm_agree(wring_comm *comm, uint64_t value, uint64_t *least_out);
wring_status wri_comm_shrink(wring_comm *comm, wring_comm **comm_out);
wring_status wri_comm_split(wring_comm *comm, int color, int key, wring_comm **comm_out);

/* Open the communicator's lane of the context's device. Locked. */
wring_status wri_lane_open(wring_comm *comm);

void wri_lane_close(wring_comm *comm);

/* How long one waits for a device to finish what was given up: its caller's stream may be held up,
 * and a communicator that stays the caller's is not ours to abort. */
#define WRI_QUIET_NS 2000000000

/* Whether everything on the lane's streams ends within WRI_QUIET_NS. */
bool wri_lane_is_quiet(wring_comm *comm);

/* Open and close an arena of buffers of one kind. */
wring_status wri_buffers_open(wring_comm *comm, enum wri_memory kind, struct wri_arena *arena);
void wri_buffers_close(wring_comm *comm, enum wri_memory kind, struct wri_arena *arena);

/* For who does not hold the lock: device memory of the communicator's, freed after what is on
 * STREAM, where it is used; and a copy between such memory and the host's. */
wring_status wri_lane_buffers(wring_comm *comm, struct wri_arena *arena);
void wri_lane_buffers_close(wring_comm *comm, struct wri_arena *arena, void *stream);
wring_status wri_lane_move(wring_comm *comm, void *dst, const void *src, size_t nbytes);

/* Wait until all that is enqueued on the communicator's stream is through: the calls in flight may
 * have to fail before that. Locked on entry and exit, not in between. */
wring_status wri_lane_settle(wring_comm *comm);

/* Locked, and with the context's device as the current one. What is enqueued on THEN from here on
 * waits for what is on FIRST now; and a copy from or to host memory, waited for, which is for a
 * settled stream. */
wring_status wri_lane_order(wring_comm *comm, void *first, void *then);
wring_status wri_lane_copy(wring_comm *comm, void *dst, const void *src, size_t nbytes);

/* Drop a reference; the last one frees the communicator, or marks the context stuck if its lane is
 * not quiet. Locked. */
void wri_comm_release(wring_comm *comm);

/* Refuse further calls: keep STATUS and the thread's message, and tell the other ranks. The first
 * failure stays. */
void wri_comm_poison(wring_comm *comm, wring_status status);

/* WRING_OK, or the first failure with its message. */
wring_status wri_comm_check(wring_comm *comm);

#endif
