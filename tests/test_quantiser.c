/* SPDX-License-Identifier: Apache-2.0 */
/* The casts and block codecs: their error on Gaussian data, their sizes, and what they do at the
 * edges: short blocks, bytes of the wrong size, bytes nobody wrote, blocks that are not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "simd/float16.h"

#define COUNT (1u << 20)

static float src[COUNT], decoded[COUNT], residual[COUNT];
static uint32_t wire[COUNT + 1];

/* Normal numbers from a counter (Box and Muller). */
static void fill_gauss(float sigma)
{
    for (uint32_t i = 0; i < COUNT; i += 2) {
        struct wri_philox counter = {{i, 0, 0, 0}};
        struct wri_philox draw = wri_philox4x32_10(counter, 1, 2);
        double radius = sqrt(-2 * log(((double)draw.word[0] + 1) * 0x1p-32));
        double angle = 2 * 3.14159265358979324 * (double)draw.word[1] * 0x1p-32;
        src[i] = sigma * (float)(radius * cos(angle));
        src[i + 1] = sigma * (float)(radius * sin(angle));
    }
}

/* The stage NAME with default parameters, but for the first two where not negative. */
static struct wring_stage stage_of(const char *name, double first, double second)
{
    struct wring_stage stage = {.ops = wri_codec_find(name, strlen(name))};
    assert_non_null(stage.ops);
    for (size_t i = 0; i < stage.ops->nparams; i++)
        stage.param[i] = stage.ops->params[i].def;
    if (first >= 0)
        stage.param[0] = first;
    if (second >= 0)
        stage.param[1] = second;
    return stage;
}

static struct wring_encode encode_of(const struct wring_stage *stage, size_t count)
{
    struct wring_encode args = {.size = sizeof(args),
                                .stage = stage,
                                .src = src,
                                .count = count,
                                .beta = 1,
                                .dst = wire,
                                .random = {.seed = 1, .tensor = 2, .step = 3}};
    return args;
}

static wring_status decode(const struct wring_stage *stage, size_t nbytes, size_t count, bool add)
{
    struct wring_decode args = {.size = sizeof(args),
                                .stage = stage,
                                .src = wire,
                                .nbytes = nbytes,
                                .dst = decoded,
                                .count = count,
                                .add = add};
    return stage->ops->decode(&args);
}

static double round_trip_nmse(const struct wring_stage *stage)
{
    struct wring_encode args = encode_of(stage, COUNT);
    assert_int_equal(stage->ops->encode(&args), WRING_OK);
    assert_false(args.nonfinite);
    assert_int_equal(decode(stage, stage->ops->nbytes(stage, COUNT), COUNT, false), WRING_OK);
    double error = 0, norm = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double difference = (double)src[i] - (double)decoded[i];
        error += difference * difference;
        norm += (double)src[i] * (double)src[i];
    }
    return error / norm;
}

/* Normalised mean squared error on Gaussian data and bits per element, of 2^20 elements. */
static const struct anchor {
    const char *name;
    double block, round, nmse, bits;
    float sigma;
} anchors[] = {
    {"bf16", -1, -1, 2.8e-6, 16, 1},         {"fp16", -1, -1, 4.3e-8, 16, 1e-3f},
    {"int8", 32, 0, 2.9e-5, 9, 1},           {"int8", 128, 0, 4.2e-5, 8.25, 1},
    {"int8", 512, 0, 5.6e-5, 8.0625, 1e-6f}, {"int8", 128, 1, 8.4e-5, 8.25, 1},
    {"int4", 32, 0, 9.4e-3, 5, 1},           {"int4", 128, 0, 1.38e-2, 4.25, 1e6f},
    {"sign", 1024, -1, 0.364, 1.03125, 1},
};

static void errors_are_as_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(anchors) / sizeof(*anchors); i++) {
        const struct anchor *a = &anchors[i];
        struct wring_stage stage = stage_of(a->name, a->block, a->round);
        fill_gauss(a->sigma);
        double nmse = round_trip_nmse(&stage);
        double bits = 8.0 * (double)stage.ops->nbytes(&stage, COUNT) / COUNT;
        if (fabs(nmse / a->nmse - 1) > 0.03 || bits != a->bits)
            fail_msg("%s block %g round %g: nmse %g instead of %g, %g bits instead of %g", a->name,
                     a->block, a->round, nmse, a->nmse, bits, a->bits);
    }
}

/* The mean of K stochastic encodings with different steps has 1/K of one's error: no bias. */
static void random_rounding_has_no_bias(void **state)
{
    (void)state;
    enum { TIMES = 64, N = 1 << 14 };
    struct wring_stage stage = stage_of("int4", 128, 1);
    fill_gauss(1);
    memset(decoded, 0, N * sizeof(float));
    for (uint64_t step = 0; step < TIMES; step++) {
        struct wring_encode args = encode_of(&stage, N);
        args.random.step = step;
        assert_int_equal(stage.ops->encode(&args), WRING_OK);
        decode(&stage, stage.ops->nbytes(&stage, N), N, true);
    }
    double error = 0, norm = 0;
    for (size_t i = 0; i < N; i++) {
        double difference = (double)src[i] - (double)decoded[i] / TIMES;
        error += difference * difference;
        norm += (double)src[i] * (double)src[i];
    }
    assert_true(error / norm < 1.1 * 2 * 1.38e-2 / TIMES);
}

static const char *const names[] = {"bf16", "fp16", "int8", "int4", "sign"};
#define EACH_CODEC(c) for (size_t c = 0; c < sizeof(names) / sizeof(*names); c++)

static void sizes_are_exact(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, 7, 127, 128, 129, 1023, 1025, 5000};
    fill_gauss(1);
    EACH_CODEC(c)
    {
        struct wring_stage stage = stage_of(names[c], -1, -1);
        for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
            size_t n = counts[i], nbytes = stage.ops->nbytes(&stage, n);
            struct wring_encode args = encode_of(&stage, n);
            memset(wire, 0xA5, nbytes + 4);
            assert_int_equal(stage.ops->encode(&args), WRING_OK);
            memcpy(residual, wire, nbytes);
            memset(wire, 0x5A, nbytes + 4);
            assert_int_equal(stage.ops->encode(&args), WRING_OK);
            assert_memory_equal(residual, wire, nbytes); /* all written, the padding too */
            assert_int_equal(nbytes % 4, 0);
            assert_int_equal(wire[nbytes / 4], 0x5A5A5A5A);
            assert_int_equal(decode(&stage, nbytes, n, false), WRING_OK);
            assert_int_equal(decode(&stage, nbytes + 4, n, false), WRING_E_CORRUPT);
            assert_int_equal(decode(&stage, nbytes - 4, n, false), WRING_E_CORRUPT);
            assert_int_equal(decode(&stage, nbytes, n + 2000, false), WRING_E_CORRUPT);
        }
    }
}

/* p = decoded + residual, so nothing is lost; and feedback of what was lost changes the next
 * codes. */
static void residuals_are_what_was_lost(void **state)
{
    (void)state;
    enum { N = 5001 };
    fill_gauss(1);
    EACH_CODEC(c)
    {
        struct wring_stage stage = stage_of(names[c], -1, -1);
        memset(residual, 0, sizeof(residual));
        for (int step = 0; step < 3; step++) {
            static float p[N];
            for (size_t i = 0; i < N; i++) {
                float kept = 0.5f * residual[i];
                p[i] = src[i] + kept;
            }
            struct wring_encode args = encode_of(&stage, N);
            args.beta = 0.5f;
            args.residual_in = args.residual_out = residual;
            assert_int_equal(stage.ops->encode(&args), WRING_OK);
            decode(&stage, stage.ops->nbytes(&stage, N), N, false);
            for (size_t i = 0; i < N; i++)
                assert_true(residual[i] == p[i] - decoded[i]);
        }
    }
}

/* A run may be cut at any block: the parts encode as the whole does, random bits included. */
static void runs_can_be_cut_at_blocks(void **state)
{
    (void)state;
    enum { N = 1000, CUT = 384 };
    struct wring_stage stage = stage_of("int8", 128, 1);
    static float whole[N];
    fill_gauss(1);
    struct wring_encode args = encode_of(&stage, N);
    args.first = 1280;
    stage.ops->encode(&args);
    decode(&stage, stage.ops->nbytes(&stage, N), N, false);
    memcpy(whole, decoded, sizeof(whole));
    args.src += CUT;
    args.first += CUT;
    args.count -= CUT;
    stage.ops->encode(&args);
    decode(&stage, stage.ops->nbytes(&stage, N - CUT), N - CUT, false);
    assert_memory_equal(whole + CUT, decoded, (N - CUT) * sizeof(float));
}

static void what_is_not_finite_poisons_its_unit(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001};
    enum { N = 5000, AT = 2100 };
    EACH_CODEC(c)
    for (size_t b = 0; b < sizeof(bad) / sizeof(*bad); b++) {
        struct wring_stage stage = stage_of(names[c], -1, -1);
        size_t unit = stage.ops->unit(&stage), first = AT / unit * unit;
        fill_gauss(1);
        src[AT] = wri_bits_float(bad[b]);
        struct wring_encode args = encode_of(&stage, N);
        assert_int_equal(stage.ops->encode(&args), WRING_OK);
        assert_true(args.nonfinite);
        decode(&stage, stage.ops->nbytes(&stage, N), N, false);
        for (size_t i = 0; i < N; i++)
            assert_int_equal(isfinite(decoded[i]) != 0, i < first || i >= first + unit);
    }
}

static void any_bytes_decode_to_something(void **state)
{
    (void)state;
    enum { N = 1000 };
    static float once[N];
    EACH_CODEC(c)
    {
        struct wring_stage stage = stage_of(names[c], -1, -1);
        size_t nbytes = stage.ops->nbytes(&stage, N);
        for (uint32_t seed = 0; seed < 200; seed++) {
            for (uint32_t i = 0; i < nbytes / 4; i++) {
                struct wri_philox counter = {{i, seed, 0, 0}};
                wire[i] = wri_philox4x32_10(counter, 0, 0).word[0];
            }
            assert_int_equal(decode(&stage, nbytes, N, false), WRING_OK);
            memcpy(once, decoded, sizeof(once));
            assert_int_equal(decode(&stage, nbytes, N, false), WRING_OK);
            assert_memory_equal(once, decoded, sizeof(once));
        }
    }
}

static void bad_blocks_are_refused(void **state)
{
    (void)state;
    struct wring_stage stage = stage_of("int8", 100, -1);
    assert_int_equal(stage.ops->check(&stage), WRING_E_SPEC);
    assert_non_null(strstr(wring_error_message(), "multiple of 32"));
    stage = stage_of("sign", 32, -1);
    assert_int_equal(stage.ops->check(&stage), WRING_E_SPEC);
    stage = stage_of("int4", 96, -1);
    assert_int_equal(stage.ops->check(&stage), WRING_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_as_known),
        cmocka_unit_test(random_rounding_has_no_bias),
        cmocka_unit_test(sizes_are_exact),
        cmocka_unit_test(residuals_are_what_was_lost),
        cmocka_unit_test(runs_can_be_cut_at_blocks),
        cmocka_unit_test(what_is_not_finite_poisons_its_unit),
        cmocka_unit_test(any_bytes_decode_to_something),
        cmocka_unit_test(bad_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
