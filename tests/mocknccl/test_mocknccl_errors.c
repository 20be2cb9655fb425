/* SPDX-License-Identifier: Apache-2.0 */
/* What the mock of NCCL promises where something fails: errors as a real communicator shows them,
 * and the faults that are asked for. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ranks.h"

/* An operation that nobody answers stays pending until abort, with the error of a lost peer. */
static void pending_until_abort(struct rank *self, const char *text)
{
    CHECK_NCCL(ncclRemoteError, rank_error(self));
    CHECK(strstr(ncclGetLastError(self->comm), text));
    sleep_ms(50);
    CHECK(cudaStreamQuery(self->stream) == cudaErrorNotReady);
    CHECK_NCCL(ncclRemoteError, ncclSend(self, 0, ncclInt8, 0, self->comm, self->stream));
    OK(ncclCommAbort(self->comm));
    rank_stream_ends(self);
}

static void *abort_soon(void *comm)
{
    sleep_ms(50);
    OK(ncclCommAbort(comm));
    return NULL;
}

static void aborted(struct rank *self)
{
    void *data = buffer(100);
    pthread_t thread;
    rank_open(self);
    OK(ncclRecv(data, 100, ncclInt8, (self->rank + 1) % self->nranks, self->comm, self->stream));
    OK(ncclRecv(data, 100, ncclInt8, (self->rank + 1) % self->nranks, self->comm, self->stream));
    if (self->rank > 0) {
        pending_until_abort(self, "rank 0 is lost");
        return;
    }
    sleep_ms(20);
    CHECK(cudaStreamQuery(self->stream) == cudaErrorNotReady);
    CHECK(pthread_create(&thread, NULL, abort_soon, self->comm) == 0);
    rank_stream_ends(self);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Rank 0 waits for the rank that dies, which is a zombie while rank 0 lives; rank 1 waits for rank
 * 0 only, but is told too. */
static void killed(struct rank *self)
{
    void *data = buffer(200000);
    int previous = (self->rank + self->nranks - 1) % self->nranks, told_flag = 0;
    rank_open(self);
    OK(ncclRecv(data, 200000, ncclInt8, previous, self->comm, self->stream));
    if (self->rank == 2) {
        sleep_ms(50);
        raise(SIGKILL);
    }
    if (self->rank == 0)
        rank_await(self, told_flag, 1);
    else
        CHECK_NCCL(ncclRemoteError, rank_error(self));
    self->flags[told_flag] = 1;
    pending_until_abort(self, "rank 2 is lost");
}

/* A rank that has nothing to do any more may leave. */
static void left_early(struct rank *self)
{
    void *data = buffer(100);
    rank_open(self);
    if (self->rank == 0)
        OK(ncclRecv(data, 100, ncclInt8, 1, self->comm, self->stream));
    if (self->rank == 1) {
        sleep_ms(400);
        OK(ncclSend(data, 100, ncclInt8, 0, self->comm, self->stream));
    }
    CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
    rank_close(self);
}

static void mismatched(struct rank *self)
{
    void *data = buffer(400);
    rank_open(self);
    if (self->rank == 0)
        OK(ncclSend(data, 100, ncclFloat32, 1, self->comm, self->stream));
    else
        OK(ncclRecv(data, 300, ncclInt8, 0, self->comm, self->stream));
    CHECK_NCCL(ncclInvalidUsage, rank_error(self));
    const char *text = ncclGetLastError(self->comm);
    CHECK(strstr(text, "rank 0 sends 400 bytes") && strstr(text, "to rank 1, which expects 300"));
    rank_stream_ends(self);
    OK(ncclCommDestroy(self->comm));
}

static void invalid(struct rank *self)
{
    char *data = buffer(4), host[4];
    rank_open(self);
    ncclComm_t comm = self->comm;
    cudaStream_t stream = self->stream;
    CHECK_NCCL(ncclInvalidArgument, ncclSend(data, 4, ncclInt8, 2, comm, stream));
    CHECK_NCCL(ncclInvalidArgument, ncclSend(data, 4, ncclNumTypes, 1, comm, stream));
    CHECK_NCCL(ncclInvalidArgument, ncclSend(host, 4, ncclInt8, 1, comm, stream));
    CHECK_NCCL(ncclInvalidArgument, ncclRecv(NULL, 4, ncclInt8, 1, comm, stream));
    CHECK_NCCL(ncclInvalidArgument, ncclRecv(data, 4, ncclInt8, 1, NULL, stream));
    CHECK_NCCL(ncclInvalidArgument, ncclAllReduce(data, data, 1, ncclHalf, ncclSum, comm, stream));
    CHECK_NCCL(ncclInvalidUsage, ncclGroupEnd());
    OK(ncclGroupStart());
    CHECK_NCCL(ncclInvalidArgument, ncclSend(data, 4, ncclInt8, 2, comm, stream));
    CHECK_NCCL(ncclInvalidArgument, ncclGroupEnd());
    OK(ncclCommFinalize(comm));
    CHECK_NCCL(ncclInvalidUsage, ncclSend(data, 4, ncclInt8, 1, comm, stream));
    rank_close(self);
}

static void alone(struct rank *self)
{
    setenv("MOCKNCCL_TIMEOUT_MS", "200", 1);
    double start = now_s();
    CHECK_NCCL(ncclSystemError, ncclCommInitRank(&self->comm, 2, self->id, 1));
    CHECK(now_s() - start >= 0.2 && now_s() - start < 5 && !self->comm);
    CHECK(strstr(ncclGetLastError(NULL), "1 of 2 ranks came"));
}

static void errors_are_seen(void **state)
{
    (void)state;
    ranks_run(2, aborted, -1);
    ranks_run(3, killed, 2);
    ranks_run(3, left_early, -1);
    ranks_run(2, mismatched, -1);
    ranks_run(2, invalid, -1);
    ranks_run(1, alone, -1);
}

/* ---- in progress ----------------------------------------------------------------------------- */

static void settle(struct rank *self)
{
    ncclResult_t state = ncclInProgress;
    int polls = 0;
    for (; state == ncclInProgress && polls < 5000; polls++) {
        OK(ncclCommGetAsyncError(self->comm, &state));
        sleep_ms(1);
    }
    OK(state);
    CHECK(polls > 3);
}

static void non_blocking(struct rank *self)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int *data = buffer(4), count = 0;
    config.blocking = 0;
    *data = self->rank;
    CHECK(cudaStreamCreate(&self->stream) == cudaSuccess);
    CHECK_NCCL(ncclInProgress,
               ncclCommInitRankConfig(&self->comm, self->nranks, self->id, self->rank, &config));
    CHECK_NCCL(ncclInvalidArgument, ncclCommCount(self->comm, &count));
    settle(self);
    CHECK_NCCL(ncclInProgress,
               ncclAllReduce(data, data, 1, ncclInt, ncclSum, self->comm, self->stream));
    CHECK_NCCL(ncclInvalidArgument, ncclSend(data, 1, ncclInt, 0, self->comm, self->stream));
    settle(self);
    CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess && *data == 3);
    CHECK_NCCL(ncclInProgress, ncclCommFinalize(self->comm));
    settle(self);
    rank_close(self);
}

/* Abort of a communicator that still waits for its peer. */
static void abort_while_joining(struct rank *self)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK_NCCL(ncclInProgress, ncclCommInitRankConfig(&self->comm, 2, self->id, 0, &config));
    sleep_ms(30);
    OK(ncclCommAbort(self->comm));
}

static void init_may_be_in_progress(void **state)
{
    (void)state;
    ranks_run(3, non_blocking, -1);
    ranks_run(1, abort_while_joining, -1);
}

/* ---- injected faults ------------------------------------------------------------------------- */

static void calls_fail(struct rank *self)
{
    int *in = buffer(4), *out = buffer(4), peer = 1 - self->rank;
    setenv("MOCKNCCL_FAIL", "ncclCommInitRank:1:2,ncclSend:2:3,ncclGroupEnd:3:5", 1);
    CHECK_NCCL(ncclSystemError, ncclCommInitRank(&self->comm, 2, self->id, self->rank));
    rank_open(self);
    for (int n = 1; n <= 4; n++) {
        *out = n;
        *in = 0;
        OK(ncclGroupStart());
        OK(ncclRecv(in, 1, ncclInt, peer, self->comm, self->stream));
        CHECK_NCCL(n == 2 ? ncclInternalError : ncclSuccess,
                   ncclSend(out, 1, ncclInt, peer, self->comm, self->stream));
        CHECK_NCCL(n == 2   ? ncclInternalError
                   : n == 3 ? ncclInvalidUsage
                            : ncclSuccess,
                   ncclGroupEnd());
        CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
        CHECK(*in == (n == 2 || n == 3 ? 0 : n));
    }
    rank_close(self);
}

static void pending_error(struct rank *self)
{
    int *data = buffer(4);
    ncclResult_t error;
    if (self->rank == 0)
        setenv("MOCKNCCL_ASYNC", "2:1", 1);
    rank_open(self);
    OK(ncclAllReduce(data, data, 1, ncclInt, ncclSum, self->comm, self->stream));
    CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
    OK(ncclCommGetAsyncError(self->comm, &error));
    OK(error);
    OK(ncclAllReduce(data, data, 1, ncclInt, ncclSum, self->comm, self->stream));
    if (self->rank == 1) {
        pending_until_abort(self, "rank 0 is lost");
        return;
    }
    CHECK_NCCL(ncclUnhandledCudaError, rank_error(self));
    sleep_ms(50);
    CHECK(cudaStreamQuery(self->stream) == cudaErrorNotReady);
    OK(ncclCommAbort(self->comm));
    rank_stream_ends(self);
}

static void corrupted(struct rank *self)
{
    enum { NBYTES = 1000 };
    setenv("MOCKNCCL_CORRUPT", "2", 1);
    setenv("MOCKNCCL_DELAY_US", "3000", 1);
    rank_open(self);
    for (int n = 1; n <= 3; n++) {
        unsigned char *mine = filled(NBYTES, (unsigned)self->rank), *all = buffer(3 * NBYTES);
        int nwrong = 0;
        OK(ncclAllGather(mine, all, NBYTES, ncclInt8, self->comm, self->stream));
        CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
        for (int peer = 0; peer < 3; peer++) {
            unsigned char *right = filled(NBYTES, (unsigned)peer);
            for (int i = 0; i < NBYTES; i++)
                nwrong += right[i] != all[peer * NBYTES + i];
        }
        CHECK(nwrong == (n == 2));
    }
    rank_close(self);
}

static void faults_come_when_asked_for(void **state)
{
    (void)state;
    ranks_run(2, calls_fail, -1);
    ranks_run(2, pending_error, -1);
    ranks_run(3, corrupted, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_seen),
        cmocka_unit_test(init_may_be_in_progress),
        cmocka_unit_test(faults_come_when_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
