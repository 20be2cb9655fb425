/* SPDX-License-Identifier: Apache-2.0 */
/* Whole-array operations over every element type: conversion, reduction, scaling, and the test for
 * non-finite values. Same bits at every SIMD level. Arrays may start at any multiple of their
 * element's size. */
#ifndef WRI_SIMD_ARRAY_H
#define WRI_SIMD_ARRAY_H

#include <wring/wring.h>

/* The type in which sums of DTYPE are kept: float32 for the 16-bit floats, else DTYPE itself. */
wring_dtype wri_dtype_accumulator(wring_dtype dtype);
bool wri_dtype_is_float(wring_dtype dtype);

/* dst[i] = src[i], between equal types or between float32 and a 16-bit float, to nearest even.
 * Returns true if a written value is NaN or Inf. DST and SRC may be the same array of equal
 * types. */
bool wri_array_convert(wring_dtype dst_dtype, void *dst, wring_dtype src_dtype, const void *src,
                       size_t count);

/* acc[i] = acc[i] OP src[i]; ACC in the accumulator type of SRC_DTYPE or in SRC_DTYPE itself.
 * AVG adds. A NaN on either side of MIN and MAX wins. */
void wri_array_reduce(wring_op op, wring_dtype acc_dtype, void *acc, wring_dtype src_dtype,
                      const void *src, size_t count);

/* acc[i] = scale * acc[i] + weight * src[i] in the accumulator type of SRC_DTYPE, a float type;
 * each operation is rounded, SCALE and WEIGHT to that type before. */
void wri_array_weigh(wring_dtype acc_dtype, void *acc, double scale, wring_dtype src_dtype,
                     const void *src, double weight, size_t count);

/* array[i] = factor * array[i] in the accumulator type, a float type. */
void wri_array_scale(wring_dtype dtype, void *array, double factor, size_t count);

/* Sum of squares of up to WRI_SQUARES_GROUP elements of a float type (base/device.h) in float64: in
 * WRI_SQUARES_LANES lanes, element after element, which a halving tree adds up. */
double wri_array_squares(wring_dtype dtype, const void *src, size_t count);

/* acc[i] = acc[i] / divisor, float32 and float64. */
void wri_array_divide(wring_dtype dtype, void *acc, double divisor, size_t count);

#endif
