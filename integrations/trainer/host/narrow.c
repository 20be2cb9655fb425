/* SPDX-License-Identifier: Apache-2.0 */
/* float32 as 16 bits, rounded to nearest even. NaN stays NaN, too large becomes infinite. */
#include "host.h"

#include <string.h>

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t to_bfloat16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
    return (uint16_t)((value != value ? bits | 0x400000 : rounded) >> 16);
}

/* The adder of float32 rounds: 0.5 is so large that the last bit of the sum is 2^-24, that of
 * float16's denormals. Normal numbers are rounded as integers, exponent and all. */
static inline uint16_t to_float16(float value)
{
    uint32_t sign = bits_of(value) >> 16 & 0x8000, bits = bits_of(value) & 0x7FFFFFFF;
    uint32_t small = bits_of(float_of(bits) + 0.5f) - bits_of(0.5f);
    uint32_t normal = (bits + 0xFFF + (bits >> 13 & 1) - (112u << 23)) >> 13;
    uint32_t narrow = bits > 0x7F800000    ? 0x7E00
                      : bits >= 0x477FF000 ? 0x7C00
                      : bits < 0x38800000  ? small
                                           : normal;
    return (uint16_t)(sign | narrow);
}

static inline float from_float16(uint16_t narrow)
{
    uint32_t sign = (uint32_t)(narrow & 0x8000) << 16, bits = (uint32_t)(narrow & 0x7FFF) << 13;
    if (bits >= 0x7C00u << 13) /* infinite or NaN */
        return float_of(sign | (bits + (224u << 23)));
    return float_of(sign | bits_of(float_of(bits) * 0x1p112f));
}

void host_narrow(struct device *device, enum precision precision, size_t count, const float *x,
                 uint16_t *y)
{
    (void)device;
    for (size_t i = 0; i < count; i++)
        y[i] = precision == PRECISION_BFLOAT16 ? to_bfloat16(x[i]) : to_float16(x[i]);
}

void host_widen(struct device *device, enum precision precision, size_t count, const uint16_t *x,
                float *y)
{
    (void)device;
    for (size_t i = 0; i < count; i++)
        y[i] =
            precision == PRECISION_BFLOAT16 ? float_of((uint32_t)x[i] << 16) : from_float16(x[i]);
}
