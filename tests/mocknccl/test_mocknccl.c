/* SPDX-License-Identifier: Apache-2.0 */
/* What the mock of NCCL promises where nothing fails: names as in the real library, data where it
 * belongs, and no wait for what was not asked for. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ranks.h"

/* ---- without ranks --------------------------------------------------------------------------- */

static void each_function_is_weak_and_its_twin_strong(void **state)
{
    (void)state;
    char command[512], line[512], weak[64][64], strong[64][64];
    int nweak = 0, nstrong = 0, npairs = 0;
    assert_non_null(getenv("WRING_LIB"));
    snprintf(command, sizeof(command), "nm -D --defined-only %s/libmocknccl.so",
             getenv("WRING_LIB"));
    FILE *listing = popen(command, "r");
    assert_non_null(listing);
    while (fgets(line, sizeof(line), listing)) {
        char kind, name[400];
        if (sscanf(line, "%*s %c %399s", &kind, name) != 2)
            continue;
        if (strncmp(name, "nccl", 4) == 0) {
            assert_int_equal(kind, 'W');
            strcpy(weak[nweak++], name);
        } else if (strncmp(name, "pnccl", 5) == 0) {
            assert_int_equal(kind, 'T');
            strcpy(strong[nstrong++], name);
        }
    }
    assert_int_equal(pclose(listing), 0);
    for (int i = 0; i < nweak; i++)
        for (int k = 0; k < nstrong; k++)
            npairs += strcmp(weak[i], strong[k] + 1) == 0;
    assert_int_equal(nweak, 20);
    assert_int_equal(nstrong, 20);
    assert_int_equal(npairs, 20);
}

static void version_can_be_chosen(void **state)
{
    (void)state;
    int version = 0;
    assert_int_equal(ncclGetVersion(&version), ncclSuccess);
    assert_int_equal(version, 22809);
    setenv("MOCKNCCL_VERSION", "21805", 1);
    assert_int_equal(ncclGetVersion(&version), ncclSuccess);
    unsetenv("MOCKNCCL_VERSION");
    assert_int_equal(version, 21805);
    assert_string_equal(ncclGetErrorString(ncclInvalidUsage), "invalid usage");
}

/* ---- data ------------------------------------------------------------------------------------ */

static const size_t SIZES[] = {0, 1, 4, 1000, 65519, 65520, 65521, 200001};
#define NSIZES (sizeof(SIZES) / sizeof(SIZES[0]))

static void ring(struct rank *self)
{
    int next = (self->rank + 1) % self->nranks,
        previous = (self->rank ? self->rank : self->nranks) - 1;
    rank_open(self);
    for (unsigned k = 0; k < NSIZES; k++) {
        unsigned char *out = filled(SIZES[k], 10 * k + (unsigned)self->rank);
        unsigned char *in = buffer(SIZES[k]);
        OK(ncclGroupStart());
        OK(ncclSend(out, SIZES[k], ncclUint8, next, self->comm, self->stream));
        OK(ncclRecv(in, SIZES[k], ncclUint8, previous, self->comm, self->stream));
        OK(ncclGroupEnd());
        CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
        CHECK(is_filled(in, SIZES[k], 10 * k + (unsigned)previous));
    }
    rank_close(self);
}

static void allgather(struct rank *self)
{
    rank_open(self);
    for (unsigned k = 0; k < 2 * NSIZES; k++) {
        size_t nbytes = SIZES[k / 2];
        unsigned char *mine = filled(nbytes, 10 * k + (unsigned)self->rank);
        unsigned char *all = buffer(nbytes * (size_t)self->nranks);
        if (k % 2) /* in place */
            mine = memcpy(all + nbytes * (size_t)self->rank, mine, nbytes);
        OK(ncclAllGather(mine, all, nbytes, ncclInt8, self->comm, self->stream));
        CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
        for (int rank = 0; rank < self->nranks; rank++)
            CHECK(is_filled(all + nbytes * (size_t)rank, nbytes, 10 * k + (unsigned)rank));
    }
    rank_close(self);
}

enum { REDUCED = 3001 };

static long expected(ncclRedOp_t op, int nranks, long i)
{
    long sum = nranks * i * 8 + 8 * (long)nranks * (nranks - 1) / 2;
    return op == ncclSum   ? sum
           : op == ncclAvg ? sum / nranks
                           : 8 * (op == ncclMax ? i + nranks - 1 : i);
}

static void allreduce_of(struct rank *self, ncclDataType_t type, ncclRedOp_t op)
{
    void *data = buffer(REDUCED * 8);
    for (long i = 0; i < REDUCED; i++) {
        long value = 8 * (i + self->rank);
        if (type == ncclFloat32)
            ((float *)data)[i] = (float)value;
        else if (type == ncclFloat64)
            ((double *)data)[i] = (double)value;
        else if (type == ncclInt32)
            ((int32_t *)data)[i] = (int32_t)value;
        else
            ((int64_t *)data)[i] = value;
    }
    OK(ncclAllReduce(data, data, REDUCED, type, op, self->comm, self->stream));
    CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
    for (long i = 0; i < REDUCED; i++) {
        double got = type == ncclFloat32   ? (double)((float *)data)[i]
                     : type == ncclFloat64 ? ((double *)data)[i]
                     : type == ncclInt32   ? (double)((int32_t *)data)[i]
                                           : (double)((int64_t *)data)[i];
        CHECK(got == (double)expected(op, self->nranks, i));
    }
}

static void reductions(struct rank *self)
{
    const ncclDataType_t types[] = {ncclFloat32, ncclFloat64, ncclInt32, ncclInt64};
    const ncclRedOp_t ops[] = {ncclSum, ncclMax, ncclMin, ncclAvg};
    rank_open(self);
    for (int i = 0; i < 16; i++)
        allreduce_of(self, types[i / 4], ops[i % 4]);
    for (int root = 0; root < self->nranks; root++) {
        unsigned char *in = filled(100000, (unsigned)self->rank), *out = buffer(100000);
        OK(ncclBroadcast(in, out, 100000, ncclUint8, root, self->comm, self->stream));
        CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
        CHECK(is_filled(out, 100000, (unsigned)root));
    }
    int count = 0, rank = 0, device = -1;
    OK(ncclCommCount(self->comm, &count));
    OK(ncclCommUserRank(self->comm, &rank));
    OK(ncclCommCuDevice(self->comm, &device));
    CHECK(count == self->nranks && rank == self->rank && device == 0);
    rank_close(self);
}

static unsigned seed_of(int from, int to, int n)
{
    return (unsigned)(100 * from + 10 * to + n);
}

/* Two messages of every rank to every rank, itself too, in an order of each rank's own. */
static void mixed(struct rank *self)
{
    enum { NBYTES = 90000 };
    rank_open(self);
    unsigned char *in[8][2], *mine = filled(NBYTES, 7),
                             *all = buffer((size_t)self->nranks * NBYTES);
    OK(ncclGroupStart());
    for (int step = 0; step < 4 * self->nranks; step++) {
        int n = step / (2 * self->nranks), which = step % (2 * self->nranks);
        if (self->rank % 2)
            which = 2 * self->nranks - 1 - which;
        int peer = (which / 2 + 3 * self->rank) % self->nranks;
        if (step == self->rank)
            OK(ncclAllGather(mine, all, NBYTES, ncclUint8, self->comm, self->stream));
        if (which % 2) {
            unsigned char *out = filled(NBYTES, seed_of(self->rank, peer, n));
            OK(ncclSend(out, NBYTES / 4, ncclFloat32, peer, self->comm, self->stream));
        } else {
            in[peer][n] = buffer(NBYTES);
            OK(ncclRecv(in[peer][n], NBYTES / 4, ncclInt32, peer, self->comm, self->stream));
        }
    }
    OK(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
    for (int peer = 0; peer < self->nranks; peer++) {
        CHECK(is_filled(all + (size_t)peer * NBYTES, NBYTES, 7));
        for (int n = 0; n < 2; n++)
            CHECK(is_filled(in[peer][n], NBYTES, seed_of(peer, self->rank, n)));
    }
    rank_close(self);
}

/* Many megabytes both ways, destroyed without a look at the stream: that must wait. */
static void large(struct rank *self)
{
    const size_t nbytes = (size_t)4 << 20;
    unsigned char *in[8];
    rank_open(self);
    OK(ncclGroupStart());
    for (int peer = 0; peer < self->nranks; peer++) {
        unsigned char *out = filled(nbytes, seed_of(self->rank, peer, 0));
        in[peer] = buffer(nbytes);
        OK(ncclSend(out, nbytes, ncclUint8, peer, self->comm, self->stream));
        OK(ncclRecv(in[peer], nbytes, ncclUint8, peer, self->comm, self->stream));
    }
    OK(ncclGroupEnd());
    OK(ncclCommDestroy(self->comm));
    for (int peer = 0; peer < self->nranks; peer++)
        CHECK(is_filled(in[peer], nbytes, seed_of(peer, self->rank, 0)));
    CHECK_NCCL(ncclInvalidArgument, ncclCommDestroy(self->comm));
}

/* A receive that waits on one stream holds nothing up on another one. */
static void streams(struct rank *self)
{
    int data_flag = 0, *data = buffer(4);
    cudaStream_t other;
    rank_open(self);
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    *data = self->rank;
    if (self->rank == 0) {
        OK(ncclRecv(data, 1, ncclInt32, 1, self->comm, self->stream));
        int *second = buffer(4);
        OK(ncclRecv(second, 1, ncclInt32, 2, self->comm, other));
        CHECK(cudaStreamSynchronize(other) == cudaSuccess && *second == 2);
        CHECK(cudaStreamQuery(self->stream) == cudaErrorNotReady);
        self->flags[data_flag] = 1;
    } else if (self->rank == 1) {
        rank_await(self, data_flag, 1);
    }
    if (self->rank > 0)
        OK(ncclSend(data, 1, ncclInt32, 0, self->comm, self->stream));
    CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess);
    CHECK(*data == (self->rank ? self->rank : 1));
    rank_close(self);
}

static void *thread_body(void *arg)
{
    ring(arg);
    return NULL;
}

static void ranks_in_threads(struct rank *self)
{
    struct rank part[5];
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) {
        part[i] = *self;
        part[i].rank = i;
        part[i].nranks = 5;
        CHECK(pthread_create(&threads[i], NULL, thread_body, &part[i]) == 0);
    }
    for (int i = 0; i < 5; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void data_arrives(void **state)
{
    (void)state;
    const int nranks[] = {2, 3, 8};
    for (int i = 0; i < 3; i++) {
        ranks_run(nranks[i], ring, -1);
        ranks_run(nranks[i], allgather, -1);
        ranks_run(nranks[i], reductions, -1);
    }
    ranks_run(1, ranks_in_threads, -1);
}

static void order_in_a_group_is_free(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 8; nranks++)
        ranks_run(nranks, mixed, -1);
    ranks_run(3, large, -1);
    ranks_run(3, streams, -1);
}

/* Two communicators and one stream in one group, in another order on every rank. */
static void two_comms(struct rank *self)
{
    const ncclComm_t first = (rank_open(self), self->comm);
    int *data[2] = {buffer(4), buffer(4)};
    strcat(self->id.internal, "-second");
    OK(ncclCommInitRank(&self->comm, self->nranks, self->id, self->rank));
    const ncclComm_t comms[2] = {first, self->comm};
    *data[0] = self->rank;
    *data[1] = 10 * self->rank;
    OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        int which = (i + self->rank) % 2;
        OK(ncclAllReduce(data[which], data[which], 1, ncclInt, ncclSum, comms[which],
                         self->stream));
    }
    OK(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(self->stream) == cudaSuccess && *data[0] == 3 && *data[1] == 30);
    OK(ncclCommDestroy(first));
    rank_close(self);
}

/* All ranks in one thread, which must not wait for the first one. */
static void one_thread(struct rank *self)
{
    ncclComm_t comms[3];
    cudaStream_t streams[3];
    int *data[3];
    OK(ncclGroupStart());
    for (int i = 0; i < 3; i++)
        OK(ncclCommInitRank(&comms[i], 3, self->id, i));
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) == cudaSuccess);
        data[i] = buffer(4);
        *data[i] = i;
        OK(ncclAllReduce(data[i], data[i], 1, ncclInt, ncclSum, comms[i], streams[i]));
    }
    OK(ncclGroupEnd());
    for (int i = 0; i < 3; i++) {
        CHECK(cudaStreamSynchronize(streams[i]) == cudaSuccess && *data[i] == 3);
        OK(ncclCommDestroy(comms[i]));
    }
}

static void communicators_share_a_group(void **state)
{
    (void)state;
    ranks_run(3, two_comms, -1);
    ranks_run(1, one_thread, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_function_is_weak_and_its_twin_strong),
        cmocka_unit_test(version_can_be_chosen),
        cmocka_unit_test(data_arrives),
        cmocka_unit_test(order_in_a_group_is_free),
        cmocka_unit_test(communicators_share_a_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
