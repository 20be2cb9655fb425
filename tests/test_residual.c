/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals of 32, 16 and 8 bits in memory: their error, that narrowing again changes nothing, that
 * parts do not touch each other; and tensors that keep a single generation. */
#include "scene.h"

#include "collective/state.h"

enum { COUNT = 3 * WRI_RESIDUAL_BLOCK + 7 };

static float sample(size_t i)
{
    static const float scales[] = {1, 1e-3f, 0, 3e30f, 1e-42f};
    return scene_value(0, 0, i) * scales[i / WRI_RESIDUAL_BLOCK % 5];
}

static void open_residual(struct wri_residual *residual, int bits)
{
    size_t nbytes = wri_residual_nbytes(bits, COUNT);
    *residual = (struct wri_residual){.generation = {calloc(1, nbytes), calloc(1, nbytes)},
                                      .bits = bits,
                                      .begin = 64,
                                      .end = 64 + COUNT};
}

static void close_residual(struct wri_residual *residual)
{
    free(residual->generation[0]);
    free(residual->generation[1]);
}

static void test_widths(void **state)
{
    (void)state;
    for (int bits = 8; bits <= 32; bits *= 2)
        for (size_t first = 0; first < 5; first++) {
            struct wri_residual residual;
            float values[COUNT], found[COUNT], again[COUNT];
            open_residual(&residual, bits);
            for (size_t i = 0; i < COUNT; i++)
                values[i] = sample(i + first * WRI_RESIDUAL_BLOCK);
            wri_residual_narrow(&residual, 0, 64, COUNT, values);
            wri_residual_widen(&residual, 0, 64, COUNT, found);
            wri_residual_narrow(&residual, 1, 64, COUNT, found);
            wri_residual_widen(&residual, 1, 64, COUNT, again);
            assert_memory_equal(found, again, sizeof(found));
            assert_memory_equal(residual.generation[0], residual.generation[1],
                                wri_residual_nbytes(bits, COUNT));
            for (size_t i = 0; i < COUNT; i++) {
                float most = 0;
                size_t block = i / WRI_RESIDUAL_BLOCK * WRI_RESIDUAL_BLOCK;
                for (size_t k = block; k < COUNT && k < block + WRI_RESIDUAL_BLOCK; k++)
                    most = fabsf(values[k]) > most ? fabsf(values[k]) : most;
                float bound = bits == 32   ? 0
                              : bits == 16 ? fabsf(values[i]) / 256 + 0x1p-133f
                                           : most / 127 + 0x1p-127f;
                if (!(fabsf(found[i] - values[i]) <= bound))
                    fail_msg("%d bits: %g became %g", bits, values[i], found[i]);
            }
            close_residual(&residual);
        }
}

/* A part of it, exchanged, leaves the rest alone, and comes back. */
static void test_exchange(void **state)
{
    (void)state;
    for (int bits = 8; bits <= 32; bits *= 2) {
        struct wri_residual residual;
        float ones[COUNT], twos[COUNT], found[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            ones[i] = 1;
            twos[i] = 2;
        }
        open_residual(&residual, bits);
        wri_residual_narrow(&residual, 0, 64, COUNT, ones);
        wri_residual_narrow(&residual, 1, 64, COUNT, twos);
        for (int times = 0; times < 2; times++) {
            wri_residual_exchange(&residual, 64 + 32, 64 + 96);
            wri_residual_widen(&residual, residual.current, 64, COUNT, found);
            for (size_t i = 0; i < COUNT; i++)
                assert_true(found[i] == (times == 0 && i >= 32 && i < 96 ? 2 : 1));
        }
        wri_residual_exchange(&residual, 0, 1000);
        wri_residual_widen(&residual, residual.current, 64, COUNT, found);
        assert_memory_equal(found, twos, sizeof(found));
        close_residual(&residual);
    }
}

/* Half the state; what does not count leaves nothing, and says so. */
static void test_single_generation(void **state)
{
    (void)state;
    enum { N = 2 };
    const size_t count = 2000;
    wring_comm *comm[N];
    wring_tensor *tensor[N];
    static float data[N][2000], residual[2000];
    wring_comm_options of_comm = WRING_COMM_OPTIONS_INIT;
    wring_tensor_options of_tensor = WRING_TENSOR_OPTIONS_INIT;
    of_comm.codec = "ef+int4";
    of_comm.algorithm = "allgather"; /* nothing is kept as an owner */
    of_tensor.single = true;
    wring_context *context = self_open(N, &of_comm, comm);
    for (int q = 0; q < N; q++)
        ok(wring_tensor_create(comm[q], "t", WRING_FLOAT32, 1, &count, &of_tensor, &tensor[q]));
    assert_int_equal(wring_tensor_state_nbytes(tensor[0]), count * sizeof(float));
    for (int number = 0; number < 2; number++) {
        wring_request *request[N];
        wring_result result;
        for (int q = 0; q < N; q++) {
            for (size_t i = 0; i < count; i++)
                data[q][i] = number == 1 && q == 1 && i == 9 ? NAN : scene_value(q, 0, i);
            wring_segment segment = {
                .tensor = tensor[q], .send = data[q], .recv = data[q], .count = count};
            wring_call call = WRING_CALL_INIT;
            call.segments = &segment;
            call.nsegments = 1;
            ok(wring_comm_start(comm[q], &call, &request[q]));
        }
        for (int q = 0; q < N; q++)
            ok(wring_request_wait(request[q], &result));
        assert_int_equal(result.nonfinite, number == 1);
        ok(wring_tensor_residual(tensor[0], residual, count));
        bool zero = true;
        for (size_t i = 0; i < count; i++)
            zero &= residual[i] == 0;
        assert_int_equal(zero, number == 1);
    }
    char *text;
    ok(wring_comm_explain(comm[0], &text));
    assert_non_null(strstr(text, "reset once"));
    free(text);
    for (int q = 0; q < N; q++)
        wring_tensor_destroy(tensor[q]);
    self_close(context, N, comm);
}

/* Sizes whose bits or bytes do not fit a size_t: refused, never a block that is too small. */
static void test_too_large(void **state)
{
    static const char *const codecs[] = {"ef+int8", "ef:bits=16+int8", "ef:bits=8+int8"};
    wring_comm *comm;
    wring_context *context = self_open(1, NULL, &comm);
    wring_tensor *tensor;
    (void)state;
    for (int c = 0; c < 3; c++) {
        wring_codec *codec;
        wring_tensor_options options = WRING_TENSOR_OPTIONS_INIT;
        ok(wring_codec_create(codecs[c], &codec));
        options.codec = codec;
        for (int bits = 48; bits < 64; bits++)
            assert_int_equal(wring_tensor_create(comm, "t", WRING_FLOAT32, 1,
                                                 &(size_t){(size_t)1 << bits}, &options, &tensor),
                             WRING_E_MEMORY);
        wring_codec_destroy(codec);
    }
    self_close(context, 1, &comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_single_generation),
        cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
