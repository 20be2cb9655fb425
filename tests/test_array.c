/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion and reduction of whole arrays, every type, against sums done one by one in the
 * test. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "simd/array.h"
#include "simd/float16.h"
#include "simd/kernels.h"

#define COUNT 1100 /* more than two tiles, and not a multiple of anything */

static const wring_dtype floats[] = {WRING_FLOAT32, WRING_FLOAT16, WRING_BFLOAT16, WRING_FLOAT64};

/* Small integers, so that every sum is exact in every type. */
static double value(size_t i, int salt)
{
    return (double)((int)((i * 7 + (size_t)salt * 13) % 41) - 20);
}

static void set(wring_dtype dtype, void *array, size_t i, double x)
{
    switch (dtype) {
    case WRING_FLOAT32:
        ((float *)array)[i] = (float)x;
        break;
    case WRING_FLOAT16:
        ((uint16_t *)array)[i] = wri_fp16_from_float((float)x);
        break;
    case WRING_BFLOAT16:
        ((uint16_t *)array)[i] = wri_bf16_from_float((float)x);
        break;
    case WRING_FLOAT64:
        ((double *)array)[i] = x;
        break;
    case WRING_INT8:
        ((int8_t *)array)[i] = (int8_t)x;
        break;
    case WRING_UINT8:
        ((uint8_t *)array)[i] = (uint8_t)(int)x;
        break;
    case WRING_INT32:
        ((int32_t *)array)[i] = (int32_t)x;
        break;
    default:
        ((int64_t *)array)[i] = (int64_t)x;
    }
}

static double get(wring_dtype dtype, const void *array, size_t i)
{
    switch (dtype) {
    case WRING_FLOAT32:
        return (double)((const float *)array)[i];
    case WRING_FLOAT16:
        return (double)wri_fp16_to_float(((const uint16_t *)array)[i]);
    case WRING_BFLOAT16:
        return (double)wri_bf16_to_float(((const uint16_t *)array)[i]);
    case WRING_FLOAT64:
        return ((const double *)array)[i];
    case WRING_INT8:
        return ((const int8_t *)array)[i];
    case WRING_UINT8:
        return ((const uint8_t *)array)[i];
    case WRING_INT32:
        return ((const int32_t *)array)[i];
    default:
        return (double)((const int64_t *)array)[i];
    }
}

static double combine(wring_op op, double a, double b)
{
    return op == WRING_MIN ? fmin(a, b) : op == WRING_MAX ? fmax(a, b) : a + b;
}

static void check_reduce(wring_op op, wring_dtype acc_dtype, wring_dtype dtype)
{
    static double acc[COUNT], src[COUNT];
    bool positive = dtype == WRING_UINT8; /* no negative values to compare with */
    for (size_t i = 0; i < COUNT; i++) {
        set(acc_dtype, acc, i, positive ? fabs(value(i, 1)) : value(i, 1));
        set(dtype, src, i, positive ? fabs(value(i, 2)) : value(i, 2));
    }
    wri_array_reduce(op, acc_dtype, acc, dtype, src, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        double a = positive ? fabs(value(i, 1)) : value(i, 1);
        double b = positive ? fabs(value(i, 2)) : value(i, 2);
        if (get(acc_dtype, acc, i) != combine(op, a, b))
            fail_msg("op %d of %s into %s at %zu", op, wring_dtype_name(dtype),
                     wring_dtype_name(acc_dtype), i);
    }
}

static void every_type_reduces(void **state)
{
    (void)state;
    for (int op = 0; op < WRING_OP_COUNT; op++)
        for (int dtype = 0; dtype < WRING_DTYPE_COUNT; dtype++) {
            check_reduce(op, dtype, dtype);
            check_reduce(op, wri_dtype_accumulator(dtype), dtype);
        }
}

static void integers_wrap(void **state)
{
    (void)state;
    int8_t small[] = {127, -128}, more[] = {1, -1};
    wri_array_reduce(WRING_SUM, WRING_INT8, small, WRING_INT8, more, 2);
    assert_int_equal(small[0], -128);
    assert_int_equal(small[1], 127);
    int64_t large = INT64_MAX, one = 1;
    wri_array_reduce(WRING_AVG, WRING_INT64, &large, WRING_INT64, &one, 1);
    assert_true(large == INT64_MIN);
}

/* NaN wins on either side, and of two zeros the sign decides, in either order. */
static void minimum_and_maximum_do_not_see_the_order(void **state)
{
    (void)state;
    for (int op = WRING_MIN; op <= WRING_MAX; op++)
        for (size_t f = 0; f < sizeof(floats) / sizeof(*floats); f++) {
            const double pairs[][2] = {{NAN, 1}, {1, NAN}, {0.0, -0.0}, {-0.0, 0.0}};
            double acc[4], src[4];
            for (size_t i = 0; i < 4; i++) {
                set(floats[f], acc, i, pairs[i][0]);
                set(floats[f], src, i, pairs[i][1]);
            }
            wri_array_reduce(op, floats[f], acc, floats[f], src, 4);
            assert_true(isnan(get(floats[f], acc, 0)) && isnan(get(floats[f], acc, 1)));
            for (size_t i = 2; i < 4; i++)
                assert_int_equal(signbit(get(floats[f], acc, i)) != 0, op == WRING_MIN);
        }
}

static void sums_have_one_nan(void **state)
{
    (void)state;
    float acc[] = {INFINITY, wri_bits_float(0xFFC12345), 1}, src[] = {-INFINITY, 1, -NAN};
    wri_array_reduce(WRING_SUM, WRING_FLOAT32, acc, WRING_FLOAT32, src, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(wri_float_bits(acc[i]), WRI_NAN_BITS);
    float quotient = wri_bits_float(0xFFC12345);
    wri_array_divide(WRING_FLOAT32, &quotient, 2, 1);
    assert_int_equal(wri_float_bits(quotient), WRI_NAN_BITS);
}

static void check_convert(wring_dtype to, wring_dtype from, size_t bad_at, double bad)
{
    static double src[COUNT], dst[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        set(from, src, i, i == bad_at ? bad : value(i, 3));
    assert_int_equal(wri_array_convert(to, dst, from, src, COUNT), bad_at < COUNT);
    for (size_t i = 0; i < COUNT; i++)
        if (i != bad_at)
            assert_true(get(to, dst, i) == value(i, 3));
    if (to == from) {
        assert_memory_equal(dst, src, COUNT * wring_dtype_size(to));
        assert_int_equal(wri_array_convert(to, dst, to, dst, COUNT), bad_at < COUNT);
    }
}

static void conversions_report_what_is_not_finite(void **state)
{
    (void)state;
    static const size_t places[] = {0, 31, 512, COUNT - 1, COUNT};
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t f = 0; f < sizeof(floats) / sizeof(*floats); f++)
        for (size_t p = 0; p < sizeof(places) / sizeof(*places); p++)
            for (size_t b = 0; b < 3; b++) {
                check_convert(floats[f], floats[f], places[p], bad[b]);
                if (floats[f] == WRING_FLOAT16 || floats[f] == WRING_BFLOAT16) {
                    check_convert(WRING_FLOAT32, floats[f], places[p], bad[b]);
                    check_convert(floats[f], WRING_FLOAT32, places[p], bad[b]);
                }
            }
    check_convert(WRING_FLOAT16, WRING_FLOAT32, 5, 65520); /* becomes Inf */
    check_convert(WRING_INT32, WRING_INT32, COUNT, 0);
}

static void division_is_exact_division(void **state)
{
    (void)state;
    float x[] = {1, -7, 0}, expected[] = {1.0f / 3.0f, -7.0f / 3.0f, 0};
    double y[] = {1, -7, 0};
    wri_array_divide(WRING_FLOAT32, x, 3, 3);
    wri_array_divide(WRING_FLOAT64, y, 3, 3);
    assert_memory_equal(x, expected, sizeof(x));
    assert_true(y[0] == 1.0 / 3.0 && y[1] == -7.0 / 3.0);
}

/* scale acc + weight src, and factor x, with small integers: exact in every type. */
static void weighing_and_scaling(void **state)
{
    (void)state;
    for (size_t t = 0; t < 4; t++) {
        wring_dtype dtype = floats[t], sum = wri_dtype_accumulator(dtype);
        double acc[COUNT], src[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            set(sum, acc, i, value(i, 1));
            set(dtype, src, i, value(i, 2));
        }
        wri_array_weigh(sum, acc, 3, dtype, src, 5, COUNT);
        wri_array_scale(dtype, src, -2, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(get(sum, acc, i) == 3 * value(i, 1) + 5 * value(i, 2));
            assert_true(get(dtype, src, i) == -2 * value(i, 2));
        }
    }
}

/* The tree of docs/arithmetic.md, written down once more: with values whose squares do round. */
static void squares_add_up_in_one_order(void **state)
{
    (void)state;
    static double src[16384];
    static const size_t counts[] = {0, 1, 127, 128, 129, 1000, 16384};
    for (size_t t = 0; t < 4; t++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            double lane[128] = {0};
            for (size_t i = 0; i < counts[c]; i++) {
                set(floats[t], src, i, value(i, 3) * (i % 5 == 0 ? 1e-3 : 1.1));
                double x = get(floats[t], src, i);
                lane[i % 128] += x * x;
            }
            for (size_t n = 64; n > 0; n /= 2)
                for (size_t i = 0; i < n; i++)
                    lane[i] += lane[i + n];
            assert_true(wri_array_squares(floats[t], src, counts[c]) == lane[0]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_reduces),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(minimum_and_maximum_do_not_see_the_order),
        cmocka_unit_test(sums_have_one_nan),
        cmocka_unit_test(conversions_report_what_is_not_finite),
        cmocka_unit_test(division_is_exact_division),
        cmocka_unit_test(weighing_and_scaling),
        cmocka_unit_test(squares_add_up_in_one_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
