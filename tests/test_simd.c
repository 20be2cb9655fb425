/* SPDX-License-Identifier: Apache-2.0 */
/* Every SIMD kernel at every level that this CPU has against the scalar level, bit for bit, over
 * benign, hostile and non-finite data, all small counts and every alignment; and the scalar level
 * against models that are written here a second time, as plainly as possible. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "simd/float16.h"
#include "simd/kernels.h"

#define ROOM 17000 /* elements of the largest run */

static uint32_t word(uint32_t i)
{
    struct wri_philox counter = {{i, 0, 0, 0}};
    return wri_philox4x32_10(counter, 17, 4).word[0];
}

static float uniform(uint32_t i)
{
    return (float)(word(i) >> 8) * 0x1p-23f - 1.0f;
}

/* ---- data ------------------------------------------------------------------------------------ */

static float ordinary(uint32_t i)
{
    return uniform(i) * 0.01f;
}

static float any_bits(uint32_t i)
{
    return wri_bits_float(word(i));
}

static float any_finite(uint32_t i)
{
    uint32_t bits = word(i);
    return wri_bits_float((bits & 0x7F800000u) == 0x7F800000u ? bits & ~0x40000000u : bits);
}

static float denormal(uint32_t i)
{
    return wri_bits_float(word(i) & 0x807FFFFFu);
}

/* Around 2^-100, below which a scale is zero. */
static float tiny(uint32_t i)
{
    return uniform(i) * 0x1.002p-100f;
}

static float zeros(uint32_t i)
{
    return i % 3 ? 0.0f : -0.0f;
}

/* Half-way cases for int8 and int4, where to-even decides. */
static float ties(uint32_t i)
{
    return i % 32 == 5 ? 127.0f : (float)((int)(word(i) % 253) - 126) * 0.5f;
}

static float huge(uint32_t i)
{
    return uniform(i) * 3.4e38f;
}

/* One NaN with a payload, signalling, or Inf in about 500 elements. */
static float rarely_nonfinite(uint32_t i)
{
    static const uint32_t special[] = {0x7FC12345, 0xFFD00001, 0x7F812345, 0x7F800000, 0xFF800000};
    uint32_t draw = word(i);
    return draw % 500 == 0 ? wri_bits_float(special[draw / 500 % 5]) : uniform(i);
}

/* Close to where fp16 and bf16 overflow or become subnormal. */
static float half_edges(uint32_t i)
{
    static const float edge[] = {65504,      65519.99f,    65520,           65536,
                                 0x1p-14f,   0x1.ffcp-15f, 0x1p-24f,        0x1p-25f,
                                 0x1.8p-25f, 0x1p-26f,     0x1.fefffep127f, 0x1.ffp127f};
    return wri_bits_float(wri_float_bits(edge[i % 12]) + word(i) % 5 - 2) * (i & 16 ? -1.0f : 1.0f);
}

static const struct data {
    const char *name;
    float (*at)(uint32_t i);
} data_sets[] = {
    {"ordinary", ordinary},
    {"any bits", any_bits},
    {"any finite", any_finite},
    {"denormal", denormal},
    {"tiny", tiny},
    {"zeros", zeros},
    {"ties", ties},
    {"huge", huge},
    {"rarely non-finite", rarely_nonfinite},
    {"half edges", half_edges},
};
#define DATA_SETS (sizeof(data_sets) / sizeof(*data_sets))

/* ---- one run of a kernel, with everything it writes ------------------------------------------ */

#define MARGIN 64 /* looked at behind what may be written */

struct output {
    bool nonfinite;
    float values[ROOM + MARGIN]; /* residual, or decoded */
    unsigned char scales[4 * (ROOM / 32 + MARGIN)];
    _Alignas(4) unsigned char codes[4 * (ROOM + MARGIN)];
};
static struct output expected, actual;
static float input[ROOM + MARGIN], residual[ROOM + MARGIN];

static void set_data(const struct data *data)
{
    for (uint32_t i = 0; i < ROOM + MARGIN; i++) {
        input[i] = data->at(i);
        residual[i] = data->at(i + 7 * ROOM);
    }
}

/* Only what a run of COUNT elements could reach. */
static void clear_output(struct output *out, size_t count)
{
    out->nonfinite = false;
    memcpy(out->values, residual, (count + MARGIN) * sizeof(float));
    memset(out->scales, 0xA5, 4 * (count / 32 + MARGIN));
    memset(out->codes, 0xA5, 4 * (count + MARGIN));
}

static bool same_output(size_t count)
{
    return expected.nonfinite == actual.nonfinite &&
           !memcmp(expected.values, actual.values, (count + MARGIN) * sizeof(float)) &&
           !memcmp(expected.scales, actual.scales, 4 * (count / 32 + MARGIN)) &&
           !memcmp(expected.codes, actual.codes, 4 * (count + MARGIN));
}

struct setting {
    size_t count, offset, block;
    float beta;          /* 0: no residual read */
    bool keep, in_place; /* residual written; over the one that is read */
    bool random, add;
};

static struct wri_source source_of(const struct setting *set, struct output *out)
{
    struct wri_source source = {.src = input + set->offset, .count = set->count, .beta = set->beta};
    if (set->beta != 0)
        source.residual_in = residual + set->offset;
    if (set->keep)
        source.residual_out = out->values + set->offset;
    if (set->in_place)
        source.residual_in = source.residual_out;
    return source;
}

static const struct wring_random_key key = {.seed = 5, .tensor = 77, .step = 3, .rank = 1};

/* Kernels by number, so that one loop covers them. */
enum { QUANTISERS = 3, DEQUANTISERS = 3, STORES = 3, LOADS = 3 };
#define KERNELS (QUANTISERS + DEQUANTISERS + STORES + LOADS + 1) /* and find_large */

static void run_encoder(const struct wri_kernels *k, int which, const struct setting *set,
                        struct output *out)
{
    struct wri_blocks in = {.source = source_of(set, out),
                            .block = set->block,
                            .random = set->random ? &key : NULL,
                            .first_block = 9};
    unsigned char *codes = out->codes + set->offset;
    bool (*quantise[])(const struct wri_blocks *, void *, void *) = {k->quantise8, k->quantise4,
                                                                     k->quantise1};
    bool (*store[])(const struct wri_source *, void *) = {k->store_f32, k->store_bf16,
                                                          k->store_fp16};
    if (which < QUANTISERS)
        out->nonfinite = quantise[which](&in, out->scales + set->offset, codes);
    else
        out->nonfinite = store[which - QUANTISERS](&in.source, codes);
}

/* Codes are the input's bytes: hostile. */
static void run_decoder(const struct wri_kernels *k, int which, const struct setting *set,
                        struct output *out)
{
    const unsigned char *codes = (const unsigned char *)(input + 3) + set->offset;
    float *dst = out->values + set->offset;
    void (*dequantise[])(float *, size_t, size_t, const void *, const void *,
                         bool) = {k->dequantise8, k->dequantise4, k->dequantise1};
    void (*load[])(float *, size_t, const void *, bool) = {k->load_f32, k->load_bf16, k->load_fp16};
    if (which < DEQUANTISERS)
        dequantise[which](dst, set->count, set->block, input, codes, set->add);
    else
        load[which - DEQUANTISERS](dst, set->count, codes, set->add);
}

static void run_kernel(const struct wri_kernels *k, int which, const struct setting *set,
                       struct output *out)
{
    clear_output(out, set->count);
    if (which < QUANTISERS + STORES)
        run_encoder(k, which, set, out);
    else if (which < KERNELS - 1)
        run_decoder(k, which - QUANTISERS - STORES, set, out);
    else
        k->find_large(input + set->offset, set->count, wri_float_bits(0.005f),
                      (uint32_t *)(void *)out->codes);
}

static void compare_level(const struct wri_kernels *level, const struct data *data,
                          const struct setting *set)
{
    for (int which = 0; which < KERNELS; which++) {
        run_kernel(wri_kernels_at(WRI_SIMD_SCALAR), which, set, &expected);
        run_kernel(level, which, set, &actual);
        if (!same_output(set->count))
            fail_msg("%s kernel %d: data '%s' count %zu offset %zu block %zu beta %g keep %d in "
                     "place %d random %d add %d",
                     level->name, which, data->name, set->count, set->offset, set->block,
                     (double)set->beta, set->keep, set->in_place, set->random, set->add);
    }
}

/* The settings that matter, without their count and offset. */
static const struct setting settings[] = {
    {.block = 128},
    {.block = 128, .random = true, .add = true},
    {.block = 128, .beta = 1, .keep = true},
    {.block = 128, .beta = 0.9f, .keep = true, .in_place = true, .add = true},
    {.block = 32, .keep = true, .random = true},
    {.block = 96, .beta = -0.5f, .add = true},
    {.block = 16384, .beta = 1, .keep = true, .in_place = true},
};
#define SETTINGS (sizeof(settings) / sizeof(*settings))

static void compare_counts(const struct wri_kernels *level, const struct data *data)
{
    static const size_t long_counts[] = {1023, 1024, 1025, 4999, 16383, 16384, 16385, ROOM - 4};
    for (size_t s = 0; s < SETTINGS; s++) {
        struct setting set = settings[s];
        for (set.count = 0; set.count <= 300; set.count++) {
            set.offset = (set.count + s) % 4;
            compare_level(level, data, &set);
        }
        for (set.count = 0; set.count <= 66; set.count++)
            for (set.offset = 0; set.offset < 4; set.offset++)
                compare_level(level, data, &set);
        for (size_t i = 0; i < sizeof(long_counts) / sizeof(*long_counts); i++) {
            set.count = long_counts[i];
            compare_level(level, data, &set);
        }
    }
}

static void levels_agree(void **state)
{
    (void)state;
    for (int level = WRI_SIMD_SCALAR + 1; level < WRI_SIMD_LEVEL_COUNT; level++) {
        if (!wri_kernels_at(level)) {
            print_message("level %d: not on this CPU\n", level);
            continue;
        }
        for (size_t d = 0; d < DATA_SETS; d++) {
            set_data(&data_sets[d]);
            compare_counts(wri_kernels_at(level), &data_sets[d]);
        }
    }
}

/* ---- the scalar level against models --------------------------------------------------------- */

/* Codes by the sentences of docs/arithmetic.md; the scale goes to *scale_out. */
static bool model_block(const float *p, size_t n, int limit, float *scale_out, int *q)
{
    float largest = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite &= isfinite(p[i]) != 0;
        largest = fmaxf(largest, fabsf(p[i]));
    }
    bool zero = largest < 0x1p-100f;
    float inverse = (float)limit / largest;
    *scale_out = zero ? 0 : largest / (float)limit;
    for (size_t i = 0; i < n; i++)
        q[i] = finite && !zero ? (int)nearbyintf(p[i] * inverse) : 0;
    return finite;
}

static int code_of(const unsigned char *codes, size_t i, int limit)
{
    if (limit == 127)
        return (int8_t)codes[i];
    int nibble = codes[i / 2] >> (i % 2 * 4) & 15;
    return nibble >= 8 ? nibble - 16 : nibble;
}

static void check_integers(const struct data *data, size_t count, int limit)
{
    const struct wri_kernels *k = wri_kernels_at(WRI_SIMD_SCALAR);
    struct setting set = {.count = count, .block = 128, .keep = true};
    int q[128];
    bool nonfinite = false;
    run_kernel(k, limit == 127 ? 0 : 1, &set, &actual);
    for (size_t first = 0; first < count; first += 128) {
        size_t n = count - first < 128 ? count - first : 128;
        float scale, written;
        memcpy(&written, actual.scales + first / 32, sizeof(written));
        bool finite = model_block(input + first, n, limit, &scale, q);
        nonfinite |= !finite;
        if (finite)
            assert_memory_equal(&scale, &written, sizeof(scale));
        else
            assert_int_equal(wri_float_bits(written), WRI_NAN_BITS);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(code_of(actual.codes, first + i, limit), q[i]);
            float left =
                finite ? input[first + i] - (float)q[i] * scale : wri_bits_float(WRI_NAN_BITS);
            if (wri_float_bits(actual.values[first + i]) != wri_float_bits(left))
                fail_msg("residual of '%s' at %zu", data->name, first + i);
        }
    }
    assert_int_equal(actual.nonfinite, nonfinite);
}

static void integers_follow_the_rule(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 31, 33, 128, 129, 1000};
    for (size_t d = 0; d < DATA_SETS; d++) {
        set_data(&data_sets[d]);
        for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
            check_integers(&data_sets[d], counts[i], 127);
            check_integers(&data_sets[d], counts[i], 7);
        }
    }
}

/* Stochastic codes are floor(x + u), where u are the bits that rng.h promises. */
static void random_rounding_follows_the_rule(void **state)
{
    (void)state;
    set_data(&data_sets[0]);
    struct setting set = {.count = 1000, .block = 128, .random = true};
    run_kernel(wri_kernels_at(WRI_SIMD_SCALAR), 0, &set, &actual);
    for (size_t i = 0; i < set.count; i++) {
        size_t first = i / 128 * 128;
        float largest = 0;
        for (size_t j = first; j < set.count && j < first + 128; j++)
            largest = fmaxf(largest, fabsf(input[j]));
        float u = (float)wri_random16(wri_random_block(&key, 9 + i / 128), (uint32_t)(i % 128)) /
                  65536.0f;
        float q = floorf(input[i] * (127.0f / largest) + u);
        assert_int_equal((int8_t)actual.codes[i], (int)fminf(fmaxf(q, -127), 127));
    }
}

/* The halving tree, by recursion; TYPE float within a group of 128, double above. */
static float model_sum(const float *x, size_t stride, size_t i, size_t n)
{
    if (stride == 128)
        return i < n ? fabsf(x[i]) : 0;
    return model_sum(x, stride * 2, i, n) + model_sum(x, stride * 2, i + stride, n);
}

static double model_group_sum(const float *x, size_t stride, size_t group, size_t n)
{
    if (stride == 128) {
        size_t first = group * 128;
        return first < n ? (double)model_sum(x + first, 1, 0, n - first < 128 ? n - first : 128)
                         : 0;
    }
    return model_group_sum(x, stride * 2, group, n) +
           model_group_sum(x, stride * 2, group + stride, n);
}

static void signs_follow_the_rule(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 31, 127, 128, 129, 1000, 1024, 5000, 16384};
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
        set_data(&data_sets[0]);
        struct setting set = {.count = counts[c], .block = 16384, .keep = true};
        run_kernel(wri_kernels_at(WRI_SIMD_SCALAR), 2, &set, &actual);
        float scale = (float)(model_group_sum(input, 1, 0, set.count) / (double)set.count);
        assert_memory_equal(actual.scales, &scale, sizeof(scale));
        for (size_t i = 0; i < set.count; i++) {
            bool negative = actual.codes[i / 8] >> i % 8 & 1;
            assert_int_equal(negative, input[i] < 0);
            float left = input[i] - (negative ? -scale : scale);
            assert_memory_equal(&actual.values[i], &left, sizeof(left));
        }
    }
}

/* Every pair of neighbours of a format: each narrows to itself, their middle to the even one, and
 * what is next to the middle to the nearer one. That is all of rounding to nearest even. */
static void check_rounding(uint16_t (*narrow)(float), float (*widen)(uint16_t), uint16_t infinity)
{
    for (uint32_t h = 0; h < infinity; h++) {
        float low = widen((uint16_t)h);
        double next = h + 1u < infinity ? (double)widen((uint16_t)(h + 1))
                                        : 2 * (double)low - (double)widen((uint16_t)(h - 1));
        float middle = (float)(((double)low + next) / 2);
        assert_int_equal(narrow(low), h);
        assert_int_equal(narrow(-low), h | 0x8000u);
        assert_int_equal(narrow(middle), h + (h & 1));
        assert_int_equal(narrow(nextafterf(middle, 0)), h);
        assert_int_equal(narrow(nextafterf(middle, INFINITY)), h + 1);
    }
}

static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    check_rounding(wri_fp16_from_float, wri_fp16_to_float, 0x7C00);
    check_rounding(wri_bf16_from_float, wri_bf16_to_float, 0x7F80);
    assert_int_equal(wri_fp16_from_float(wri_bits_float(0xFF800001)), 0xFE00);
    assert_int_equal(wri_fp16_from_float(wri_bits_float(0x7FFFFFFF)), 0x7FFF);
    assert_int_equal(wri_bf16_from_float(wri_bits_float(0xFF800001)), 0xFFC0);
    assert_int_equal(wri_bf16_from_float(wri_bits_float(0x7FFFFFFF)), 0x7FFF);
}

/* All 2^16 halves through the kernels of all levels, which must be the functions just checked. */
static void halves_widen_alike(void **state)
{
    (void)state;
    static uint16_t halves[65536];
    static float values[65536];
    for (uint32_t h = 0; h < 65536; h++)
        halves[h] = (uint16_t)h;
    for (int level = WRI_SIMD_SCALAR; level < WRI_SIMD_LEVEL_COUNT; level++) {
        const struct wri_kernels *k = wri_kernels_at(level);
        if (!k)
            continue;
        k->load_fp16(values, 65536, halves, false);
        for (uint32_t h = 0; h < 65536; h++)
            assert_int_equal(wri_float_bits(values[h]),
                             wri_float_bits(wri_fp16_to_float((uint16_t)h)));
        k->load_bf16(values, 65536, halves, false);
        for (uint32_t h = 0; h < 65536; h++)
            assert_int_equal(wri_float_bits(values[h]), h << 16);
    }
}

/* What is large, at the bound itself too; NaN is larger than all. */
static void large_elements_are_found(void **state)
{
    (void)state;
    enum { N = 100 };
    uint32_t bitmap[4];
    float src[N];
    for (uint32_t i = 0; i < N; i++)
        src[i] = wri_bits_float(0x3F800000u + i - 50 + (i % 2 << 31));
    src[3] = wri_bits_float(0xFFC00000u);
    wri_kernels_at(WRI_SIMD_SCALAR)->find_large(src, N, 0x3F800000u, bitmap);
    for (uint32_t i = 0; i < 128; i++)
        assert_int_equal(bitmap[i / 32] >> i % 32 & 1, i < N && (i >= 50 || i == 3));
}

/* ---- selection ------------------------------------------------------------------------------- */

static void levels_are_selected(void **state)
{
    (void)state;
    assert_non_null(wri_kernels());
    assert_null(wri_kernels_at(-1));
    assert_null(wri_kernels_at(WRI_SIMD_LEVEL_COUNT));
    assert_int_equal(wri_simd_select(WRI_SIMD_LEVEL_COUNT), WRING_E_CONFIG);
    assert_int_equal(wri_simd_select(WRI_SIMD_SCALAR), WRING_OK);
    assert_string_equal(wri_kernels()->name, "scalar");
    assert_int_equal(wri_simd_select(WRI_SIMD_AUTO), WRING_OK);
    assert_ptr_equal(wri_kernels(), wri_kernels_at(WRI_SIMD_AUTO));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(integers_follow_the_rule),
        cmocka_unit_test(random_rounding_follows_the_rule),
        cmocka_unit_test(signs_follow_the_rule),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(halves_widen_alike),
        cmocka_unit_test(large_elements_are_found),
        cmocka_unit_test(levels_are_selected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
