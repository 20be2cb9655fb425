/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance of every algorithm of the registry, run with all ranks in this process over transport
 * `self`, whose seeded delivery order makes each run another interleaving.
 *
 * Proves, for 1..17 ranks and counts from none to many: an exact codec gives the exact result; a
 * lossy one gives every rank the same bits, within the codec's error; the bits do not depend on the
 * piece size nor, for algorithms that do not round per hop, on bucket make-up; in place equals out
 * of place; a NaN on one rank is seen by all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collective/collective.h"
#include "simd/array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <wring/wring.h>

#define RANKS_MAX 17

static const size_t counts[] = {0, 1, 2, 3, 16, 17, 33, 127, 128, 1000, 4099, 40000};

/* ---- a group in this process ----------------------------------------------------------------- */

struct group {
    wring_context *context;
    wring_comm *comm[RANKS_MAX];
    int nranks;
};

static void group_open(struct group *group, int nranks, const char *seed, const char *piece)
{
    setenv("WRING_SEED", seed, 1);
    setenv("WRING_PIECE", piece, 1);
    setenv("WRING_FORCE", "1", 1);
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    options.transport = "self";
    options.caller_progress = true;
    assert_int_equal(wring_context_create(&options, &group->context), WRING_OK);
    group->nranks = nranks;
    assert_int_equal(wring_comm_create_local(group->context, nranks, NULL, group->comm), WRING_OK);
}

static void group_close(struct group *group)
{
    for (int q = 0; q < group->nranks; q++)
        wring_comm_destroy(group->comm[q]);
    wring_context_destroy(group->context);
}

/* What one rank brings to a call. */
struct part {
    char *send, *recv;
    size_t send_count, recv_count;
};

/* Start the call on every rank, wait for all; calls differ only in their buffers. */
static wring_status run_all(struct group *group, wring_call call, struct part *part,
                            wring_result *result_out)
{
    wring_request *request[RANKS_MAX];
    wring_status worst = WRING_OK;
    for (int q = 0; q < group->nranks; q++) {
        wring_segment segment = {.send = part[q].send,
                                 .recv = part[q].recv,
                                 .count = call.kind == WRING_REDUCE_SCATTER ? part[q].recv_count
                                                                            : part[q].send_count};
        call.segments = &segment;
        call.nsegments = 1;
        wring_status status = wring_comm_start(group->comm[q], &call, &request[q]);
        if (status != WRING_OK)
            fail_msg("start on rank %d: %s", q, wring_error_message());
    }
    for (int q = 0; q < group->nranks; q++) {
        wring_result result = {0};
        wring_status status = wring_request_wait(request[q], &result);
        if (status != WRING_OK)
            worst = status;
        if (result_out)
            result_out[q] = result;
    }
    return worst;
}

static void parts_open(struct part *part, int nranks, size_t send_nbytes, size_t recv_nbytes)
{
    for (int q = 0; q < nranks; q++) {
        part[q].send = calloc(send_nbytes + 1, 1);
        part[q].recv = malloc(recv_nbytes + 1);
        memset(part[q].recv, 0xa5, recv_nbytes + 1);
    }
}

static void parts_close(struct part *part, int nranks)
{
    for (int q = 0; q < nranks; q++) {
        free(part[q].send);
        free(part[q].recv);
    }
}

/* ---- exactly predictable data ---------------------------------------------------------------- */

/* Element I of RANK: a small integer, so that sums of 17 are exact in every type. */
static int value_of(int rank, size_t i)
{
    return (int)((i * 7 + (size_t)rank * 3) % 7) - 3;
}

static void put(wring_dtype dtype, void *data, size_t i, double value)
{
    float single = (float)value;
    switch (dtype) {
    case WRING_FLOAT32:
        ((float *)data)[i] = single;
        break;
    case WRING_FLOAT64:
        ((double *)data)[i] = value;
        break;
    case WRING_INT8:
    case WRING_UINT8:
        ((int8_t *)data)[i] = (int8_t)value;
        break;
    case WRING_INT32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case WRING_INT64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    default:
        wri_array_convert(dtype, (char *)data + i * wring_dtype_size(dtype), WRING_FLOAT32, &single,
                          1);
    }
}

/* The reduction of value_of over all ranks, as OP says. */
static double expected_of(wring_op op, int nranks, size_t i)
{
    double sum = 0, least = value_of(0, i), most = least;
    for (int q = 0; q < nranks; q++) {
        int value = value_of(q, i);
        sum += value;
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    return op == WRING_SUM ? sum : op == WRING_AVG ? sum / nranks : op == WRING_MIN ? least : most;
}

static void fill(struct part *part, int rank, wring_dtype dtype, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(dtype, part->send, i, value_of(rank, first + i));
}

/* Compare COUNT elements of DATA with what FIRST.. should be; averages are compared as floats. */
static void check_reduced(wring_dtype dtype, wring_op op, int nranks, const void *data,
                          size_t first, size_t count)
{
    size_t size = wring_dtype_size(dtype);
    char want[8];
    for (size_t i = 0; i < count; i++) {
        double value = expected_of(op, nranks, first + i);
        if (op == WRING_AVG)
            value = (float)((float)(value * nranks) / (float)nranks);
        if (op == WRING_AVG && dtype == WRING_FLOAT64)
            value = expected_of(WRING_SUM, nranks, first + i) / nranks;
        put(dtype, want, 0, value);
        if (memcmp(want, (const char *)data + i * size, size) != 0)
            fail_msg("%s %s, %d ranks, count %zu: element %zu is wrong", wring_dtype_name(dtype),
                     wri_op_name(op), nranks, count, i);
    }
}

/* ---- exact codec ----------------------------------------------------------------------------- */

static void allreduce_exact(struct group *group, const char *algorithm, wring_dtype dtype,
                            wring_op op, size_t count, bool in_place)
{
    struct part part[RANKS_MAX];
    size_t nbytes = count * wring_dtype_size(dtype);
    parts_open(part, group->nranks, nbytes, nbytes);
    for (int q = 0; q < group->nranks; q++) {
        fill(&part[q], q, dtype, 0, count);
        part[q].send_count = count;
        if (in_place) {
            memcpy(part[q].recv, part[q].send, nbytes);
            char *unused = part[q].send;
            part[q].send = part[q].recv;
            part[q].recv = unused;
        }
    }
    struct part call_part[RANKS_MAX];
    for (int q = 0; q < group->nranks; q++) {
        call_part[q] = part[q];
        if (in_place)
            call_part[q].recv = part[q].send;
    }
    wring_call call = WRING_CALL_INIT;
    call.kind = WRING_ALLREDUCE;
    call.op = op;
    call.dtype = dtype;
    call.algorithm = algorithm;
    assert_int_equal(run_all(group, call, call_part, NULL), WRING_OK);
    for (int q = 0; q < group->nranks; q++)
        check_reduced(dtype, op, group->nranks, call_part[q].recv, 0, count);
    parts_close(part, group->nranks);
}

static void test_allreduce_exact(void **state)
{
    (void)state;
    const struct wring_collective_ops *ops;
    for (int n = 1; n <= RANKS_MAX; n++) {
        struct group group;
        group_open(&group, n, "1", "512");
        for (size_t a = 0; (ops = wri_collective_at(a)) != NULL; a++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                for (int place = 0; place < 2; place++) {
                    wring_op op = (wring_op)(((size_t)n + c) % WRING_OP_COUNT);
                    allreduce_exact(&group, ops->name, WRING_FLOAT32, op, counts[c], place);
                }
        group_close(&group);
    }
}

static void test_allreduce_types(void **state)
{
    (void)state;
    const struct wring_collective_ops *ops;
    struct group group;
    group_open(&group, 5, "2", "1024");
    for (size_t a = 0; (ops = wri_collective_at(a)) != NULL; a++)
        for (int dtype = 0; dtype < WRING_DTYPE_COUNT; dtype++)
            for (int op = 0; op < WRING_OP_COUNT; op++) {
                if (dtype == WRING_UINT8 ||
                    (op == WRING_AVG && !wri_dtype_is_float((wring_dtype)dtype)))
                    continue;
                allreduce_exact(&group, ops->name, (wring_dtype)dtype, (wring_op)op, 1001, false);
            }
    group_close(&group);
}

/* Reduce-scatter, allgather and broadcast with every algorithm that has them. */
static void by_rank_exact(struct group *group, const char *algorithm, wring_kind kind, size_t count)
{
    int n = group->nranks;
    size_t all = count * (size_t)n, size = sizeof(float);
    struct part part[RANKS_MAX];
    parts_open(part, n, all * size, all * size);
    wring_call call = WRING_CALL_INIT;
    call.kind = kind;
    call.algorithm = algorithm;
    call.root = n / 2;
    for (int q = 0; q < n; q++) {
        part[q].send_count = part[q].recv_count = count;
        bool gather = kind == WRING_ALLGATHER;
        fill(&part[q], kind == WRING_REDUCE_SCATTER ? q : 0, WRING_FLOAT32,
             gather ? (size_t)q * count : 0, kind == WRING_REDUCE_SCATTER ? all : count);
    }
    if (kind == WRING_BROADCAST)
        for (int q = 0; q < n; q++)
            if (q != call.root)
                memset(part[q].send, 0, all * size);
    assert_int_equal(run_all(group, call, part, NULL), WRING_OK);
    for (int q = 0; q < n; q++) {
        if (kind == WRING_REDUCE_SCATTER)
            check_reduced(WRING_FLOAT32, WRING_SUM, n, part[q].recv, (size_t)q * count, count);
        else
            check_reduced(WRING_FLOAT32, WRING_SUM, 1, part[q].recv, 0,
                          kind == WRING_ALLGATHER ? all : count);
    }
    parts_close(part, n);
}

static void test_other_kinds_exact(void **state)
{
    (void)state;
    const wring_kind kinds[] = {WRING_REDUCE_SCATTER, WRING_ALLGATHER, WRING_BROADCAST};
    const struct wring_collective_ops *ops;
    for (int n = 1; n <= RANKS_MAX; n++) {
        struct group group;
        group_open(&group, n, "3", "512");
        for (size_t a = 0; (ops = wri_collective_at(a)) != NULL; a++)
            for (int k = 0; k < 3; k++)
                for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]) - 1; c++)
                    if (ops->kinds & 1u << kinds[k])
                        by_rank_exact(&group, ops->name, kinds[k], counts[c]);
        group_close(&group);
    }
}

static void test_barrier(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS_MAX; n++) {
        struct group group;
        wring_request *request[RANKS_MAX];
        group_open(&group, n, "4", "0");
        wring_call call = WRING_CALL_INIT;
        call.kind = WRING_BARRIER;
        for (int q = 0; q < n - 1; q++)
            assert_int_equal(wring_comm_start(group.comm[q], &call, &request[q]), WRING_OK);
        /* While the last rank has not called, nobody leaves. */
        for (int turn = 0; turn < 200; turn++)
            wring_context_progress(group.context);
        for (int q = 0; q < n - 1; q++)
            assert_int_equal(wring_request_test(request[q]), WRING_AGAIN);
        assert_int_equal(wring_comm_start(group.comm[n - 1], &call, &request[n - 1]), WRING_OK);
        for (int q = 0; q < n; q++)
            assert_int_equal(wring_request_wait(request[q], NULL), WRING_OK);
        group_close(&group);
    }
}

/* ---- lossy codecs ---------------------------------------------------------------------------- */

/* Codecs with the relative error (of the largest magnitude, per rounding) that they promise. */
static const struct lossy {
    const char *spec;
    double error; /* 0: not bounded element by element */
} lossy_codecs[] = {
    {"bf16", 1.0 / 256},
    {"fp16", 1.0 / 2048},
    {"int8", 0.5 / 127},
    {"int4", 0.5 / 7},
    {"sign", 0},
    {"topk:0.1", 0},
    {"topk:0.1+int8", 0},
    {"int8:round=stochastic", 1.0 / 127},
    {"topk:0.1,unit=tensor", 0},
};

#define NOISE_COUNT 70001

static float noise_table[RANKS_MAX][NOISE_COUNT];

static int make_noise(void **state)
{
    (void)state;
    for (int q = 0; q < RANKS_MAX; q++)
        for (size_t i = 0; i < NOISE_COUNT; i++) {
            uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u + (uint64_t)q * 0xD1B54A32D192ED03u;
            x ^= x >> 29;
            x *= 0xBF58476D1CE4E5B9u;
            x ^= x >> 32;
            noise_table[q][i] = (float)((double)(int64_t)x / 9223372036854775808.0);
        }
    return 0;
}

static void fill_noise(struct part *part, int rank, size_t count)
{
    memcpy(part->send, noise_table[rank], count * sizeof(float));
    part->send_count = count;
}

/* One allreduce of noise; the result of rank 0, after checking that all have its bits. */
static float *allreduce_noise(struct group *group, const wring_codec *codec, const char *algorithm,
                              size_t count)
{
    struct part part[RANKS_MAX];
    parts_open(part, group->nranks, count * 4, count * 4);
    for (int q = 0; q < group->nranks; q++)
        fill_noise(&part[q], q, count);
    wring_call call = WRING_CALL_INIT;
    call.codec = codec;
    call.algorithm = algorithm;
    if (run_all(group, call, part, NULL) != WRING_OK)
        fail_msg("%s: %s", algorithm, wring_error_message());
    for (int q = 1; q < group->nranks; q++)
        assert_memory_equal(part[0].recv, part[q].recv, count * 4);
    float *result = malloc(count * 4 + 1);
    memcpy(result, part[0].recv, count * 4);
    parts_close(part, group->nranks);
    return result;
}

static void check_error(const float *result, const struct lossy *lossy, int nranks, size_t count,
                        bool per_hop)
{
    /* Every contribution and every passing-on is off by at most error * its largest magnitude. */
    double roundings = per_hop ? nranks * (nranks + 1) / 2.0 : 2.0 * nranks;
    for (size_t i = 0; lossy->error > 0 && i < count; i++) {
        double sum = 0;
        for (int q = 0; q < nranks; q++)
            sum += noise_table[q][i];
        if (fabs(result[i] - sum) > lossy->error * roundings * 1.01)
            fail_msg("%s: element %zu is %g instead of %g", lossy->spec, i, result[i], sum);
    }
}

static bool carries(const struct wring_collective_ops *ops, const char *spec)
{
    return ops->whole_units || strstr(spec, "unit=tensor") == NULL;
}

static void test_allreduce_lossy(void **state)
{
    (void)state;
    const struct wring_collective_ops *ops;
    for (int n = 1; n <= RANKS_MAX; n++)
        for (size_t k = 0; k < sizeof(lossy_codecs) / sizeof(lossy_codecs[0]); k++) {
            const size_t sizes[] = {0, 1, 100, 5000, n <= 3 ? NOISE_COUNT : 9001};
            wring_codec *codec;
            struct group small, large;
            assert_int_equal(wring_codec_create(lossy_codecs[k].spec, &codec), WRING_OK);
            group_open(&small, n, "5", "2048");
            setenv("WRING_WINDOW", "2", 1);
            group_open(&large, n, "5", "1M");
            unsetenv("WRING_WINDOW");
            for (size_t a = 0; (ops = wri_collective_at(a)) != NULL; a++)
                for (size_t s = 0; s < 5 && carries(ops, lossy_codecs[k].spec); s++) {
                    float *one = allreduce_noise(&small, codec, ops->name, sizes[s]);
                    float *two = allreduce_noise(&large, codec, ops->name, sizes[s]);
                    assert_memory_equal(one, two, sizes[s] * 4); /* any piece size, same bits */
                    check_error(one, &lossy_codecs[k], n, sizes[s], ops->rounds_per_hop);
                    free(one);
                    free(two);
                }
            group_close(&small);
            group_close(&large);
            wring_codec_destroy(codec);
        }
}

/* A bucket of several segments gives the bits that its segments give alone. */
static void test_bucket_make_up(void **state)
{
    (void)state;
    const size_t cut[] = {0, 1000, 1001, 40000, 40000, 70000};
    enum { NSEGMENTS = 5, N = 4 };
    const struct wring_collective_ops *ops;
    for (size_t k = 0; k < sizeof(lossy_codecs) / sizeof(lossy_codecs[0]); k++) {
        if (strstr(lossy_codecs[k].spec, "stochastic"))
            continue; /* its random numbers are named by tensor, and these have none */
        wring_codec *codec;
        struct group group;
        assert_int_equal(wring_codec_create(lossy_codecs[k].spec, &codec), WRING_OK);
        group_open(&group, N, "6", "4096");
        for (size_t a = 0; (ops = wri_collective_at(a)) != NULL; a++) {
            if (ops->rounds_per_hop || !carries(ops, lossy_codecs[k].spec))
                continue;
            struct part part[N];
            wring_request *request[N];
            wring_segment segment[N][NSEGMENTS];
            parts_open(part, N, 70000 * 4, 70000 * 4);
            for (int q = 0; q < N; q++) {
                fill_noise(&part[q], q, 70000);
                for (int s = 0; s < NSEGMENTS; s++)
                    segment[q][s] = (wring_segment){.send = (float *)part[q].send + cut[s],
                                                    .recv = (float *)part[q].recv + cut[s],
                                                    .count = cut[s + 1] - cut[s]};
                wring_call call = WRING_CALL_INIT;
                call.codec = codec;
                call.algorithm = ops->name;
                call.segments = segment[q];
                call.nsegments = NSEGMENTS;
                assert_int_equal(wring_comm_start(group.comm[q], &call, &request[q]), WRING_OK);
            }
            for (int q = 0; q < N; q++)
                assert_int_equal(wring_request_wait(request[q], NULL), WRING_OK);
            for (int s = 0; s < NSEGMENTS; s++) {
                struct part alone[N];
                size_t count = cut[s + 1] - cut[s];
                parts_open(alone, N, count * 4, count * 4);
                for (int q = 0; q < N; q++) {
                    memcpy(alone[q].send, (float *)part[q].send + cut[s], count * 4);
                    alone[q].send_count = count;
                }
                wring_call call = WRING_CALL_INIT;
                call.codec = codec;
                call.algorithm = ops->name;
                assert_int_equal(run_all(&group, call, alone, NULL), WRING_OK);
                assert_memory_equal(alone[0].recv, (float *)part[0].recv + cut[s], count * 4);
                parts_close(alone, N);
            }
            parts_close(part, N);
        }
        group_close(&group);
        wring_codec_destroy(codec);
    }
}

/* B92: a NaN or Inf of one rank is in everyone's output, and everyone is told. */
static void test_nonfinite_everywhere(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    const size_t count = 3000;
    const struct wring_collective_ops *ops;
    for (size_t k = 0; k <= sizeof(lossy_codecs) / sizeof(lossy_codecs[0]); k++) {
        const char *spec = k == 0 ? "none" : lossy_codecs[k - 1].spec;
        wring_codec *codec;
        struct group group;
        assert_int_equal(wring_codec_create(spec, &codec), WRING_OK);
        group_open(&group, 3, "7", "1024");
        for (size_t a = 0; (ops = wri_collective_at(a)) != NULL && carries(ops, spec); a++)
            for (int b = 0; b < 3; b++) {
                struct part part[RANKS_MAX];
                wring_result result[RANKS_MAX];
                parts_open(part, 3, count * 4, count * 4);
                for (int q = 0; q < 3; q++)
                    fill_noise(&part[q], q, count);
                ((float *)part[1].send)[777] = bad[b];
                wring_call call = WRING_CALL_INIT;
                call.codec = codec;
                call.algorithm = ops->name;
                assert_int_equal(run_all(&group, call, part, result), WRING_OK);
                for (int q = 0; q < 3; q++) {
                    assert_true(result[q].nonfinite);
                    if (isfinite(((float *)part[q].recv)[777]))
                        fail_msg("%s over %s: rank %d does not see it", spec, ops->name, q);
                }
                parts_close(part, 3);
            }
        group_close(&group);
        wring_codec_destroy(codec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce_exact),      cmocka_unit_test(test_allreduce_types),
        cmocka_unit_test(test_other_kinds_exact),    cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_allreduce_lossy),      cmocka_unit_test(test_bucket_make_up),
        cmocka_unit_test(test_nonfinite_everywhere),
    };
    return cmocka_run_group_tests(tests, make_noise, NULL);
}
