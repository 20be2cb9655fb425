/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler alone, over a recording planner: which buckets leave in which order, what is
 * written to the gradients before they leave, and what happens when calls or collectives fail. The
 * planner, requests, tensors and the codec's acceptance test are replaced by the ones below.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/request.h"
#include "collective/tensor.h"
#include "planner/planner.h"
#include "scheduler/scheduler.h"
#include "simd/array.h"

/* ---- the layers below ------------------------------------------------------------------------ */

struct wring_request {
    wring_status status;
};

static const struct wring_transport_ops transport = {.name = "none"};
static wring_context context = {.transport = &transport, .lock = PTHREAD_MUTEX_INITIALIZER};
static wring_comm comm = {.context = &context, .nranks = 1};

/* Everything that left: per call its segments' first gradient pointers, in order. */
static struct {
    int started, waited, tensors;
    size_t nsegments[64];
    const void *first[64];
    int fail_start, fail_wait; /* the how-manieth call, 1 = first; 0: none */
    int told;                  /* failures that the other ranks hear of */
} wire;

wring_status wri_planner_start(wring_comm *unused, const wring_call *call, struct wri_step *step,
                               wring_request **request_out)
{
    (void)unused, (void)step;
    assert_int_equal(call->kind, WRING_ALLREDUCE);
    assert_true(wire.started < 64);
    wire.nsegments[wire.started] = call->nsegments;
    wire.first[wire.started++] = call->segments[0].send;
    for (size_t i = 0; i < call->nsegments; i++)
        assert_ptr_equal(call->segments[i].send, call->segments[i].recv);
    if (wire.started == wire.fail_start)
        return wri_fail(WRING_E_PEER_LOST, "start %d", wire.started);
    wring_request *request = malloc(sizeof *request);
    request->status = wire.started == wire.fail_wait ? WRING_E_TIMEOUT : WRING_OK;
    *request_out = request;
    return WRING_OK;
}

wring_status wri_request_test(wring_request *request)
{
    return request->status;
}

wring_status wri_request_wait(wring_request *request, wring_result *result_out)
{
    wring_status status = request->status;
    free(request);
    wire.waited++;
    if (status != WRING_OK)
        return wri_fail(status, "wait %d", wire.waited);
    *result_out =
        (wring_result){.wire_nbytes = 10, .dense_nbytes = 100, .nonfinite = wire.waited == 2};
    return WRING_OK;
}

wring_status wri_tensor_create(wring_comm *unused, const char *name, wring_dtype dtype, int ndim,
                               const size_t *shape, const wring_tensor_options *options,
                               wring_tensor **tensor_out)
{
    (void)unused, (void)name, (void)dtype, (void)options;
    *tensor_out = calloc(1, sizeof **tensor_out);
    (*tensor_out)->count = 1;
    for (int i = 0; i < ndim; i++)
        (*tensor_out)->count *= shape[i];
    wire.tensors++;
    return WRING_OK;
}

void wri_tensor_destroy(wring_tensor *tensor)
{
    wire.tensors -= tensor != NULL;
    free(tensor);
}

size_t wri_tensor_count(const wring_tensor *tensor)
{
    return tensor->count;
}

size_t wri_tensor_state_nbytes(const wring_tensor *tensor)
{
    return 8 * tensor->count; /* as with error feedback */
}

const wring_codec *wri_tensor_codec(const wring_tensor *tensor)
{
    (void)tensor;
    return NULL;
}

void wri_tensor_set_reason(wring_tensor *tensor, const char *reason)
{
    (void)tensor, (void)reason;
}

void wri_comm_poison(wring_comm *unused, wring_status status)
{
    (void)unused, (void)status;
    wire.told++;
}

/* Nothing is on a device. */
wring_status wri_lane_buffers(wring_comm *unused, struct wri_arena *arena)
{
    (void)unused, (void)arena;
    return WRING_E_INTERNAL;
}

void wri_lane_buffers_close(wring_comm *unused, struct wri_arena *arena, void *stream)
{
    (void)unused, (void)arena, (void)stream;
}

wring_status wri_lane_move(wring_comm *unused, void *dst, const void *src, size_t nbytes)
{
    (void)unused, (void)dst, (void)src, (void)nbytes;
    return WRING_E_INTERNAL;
}

wring_status wri_lane_order(wring_comm *unused, void *first, void *then)
{
    (void)unused, (void)first, (void)then;
    return WRING_E_INTERNAL;
}

wring_status wri_codec_create(const char *spec, wring_codec **codec_out)
{
    (void)codec_out;
    return wri_fail(WRING_E_SPEC, "%s", spec); /* no rules here */
}

void wri_codec_destroy(wring_codec *codec)
{
    (void)codec;
}

wring_status wri_codec_accepts(const wring_codec *codec, wring_dtype dtype, wring_op op)
{
    (void)codec;
    if (op == WRING_AVG && !wri_dtype_is_float(dtype))
        return wri_fail(WRING_E_UNSUPPORTED, "integers have no average");
    return WRING_OK;
}

size_t wri_codec_nbytes(const wring_codec *codec, wring_dtype dtype, size_t count)
{
    (void)codec;
    return count * wring_dtype_size(dtype);
}

/* ---- fixture --------------------------------------------------------------------------------- */

static float grads[8][64];

static wring_scheduler *make(size_t bucket, size_t first, int accumulate, wring_op op)
{
    memset(&wire, 0, sizeof wire);
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.bucket_nbytes = bucket;
    options.first_bucket_nbytes = first;
    options.accumulate = accumulate;
    options.op = op;
    wring_scheduler *scheduler;
    assert_int_equal(wri_scheduler_create(&comm, &options, &scheduler), WRING_OK);
    return scheduler;
}

/* Parameter I of DTYPE with COUNT elements, its gradient in grads[I]. */
static void add(wring_scheduler *scheduler, int i, wring_dtype dtype, size_t count)
{
    char name[16];
    snprintf(name, sizeof name, "p%d", i);
    int param;
    assert_int_equal(wri_scheduler_add(scheduler, name, dtype, 1, &count, NULL, grads[i], &param),
                     WRING_OK);
    assert_int_equal(param, i);
}

static void ready(wring_scheduler *scheduler, int param)
{
    assert_int_equal(wri_scheduler_ready(scheduler, param, NULL), WRING_OK);
}

static void finish(wring_scheduler *scheduler)
{
    assert_int_equal(wri_scheduler_finish(scheduler, NULL), WRING_OK);
}

static void assert_message(const char *part)
{
    if (!strstr(wring_error_message(), part))
        fail_msg("'%s' does not say '%s'", wring_error_message(), part);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Counts of up to 8 float32 parameters in forward order; the segments of each bucket, in the order
 * in which they leave. Limits are in bytes, 4 a value. */
static const struct {
    size_t count[8], nparams, limit, first;
    size_t nsegments[8], nbuckets;
} bucket_cases[] = {
    {{1, 1, 1, 1}, 4, 400, 400, {4}, 1},
    {{10, 10, 10, 10}, 4, 80, 40, {1, 2, 1}, 3}, /* small first one */
    {{10, 10, 10}, 3, 40, 40, {1, 1, 1}, 3},     /* exactly at the limit */
    {{10, 10, 10}, 3, 39, 39, {1, 1, 1}, 3},     /* each one over it */
    {{10, 11, 10, 10}, 4, 80, 80, {2, 1, 1}, 3}, /* one element more does not fit */
    {{1, 50, 1}, 3, 100, 100, {1, 1, 1}, 3},     /* larger than a bucket: alone */
    {{0, 10, 0, 10, 0}, 5, 40, 40, {3, 2}, 2},   /* empty ones join */
    {{0, 0}, 2, 40, 40, {2}, 1},
};

static void test_bucket_limits(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof bucket_cases / sizeof bucket_cases[0]; c++) {
        wring_scheduler *scheduler =
            make(bucket_cases[c].limit, bucket_cases[c].first, 1, WRING_SUM);
        int n = (int)bucket_cases[c].nparams;
        for (int i = 0; i < n; i++)
            add(scheduler, i, WRING_FLOAT32, bucket_cases[c].count[i]);
        for (int i = 0; i < n; i++)
            ready(scheduler, i);
        finish(scheduler);
        assert_int_equal(wire.started, bucket_cases[c].nbuckets);
        assert_memory_equal(wire.nsegments, bucket_cases[c].nsegments,
                            bucket_cases[c].nbuckets * sizeof(size_t));
        assert_ptr_equal(wire.first[0], grads[n - 1]);
        wri_scheduler_destroy(scheduler);
    }
}

static void test_types_do_not_mix(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4096, 4096, 1, WRING_SUM);
    const wring_dtype dtypes[] = {WRING_FLOAT32, WRING_FLOAT32, WRING_BFLOAT16, WRING_INT32};
    for (int i = 0; i < 4; i++)
        add(scheduler, i, dtypes[i], 4);
    for (int i = 0; i < 4; i++)
        ready(scheduler, i);
    finish(scheduler);
    assert_int_equal(wire.started, 3);
    assert_int_equal(wire.nsegments[2], 2);
    wri_scheduler_destroy(scheduler);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* All orders of readiness of four buckets give one order on the wire, and each bucket leaves as
 * soon as it and all before it are ready. */
static void run_order(wring_scheduler *scheduler, const int *order)
{
    bool is_ready[4] = {false};
    wire.started = wire.waited = 0;
    for (int i = 0; i < 4; i++) {
        ready(scheduler, order[i]);
        is_ready[order[i]] = true;
        int expected = 0;
        while (expected < 4 && is_ready[3 - expected])
            expected++;
        assert_int_equal(wire.started, expected);
    }
    finish(scheduler);
    assert_int_equal(wire.waited, 4);
    for (int b = 0; b < 4; b++)
        assert_ptr_equal(wire.first[b], grads[3 - b]);
}

static void test_any_ready_order(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4, 4, 1, WRING_SUM);
    for (int i = 0; i < 4; i++)
        add(scheduler, i, WRING_FLOAT32, 1);
    for (int code = 0; code < 256; code++) {
        int order[4] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
        int seen = 1 << order[0] | 1 << order[1] | 1 << order[2] | 1 << order[3];
        if (seen == 15)
            run_order(scheduler, order);
    }
    wri_scheduler_destroy(scheduler);
}

static void test_memory_is_sized_once(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(64, 16, 2, WRING_AVG);
    for (int i = 0; i < 8; i++)
        add(scheduler, i, WRING_FLOAT32, 8);
    ready(scheduler, 5);
    uint64_t before = wri_alloc_count();
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < 8; i++)
            if (step > 0 || i != 5)
                ready(scheduler, i);
        finish(scheduler);
    }
    assert_int_equal(wri_alloc_count(), before);
    wri_scheduler_destroy(scheduler);
}

/* ---- accumulation ---------------------------------------------------------------------------- */

static void test_nothing_leaves_before_the_last_micro_step(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4096, 4096, 3, WRING_SUM);
    add(scheduler, 0, WRING_FLOAT32, 2);
    for (int micro = 0; micro < 3; micro++) {
        grads[0][0] = (float)(micro + 1);
        grads[0][1] = 0.5f;
        ready(scheduler, 0);
        assert_int_equal(wire.started, micro == 2);
        if (micro < 2)
            finish(scheduler);
    }
    assert_true(grads[0][0] == 6.0f && grads[0][1] == 1.5f);
    wring_result result;
    assert_int_equal(wri_scheduler_finish(scheduler, &result), WRING_OK);
    assert_int_equal(result.wire_nbytes, 10);
    wri_scheduler_destroy(scheduler);
}

/* Small bfloat16 contributions survive: 1 + 3 * 2^-8 is kept in float32 and rounded once. */
static void test_sum_is_float32(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4096, 4096, 4, WRING_SUM);
    size_t count = 1;
    uint16_t grad;
    int param;
    assert_int_equal(
        wri_scheduler_add(scheduler, "w", WRING_BFLOAT16, 1, &count, NULL, &grad, &param),
        WRING_OK);
    for (int micro = 0; micro < 4; micro++) {
        grad = micro == 0 ? 0x3F80 : 0x3B80; /* 1, then 2^-8 */
        ready(scheduler, param);
        finish(scheduler);
    }
    assert_int_equal(grad, 0x3F82); /* 1 + 2 * 2^-7: 1.01171875 to nearest even */
    wri_scheduler_destroy(scheduler);
}

static void test_average_divides_by_micro_steps(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4096, 4096, 2, WRING_AVG);
    add(scheduler, 0, WRING_FLOAT32, 1);
    for (int step = 0; step < 2; step++)
        for (int micro = 0; micro < 2; micro++) {
            grads[0][0] = micro == 0 ? 4.0f : 7.0f;
            ready(scheduler, 0);
            finish(scheduler);
        }
    assert_true(grads[0][0] == 5.5f);
    wri_scheduler_destroy(scheduler);
}

/* ---- misuse changes nothing; failed collectives stop -------------------------------------------
 */

static void test_misuse(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4, 4, 1, WRING_AVG);
    for (int i = 0; i < 3; i++)
        add(scheduler, i, WRING_FLOAT32, 1);
    int param;
    size_t count = 1;
    assert_int_equal(
        wri_scheduler_add(scheduler, "p1", WRING_FLOAT32, 1, &count, NULL, grads[3], &param),
        WRING_E_ARGUMENT);
    assert_int_equal(
        wri_scheduler_add(scheduler, "int", WRING_INT32, 1, &count, NULL, grads[3], &param),
        WRING_E_UNSUPPORTED);
    assert_message("'int'");
    assert_int_equal(wri_scheduler_ready(scheduler, 3, NULL), WRING_E_ARGUMENT);
    assert_int_equal(wri_scheduler_ready(scheduler, -1, NULL), WRING_E_ARGUMENT);
    ready(scheduler, 2);
    assert_int_equal(wri_scheduler_ready(scheduler, 2, NULL), WRING_E_STATE);
    assert_message("'p2'");
    assert_int_equal(
        wri_scheduler_add(scheduler, "late", WRING_FLOAT32, 1, &count, NULL, grads[3], &param),
        WRING_E_STATE);
    assert_int_equal(wri_scheduler_finish(scheduler, NULL), WRING_E_STATE);
    assert_message("'p0', 'p1'");
    ready(scheduler, 0);
    ready(scheduler, 1);
    finish(scheduler);
    assert_int_equal(wire.started, 3);
    assert_int_equal(wire.tensors, 3);
    wri_scheduler_destroy(scheduler);
    assert_int_equal(wire.tensors, 0);
}

static void test_first_failed_wait_wins(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4, 4, 1, WRING_SUM);
    for (int i = 0; i < 4; i++)
        add(scheduler, i, WRING_FLOAT32, 1);
    wire.fail_wait = 2;
    for (int i = 0; i < 4; i++)
        ready(scheduler, i);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(wri_scheduler_finish(scheduler, NULL), WRING_E_TIMEOUT);
        assert_message("wait 2");
        assert_int_equal(wire.waited, 4);
    }
    assert_int_equal(wri_scheduler_ready(scheduler, 0, NULL), WRING_E_TIMEOUT);
    wri_scheduler_destroy(scheduler);
}

static void test_failed_start_stops(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4, 4, 1, WRING_SUM);
    for (int i = 0; i < 4; i++)
        add(scheduler, i, WRING_FLOAT32, 1);
    wire.fail_start = 2;
    ready(scheduler, 3);
    assert_int_equal(wri_scheduler_ready(scheduler, 2, NULL), WRING_E_PEER_LOST);
    assert_int_equal(wri_scheduler_ready(scheduler, 1, NULL), WRING_E_PEER_LOST);
    assert_int_equal(wire.started, 2);
    assert_int_equal(wri_scheduler_finish(scheduler, NULL), WRING_E_PEER_LOST);
    assert_message("start 2");
    assert_int_equal(wire.told, 1);
    assert_int_equal(wire.waited, 1);
    wri_scheduler_destroy(scheduler);
}

static void test_destroy_waits(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4, 4, 1, WRING_SUM);
    add(scheduler, 0, WRING_FLOAT32, 1);
    add(scheduler, 1, WRING_FLOAT32, 1);
    ready(scheduler, 1);
    wri_scheduler_destroy(scheduler);
    assert_int_equal(wire.waited, 1);
    wri_scheduler_destroy(NULL);
}

static void test_results_add_up(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4, 4, 1, WRING_SUM);
    for (int i = 0; i < 3; i++)
        add(scheduler, i, WRING_FLOAT32, 1);
    for (int i = 0; i < 3; i++)
        ready(scheduler, i);
    wring_result result;
    assert_int_equal(wri_scheduler_finish(scheduler, &result), WRING_OK);
    assert_int_equal(result.wire_nbytes, 30);
    assert_int_equal(result.dense_nbytes, 300);
    assert_true(result.nonfinite);
    wri_scheduler_destroy(scheduler);
}

/* Each allocation fails once: parameter table, a name, the arena. The call says so, leaves nothing
 * behind, and can be repeated. */
static void test_allocation_failure(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(64, 64, 2, WRING_SUM);
    for (int i = 0; i < 2; i++) {
        size_t count = 1;
        int param;
        wri_alloc_fail_at(1);
        assert_int_equal(
            wri_scheduler_add(scheduler, "w", WRING_FLOAT32, 1, &count, NULL, grads[i], &param),
            WRING_E_MEMORY);
        assert_int_equal(wire.tensors, i);
        add(scheduler, i, WRING_FLOAT32, count);
    }
    wri_alloc_fail_at(1);
    assert_int_equal(wri_scheduler_ready(scheduler, 0, NULL), WRING_E_MEMORY);
    ready(scheduler, 0);
    ready(scheduler, 1);
    finish(scheduler);
    wri_scheduler_destroy(scheduler);
}

/* ---- absent gradients, a short window ----------------------------------------------------------
 */

/* speechbrain 2010: some modules were synchronised inside a scope that suspends that. Parameters of
 * three modules: nothing leaves, and `finish` counts no bytes, before the last micro-step. */
static void case_b71_nothing_on_the_wire_inside_a_window(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4, 4, 4, WRING_SUM);
    for (int i = 0; i < 3; i++)
        add(scheduler, i, WRING_FLOAT32, 1);
    for (int micro = 0; micro < 4; micro++) {
        wring_result result;
        for (int i = 0; i < 3; i++)
            ready(scheduler, i);
        assert_int_equal(wire.started, micro < 3 ? 0 : 3);
        assert_int_equal(wri_scheduler_finish(scheduler, &result), WRING_OK);
        assert_int_equal(result.wire_nbytes, micro < 3 ? 0 : 30);
    }
    wri_scheduler_destroy(scheduler);
}

static void set(int i, float value)
{
    grads[i][0] = value;
}

/* Who is absent counts as zeros, also in the first micro-step, and has a zeroed gradient if it
 * never came. Absent parameters do not hold up the buckets. */
static void test_absent_is_zero(void **state)
{
    (void)state;
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        wring_scheduler *scheduler = make(4, 4, accumulate, WRING_AVG);
        for (int i = 0; i < 3; i++)
            add(scheduler, i, WRING_FLOAT32, 1);
        for (int step = 0; step < 2; step++) {
            for (int micro = 0; micro < accumulate; micro++) {
                set(0, 6), set(1, 9), set(2, 5);
                assert_int_equal(wri_scheduler_absent(scheduler, 2), WRING_OK);
                if (micro + 1 == accumulate)
                    ready(scheduler, 1);
                else
                    assert_int_equal(wri_scheduler_absent(scheduler, 1), WRING_OK);
                if (micro == 0)
                    ready(scheduler, 0);
                assert_int_equal(wri_scheduler_absent(scheduler, WRING_ALL_PARAMS), WRING_OK);
                assert_int_equal(wire.started, 3 * step + (micro + 1 == accumulate ? 3 : 0));
                finish(scheduler);
            }
            assert_true(grads[0][0] == 6.0f / (float)accumulate);
            assert_true(grads[1][0] == 9.0f / (float)accumulate);
            assert_true(grads[2][0] == 0.0f);
        }
        assert_int_equal(wri_scheduler_absent(scheduler, 1), WRING_OK);
        assert_int_equal(wri_scheduler_absent(scheduler, 1), WRING_E_STATE);
        assert_int_equal(wri_scheduler_ready(scheduler, 1, NULL), WRING_E_STATE);
        assert_int_equal(wri_scheduler_absent(scheduler, -2), WRING_E_ARGUMENT);
        wri_scheduler_destroy(scheduler);
    }
}

/* mlx-lm 1413: ten batches in windows of four; the last two were dropped, or divided by four. The
 * end may be known before the last micro-step, within it, or only after it. */
static void case_b94_short_last_window(void **state)
{
    (void)state;
    enum { BEFORE, WITHIN, AFTER };
    for (int when = BEFORE; when <= AFTER; when++) {
        wring_scheduler *scheduler = make(4096, 4096, 4, WRING_AVG);
        add(scheduler, 0, WRING_FLOAT32, 1);
        for (int batch = 0; batch < 10; batch++) {
            set(0, (float)(batch * batch));
            if (batch == 9 && when == BEFORE)
                assert_int_equal(wri_scheduler_flush(scheduler), WRING_OK);
            ready(scheduler, 0);
            if (batch == 9 && when == WITHIN)
                assert_int_equal(wri_scheduler_flush(scheduler), WRING_OK);
            finish(scheduler);
            if (batch == 3)
                assert_true(grads[0][0] == 14.0f / 4);
            if (batch == 7)
                assert_true(grads[0][0] == 126.0f / 4);
        }
        if (when == AFTER) {
            assert_int_equal(wire.started, 2);
            assert_int_equal(wri_scheduler_flush(scheduler), WRING_OK);
            finish(scheduler);
        }
        assert_int_equal(wire.started, 3);
        assert_true(grads[0][0] == 145.0f / 2);
        for (int micro = 0; micro < 4; micro++) { /* the next window is a whole one */
            set(0, 2);
            ready(scheduler, 0);
            finish(scheduler);
            assert_int_equal(wire.started, micro < 3 ? 3 : 4);
        }
        assert_true(grads[0][0] == 2.0f);
        wri_scheduler_destroy(scheduler);
    }
}

/* A flush does not excuse a gradient that was forgotten; and a step of nothing at all is zeros. */
static void test_flush_of_nothing(void **state)
{
    (void)state;
    wring_scheduler *scheduler = make(4096, 4096, 4, WRING_AVG);
    add(scheduler, 0, WRING_FLOAT32, 1);
    add(scheduler, 1, WRING_FLOAT32, 1);
    set(0, 1), set(1, 1);
    assert_int_equal(wri_scheduler_flush(scheduler), WRING_OK);
    finish(scheduler);
    assert_int_equal(wire.started, 1);
    assert_true(grads[0][0] == 0.0f && grads[1][0] == 0.0f);
    ready(scheduler, 0);
    assert_int_equal(wri_scheduler_flush(scheduler), WRING_OK);
    assert_int_equal(wri_scheduler_finish(scheduler, NULL), WRING_E_STATE);
    assert_message("'p1'");
    ready(scheduler, 1);
    finish(scheduler);
    assert_int_equal(wire.started, 2);
    wri_scheduler_destroy(scheduler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bucket_limits),
        cmocka_unit_test(test_types_do_not_mix),
        cmocka_unit_test(test_any_ready_order),
        cmocka_unit_test(test_memory_is_sized_once),
        cmocka_unit_test(test_nothing_leaves_before_the_last_micro_step),
        cmocka_unit_test(test_sum_is_float32),
        cmocka_unit_test(test_average_divides_by_micro_steps),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_first_failed_wait_wins),
        cmocka_unit_test(test_failed_start_stops),
        cmocka_unit_test(test_destroy_waits),
        cmocka_unit_test(test_results_add_up),
        cmocka_unit_test(test_allocation_failure),
        cmocka_unit_test(case_b71_nothing_on_the_wire_inside_a_window),
        cmocka_unit_test(test_absent_is_zero),
        cmocka_unit_test(case_b94_short_last_window),
        cmocka_unit_test(test_flush_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
