/* SPDX-License-Identifier: Apache-2.0 */
/* topk against a full sort: which elements are chosen (cases B13, B27-B30 of other libraries),
 * and the record of their indices, well-formed and not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "codec/codec.h"
#include "codec/indices.h"
#include "codec/select.h"
#include "simd/kernels.h"

#define N_MAX 70001

static float values[N_MAX];
static uint32_t keys[N_MAX], bitmap[N_MAX / 32 + 1];
static size_t chosen[N_MAX], sorted[N_MAX];

static uint32_t draw(size_t i)
{
    struct wri_philox state = {{(uint32_t)i, (uint32_t)((uint64_t)i >> 32), 7, 7}};
    return wri_philox4x32_10(state, 1, 2).word[0];
}

static uint32_t magnitude(size_t i)
{
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof(bits));
    return bits & 0x7FFFFFFFu;
}

/* Larger magnitudes first, of equal ones the first. */
static int by_rank(const void *a, const void *b)
{
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    if (magnitude(i) != magnitude(j))
        return magnitude(i) > magnitude(j) ? -1 : 1;
    return i < j ? -1 : i > j;
}

static int by_index(const void *a, const void *b)
{
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    return i < j ? -1 : i > j;
}

static void check_selection(size_t n, size_t k, uint32_t hint)
{
    for (size_t i = 0; i < n; i++)
        sorted[i] = i;
    qsort(sorted, n, sizeof(*sorted), by_rank);
    qsort(sorted, k, sizeof(*sorted), by_index);
    struct wri_selection selection = {.keys = keys, .bitmap = bitmap, .hint = hint};
    wri_select_largest(&selection, values, n, k, chosen);
    assert_memory_equal(chosen, sorted, k * sizeof(*chosen));
}

/* Values of the data sets below. */
static float gaussian_like(size_t i)
{
    return ((float)draw(i) - (float)draw(i + 100000)) * 1e-12f;
}
static float equal(size_t i)
{
    return i % 2 ? 0.5f : -0.5f;
}
static float repeated(size_t i)
{
    return (float)(draw(i) % 10) - 5;
}
static float zero(size_t i)
{
    return i % 3 ? 0.0f : -0.0f;
}
static float any_bits(size_t i)
{
    uint32_t bits = draw(i);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
static float growing(size_t i)
{
    return (float)i;
}
static float denormal(size_t i)
{
    return (float)(draw(i) % 1000) * 1e-45f;
}

static float (*const data_sets[])(size_t) = {gaussian_like, equal,   repeated, zero,
                                             any_bits,      growing, denormal};

static void marks_what_reaches_the_threshold(void **state)
{
    (void)state;
    static const uint32_t least[] = {0, 1, 0x00800000, 0x3F000000, 0x7F800000, 0x7FFFFFFF};
    const struct wri_kernels *kernels;
    for (size_t i = 0; i < N_MAX; i++)
        values[i] = any_bits(i);
    for (int level = WRI_SIMD_SCALAR; level < WRI_SIMD_LEVEL_COUNT; level++)
        for (size_t t = 0; (kernels = wri_kernels_at(level)) && t < 6; t++)
            for (size_t n = 900; n < 1100; n++) {
                memset(bitmap, 0xA5, sizeof(bitmap));
                kernels->find_large(values, n, least[t], bitmap);
                for (size_t i = 0; i < (n + 31) / 32 * 32; i++)
                    assert_int_equal(bitmap[i / 32] >> i % 32 & 1,
                                     i < n && magnitude(i) >= least[t]);
            }
}

/* B29, B30: ties, and every awkward n and k; whatever was guessed. */
static void b29_b30_equals_full_sort(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 3, 15, 16, 17, 255, 1000, 4095, 4097, N_MAX};
    for (size_t d = 0; d < sizeof(data_sets) / sizeof(*data_sets); d++) {
        for (size_t i = 0; i < N_MAX; i++)
            values[i] = data_sets[d](i);
        for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
            size_t n = counts[c];
            const size_t ks[] = {1, 2, n / 100 + 1, 255, 256, 257, n - 1, n};
            for (size_t j = 0; j < sizeof(ks) / sizeof(*ks); j++)
                if (ks[j] >= 1 && ks[j] <= n && (n < N_MAX || j == 2 || j == 6))
                    for (int hint = 0; hint < 3; hint++)
                        check_selection(n, ks[j],
                                        (const uint32_t[]){0, 0x3F000000, 0x7F800000}[hint]);
        }
    }
}

/* B27, B28: a NaN is chosen whatever its sign, and confuses nothing. */
static void b27_b28_nonfinite_is_chosen(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0xFFC00000, 0x7FC00000, 0x7F800000, 0xFF800000, 0xFFFFFFFF};
    for (size_t b = 0; b < sizeof(bits) / sizeof(*bits); b++) {
        for (size_t i = 0; i < 64; i++)
            values[i] = (float)(i + 1);
        memcpy(&values[20], &bits[b], sizeof(bits[b]));
        check_selection(64, 16, 0);
        assert_non_null(bsearch(&(size_t){20}, chosen, 16, sizeof(*chosen), by_index));
    }
}

static void check_indices(size_t n, size_t k, size_t stride, size_t offset)
{
    static size_t written[N_MAX], back[N_MAX];
    static unsigned char record[4 * N_MAX];
    struct wri_indices layout = wri_indices_layout(n, k);
    assert_true(layout.nbytes % 4 == 0 && layout.nbytes <= sizeof(record));
    for (size_t j = 0; j < k; j++)
        written[j] = offset + j * stride;
    memset(record, 0xA5, sizeof(record));
    wri_indices_write(&layout, written, record);
    assert_int_equal(record[layout.nbytes], 0xA5);
    assert_int_equal(wri_indices_read(&layout, record, back), WRING_OK);
    assert_memory_equal(back, written, k * sizeof(*back));
}

/* B13: indices beyond 16 and 32 bits. */
static void b13_indices_of_any_width(void **state)
{
    (void)state;
    static const size_t ends[] = {32767,
                                  32768,
                                  65535,
                                  65536,
                                  69999,
                                  (size_t)1 << 31,
                                  ((size_t)1 << 32) + 1,
                                  ((size_t)1 << 40) - 1};
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        check_indices(ends[i] + 1, 1, 1, ends[i]);
        check_indices(ends[i] + 1, 1, 1, 0);
        check_indices(ends[i] + 1, 100, ends[i] / 100, ends[i] % 100);
    }
}

static void indices_of_every_density(void **state)
{
    (void)state;
    for (size_t n = 1; n < 200; n++)
        for (size_t k = 1; k <= n; k++) {
            check_indices(n, k, 1, 0);
            check_indices(n, k, 1, n - k);
            check_indices(n, k, n / k, 0);
        }
}

/* 1 % of a chunk: at most half a bit per index above log2 of the number of sets, 8.0 bits. */
static void indices_are_short(void **state)
{
    (void)state;
    assert_true(wri_indices_layout(16384, 164).nbytes <= 8.6 * 164 / 8 + 4);
}

/* Of all records of 16 bits and some padding, the reader takes just those that the writer makes:
 * one for each set of 4 of N. */
static void check_all_records(size_t n, size_t sets)
{
    struct wri_indices layout = wri_indices_layout(n, 4);
    uint32_t record, again;
    size_t index[4], accepted = 0;
    assert_int_equal(layout.nbytes, sizeof(record));
    assert_int_equal(layout.upper_bits + 4 * layout.low_bits, 16);
    for (record = 0; record < (uint32_t)1 << 18; record++) {
        if (wri_indices_read(&layout, &record, index) != WRING_OK)
            continue;
        accepted++;
        for (size_t j = 0; j < 4; j++)
            assert_true(index[j] < n && (j == 0 || index[j] > index[j - 1]));
        wri_indices_write(&layout, index, &again);
        assert_int_equal(again, record);
    }
    assert_int_equal(accepted, sets);
}

static void every_accepted_record_is_canonical(void **state)
{
    (void)state;
    check_all_records(20, 4845);
    check_all_records(17, 2380); /* the last bucket has one index instead of four */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_what_reaches_the_threshold),
        cmocka_unit_test(b29_b30_equals_full_sort),
        cmocka_unit_test(b27_b28_nonfinite_is_chosen),
        cmocka_unit_test(b13_indices_of_any_width),
        cmocka_unit_test(indices_of_every_density),
        cmocka_unit_test(indices_are_short),
        cmocka_unit_test(every_accepted_record_is_canonical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
