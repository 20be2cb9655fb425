/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the input is. Everything is a pure function of an index, so that each rank knows what all
 * ranks hold, and a result can be checked without sending the truth along.
 */
#include "bench_data.h"

#include <math.h>
#include <string.h>

/* 64 well mixed bits of X: SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* ---- distributions --------------------------------------------------------------------------- */

/* Uniform in (0, 1): draw number K of value I. */
static double uniform(uint64_t i, unsigned k)
{
    return ((double)(mix(8 * i + k) >> 12) + 0.5) * 0x1p-52;
}

static double gauss(uint64_t i, unsigned k)
{
    return sqrt(-2 * log(uniform(i, 2 * k))) * cos(2 * M_PI * uniform(i, 2 * k + 1));
}

static double draw_gauss(uint64_t i)
{
    return gauss(i, 0);
}

static double draw_laplace(uint64_t i)
{
    double magnitude = -log(uniform(i, 0));
    return uniform(i, 1) < 0.5 ? -magnitude : magnitude;
}

/* Student's t with 3 degrees of freedom: heavy tails. */
static double draw_t3(uint64_t i)
{
    double a = gauss(i, 1), b = gauss(i, 2), c = gauss(i, 3);
    return gauss(i, 0) / sqrt((a * a + b * b + c * c) / 3);
}

/* One value in a hundred is ten times as large. */
static double draw_mix(uint64_t i)
{
    return gauss(i, 0) * (uniform(i, 2) < 0.01 ? 10 : 1);
}

static double draw_uniform(uint64_t i)
{
    return 2 * uniform(i, 0) - 1;
}

const char *const bench_distributions[] = {"gauss", "laplace", "t3", "mix", "uniform", NULL};
static double (*const draws[])(uint64_t) = {draw_gauss, draw_laplace, draw_t3, draw_mix,
                                            draw_uniform};

/* Gradients are small: 2^-10 keeps them well inside every type. Drawing is slow, so what is drawn
 * repeats after 4 Mi values, far beyond any codec's unit but the whole tensor. */
#define PERIOD ((size_t)4 << 20)

void bench_fill_distribution(int dist, float *dst, size_t count)
{
    size_t drawn = count < PERIOD ? count : PERIOD;
    for (size_t i = 0; i < drawn; i++)
        dst[i] = (float)(draws[dist](i) * 0x1p-10);
    for (size_t i = drawn; i < count; i += PERIOD) {
        size_t n = count - i < PERIOD ? count - i : PERIOD;
        memcpy(dst + i, dst, n * sizeof *dst);
    }
}

/* ---- exactly summable numbers ---------------------------------------------------------------- */

/* Largest N such that all whole numbers up to N are of the type. */
static double exact_limit(wring_dtype dtype)
{
    static const double limits[] = {
        [WRING_FLOAT32] = 0x1p24, [WRING_FLOAT16] = 0x1p11, [WRING_BFLOAT16] = 0x1p8,
        [WRING_FLOAT64] = 0x1p53, [WRING_INT8] = 127,       [WRING_UINT8] = 255,
        [WRING_INT32] = 0x1p31,   [WRING_INT64] = 0x1p53,
    };
    return limits[dtype];
}

/* An average is exact where every value is a multiple of the number of ranks. */
struct bench_exact bench_exact_make(wring_dtype dtype, wring_op op, int nranks)
{
    double magnitude = fmin(1000, floor(exact_limit(dtype) / nranks));
    return (struct bench_exact){.dtype = dtype,
                                .op = op,
                                .nranks = nranks,
                                .magnitude = (int)magnitude,
                                .scale = op == WRING_AVG ? nranks : 1};
}

double bench_exact_value(const struct bench_exact *exact, int rank, size_t i)
{
    uint64_t bits = mix(((uint64_t)i << 16) + (uint64_t)rank);
    unsigned span = (unsigned)exact->magnitude + 1;
    double value = (double)((bits >> 32) % span * (unsigned)exact->scale);
    return exact->dtype != WRING_UINT8 && (bits & 1) ? -value : value;
}

double bench_exact_result(const struct bench_exact *exact, size_t i)
{
    double result = bench_exact_value(exact, 0, i);
    for (int rank = 1; rank < exact->nranks; rank++) {
        double value = bench_exact_value(exact, rank, i);
        switch (exact->op) {
        case WRING_MIN:
            result = fmin(result, value);
            break;
        case WRING_MAX:
            result = fmax(result, value);
            break;
        default:
            result += value;
        }
    }
    return exact->op == WRING_AVG ? result / exact->nranks : result;
}

/* The upper half of a float32. */
static uint16_t to_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float from_bfloat16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Whole numbers up to 2^11 only, which are normal in both types. */
static uint16_t to_float16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (value == 0)
        return sign;
    return (uint16_t)(sign | ((bits & 0x7FFFFFFF) - ((127 - 15) << 23)) >> 13);
}

static double from_float16(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25);
    if (exponent == 31)
        size = fraction ? NAN : INFINITY;
    return half & 0x8000 ? -size : size;
}

static void store(wring_dtype dtype, void *dst, size_t i, double value)
{
    switch (dtype) {
    case WRING_FLOAT32:
        ((float *)dst)[i] = (float)value;
        break;
    case WRING_FLOAT16:
        ((uint16_t *)dst)[i] = to_float16((float)value);
        break;
    case WRING_BFLOAT16:
        ((uint16_t *)dst)[i] = to_bfloat16((float)value);
        break;
    case WRING_FLOAT64:
        ((double *)dst)[i] = value;
        break;
    case WRING_INT8:
        ((int8_t *)dst)[i] = (int8_t)value;
        break;
    case WRING_UINT8:
        ((uint8_t *)dst)[i] = (uint8_t)value;
        break;
    case WRING_INT32:
        ((int32_t *)dst)[i] = (int32_t)value;
        break;
    default:
        ((int64_t *)dst)[i] = (int64_t)value;
    }
}

double bench_load(wring_dtype dtype, const void *src, size_t i)
{
    switch (dtype) {
    case WRING_FLOAT32:
        return ((const float *)src)[i];
    case WRING_FLOAT16:
        return from_float16(((const uint16_t *)src)[i]);
    case WRING_BFLOAT16:
        return from_bfloat16(((const uint16_t *)src)[i]);
    case WRING_FLOAT64:
        return ((const double *)src)[i];
    case WRING_INT8:
        return ((const int8_t *)src)[i];
    case WRING_UINT8:
        return ((const uint8_t *)src)[i];
    case WRING_INT32:
        return ((const int32_t *)src)[i];
    default:
        return (double)((const int64_t *)src)[i];
    }
}

void bench_exact_fill(const struct bench_exact *exact, int rank, void *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store(exact->dtype, dst, i, bench_exact_value(exact, rank, i));
}
