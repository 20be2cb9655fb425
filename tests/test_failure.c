/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that die, fall silent or fail: every other one learns it in time, with a message that says
 * who and where, and no call hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests(tests, board_open, NULL);
}
