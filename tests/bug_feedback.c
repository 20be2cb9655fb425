/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs that nobody has reported, but that the reports imply: selections of several ranks that
 * have nothing or everything in common, gradients that cancel what is kept, codecs that change
 * while something is kept. */
#include "scene.h"

enum { RANKS = 4, COUNT = 1024, EACH = 32 }; /* `topk` sends 32 elements of a chunk at the least */

static wring_context *context;
static wring_comm *comm[RANKS];
static wring_tensor *tensor[RANKS];
static float data[RANKS][COUNT];

static void group_open(int nranks, const char *spec, const char *algorithm)
{
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    options.codec = spec;
    options.algorithm = algorithm;
    context = self_open(nranks, &options, comm);
    for (int q = 0; q < nranks; q++)
        ok(wring_tensor_create(comm[q], "t", WRING_FLOAT32, 1, &(size_t){COUNT}, NULL, &tensor[q]));
}

static void group_close(int nranks)
{
    for (int q = 0; q < nranks; q++)
        wring_tensor_destroy(tensor[q]);
    self_close(context, nranks, comm);
}

/* Data of all ranks become their sum. */
static void reduce(int nranks)
{
    wring_request *request[RANKS];
    wring_call call = WRING_CALL_INIT;
    wring_segment segment = {.count = COUNT};
    call.segments = &segment;
    call.nsegments = 1;
    for (int q = 0; q < nranks; q++) {
        segment.tensor = tensor[q];
        segment.send = segment.recv = data[q];
        ok(wring_comm_start(comm[q], &call, &request[q]));
    }
    for (int q = 0; q < nranks; q++)
        ok(wring_request_wait(request[q], NULL));
}

/* Rank q has EACH elements that are not zero, from q * SHIFT on. */
static void selections(const char *algorithm, int shift)
{
    static float expected[COUNT];
    memset(data, 0, sizeof data);
    memset(expected, 0, sizeof expected);
    for (int q = 0; q < RANKS; q++)
        for (int i = 0; i < EACH; i++) {
            data[q][q * shift + i] = (float)(1 + q * 100 + i);
            expected[q * shift + i] += data[q][q * shift + i];
        }
    group_open(RANKS, "topk:0.001", algorithm);
    reduce(RANKS);
    for (int q = 0; q < RANKS; q++)
        assert_memory_equal(data[q], expected, sizeof expected);
    group_close(RANKS);
}

static void case_disjoint_and_equal_selections(void **state)
{
    wring_info info;
    (void)state;
    selections("allgather", 0);
    selections("allgather", EACH);
    selections("allgather", EACH / 2);
    for (size_t i = 0; wring_info_get(WRING_INFO_ALGORITHM, i, &info); i++)
        if (strcmp(info.name, "ring") != 0) /* which chooses anew at every hop */
            selections(info.name, 0);
}

static void uneven(int salt)
{
    for (int q = 0; q < 2; q++)
        for (int i = 0; i < COUNT; i++)
            data[q][i] = (float)((i * 37 + q * 11 + salt) % 101 - 50) / 8;
}

/* What is kept and the next gradient add up to nothing: so is what is sent, and kept then. */
static void case_gradient_cancels_the_residual(void **state)
{
    static float residual[COUNT], zeros[COUNT];
    (void)state;
    group_open(2, "ef+topk:0.01", "allgather");
    uneven(1);
    reduce(2);
    for (int q = 0; q < 2; q++) {
        ok(wring_tensor_residual(tensor[q], residual, COUNT));
        assert_memory_not_equal(residual, zeros, sizeof zeros);
        for (int i = 0; i < COUNT; i++)
            data[q][i] = -residual[i];
    }
    reduce(2);
    for (int q = 0; q < 2; q++) {
        for (int i = 0; i < COUNT; i++)
            assert_true(data[q][i] == 0);
        ok(wring_tensor_residual(tensor[q], residual, COUNT));
        for (int i = 0; i < COUNT; i++)
            assert_true(residual[i] == 0);
    }
    group_close(2);
}

static double mass(const float *values)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += values[i];
    return sum;
}

/* Between every two steps another k or chain, at last all elements: over all steps arrives what was
 * given. */
static void case_codec_changes_between_steps(void **state)
{
    static const char *const specs[] = {"ef+topk:0.2", "ef+topk:0.01+int8", "ef+int4", "ef+sign",
                                        "ef+topk:1"};
    static float residual[COUNT];
    wring_codec *codec[5];
    double given = 0, arrived = 0;
    (void)state;
    group_open(2, "ef+topk:0.01", "allgather");
    for (int step = 0; step < 6; step++) {
        wring_state_report report;
        if (step > 0)
            ok(wring_codec_create(specs[step - 1], &codec[step - 1]));
        for (int q = 0; q < 2 && step > 0; q++) {
            ok(wring_tensor_set_codec(tensor[q], codec[step - 1], &report));
            assert_true(report.dropped == 0);
        }
        uneven(step);
        for (int q = 0; q < 2; q++)
            given += mass(data[q]);
        reduce(2);
        arrived += mass(data[0]);
    }
    for (int q = 0; q < 2; q++) {
        ok(wring_tensor_residual(tensor[q], residual, COUNT));
        assert_true(mass(residual) == 0);
    }
    assert_float_equal(given, arrived, 1e-3 * COUNT);
    group_close(2);
    for (int i = 0; i < 5; i++)
        wring_codec_destroy(codec[i]);
}

/* To and from codecs that keep nothing, or keep it narrower: what is kept is as wide as the codec
 * in force says, in every order. */
static void case_codec_changes_what_is_kept(void **state)
{
    static const char *const specs[] = {"int8", "ef+int4", "ef:bits=16+int4", "ef:bits=8+int4"};
    enum { N = LENGTH(specs) };
    static const size_t nbytes[N] = {0, 8 * COUNT, 4 * COUNT, 2 * 33 * COUNT / 32};
    wring_codec *codec[N];
    (void)state;
    for (int i = 0; i < N; i++)
        ok(wring_codec_create(specs[i], &codec[i]));
    for (int pair = 0; pair < N * N; pair++) {
        group_open(2, specs[pair / N], "allgather");
        for (int step = 0; step < 4; step++) {
            int now = step % 2 ? pair % N : pair / N;
            for (int q = 0; q < 2; q++) {
                ok(wring_tensor_set_codec(tensor[q], codec[now], NULL));
                assert_int_equal(wring_tensor_state_nbytes(tensor[q]), nbytes[now]);
            }
            uneven(step);
            reduce(2);
            assert_memory_equal(data[0], data[1], sizeof data[0]);
        }
        group_close(2);
    }
    for (int i = 0; i < N; i++)
        wring_codec_destroy(codec[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_disjoint_and_equal_selections),
        cmocka_unit_test(case_gradient_cancels_the_residual),
        cmocka_unit_test(case_codec_changes_between_steps),
        cmocka_unit_test(case_codec_changes_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
