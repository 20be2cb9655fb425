/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of calls: all of them or none. Ranks of one process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <wring/wring.h>

#include "base/memory.h"
#include "self_ranks.h"

#define RANKS_MAX 4
#define CALLS 6
#define COUNT 500

static wring_context *context;
static wring_comm *comm[RANKS_MAX];
static wring_tensor *tensor[RANKS_MAX];

static void ranks_open(int nranks)
{
    static const size_t count = COUNT;
    context = self_open(nranks, NULL, comm);
    for (int r = 0; r < nranks; r++)
        require(wring_tensor_create(comm[r], "t", WRING_FLOAT32, 1, &count, NULL, &tensor[r]));
}

static void ranks_close(int nranks)
{
    for (int r = 0; r < nranks; r++)
        wring_tensor_destroy(tensor[r]);
    self_close(context, nranks, comm);
}

/* What each call of a group sends and receives. */
struct buffers {
    wring_segment segment[CALLS];
    float send[CALLS][COUNT], recv[CALLS][COUNT * RANKS_MAX];
};

static struct buffers buffers[RANKS_MAX];

/* An allreduce of a tensor, one of nothing (B40, B41: counts of 0 with and without a buffer), a
 * barrier, an allgather, a broadcast, an allreduce of a single element. */
static void fill_calls(int rank, wring_call calls[CALLS])
{
    static const wring_kind kinds[CALLS] = {WRING_ALLREDUCE, WRING_ALLREDUCE, WRING_BARRIER,
                                            WRING_ALLGATHER, WRING_BROADCAST, WRING_ALLREDUCE};
    static const size_t counts[CALLS] = {COUNT, 0, 0, 7, 3, 1};
    struct buffers *b = &buffers[rank];
    memset(b->recv, 0, sizeof b->recv);
    for (int c = 0; c < CALLS; c++) {
        for (size_t i = 0; i < COUNT; i++)
            b->send[c][i] = (float)(rank + c);
        b->segment[c] = (wring_segment){.send = b->send[c], .recv = b->recv[c], .count = counts[c]};
        calls[c] = (wring_call)WRING_CALL_INIT;
        calls[c].kind = kinds[c];
        calls[c].segments = &b->segment[c];
        calls[c].nsegments = kinds[c] == WRING_BARRIER ? 0 : 1;
    }
    b->segment[0].tensor = tensor[rank];
    if (rank % 2)
        b->segment[1].send = b->segment[1].recv = NULL;
}

static void check_results(int rank, int nranks)
{
    const struct buffers *b = &buffers[rank];
    float sum = (float)(nranks * (nranks - 1) / 2);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(b->recv[0][i] == sum);
    for (int q = 0; q < nranks; q++)
        for (size_t i = 0; i < 7; i++)
            assert_true(b->recv[3][(size_t)q * 7 + i] == (float)(q + 3));
    assert_true(b->recv[4][2] == 4.0f && b->recv[4][3] == 0.0f);
    assert_true(b->recv[5][0] == sum + (float)(5 * nranks));
}

static void groups_of_every_kind(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= RANKS_MAX; nranks++) {
        wring_request *request[RANKS_MAX][CALLS];
        ranks_open(nranks);
        for (int step = 0; step < 3; step++) {
            for (int r = 0; r < nranks; r++) {
                wring_call calls[CALLS];
                fill_calls(r, calls);
                if (r == 1) /* one by one: the same calls */
                    for (int c = 0; c < CALLS; c++)
                        require(wring_comm_start(comm[r], &calls[c], &request[r][c]));
                else
                    require(wring_comm_start_group(comm[r], calls, CALLS, request[r]));
            }
            for (int r = 0; r < nranks; r++)
                for (int c = CALLS; c-- > 0;)
                    require(wring_request_wait(request[r][c], NULL));
            for (int r = 0; r < nranks; r++)
                check_results(r, nranks);
        }
        require(wring_comm_start_group(comm[0], NULL, 0, NULL));
        ranks_close(nranks);
    }
}

/* Whichever call is wrong, none starts, and the same ranks go on as if nothing had been asked. */
static void a_mistake_starts_none(void **state)
{
    (void)state;
    wring_request *request[2][CALLS];
    ranks_open(2);
    for (int bad = 0; bad < CALLS; bad++) {
        wring_call calls[CALLS];
        char says[64];
        fill_calls(0, calls);
        request[0][0] = NULL;
        calls[bad].root = 2;
        assert_int_equal(wring_comm_start_group(comm[0], calls, CALLS, request[0]),
                         WRING_E_ARGUMENT);
        snprintf(says, sizeof says, "call %d of a group of 6: root 2", bad);
        assert_non_null(strstr(wring_error_message(), says));
        assert_null(request[0][0]);
        for (int r = 0; r < 2; r++) {
            fill_calls(r, calls);
            require(wring_comm_start_group(comm[r], calls, CALLS, request[r]));
        }
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < CALLS; c++)
                require(wring_request_wait(request[r][c], NULL));
        check_results(0, 2);
        check_results(1, 2);
    }
    wring_call twice[2];
    wring_call calls[CALLS];
    fill_calls(0, calls);
    twice[0] = twice[1] = calls[0];
    assert_int_equal(wring_comm_start_group(comm[0], twice, 2, request[0]), WRING_E_ARGUMENT);
    assert_non_null(strstr(wring_error_message(), "'t' is twice"));
    ranks_close(2);
}

/* Wherever memory ends: an error, nothing left behind, and no later call waits for what never
 * started. */
static void memory_ends_in_a_group(void **state)
{
    (void)state;
    bool failed = true, late = false;
    for (uint64_t n = 1; failed; n++) {
        wring_request *request[CALLS];
        wring_call calls[CALLS];
        assert_true(n < 200);
        ranks_open(2);
        fill_calls(0, calls);
        wri_alloc_fail_at(n);
        wring_status status = wring_comm_start_group(comm[0], calls, CALLS, request);
        wri_alloc_fail_at(0);
        failed = status != WRING_OK;
        assert_true(status == WRING_OK || status == WRING_E_MEMORY);
        if (failed && strstr(wring_error_message(), "aborted")) {
            late = true;
            assert_int_equal(wring_barrier(comm[0]), WRING_E_ABORTED);
        }
        if (!failed)
            wring_comm_abort(comm[0]);
        for (int c = 0; !failed && c < CALLS; c++)
            wring_request_wait(request[c], NULL);
        ranks_close(2);
    }
    assert_true(late);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_every_kind),
        cmocka_unit_test(a_mistake_starts_none),
        cmocka_unit_test(memory_ends_in_a_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
