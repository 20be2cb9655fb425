/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that die, fall silent or fail: every other one learns it in time, with a message that says
 * who and where, and no call hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "ranks.h"

#define CLOSED_MS 2000 /* to notice a closed connection */

static int victim, blow;
static size_t count;

/* Sum until it fails; the victim is struck in its fifth call. */
static void sum_until_failure(wring_context *context, wring_comm *comm, int rank)
{
    float *data = calloc(count + 1, sizeof(float));
    wring_status status = WRING_OK;
    (void)context;
    for (int i = 0; status == WRING_OK && i < 100000; i++) {
        if (rank == victim && i == 5)
            strike(rank, blow);
        for (size_t k = 0; k < count; k++)
            data[k] = (float)(rank + 1);
        status = wring_allreduce(comm, data, data, count, WRING_FLOAT32, WRING_SUM);
        int n = board->nranks;
        for (size_t k = 0; status == WRING_OK && k < count; k++)
            EXPECT(data[k] == (float)(n * (n + 1) / 2));
    }
    note_outcome(rank, status);
    free(data);
}

static void check_survivors(int nranks, unsigned dead, int64_t least_ms, int64_t most_ms)
{
    char name[16];
    snprintf(name, sizeof(name), "rank %d", victim);
    for (int q = 0; q < nranks; q++) {
        const struct outcome *outcome = &board->outcome[q];
        if (dead >> q & 1)
            continue;
        int64_t ms = (outcome->at_ns - board->struck_ns) / MS;
        if (outcome->status != WRING_E_PEER_LOST || !strstr(outcome->message, name) ||
            ms < least_ms || ms > most_ms)
            fail_msg("rank %d of %d, after %lld ms: %s: %s", q, nranks, (long long)ms,
                     wring_status_name(outcome->status), outcome->message);
    }
}

static void test_killed(void **state)
{
    static const size_t counts[] = {1, 1000, 300000};
    pid_t pid[RANKS_MAX];
    (void)state;
    blow = SIGKILL;
    for (int n = 2; n <= 4; n++)
        for (victim = 0; victim < n; victim++) {
            count = counts[(n + victim) % 3];
            ranks_start(n, sum_until_failure, pid);
            ranks_end(n, pid, 1u << victim);
            check_survivors(n, 1u << victim, 0, CLOSED_MS);
        }
}

static void test_stopped(void **state)
{
    pid_t pid[RANKS_MAX];
    (void)state;
    blow = SIGSTOP;
    count = 1000;
    setenv("WRING_HEARTBEAT_TIMEOUT", "1000", 1);
    for (victim = 0; victim < 3; victim++) {
        ranks_start(3, sum_until_failure, pid);
        ranks_end(3, pid, 1u << victim);
        check_survivors(3, 1u << victim, 1000, 2000);
    }
    unsetenv("WRING_HEARTBEAT_TIMEOUT");
}

/* ---- afterwards ------------------------------------------------------------------------------ */

#define RECOVERY_MS 5000

static unsigned doomed; /* bits: who dies in the first sum */
static int late;        /* who dies while the others recover; -1 nobody */

static void *strike_later(void *arg)
{
    usleep(*(useconds_t *)arg);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Ten calls on the failed communicator: ten errors, each at once, and nothing is written. */
static void ten_calls(wring_comm *comm)
{
    for (int i = 0; i < 10; i++) {
        float data = 7;
        int64_t begin = wri_clock_ns();
        wring_status status = wring_allreduce(comm, &data, &data, 1, WRING_FLOAT32, WRING_SUM);
        EXPECT(status == WRING_E_PEER_LOST && data == 7);
        EXPECT(wri_clock_ns() - begin < 10 * MS);
    }
}

static void check_sum(wring_comm *comm, int rank)
{
    float sum[3] = {1, (float)(1 << rank), 3};
    EXPECT(wring_allreduce(comm, sum, sum, 3, WRING_FLOAT32, WRING_SUM) == WRING_OK);
    EXPECT(sum[0] == (float)wring_comm_size(comm));
    board->outcome[rank].value[2] = sum[1]; /* bits: who took part */
}

static void recover(wring_context *context, wring_comm *comm, int rank)
{
    useconds_t delay_us = 100u * (unsigned)(getpid() % 100);
    pthread_t thread;
    wring_comm *rest;
    uint64_t least;
    float data = 0;
    (void)context;
    if (doomed >> rank & 1) {
        usleep(20000);
        strike(rank, SIGKILL);
    }
    wring_status status = wring_allreduce(comm, &data, &data, 1, WRING_FLOAT32, WRING_SUM);
    note_outcome(rank, status);
    ten_calls(comm);
    if (rank == late)
        pthread_create(&thread, NULL, strike_later, &delay_us);
    EXPECT(wring_comm_agree(comm, (uint64_t)(100 + rank), &least) == WRING_OK);
    board->outcome[rank].value[0] = (double)least;
    if (late < 0) /* leaves nobody out unasked */
        EXPECT(wring_comm_split(comm, 0, 0, &rest) == WRING_E_PEER_LOST);
    EXPECT(wring_comm_shrink(comm, &rest) == WRING_OK);
    if (late < 0) {
        check_sum(rest, rank);
    } else { /* it may have died after all were through */
        float one = 1;
        status = wring_allreduce(rest, &one, &one, 1, WRING_FLOAT32, WRING_SUM);
        if (rank == late)
            pause();
        if (status != WRING_OK || one != (float)(wring_comm_size(comm) - 2)) {
            wring_comm *again;
            EXPECT(wring_comm_shrink(rest, &again) == WRING_OK);
            wring_comm_destroy(rest);
            rest = again;
        }
        check_sum(rest, rank);
    }
    board->outcome[rank].value[1] = (double)((wri_clock_ns() - board->struck_ns) / MS);
    board->outcome[rank].value[3] = wring_comm_rank(rest);
    wring_comm_destroy(rest);
}

static void check_recovered(int nranks, unsigned dead)
{
    int next = 0, lowest = 0;
    unsigned all = (1u << nranks) - 1;
    while (dead >> lowest & 1)
        lowest++;
    for (int q = 0; q < nranks; q++) {
        const double *value = board->outcome[q].value;
        if (dead >> q & 1)
            continue;
        assert_true(value[0] <= 100 + lowest && (late >= 0 || value[0] == 100 + lowest));
        assert_true(value[1] < RECOVERY_MS);
        assert_true(value[2] == (double)(all & ~dead));
        assert_true(value[3] == next++);
    }
}

static void run_recovery(int nranks, unsigned dead)
{
    pid_t pid[RANKS_MAX];
    doomed = late < 0 ? dead : dead & ~(1u << late);
    ranks_start(nranks, recover, pid);
    ranks_end(nranks, pid, dead);
    check_recovered(nranks, dead);
}

static void test_shrink(void **state)
{
    (void)state;
    late = -1;
    for (int n = 2; n <= 4; n++)
        for (unsigned dead = 1; dead < (1u << n) - 1; dead++)
            run_recovery(n, dead);
}

static void test_killed_while_shrinking(void **state)
{
    (void)state;
    for (int first = 0; first < 4; first++)
        for (late = 0; late < 4; late++)
            if (late != first)
                run_recovery(4, 1u << first | 1u << late);
    late = -1;
}

static void *abort_it(void *comm)
{
    usleep(50000);
    int64_t begin = wri_clock_ns();
    EXPECT(wring_comm_abort(comm) == WRING_OK);
    EXPECT(wri_clock_ns() - begin < 1000 * MS);
    return NULL;
}

/* Rank 1 never calls; rank 0 aborts from another thread while it waits. */
static void wait_and_abort(wring_context *context, wring_comm *comm, int rank)
{
    pthread_t thread;
    float data = 1;
    (void)context;
    if (rank == 0)
        pthread_create(&thread, NULL, abort_it, comm);
    if (rank == 1)
        usleep(300000);
    int64_t begin = wri_clock_ns();
    wring_status status = wring_allreduce(comm, &data, &data, 1, WRING_FLOAT32, WRING_SUM);
    EXPECT(wri_clock_ns() - begin < 1000 * MS);
    note_outcome(rank, status);
    if (rank == 0)
        pthread_join(thread, NULL);
}

static void test_abort(void **state)
{
    pid_t pid[RANKS_MAX];
    (void)state;
    for (int i = 0; i < 5; i++) {
        ranks_start(3, wait_and_abort, pid);
        ranks_end(3, pid, 0);
        for (int q = 0; q < 3; q++)
            if (board->outcome[q].status != WRING_E_ABORTED ||
                (q > 0 && !strstr(board->outcome[q].message, "rank 0")))
                fail_msg("rank %d: %s", q, board->outcome[q].message);
    }
}

/* Even and odd ranks part; the odd ones in reverse order; rank 4 has had enough. */
static void split(wring_context *context, wring_comm *comm, int rank)
{
    wring_comm *part;
    (void)context;
    int color = rank == 4 ? -1 : rank % 2;
    EXPECT(wring_comm_split(comm, color, color ? -rank : 0, &part) == WRING_OK);
    EXPECT((part == NULL) == (rank == 4));
    if (part != NULL) {
        check_sum(part, rank);
        EXPECT(wring_comm_size(part) == 2);
        EXPECT(wring_comm_rank(part) == (color ? 1 - rank / 2 : rank / 2));
    }
    float one = 1; /* the whole one works on */
    EXPECT(wring_allreduce(comm, &one, &one, 1, WRING_FLOAT32, WRING_SUM) == WRING_OK);
    EXPECT(one == 5);
    wring_comm_destroy(part);
    note_outcome(rank, WRING_OK);
}

static void test_split(void **state)
{
    pid_t pid[RANKS_MAX];
    (void)state;
    ranks_start(5, split, pid);
    ranks_end(5, pid, 0);
    for (int q = 0; q < 4; q++)
        assert_true(board->outcome[q].value[2] == (q % 2 ? 10 : 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed), cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_shrink), cmocka_unit_test(test_killed_while_shrinking),
        cmocka_unit_test(test_abort),  cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, board_open, NULL);
}
