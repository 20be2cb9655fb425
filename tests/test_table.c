/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients by row: the bits of the dense gradient, ranks without rows, ids that are wrong, and
 * ranks that lie. All ranks of a group in this process, a thread for each that finishes. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "simd/array.h"
#include "self_ranks.h"

#define RANKS_MAX 5
#define HEIGHT 40
#define WIDTH 7
#define ROWS_MAX 60

static wring_context *context;
static wring_comm *comm[RANKS_MAX];
static wring_scheduler *scheduler[RANKS_MAX];
static int nranks;
static unsigned char dense[RANKS_MAX][HEIGHT * WIDTH * sizeof(double)];

/* Schedulers with a table, number 0, and if DENSE_TOO a parameter 0 of the same shape. */
static void group_open(int n, wring_dtype dtype, const wring_scheduler_options *options,
                       bool dense_too)
{
    const size_t shape[2] = {HEIGHT, WIDTH};
    int number;
    wring_comm_options comm_options = WRING_COMM_OPTIONS_INIT;
    comm_options.codec = "none";
    comm_options.algorithm = "direct";
    nranks = n;
    context = self_open(n, &comm_options, comm);
    for (int r = 0; r < n; r++) {
        require(wring_scheduler_create(comm[r], options, &scheduler[r]));
        require(wring_scheduler_add_table(scheduler[r], "table", dtype, HEIGHT, WIDTH, &number));
        assert_int_equal(number, 0);
        if (dense_too)
            require(wring_scheduler_add(scheduler[r], "dense", dtype, 2, shape, dense[r], &number));
    }
}

static void group_close(void)
{
    for (int r = 0; r < nranks; r++)
        wring_scheduler_destroy(scheduler[r]);
    self_close(context, nranks, comm);
}

static wring_result results[RANKS_MAX];

static void *finish_one(void *rank_arg)
{
    int rank = (int)(intptr_t)rank_arg;
    wring_status status = wring_scheduler_finish(scheduler[rank], &results[rank]);
    if (status != WRING_OK)
        fprintf(stderr, "%s\n", wring_error_message());
    return (void *)(intptr_t)status;
}

static void finish_all(void)
{
    pthread_t thread[RANKS_MAX];
    for (int r = 0; r < nranks; r++)
        pthread_create(&thread[r], NULL, finish_one, (void *)(intptr_t)r);
    for (int r = 0; r < nranks; r++) {
        void *status;
        pthread_join(thread[r], &status);
        assert_int_equal((intptr_t)status, WRING_OK);
    }
}

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* ---- the dense gradient's bits --------------------------------------------------------------- */

/* Some rows, no id twice, in no order; the same into the dense gradient. */
static void give_rows(int rank, wring_dtype dtype, uint32_t *state)
{
    int64_t ids[ROWS_MAX];
    unsigned char rows[ROWS_MAX * WIDTH * sizeof(double)];
    size_t n = 0, element = wring_dtype_size(dtype), nbytes = WIDTH * element;
    memset(dense[rank], 0, sizeof dense[rank]);
    uint32_t step = 1 + 2 * (draw(state) % 16), first = draw(state);
    for (uint32_t k = 0; k < 64; k++) {
        uint32_t id = (first + k * step) % 64;
        if (id >= HEIGHT || draw(state) % 3 == 0)
            continue;
        for (size_t j = 0; j < WIDTH; j++) {
            float value = (float)(int)(draw(state) % 20001 - 10000) / 3.0f;
            double wide = (double)value * 1.1;
            if (dtype == WRING_FLOAT64)
                memcpy(rows + n * nbytes + j * element, &wide, sizeof wide);
            else
                wri_array_convert(dtype, rows + n * nbytes + j * element, WRING_FLOAT32, &value, 1);
        }
        memcpy(dense[rank] + id * nbytes, rows + n * nbytes, nbytes);
        ids[n++] = (int64_t)id;
    }
    size_t half = n / 2; /* in two calls */
    require(wring_scheduler_ready_rows(scheduler[rank], 0, ids, rows, half));
    require(
        wring_scheduler_ready_rows(scheduler[rank], 0, ids + half, rows + half * nbytes, n - half));
    memset(rows, 0xFF, sizeof rows); /* ours again */
    memset(ids, 0xFF, sizeof ids);
}

static void check_same_as_dense(wring_dtype dtype)
{
    size_t nbytes = WIDTH * wring_dtype_size(dtype);
    for (int r = 0; r < nranks; r++) {
        static unsigned char spread[sizeof dense[0]];
        const int64_t *ids;
        void *rows;
        size_t n;
        require(wring_scheduler_rows(scheduler[r], 0, &ids, &rows, &n));
        memset(spread, 0, sizeof spread);
        for (size_t i = 0; i < n; i++) {
            assert_true(ids[i] >= 0 && ids[i] < HEIGHT && (i == 0 || ids[i] > ids[i - 1]));
            memcpy(spread + (size_t)ids[i] * nbytes, (char *)rows + i * nbytes, nbytes);
        }
        assert_memory_equal(spread, dense[r], HEIGHT * nbytes);
        assert_memory_equal(dense[0], dense[r], HEIGHT * nbytes);
        assert_false(results[r].nonfinite);
    }
}

static void run_against_dense(int n, wring_dtype dtype, wring_op op, bool weighted)
{
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    uint32_t state = (uint32_t)(n * 100 + (int)dtype * 10 + (int)op);
    options.accumulate = 3;
    options.op = op;
    options.weighted = weighted;
    group_open(n, dtype, &options, true);
    for (int micro = 0; micro < 9; micro++) {
        bool equal = micro < 3, none = micro / 3 == 2;
        for (int r = 0; r < n; r++) {
            if (weighted)
                require(wring_scheduler_weigh(scheduler[r], none    ? 0
                                                            : equal ? 3
                                                                    : (micro + r) % 3));
            if ((micro + r) % 5 == 2) /* no rows */
                require(wring_scheduler_absent(scheduler[r], 0));
            else {
                give_rows(r, dtype, &state);
                require(wring_scheduler_ready(scheduler[r], 0));
            }
        }
        finish_all();
        if (micro % 3 == 2)
            check_same_as_dense(dtype);
    }
    group_close();
}

static void rows_have_the_bits_of_the_dense_gradient(void **state)
{
    (void)state;
    static const wring_dtype dtypes[] = {WRING_FLOAT32, WRING_BFLOAT16, WRING_FLOAT16,
                                         WRING_FLOAT64};
    for (int n = 1; n <= RANKS_MAX; n++)
        for (int turn = 0; turn < 16; turn++)
            run_against_dense(n, dtypes[turn % 4], turn & 4 ? WRING_AVG : WRING_SUM, turn & 8);
}

/* ---- few rows, and none ---------------------------------------------------------------------- */

static const float ones[2 * WIDTH] = {1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2};

/* pytorch 42400: averaged twice where gradients were sparse. 2 and 4 make 3, on both paths; and a
 * row that comes in parts. */
static void case_b78_averaged_once(void **state)
{
    (void)state;
    static const int64_t twice[2] = {7, 7}, once[1] = {7};
    const int64_t *ids;
    void *rows;
    size_t n;
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    group_open(2, WRING_FLOAT32, &options, true);
    for (int r = 0; r < 2; r++) { /* 1 + 1, and 1 + 1 + 2 */
        require(wring_scheduler_ready_rows(scheduler[r], 0, twice, ones, 0));
        require(wring_scheduler_ready_rows(scheduler[r], 0, once, ones, 1));
        require(wring_scheduler_ready_rows(scheduler[r], 0, once, ones, 1));
        if (r == 1)
            require(wring_scheduler_ready_rows(scheduler[r], 0, once, ones + WIDTH, 1));
        for (size_t i = 0; i < HEIGHT * WIDTH; i++)
            ((float *)(void *)dense[r])[i] = (float)(2 + 2 * r);
        require(wring_scheduler_ready(scheduler[r], 0));
    }
    finish_all();
    for (int r = 0; r < 2; r++) {
        require(wring_scheduler_rows(scheduler[r], 0, &ids, &rows, &n));
        assert_int_equal(n, 1);
        assert_int_equal(ids[0], 7);
        for (size_t i = 0; i < WIDTH; i++)
            assert_true(((float *)rows)[i] == 3.0f && ((float *)(void *)dense[r])[i] == 3.0f);
    }
    group_close();
}

/* Ranks without rows, then all without, then a NaN: no hang, and all see it. What travels is what
 * was used: frames, ids and rows. */
static void ranks_without_rows(void **state)
{
    (void)state;
    static const int64_t ids_in[2] = {39, 0};
    float with_nan[2 * WIDTH];
    const int64_t *ids;
    void *rows;
    size_t n;
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.op = WRING_SUM;
    memcpy(with_nan, ones, sizeof ones);
    with_nan[3] = NAN;
    group_open(3, WRING_FLOAT32, &options, false);
    for (int step = 0; step < 4; step++) {
        if (step != 1)
            require(wring_scheduler_ready_rows(scheduler[1], 0, ids_in, step == 2 ? with_nan : ones,
                                               2));
        finish_all();
        for (int r = 0; r < 3; r++) {
            double norm;
            require(wring_scheduler_rows(scheduler[r], 0, &ids, &rows, &n));
            assert_int_equal(n, step == 1 ? 0 : 2);
            assert_true(n == 0 || (ids[0] == 0 && ids[1] == 39 && *(float *)rows == 2.0f));
            assert_int_equal(results[r].nonfinite, step == 2);
            size_t gathers = step == 1 ? 1 : 3, data = step == 1 ? 0 : 2 * (8 + 4 * WIDTH);
            assert_int_equal(results[r].wire_nbytes, 2 * (gathers * 128 + 8 + data));
            require(wring_scheduler_norm(scheduler[r], &norm));
            if (step == 3) {
                assert_true(norm == sqrt(5.0 * WIDTH));
                require(wring_scheduler_scale(scheduler[r], 0.5));
                assert_true(*(float *)rows == 1.0f);
            }
        }
    }
    group_close();
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void mistakes(void **state)
{
    (void)state;
    static const int64_t high[2] = {3, HEIGHT}, low[1] = {-1}, good[1] = {4};
    const int64_t *ids;
    void *rows;
    size_t n;
    int table;
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    group_open(1, WRING_FLOAT32, &options, false);
    wring_scheduler *s = scheduler[0];
    assert_int_equal(wring_scheduler_add_table(s, "table", WRING_FLOAT32, 1, 1, &table),
                     WRING_E_ARGUMENT);
    assert_int_equal(wring_scheduler_add_table(s, "i", WRING_INT32, 1, 1, &table),
                     WRING_E_UNSUPPORTED);
    assert_int_equal(wring_scheduler_add_table(s, "t", WRING_FLOAT32, 1, 0, &table),
                     WRING_E_ARGUMENT);
    assert_int_equal(wring_scheduler_ready_rows(s, 0, high, ones, 2), WRING_E_ARGUMENT);
    assert_says("table 'table' has rows 0..40; id 1 is 40");
    assert_int_equal(wring_scheduler_ready_rows(s, 0, low, ones, 1), WRING_E_ARGUMENT);
    assert_int_equal(wring_scheduler_ready_rows(s, 0, NULL, ones, 1), WRING_E_ARGUMENT);
    assert_int_equal(wring_scheduler_ready_rows(s, 0, good, NULL, 1), WRING_E_ARGUMENT);
    assert_int_equal(wring_scheduler_ready_rows(s, 1, good, ones, 1), WRING_E_ARGUMENT);
    assert_int_equal(wring_scheduler_rows(s, -1, &ids, &rows, &n), WRING_E_ARGUMENT);
    require(wring_scheduler_ready_rows(s, 0, good, ones, 1));
    assert_int_equal(wring_scheduler_add_table(s, "late", WRING_FLOAT32, 1, 1, &table),
                     WRING_E_STATE);
    finish_all();
    require(wring_scheduler_rows(s, 0, &ids, &rows, &n));
    assert_true(n == 1 && ids[0] == 4);
    group_close();
}

/* Rank 1 follows the protocol by hand and sends what no table can have. */
static void ranks_that_lie(void **state)
{
    (void)state;
    static const struct {
        int64_t count, ids[2];
    } lies[] = {{-1, {0}},      {HEIGHT + 1, {0}},  {INT64_MAX, {0}}, {INT64_MIN, {0}},
                {2, {5, 5}},    {2, {5, 4}},        {2, {-1, 4}},     {2, {1, HEIGHT}},
                {1, {1 << 30}}, {2, {3, INT64_MAX}}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
        wring_request *request[3];
        int64_t counts[2], ids[4];
        float rows[4 * WIDTH];
        bool counted = lies[i].count >= 0 && lies[i].count <= HEIGHT;
        size_t n = counted ? (size_t)lies[i].count : 0;
        group_open(2, WRING_FLOAT32, &options, false);
        struct {
            wring_dtype dtype;
            const void *send;
            void *recv;
            size_t count;
        } calls[3] = {{WRING_INT64, &lies[i].count, counts, 1},
                      {WRING_INT64, lies[i].ids, ids, n},
                      {WRING_FLOAT32, ones, rows, n * WIDTH}};
        int ncalls = counted ? 3 : 1;
        for (int c = 0; c < ncalls; c++) {
            wring_segment segment = {
                .send = calls[c].send, .recv = calls[c].recv, .count = calls[c].count};
            wring_call call = WRING_CALL_INIT;
            call.kind = WRING_ALLGATHER;
            call.dtype = calls[c].dtype;
            call.segments = &segment;
            call.nsegments = 1;
            require(wring_comm_start(comm[1], &call, &request[c]));
        }
        assert_int_equal(wring_scheduler_finish(scheduler[0], NULL), WRING_E_CORRUPT);
        assert_says("table 'table': rank 1 ");
        assert_int_equal(wring_scheduler_finish(scheduler[0], NULL), WRING_E_CORRUPT);
        for (int c = 0; c < ncalls; c++)
            wring_request_wait(request[c], NULL);
        group_close();
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const int64_t ids[2] = {7, 1};
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        assert_true(n < 100);
        wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
        group_open(1, WRING_BFLOAT16, &options, false);
        wri_alloc_fail_at(n);
        wring_status status = wring_scheduler_ready_rows(scheduler[0], 0, ids, ones, 2);
        if (status == WRING_OK)
            status = wring_scheduler_finish(scheduler[0], NULL);
        wri_alloc_fail_at(0);
        failed = status != WRING_OK;
        assert_true(status == WRING_OK || status == WRING_E_MEMORY);
        group_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_bits_of_the_dense_gradient),
        cmocka_unit_test(case_b78_averaged_once),
        cmocka_unit_test(ranks_without_rows),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(ranks_that_lie),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
