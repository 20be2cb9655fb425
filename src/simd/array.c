/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how each pair of element types is converted and reduced. float32 and the 16-bit floats go
 * through the SIMD kernels, the 16-bit ones by way of a small float32 tile; the types that only
 * travel exactly are plain loops. */
#include "simd/array.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/device.h"
#include "simd/float16.h"
#include "simd/kernels.h"

#define TILE 512 /* elements converted at a time: stays in the first-level cache */

wring_dtype wri_dtype_accumulator(wring_dtype dtype)
{
    return dtype == WRING_FLOAT16 || dtype == WRING_BFLOAT16 ? WRING_FLOAT32 : dtype;
}

bool wri_dtype_is_float(wring_dtype dtype)
{
    return dtype == WRING_FLOAT32 || dtype == WRING_FLOAT64 || dtype == WRING_FLOAT16 ||
           dtype == WRING_BFLOAT16;
}

static bool is_half(wring_dtype dtype)
{
    return dtype == WRING_FLOAT16 || dtype == WRING_BFLOAT16;
}

static size_t tile_count(size_t left)
{
    return left < TILE ? left : TILE;
}

/* dst[i] = or += src[i], from any float type of up to 32 bits. */
static void load(float *dst, wring_dtype src_dtype, const void *src, size_t count, bool add)
{
    const struct wri_kernels *kernels = wri_kernels();
    if (src_dtype == WRING_FLOAT16)
        kernels->load_fp16(dst, count, src, add);
    else if (src_dtype == WRING_BFLOAT16)
        kernels->load_bf16(dst, count, src, add);
    else
        kernels->load_f32(dst, count, src, add);
}

static bool store(wring_dtype dst_dtype, void *dst, const float *src, size_t count)
{
    const struct wri_kernels *kernels = wri_kernels();
    struct wri_source source = {.src = src, .count = count};
    if (dst_dtype == WRING_FLOAT16)
        return kernels->store_fp16(&source, dst);
    if (dst_dtype == WRING_BFLOAT16)
        return kernels->store_bf16(&source, dst);
    return kernels->store_f32(&source, dst);
}

/* Widen, and look at the values while they are in the cache. */
static bool load_checked(float *dst, wring_dtype src_dtype, const void *src, size_t count)
{
    bool nonfinite = false;
    for (size_t i = 0; i < count; i += TILE) {
        size_t n = tile_count(count - i);
        load(dst + i, src_dtype, (const char *)src + i * sizeof(uint16_t), n, false);
        nonfinite |= store(WRING_FLOAT32, dst + i, dst + i, n);
    }
    return nonfinite;
}

static bool nonfinite_half(wring_dtype dtype, const void *src, size_t count)
{
    bool nonfinite = false;
    float tile[TILE];
    for (size_t i = 0; i < count; i += TILE)
        nonfinite |= load_checked(tile, dtype, (const char *)src + i * sizeof(uint16_t),
                                  tile_count(count - i));
    return nonfinite;
}

static bool nonfinite_double(const double *src, size_t count)
{
    bool finite = true;
    for (size_t i = 0; i < count; i++)
        finite &= fabs(src[i]) <= 0x1.fffffffffffffp1023;
    return !finite;
}

bool wri_array_convert(wring_dtype dst_dtype, void *dst, wring_dtype src_dtype, const void *src,
                       size_t count)
{
    if (dst_dtype != src_dtype) {
        assert(dst_dtype == WRING_FLOAT32 || src_dtype == WRING_FLOAT32);
        if (src_dtype == WRING_FLOAT32)
            return store(dst_dtype, dst, src, count);
        return load_checked(dst, src_dtype, src, count);
    }
    if (dst_dtype == WRING_FLOAT32)
        return store(dst_dtype, dst, src, count);
    if (dst != src)
        memmove(dst, src, count * wring_dtype_size(dst_dtype));
    if (dst_dtype == WRING_FLOAT64)
        return nonfinite_double(dst, count);
    return is_half(dst_dtype) && nonfinite_half(dst_dtype, dst, count);
}

/* Smaller and larger as of two floats: NaN wins, and -0 is less than +0, so that neither the order
 * of the ranks nor that of the operands shows. MEET combines the bits of equal values. */
#define ORDER_FLOATS(name, type, bits_type, quiet, less, meet)                                     \
    static void name(type *acc, const type *src, size_t count)                                     \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            bits_type a, b;                                                                        \
            memcpy(&a, acc + i, sizeof(a));                                                        \
            memcpy(&b, src + i, sizeof(b));                                                        \
            bits_type chosen = acc[i] less src[i] ? a : src[i] less acc[i] ? b : (a meet b);       \
            if (acc[i] != acc[i] || src[i] != src[i])                                              \
                chosen = quiet;                                                                    \
            memcpy(acc + i, &chosen, sizeof(chosen));                                              \
        }                                                                                          \
    }
ORDER_FLOATS(min_float, float, uint32_t, WRI_NAN_BITS, <, |)
ORDER_FLOATS(max_float, float, uint32_t, WRI_NAN_BITS, >, &)
ORDER_FLOATS(min_double, double, uint64_t, 0x7FF8000000000000u, <, |)
ORDER_FLOATS(max_double, double, uint64_t, 0x7FF8000000000000u, >, &)

static double canonical(double x)
{
    return x == x ? x : __builtin_nan("");
}

static void add_double(double *acc, const double *src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        acc[i] = canonical(acc[i] + src[i]);
}

static void divide_double(double *acc, double divisor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        acc[i] = canonical(acc[i] / divisor);
}

static void divide_float(float *acc, float divisor, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float quotient = acc[i] / divisor;
        acc[i] = quotient == quotient ? quotient : wri_bits_float(WRI_NAN_BITS);
    }
}

static void reduce_float(wring_op op, float *acc, wring_dtype src_dtype, const void *src,
                         size_t count)
{
    if (op == WRING_SUM || op == WRING_AVG) {
        load(acc, src_dtype, src, count, true);
        return;
    }
    float tile[TILE];
    for (size_t i = 0; i < count; i += TILE) {
        size_t n = tile_count(count - i);
        load(tile, src_dtype, (const char *)src + i * wring_dtype_size(src_dtype), n, false);
        (op == WRING_MIN ? min_float : max_float)(acc + i, tile, n);
    }
}

static void reduce_half(wring_op op, wring_dtype dtype, void *acc, const void *src, size_t count)
{
    float tile[TILE];
    for (size_t i = 0; i < count; i += TILE) {
        size_t n = tile_count(count - i);
        char *to = (char *)acc + i * sizeof(uint16_t);
        load(tile, dtype, to, n, false);
        reduce_float(op, tile, dtype, (const char *)src + i * sizeof(uint16_t), n);
        store(dtype, to, tile, n);
    }
}

static void reduce_double(wring_op op, double *acc, const double *src, size_t count)
{
    if (op == WRING_MIN)
        min_double(acc, src, count);
    else if (op == WRING_MAX)
        max_double(acc, src, count);
    else
        add_double(acc, src, count);
}

/* Sums wrap, as of the unsigned type of the same width. */
#define REDUCE_INTEGERS(name, type, wrapping)                                                      \
    static void name(wring_op op, type *acc, const type *src, size_t count)                        \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            if (op == WRING_MIN)                                                                   \
                acc[i] = src[i] < acc[i] ? src[i] : acc[i];                                        \
            else if (op == WRING_MAX)                                                              \
                acc[i] = src[i] > acc[i] ? src[i] : acc[i];                                        \
            else                                                                                   \
                acc[i] = (type)((wrapping)acc[i] + (wrapping)src[i]);                              \
        }                                                                                          \
    }
REDUCE_INTEGERS(reduce_int8, int8_t, uint8_t)
REDUCE_INTEGERS(reduce_uint8, uint8_t, uint8_t)
REDUCE_INTEGERS(reduce_int32, int32_t, uint32_t)
REDUCE_INTEGERS(reduce_int64, int64_t, uint64_t)

void wri_array_reduce(wring_op op, wring_dtype acc_dtype, void *acc, wring_dtype src_dtype,
                      const void *src, size_t count)
{
    assert(acc_dtype == src_dtype || acc_dtype == wri_dtype_accumulator(src_dtype));
    switch (acc_dtype) {
    case WRING_FLOAT32:
        reduce_float(op, acc, src_dtype, src, count);
        break;
    case WRING_FLOAT16:
    case WRING_BFLOAT16:
        reduce_half(op, acc_dtype, acc, src, count);
        break;
    case WRING_FLOAT64:
        reduce_double(op, acc, src, count);
        break;
    case WRING_INT8:
        reduce_int8(op, acc, src, count);
        break;
    case WRING_UINT8:
        reduce_uint8(op, acc, src, count);
        break;
    case WRING_INT32:
        reduce_int32(op, acc, src, count);
        break;
    case WRING_INT64:
        reduce_int64(op, acc, src, count);
        break;
    case WRING_DTYPE_COUNT:
        assert(!"an element type");
    }
}

static void weigh_float(float *acc, float scale, const float *src, float weight, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = scale * acc[i] + weight * src[i];
        acc[i] = sum == sum ? sum : wri_bits_float(WRI_NAN_BITS);
    }
}

static void weigh_double(double *acc, double scale, const double *src, double weight, size_t count)
{
    for (size_t i = 0; i < count; i++)
        acc[i] = canonical(scale * acc[i] + weight * src[i]);
}

void wri_array_weigh(wring_dtype acc_dtype, void *acc, double scale, wring_dtype src_dtype,
                     const void *src, double weight, size_t count)
{
    assert(wri_dtype_is_float(src_dtype) && acc_dtype == wri_dtype_accumulator(src_dtype));
    if (acc_dtype == WRING_FLOAT64) {
        weigh_double(acc, scale, src, weight, count);
        return;
    }
    float tile[TILE];
    for (size_t i = 0; i < count; i += TILE) {
        size_t n = tile_count(count - i);
        load(tile, src_dtype, (const char *)src + i * wring_dtype_size(src_dtype), n, false);
        weigh_float((float *)acc + i, (float)scale, tile, (float)weight, n);
    }
}

static void scale_float(float *array, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float product = factor * array[i];
        array[i] = product == product ? product : wri_bits_float(WRI_NAN_BITS);
    }
}

static void scale_double(double *array, double factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        array[i] = canonical(factor * array[i]);
}

void wri_array_scale(wring_dtype dtype, void *array, double factor, size_t count)
{
    assert(wri_dtype_is_float(dtype));
    if (dtype == WRING_FLOAT64)
        scale_double(array, factor, count);
    else if (dtype == WRING_FLOAT32)
        scale_float(array, (float)factor, count);
    if (!is_half(dtype))
        return;
    float tile[TILE];
    for (size_t i = 0; i < count; i += TILE) {
        size_t n = tile_count(count - i);
        char *at = (char *)array + i * sizeof(uint16_t);
        load(tile, dtype, at, n, false);
        scale_float(tile, (float)factor, n);
        store(dtype, at, tile, n);
    }
}

/* The squares of one element per lane. */
static void add_squares(double *lane, wring_dtype dtype, const void *src, size_t count)
{
    float tile[WRI_SQUARES_LANES];
    if (dtype != WRING_FLOAT64)
        load(tile, dtype, src, count, false);
    for (size_t i = 0; i < count; i++) {
        double x = dtype == WRING_FLOAT64 ? ((const double *)src)[i] : (double)tile[i];
        lane[i] = lane[i] + x * x;
    }
}

double wri_array_squares(wring_dtype dtype, const void *src, size_t count)
{
    double lane[WRI_SQUARES_LANES] = {0};
    assert(wri_dtype_is_float(dtype) && count <= WRI_SQUARES_GROUP);
    for (size_t i = 0; i < count; i += WRI_SQUARES_LANES) {
        size_t n = count - i < WRI_SQUARES_LANES ? count - i : WRI_SQUARES_LANES;
        add_squares(lane, dtype, (const char *)src + i * wring_dtype_size(dtype), n);
    }
    for (size_t half = WRI_SQUARES_LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            lane[i] = lane[i] + lane[i + half];
    return lane[0];
}

void wri_array_divide(wring_dtype dtype, void *acc, double divisor, size_t count)
{
    assert(dtype == WRING_FLOAT32 || dtype == WRING_FLOAT64);
    if (dtype == WRING_FLOAT64)
        divide_double(acc, divisor, count);
    else
        divide_float(acc, (float)divisor, count);
}
