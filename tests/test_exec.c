/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the executor does when things go wrong, and what it does to state when they go right.
 *
 * Proves: a mismatch is an error that names both sides; damaged, foreign and lost messages end in
 * an error, never in a wrong result or a hang; residuals change only in calls that end well on
 * finite data; mass is neither lost nor made; a failed communicator refuses calls at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "collective/comm.h"
#include "collective/state.h"
#include "transport/transport.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <wring/wring.h>

enum { N = 3, COUNT = 50000, PART = 1280 /* whole blocks */ };

struct group {
    wring_context *context;
    wring_comm *comm[N];
};

static void group_open(struct group *group, const char *timeout_ms)
{
    setenv("WRING_TIMEOUT", timeout_ms, 1);
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    options.transport = "self";
    options.caller_progress = true;
    assert_int_equal(wring_context_create(&options, &group->context), WRING_OK);
    assert_int_equal(wring_comm_create_local(group->context, N, NULL, group->comm), WRING_OK);
    unsetenv("WRING_TIMEOUT");
}

static void group_close(struct group *group)
{
    for (int q = 0; q < N; q++)
        wring_comm_destroy(group->comm[q]);
    wring_context_destroy(group->context);
}

static float noise(int rank, size_t i)
{
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u + (uint64_t)rank * 0xD1B54A32D192ED03u;
    x ^= x >> 31;
    x *= 0xBF58476D1CE4E5B9u;
    return (float)((double)(int64_t)x / 9223372036854775808.0);
}

/* One allreduce on every rank, each with its own idea of the call; statuses out. */
static void run(struct group *group, const wring_call *call, const wring_segment *segment,
                wring_status *status_out, wring_result *result_out)
{
    wring_request *request[N] = {0};
    for (int q = 0; q < N; q++) {
        wring_call own = call[q];
        own.segments = &segment[q];
        own.nsegments = 1;
        status_out[q] = wring_comm_start(group->comm[q], &own, &request[q]);
    }
    for (int q = 0; q < N; q++)
        if (request[q] != NULL)
            status_out[q] = wring_request_wait(request[q], result_out ? &result_out[q] : NULL);
}

/* ---- state ----------------------------------------------------------------------------------- */

struct gradients {
    wring_codec *codec;
    wring_tensor *tensor[N];
    float *grad[N], *sum[N];
};

static void gradients_open(struct gradients *g, struct group *group, const char *spec)
{
    const size_t shape[] = {COUNT / 100, 100};
    assert_int_equal(wring_codec_create(spec, &g->codec), WRING_OK);
    for (int q = 0; q < N; q++) {
        wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
        options.codec = g->codec;
        assert_int_equal(wring_tensor_create(group->comm[q], "layer.weight", WRING_FLOAT32, 2,
                                             shape, &options, &g->tensor[q]),
                         WRING_OK);
        g->grad[q] = malloc(COUNT * sizeof(float));
        g->sum[q] = malloc(COUNT * sizeof(float));
        for (size_t i = 0; i < COUNT; i++)
            g->grad[q][i] = noise(q, i);
    }
}

static void gradients_close(struct gradients *g)
{
    for (int q = 0; q < N; q++) {
        wring_tensor_destroy(g->tensor[q]);
        free(g->grad[q]);
        free(g->sum[q]);
    }
    wring_codec_destroy(g->codec);
}

/* The first COUNT elements of the tensor. */
static void reduce_part(struct group *group, struct gradients *g, const char *algorithm,
                        size_t count, wring_status *status_out, wring_result *result_out)
{
    wring_call call[N];
    wring_segment segment[N];
    for (int q = 0; q < N; q++) {
        call[q] = (wring_call)WRING_CALL_INIT;
        call[q].algorithm = algorithm;
        segment[q] = (wring_segment){
            .tensor = g->tensor[q], .send = g->grad[q], .recv = g->sum[q], .count = count};
    }
    run(group, call, segment, status_out, result_out);
}

static void reduce(struct group *group, struct gradients *g, const char *algorithm,
                   wring_status *status_out, wring_result *result_out)
{
    reduce_part(group, g, algorithm, COUNT, status_out, result_out);
}

/* All that rank Q keeps: its own residual, and then what it keeps as an owner, by element. */
static void state_of(const struct gradients *g, int q, float out[2 * COUNT])
{
    assert_int_equal(wring_tensor_residual(g->tensor[q], out, COUNT), WRING_OK);
    memset(out + COUNT, 0, COUNT * sizeof(float));
    for (const struct wri_residual *owned = g->tensor[q]->owned; owned; owned = owned->next)
        wri_residual_widen(owned, owned->current, owned->begin, owned->end - owned->begin,
                           out + COUNT + owned->begin);
}

/* Everything that was put in was either delivered or is still in a residual: sums over all elements
 * of (delivered) + (local residuals) + (owners' residuals) = steps * (sum of gradients),
 * element-wise. */
static void test_mass_is_kept(void **state)
{
    (void)state;
    const char *specs[] = {"ef+topk:0.01+int8", "ef+sign", "ef+int4", "ef+topk:0.05"};
    const char *algorithms[] = {"direct", "ring", "allgather"};
    for (int k = 0; k < 4; k++)
        for (int a = 0; a < 3; a++) {
            struct group group;
            struct gradients g;
            enum { STEPS = 6 };
            group_open(&group, "5000");
            gradients_open(&g, &group, specs[k]);
            double *delivered = calloc(COUNT, sizeof(double));
            for (int step = 0; step < STEPS; step++) {
                wring_status status[N];
                reduce(&group, &g, algorithms[a], status, NULL);
                for (int q = 0; q < N; q++)
                    assert_int_equal(status[q], WRING_OK);
                for (size_t i = 0; i < COUNT; i++)
                    delivered[i] += g.sum[0][i];
            }
            float *kept = malloc(2 * COUNT * sizeof(float));
            for (int q = 0; q < N; q++) {
                state_of(&g, q, kept);
                for (size_t i = 0; i < COUNT; i++)
                    delivered[i] += (double)kept[i] + kept[COUNT + i];
            }
            for (size_t i = 0; i < COUNT; i++) {
                double want = 0;
                for (int q = 0; q < N; q++)
                    want += STEPS * (double)noise(q, i);
                if (fabs(delivered[i] - want) > 1e-4)
                    fail_msg("%s over %s: element %zu holds %g instead of %g", specs[k],
                             algorithms[a], i, delivered[i], want);
            }
            free(kept);
            free(delivered);
            gradients_close(&g);
            group_close(&group);
        }
}

/* A call on a part of the tensor makes other ranges each rank's: what was kept for the old ones
 * goes into the local residuals when it has ended well, and no mass is lost. */
static void test_owner_change_keeps_mass(void **state)
{
    (void)state;
    struct group group;
    struct gradients g;
    wring_status status[N];
    static float before[2 * COUNT], after[2 * COUNT];
    static double kept[COUNT];
    group_open(&group, "5000");
    gradients_open(&g, &group, "ef+int4");
    reduce(&group, &g, "direct", status, NULL);
    for (int q = 0; q < N; q++) {
        state_of(&g, q, before);
        for (size_t i = 0; i < COUNT; i++)
            kept[i] += (double)before[i] + before[COUNT + i];
    }
    reduce_part(&group, &g, "direct", PART, status, NULL);
    for (int q = 0; q < N; q++) {
        assert_int_equal(status[q], WRING_OK);
        for (const struct wri_residual *owned = g.tensor[q]->owned; owned; owned = owned->next)
            assert_true(owned->end <= PART || owned->begin >= PART);
        state_of(&g, q, after);
        for (size_t i = 0; i < COUNT; i++)
            kept[i] -= (double)after[i] + after[COUNT + i];
    }
    for (size_t i = 0; i < COUNT; i++) { /* the part was given its gradient and delivered */
        double put = 0;
        for (int q = 0; q < N && i < PART; q++)
            put += noise(q, i);
        if (fabs(kept[i] + put - (i < PART ? g.sum[0][i] : 0)) > 1e-4)
            fail_msg("element %zu: %g was lost", i, kept[i] + put);
    }
    gradients_close(&g);
    group_close(&group);
}

static void snapshot(const struct gradients *g, float *out)
{
    for (int q = 0; q < N; q++)
        state_of(g, q, out + (size_t)q * 2 * COUNT);
}

/* A NaN on one rank leaves every rank's residuals as they were, also where the call would have made
 * other ranges its own. */
static void test_nonfinite_leaves_state(void **state)
{
    (void)state;
    const char *algorithms[] = {"direct", "ring", "allgather"};
    for (int a = 0; a < 6; a++) {
        size_t count = a < 3 ? COUNT : PART;
        struct group group;
        struct gradients g;
        wring_status status[N];
        wring_result result[N];
        float *before = malloc(N * 2 * COUNT * sizeof(float));
        float *after = malloc(N * 2 * COUNT * sizeof(float));
        group_open(&group, "5000");
        gradients_open(&g, &group, a < 3 ? "ef+topk:0.01+int8" : "ef+int4");
        reduce(&group, &g, algorithms[a % 3], status, result);
        assert_false(result[0].nonfinite);
        snapshot(&g, before);
        g.grad[2][count - 1] = NAN;
        reduce_part(&group, &g, algorithms[a % 3], count, status, result);
        snapshot(&g, after);
        for (int q = 0; q < N; q++) {
            assert_int_equal(status[q], WRING_OK);
            assert_true(result[q].nonfinite);
        }
        assert_memory_equal(before, after, N * 2 * COUNT * sizeof(float));
        free(before);
        free(after);
        gradients_close(&g);
        group_close(&group);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

struct fault {
    int countdown; /* the message that it hits */
    enum wri_self_fault kind;
    bool flip;
};

static enum wri_self_fault strike(void *arg, int src, int dst, uint64_t tag, void *data,
                                  size_t nbytes)
{
    struct fault *fault = arg;
    (void)src;
    (void)dst;
    (void)tag;
    if (fault->countdown-- != 0)
        return WRI_SELF_DELIVER;
    if (fault->flip && nbytes > 0)
        ((unsigned char *)data)[nbytes / 2] ^= 0x10;
    return fault->kind;
}

/* Lose, cut or damage one message, whichever: some rank gets an error, in time, and state stays. */
static void test_faults_end_in_errors(void **state)
{
    (void)state;
    const struct fault faults[] = {
        {0, WRI_SELF_DROP, false}, {0, WRI_SELF_CUT, false}, {0, WRI_SELF_DELIVER, true}};
    setenv("WRING_CHECKSUM", "1", 1);
    for (int f = 0; f < 3; f++)
        for (int hit = 0; hit < 12; hit += 3) {
            struct group group;
            struct gradients g;
            wring_status status[N];
            struct fault fault = faults[f];
            float *before = malloc(N * 2 * COUNT * sizeof(float));
            float *after = malloc(N * 2 * COUNT * sizeof(float));
            group_open(&group, "50");
            gradients_open(&g, &group, "ef+int8");
            reduce(&group, &g, "direct", status, NULL);
            snapshot(&g, before);
            fault.countdown = hit;
            wri_self_set_fault(group.context->link, strike, &fault);
            reduce(&group, &g, "direct", status, NULL);
            int errors = 0;
            for (int q = 0; q < N; q++)
                errors += status[q] != WRING_OK;
            assert_true(errors > 0);
            snapshot(&g, after);
            for (int q = 0; q < N; q++)
                if (status[q] != WRING_OK)
                    assert_memory_equal(before + (size_t)q * 2 * COUNT,
                                        after + (size_t)q * 2 * COUNT, 2 * COUNT * sizeof(float));
            /* The failed ones refuse at once, with the first reason. */
            wring_status again[N];
            wri_self_set_fault(group.context->link, NULL, NULL);
            reduce(&group, &g, "direct", again, NULL);
            for (int q = 0; q < N; q++)
                if (status[q] != WRING_OK)
                    assert_int_equal(again[q], status[q]);
            free(before);
            free(after);
            gradients_close(&g);
            group_close(&group);
        }
    unsetenv("WRING_CHECKSUM");
}

/* B51, B52: ranks that disagree all get an error that names both sides. */
static void test_mismatch(void **state)
{
    (void)state;
    static float send[N][2000], recv[N][2000];
    const struct {
        size_t count;
        wring_dtype dtype;
        wring_op op;
        const char *codec, *word;
    } other[] = {{1001, WRING_FLOAT32, WRING_SUM, NULL, "1001"},
                 {2000, WRING_FLOAT32, WRING_SUM, NULL, "2000"},
                 {1000, WRING_BFLOAT16, WRING_SUM, NULL, "bfloat16"},
                 {1000, WRING_FLOAT32, WRING_MAX, NULL, "max"},
                 {1000, WRING_FLOAT32, WRING_SUM, "int8", "int8"}};
    for (size_t k = 0; k < sizeof(other) / sizeof(other[0]); k++) {
        struct group group;
        wring_call call[N];
        wring_segment segment[N];
        wring_status status[N];
        wring_codec *codec = NULL;
        group_open(&group, "200");
        if (other[k].codec)
            assert_int_equal(wring_codec_create(other[k].codec, &codec), WRING_OK);
        for (int q = 0; q < N; q++) {
            call[q] = (wring_call)WRING_CALL_INIT;
            call[q].algorithm = "direct";
            segment[q] = (wring_segment){.send = send[q], .recv = recv[q], .count = 1000};
        }
        segment[1].count = other[k].count;
        call[1].dtype = other[k].dtype;
        call[1].op = other[k].op;
        call[1].codec = codec;
        run(&group, call, segment, status, NULL);
        for (int q = 0; q < N; q++) {
            assert_true(status[q] == WRING_E_MISMATCH || status[q] == WRING_E_TIMEOUT);
            if (status[q] == WRING_E_MISMATCH &&
                strstr(group.comm[q]->alarm.message, other[k].word) == NULL)
                fail_msg("no '%s' in: %s", other[k].word, group.comm[q]->alarm.message);
        }
        assert_int_equal(status[1], WRING_E_MISMATCH);
        group_close(&group);
        wring_codec_destroy(codec);
    }
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Its two parts would each make the rank the owner of another range. */
static void test_a_tensor_twice_in_a_call(void **state)
{
    (void)state;
    struct group group;
    wring_tensor *tensor;
    wring_request *request;
    float buffer[256] = {0};
    group_open(&group, "1000");
    assert_int_equal(
        wring_tensor_create(group.comm[0], "a", WRING_FLOAT32, 1, &(size_t){256}, NULL, &tensor),
        WRING_OK);
    wring_segment segment[2] = {
        {.tensor = tensor, .send = buffer, .recv = buffer, .count = 128},
        {.tensor = tensor, .offset = 128, .send = buffer, .recv = buffer, .count = 128}};
    wring_call call = WRING_CALL_INIT;
    call.segments = segment;
    call.nsegments = 2;
    for (int again = 0; again < 2; again++)
        assert_int_equal(wring_comm_start(group.comm[0], &call, &request), WRING_E_ARGUMENT);
    assert_non_null(strstr(wring_error_message(), "tensor 'a' is twice in the call"));
    call.nsegments = 1;
    assert_int_equal(wring_comm_start(group.comm[0], &call, &request), WRING_OK);
    wring_tensor_destroy(tensor);
    assert_int_equal(wring_request_wait(request, NULL), WRING_E_ABORTED);
    group_close(&group);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    struct group group;
    wring_tensor *tensor, *twin;
    wring_request *request;
    const size_t shape[] = {40000};
    float buffer[64];
    group_open(&group, "1000");
    wring_comm *comm = group.comm[0];

    assert_int_equal(wring_allreduce(comm, NULL, buffer, 4, WRING_FLOAT32, WRING_SUM),
                     WRING_E_ARGUMENT);
    assert_int_equal(wring_allreduce(comm, buffer, buffer, 4, (wring_dtype)99, WRING_SUM),
                     WRING_E_ARGUMENT);
    assert_int_equal(wring_broadcast(comm, buffer, buffer, 4, WRING_FLOAT32, N), WRING_E_ARGUMENT);
    assert_int_equal(wring_allreduce(comm, buffer, buffer, 4, WRING_INT32, WRING_AVG),
                     WRING_E_UNSUPPORTED);

    wring_call call = WRING_CALL_INIT;
    wring_segment segment = {.send = buffer, .recv = buffer, .count = 4};
    call.segments = &segment;
    call.nsegments = 1;
    call.algorithm = "no such";
    assert_int_equal(wring_comm_start(comm, &call, &request), WRING_E_ARGUMENT);
    call.algorithm = "allgather";
    call.kind = WRING_BROADCAST;
    assert_int_equal(wring_comm_start(comm, &call, &request), WRING_E_UNSUPPORTED);
    call.size = 3;
    assert_int_equal(wring_comm_start(comm, &call, &request), WRING_E_ARGUMENT);

    assert_int_equal(wring_tensor_create(comm, "a", WRING_FLOAT32, 1, shape, NULL, &tensor),
                     WRING_OK);
    assert_int_equal(wring_tensor_create(comm, "a", WRING_FLOAT32, 1, shape, NULL, &twin),
                     WRING_E_ARGUMENT);
    const size_t huge[] = {SIZE_MAX, 2};
    assert_int_equal(wring_tensor_create(comm, "b", WRING_FLOAT32, 2, huge, NULL, &twin),
                     WRING_E_ARGUMENT);
    call = (wring_call)WRING_CALL_INIT;
    call.segments = &segment;
    call.nsegments = 1;
    segment.tensor = tensor;
    segment.offset = 39999;
    assert_int_equal(wring_comm_start(comm, &call, &request), WRING_E_ARGUMENT);
    call.dtype = WRING_FLOAT16;
    segment.offset = 0;
    assert_int_equal(wring_comm_start(comm, &call, &request), WRING_E_ARGUMENT);
    wring_tensor_destroy(tensor);

    /* None of this poisoned anything. */
    assert_int_equal(comm->alarm.status, WRING_OK);
    group_close(&group);
    wring_comm_destroy(NULL);
    wring_context_destroy(NULL);
    wring_tensor_destroy(NULL);
}

/* What a tensor keeps is for its sums: it is no part of other kinds, and they leave it alone. */
static void test_a_tensor_is_for_allreduces(void **state)
{
    (void)state;
    static float before[N * 2 * COUNT], after[N * 2 * COUNT];
    const wring_kind kinds[] = {WRING_BROADCAST, WRING_BARRIER, WRING_ALLGATHER,
                                WRING_REDUCE_SCATTER};
    struct group group;
    struct gradients g;
    wring_status status[N];
    group_open(&group, "5000");
    gradients_open(&g, &group, "ef+int4");
    reduce(&group, &g, "direct", status, NULL);
    snapshot(&g, before);
    for (int k = 0; k < 4; k++) {
        wring_segment segment = {
            .tensor = g.tensor[0], .send = g.grad[0], .recv = g.sum[0], .count = PART};
        wring_request *request;
        wring_call call = WRING_CALL_INIT;
        call.kind = kinds[k];
        call.segments = &segment;
        call.nsegments = 1;
        assert_int_equal(wring_comm_start(group.comm[0], &call, &request), WRING_E_ARGUMENT);
        assert_non_null(strstr(wring_error_message(), "plain buffer"));
    }
    snapshot(&g, after);
    assert_memory_equal(before, after, sizeof(before));
    gradients_close(&g);
    group_close(&group);
}

/* B54: counters near 2^31 and 2^32 go on. */
static void case_b54_operation_counter_wraps(void **state)
{
    (void)state;
    const uint64_t starts[] = {(1ull << 10) - 3, (1ull << 31) - 3, (1ull << 32) - 3};
    for (int k = 0; k < 3; k++) {
        struct group group;
        group_open(&group, "1000");
        for (int q = 0; q < N; q++)
            group.comm[q]->operation = starts[k];
        for (int turn = 0; turn < 8; turn++) {
            wring_call call[N];
            wring_segment segment[N];
            wring_status status[N];
            float send[N] = {1, 2, 4}, recv[N];
            for (int q = 0; q < N; q++) {
                call[q] = (wring_call)WRING_CALL_INIT;
                segment[q] = (wring_segment){.send = &send[q], .recv = &recv[q], .count = 1};
            }
            run(&group, call, segment, status, NULL);
            for (int q = 0; q < N; q++) {
                assert_int_equal(status[q], WRING_OK);
                assert_true(recv[q] == 7);
            }
        }
        group_close(&group);
    }
}

/* Requests may outlive their communicator; unfinished ones end as aborted. */
static void test_destroy_with_requests(void **state)
{
    (void)state;
    struct group group;
    wring_request *request;
    float buffer[8] = {0};
    group_open(&group, "1000");
    wring_segment segment = {.send = buffer, .recv = buffer, .count = 8};
    wring_call call = WRING_CALL_INIT;
    call.segments = &segment;
    call.nsegments = 1;
    assert_int_equal(wring_comm_start(group.comm[0], &call, &request), WRING_OK);
    wring_context_progress(group.context);
    wring_comm_destroy(group.comm[0]);
    group.comm[0] = NULL;
    assert_int_equal(wring_request_test(request), WRING_E_ABORTED);
    assert_int_equal(wring_request_wait(request, NULL), WRING_E_ABORTED);
    group_close(&group);
}

/* B40, B44: a single rank keeps its bits, whatever the type, and nothing at all is fine too. */
static void test_single_rank(void **state)
{
    (void)state;
    wring_context *context;
    wring_comm *comm;
    static uint16_t send[4096], recv[4096];
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    wring_comm_options lossy = WRING_COMM_OPTIONS_INIT;
    options.transport = "self";
    lossy.codec = "int4";
    assert_int_equal(wring_context_create(&options, &context), WRING_OK);
    assert_int_equal(wring_comm_create_local(context, 1, &lossy, &comm), WRING_OK);
    for (size_t i = 0; i < 4096; i++)
        send[i] = (uint16_t)(i * 7);
    for (size_t count = 0; count <= 4096; count += count < 64 ? 1 : 63) {
        memset(recv, 0xff, sizeof(recv));
        assert_int_equal(wring_allreduce(comm, send, recv, count, WRING_BFLOAT16, WRING_AVG),
                         WRING_OK);
        assert_memory_equal(send, recv, count * 2);
        assert_true(count == 4096 || recv[count] == 0xffff);
    }
    assert_int_equal(wring_allreduce(comm, NULL, NULL, 0, WRING_FLOAT32, WRING_SUM), WRING_OK);
    assert_int_equal(wring_barrier(comm), WRING_OK);
    wring_comm_destroy(comm);
    wring_context_destroy(context);
}

static void test_explain(void **state)
{
    (void)state;
    struct group group;
    struct gradients g;
    wring_status status[N];
    char *text;
    group_open(&group, "5000");
    gradients_open(&g, &group, "ef+topk:0.02+int8");
    assert_int_equal(wring_comm_explain(group.comm[1], &text), WRING_OK);
    assert_non_null(strstr(text, "layer.weight: 50000 float32, codec ef+topk:0.02+int8"));
    assert_null(strstr(text, "last sent"));
    free(text);
    reduce(&group, &g, "ring", status, NULL);
    assert_int_equal(wring_comm_explain(group.comm[1], &text), WRING_OK);
    assert_non_null(strstr(text, "last sent by ring (named by the caller)"));
    free(text);
    gradients_close(&g);
    group_close(&group);
}

/* A life in which any allocation may fail: the first failing call says so, the rest cleans up. */
static wring_status live(void)
{
    wring_context *context = NULL;
    wring_comm *comm[2] = {NULL};
    wring_tensor *tensor[2] = {NULL};
    wring_request *request[2] = {NULL};
    wring_codec *codec = NULL;
    static float grad[2][20000];
    const size_t shape[] = {20000};
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    wring_tensor_options spec = WRING_TENSOR_OPTIONS_INIT;
    options.transport = "self";
    options.caller_progress = true;
    wring_status status = wring_context_create(&options, &context);
    if (status == WRING_OK)
        status = wring_comm_create_local(context, 2, NULL, comm);
    if (status == WRING_OK)
        status = wring_codec_create("ef+topk:0.01+int8", &codec);
    spec.codec = codec;
    for (int q = 0; q < 2 && status == WRING_OK; q++)
        status = wring_tensor_create(comm[q], "w", WRING_FLOAT32, 1, shape, &spec, &tensor[q]);
    for (int q = 0; q < 2 && status == WRING_OK; q++) {
        wring_segment segment = {
            .tensor = tensor[q], .send = grad[q], .recv = grad[q], .count = 20000};
        wring_call call = WRING_CALL_INIT;
        call.segments = &segment;
        call.nsegments = 1;
        call.algorithm = "direct";
        status = wring_comm_start(comm[q], &call, &request[q]);
    }
    for (int q = 0; q < 2 && status == WRING_OK; q++) {
        status = wring_request_wait(request[q], NULL);
        request[q] = NULL;
    }
    wri_alloc_fail_at(0);
    for (int q = 0; q < 2; q++) {
        wring_tensor_destroy(tensor[q]);
        if (request[q] != NULL) /* the other rank never started */
            assert_int_equal(wring_request_wait(request[q], NULL), WRING_E_ABORTED);
        wring_comm_destroy(comm[q]);
    }
    wring_codec_destroy(codec);
    wring_context_destroy(context);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    wring_status status = WRING_E_MEMORY;
    uint64_t n = 0;
    while (status != WRING_OK && n < 200) {
        wri_alloc_fail_at(++n);
        status = live();
        if (status != WRING_OK)
            assert_int_equal(status, WRING_E_MEMORY);
    }
    assert_int_equal(status, WRING_OK);
    assert_true(n > 10);
}

/* Every rank in a thread of its own, with the progress thread beside them. */
struct worker {
    wring_comm *comm;
    wring_status worst;
    int wrong;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    float *buffer = malloc(COUNT * sizeof(float));
    int rank = wring_comm_rank(worker->comm);
    for (size_t turn = 0; turn < 40; turn++) {
        size_t count = turn * turn * 30 % COUNT;
        for (size_t i = 0; i < count; i++)
            buffer[i] = (float)(rank + (int)(i % 5));
        wring_status status =
            wring_allreduce(worker->comm, buffer, buffer, count, WRING_FLOAT32, WRING_SUM);
        if (status != WRING_OK)
            worker->worst = status;
        for (size_t i = 0; i < count; i++)
            worker->wrong += buffer[i] != (float)(N * (N - 1) / 2 + N * (int)(i % 5));
    }
    free(buffer);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    wring_context *context;
    wring_comm *comm[N];
    struct worker worker[N] = {0};
    pthread_t thread[N];
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    options.transport = "self";
    assert_int_equal(wring_context_create(&options, &context), WRING_OK);
    assert_int_equal(wring_comm_create_local(context, N, NULL, comm), WRING_OK);
    for (int q = 0; q < N; q++) {
        worker[q].comm = comm[q];
        pthread_create(&thread[q], NULL, work, &worker[q]);
    }
    for (int q = 0; q < N; q++) {
        pthread_join(thread[q], NULL);
        assert_int_equal(worker[q].worst, WRING_OK);
        assert_int_equal(worker[q].wrong, 0);
        wring_comm_destroy(comm[q]);
    }
    wring_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mass_is_kept),
        cmocka_unit_test(test_owner_change_keeps_mass),
        cmocka_unit_test(test_nonfinite_leaves_state),
        cmocka_unit_test(test_faults_end_in_errors),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_a_tensor_twice_in_a_call),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_a_tensor_is_for_allreduces),
        cmocka_unit_test(case_b54_operation_counter_wraps),
        cmocka_unit_test(test_destroy_with_requests),
        cmocka_unit_test(test_single_rank),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
