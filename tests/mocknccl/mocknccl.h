/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mock of NCCL for machines without a GPU: 2 to 8 ranks on one host, in processes or threads,
 * that meet in shared memory; work in the order of the emulator's streams. This header is what its
 * files share.
 *
 * Stricter than NCCL where NCCL leaves room: a send ends only when its receive has taken all of it;
 * a receive of another size or kind than its send is an error (ncclInvalidUsage) on both sides; a
 * communicator in progress or in error takes no calls; buffers must come from the CUDA runtime.
 * As with NCCL, operations of a communicator whose peer is lost stay pending until ncclCommAbort.
 *
 * Environment, numbers count from 1 and per process:
 *   MOCKNCCL_VERSION     what ncclGetVersion answers (22809)
 *   MOCKNCCL_TIMEOUT_MS  how long an initialisation waits for the other ranks (60000)
 *   MOCKNCCL_POLLS       polls that find a non-blocking communicator in progress (3)
 *   MOCKNCCL_FAIL        op:n:result[,...]: the n-th call of op, say ncclSend, returns result
 *   MOCKNCCL_JOIN        result: initialisations fail with it after they began, as other ranks may
 *                        notice
 *   MOCKNCCL_ASYNC       n:result: with the n-th group the communicator's error becomes result, and
 *                        its operations stay pending
 *   MOCKNCCL_CORRUPT     n: one bit of the first message that the n-th group receives is wrong
 *   MOCKNCCL_DELAY_US    each group waits up to so long before it begins
 *   MOCKNCCL_SEED        of those delays (the process id)
 */
#ifndef MOCKNCCL_H
#define MOCKNCCL_H

#include "nccl.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define RANKS_MAX 8
#define RING_NBYTES ((size_t)64 << 10)
#define MOCK_WEAK(name) extern decltype(p##name) name __attribute__((weak, alias("p" #name)))

/* ---- shared memory: all zeros at first ------------------------------------------------------- */

/* What stands in front of each message. */
struct message {
    uint64_t nbytes;
    uint64_t kind; /* of the call: enum call_kind */
};

/* From one rank to one other. */
struct channel {
    alignas(64) std::atomic<uint64_t> head; /* bytes ever written */
    alignas(64) std::atomic<uint64_t> tail; /* bytes ever read */
    std::atomic<bool> refused;              /* by the receiver, who found SENT for EXPECTED */
    message sent, expected;
    alignas(64) char data[RING_NBYTES];
};

enum seat_state : uint32_t { SEAT_EMPTY, SEAT_TAKEN, SEAT_LEFT, SEAT_ABORTED };

struct seat {
    alignas(64) std::atomic<uint32_t> state;
    std::atomic<int32_t> pid;
    std::atomic<uint32_t> bell; /* counts what may concern this rank; a futex */
    std::atomic<uint32_t> sleepers;
};

/* Channels of sends and receives, and of collectives: within a group these two have no order. */
enum lane { LANE_POINT, LANE_COLLECTIVE, LANES };

struct segment {
    std::atomic<uint32_t> nranks, attached;
    seat seats[RANKS_MAX];
    channel channels[LANES][RANKS_MAX][RANKS_MAX]; /* [from][to] */
};

/* Meet the other ranks in the segment that COMM names; blocks. */
ncclResult_t segment_join(ncclComm &comm);
void segment_close(segment *shared);
void seat_ring(seat &seat);
/* Until the bell is no longer SEEN; false after MS milliseconds. */
bool seat_sleep(seat &seat, uint32_t seen, int ms);
/* Whether the process that took the seat is no more. */
bool seat_dead(const seat &seat);

/* ---- communicators --------------------------------------------------------------------------- */

struct ncclComm {
    int rank, nranks, device;
    bool blocking;
    std::string name;

    std::mutex lock; /* of what follows, up to the atomics */
    std::condition_variable changed;
    segment *shared = nullptr;
    bool joining = true, finalized = false;
    uint64_t polls_left = 0;
    size_t enqueued = 0, running = 0;                       /* jobs */
    uint64_t issued[2][LANES][RANKS_MAX] = {};              /* tickets of [sends][lane][peer] */
    char text[512] = "";                                    /* of the error */
    std::atomic<uint64_t> served[2][LANES][RANKS_MAX] = {}; /* whose turn it is */
    std::atomic<int> error{ncclSuccess};
    std::atomic<bool> ended{false}; /* after that error nothing stays pending */
    std::atomic<bool> aborted{false};
    std::thread joiner;

    ~ncclComm();
    seat &own()
    {
        return shared->seats[rank];
    }
};
typedef std::shared_ptr<ncclComm> comm_ref;

/* NULL if the handle stands for none. */
comm_ref comm_find(ncclComm_t handle);
/* Whether it takes calls now. */
ncclResult_t comm_ready(ncclComm &comm);
/* The first error stays. ENDS: operations end now, without an abort. */
void comm_fail(ncclComm &comm, ncclResult_t error, bool ends, const std::string &text);
/* Wait for the initialisation of a blocking one; destroys it on failure. */
ncclResult_t comm_joined(const comm_ref &comm);
/* Keep TEXT for ncclGetLastError and return RESULT. */
ncclResult_t last_error(ncclResult_t result, const std::string &text);

/* ---- calls and jobs -------------------------------------------------------------------------- */

enum call_kind { CALL_POINT, CALL_ALLGATHER, CALL_ALLREDUCE, CALL_BROADCAST };

struct call {
    comm_ref comm;
    cudaStream_t stream;
    call_kind kind;
    const void *in; /* NULL in a receive */
    void *out;      /* NULL in a send */
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
};

struct transfer {
    channel *ring;
    bool sends;
    int peer;
    message wanted;
    char *data;
    uint64_t ticket;
    std::atomic<uint64_t> *turn;
    bool begun, finished; /* header moved; all moved, and for a send also taken */
    uint64_t moved;       /* of the data */
    uint64_t end;         /* of a send that is all in the ring: where */
};

/* What one group does on one communicator and stream. */
struct job {
    comm_ref comm;
    cudaStream_t stream;
    std::vector<transfer> transfers;
    std::vector<std::function<void()>> before, after;
    bool stuck;
    uint64_t delay_us;
    char *corrupt; /* the byte to spoil, or NULL */
};

void job_add(job &job, const call &call);
void job_run(job &job);
/* Where the group of this thread takes comms that are being initialised; false outside a group. */
bool group_takes(const comm_ref &comm);
size_t type_size(ncclDataType_t type);
/* The reduction of ROWS[0..nranks) into OUT; false if the mock does not know it. */
bool reduce_known(ncclDataType_t type, ncclRedOp_t op);
void reduce(void *out, const std::vector<const void *> &rows, size_t count, ncclDataType_t type,
            ncclRedOp_t op);

/* ---- injected faults ------------------------------------------------------------------------- */

uint64_t setting(const char *name, uint64_t otherwise);
/* What this call of OP shall return. */
ncclResult_t injected(const char *op);
/* Take the faults of the next group of this process; the error of its communicators, or success. */
ncclResult_t injected_group(bool &corrupt, uint64_t &delay_us);

#endif
