/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator: ranks, how to reach them, the operation counter, and the first failure. */
#ifndef WRI_COLLECTIVE_COMM_H
#define WRI_COLLECTIVE_COMM_H

#include "base/memory.h"
#include "collective/context.h"

#define WRI_MESSAGE_MAX 512

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
    uint64_t last_good;                           /* operations that ended well */
    wring_tensor *tensors;                        /* list, for explain */
    struct wri_arena spare;                       /* buffers of an earlier call, for the next one */
    int refs;            /* the user's, one per tensor and per request not waited for */
    bool met;            /* the first barrier is through */
    wring_status failed; /* first failure, or WRING_OK; later calls return it at once */
    char failure[WRI_MESSAGE_MAX];
};

wring_status wri_comm_create(wring_context *context, const wring_comm_options *options,
                             wring_comm **comm_out);
wring_status wri_comm_create_local(wring_context *context, int nranks,
                                   const wring_comm_options *options, wring_comm **comms_out);
void wri_comm_destroy(wring_comm *comm);

/* Drop a reference; the last one frees the communicator. Locked. */
void wri_comm_release(wring_comm *comm);

/* Refuse further calls: keep STATUS and the thread's message. The first failure stays. */
void wri_comm_poison(wring_comm *comm, wring_status status);

/* WRING_OK, or the first failure with its message. */
wring_status wri_comm_check(const wring_comm *comm);

#endif
