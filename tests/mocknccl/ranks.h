/* SPDX-License-Identifier: Apache-2.0 */
/* Tests whose ranks are processes: forked before anything of CUDA or NCCL runs, because neither
 * survives a fork. */
#ifndef MOCKNCCL_RANKS_H
#define MOCKNCCL_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nccl.h"

/* Of a child, which has no CMocka: ends it. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            rank_failed(__FILE__, __LINE__, #condition);                                           \
    } while (0)
#define CHECK_NCCL(wanted, call)                                                                   \
    do {                                                                                           \
        ncclResult_t got_ = (call);                                                                \
        if (got_ != (wanted))                                                                      \
            rank_failed_nccl(__FILE__, __LINE__, #call, got_);                                     \
    } while (0)
#define OK(call) CHECK_NCCL(ncclSuccess, call)

struct rank {
    int rank, nranks;
    ncclUniqueId id;
    atomic_int *flags; /* 16, of all ranks, 0 at first */
    ncclComm_t comm;
    cudaStream_t stream;
};

void rank_failed(const char *file, int line, const char *what);
void rank_failed_nccl(const char *file, int line, const char *what, ncclResult_t got);

/* Run BODY in NRANKS processes. All must succeed, but KILLED (or -1) must die of SIGKILL; and no
 * shared memory may be left. */
void ranks_run(int nranks, void (*body)(struct rank *self), int killed);

void rank_open(struct rank *self);
/* Destroys; all that was enqueued must have been done well. */
void rank_close(struct rank *self);
/* Wait until a flag is at least VALUE. */
void rank_await(struct rank *self, int flag, int value);
/* Poll until the communicator's error is no longer success; it must come within five seconds. */
ncclResult_t rank_error(struct rank *self);
/* The stream must end within five seconds. */
void rank_stream_ends(struct rank *self);
void sleep_ms(int ms);
double now_s(void);

/* Device memory; with data of its own for every SEED. */
void *buffer(size_t nbytes);
unsigned char *filled(size_t nbytes, unsigned seed);
bool is_filled(const void *data, size_t nbytes, unsigned seed);

#endif
