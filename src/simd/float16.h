/* SPDX-License-Identifier: Apache-2.0 */
/* The 16-bit float formats by integer arithmetic: the definition of their conversions, which every
 * SIMD level and device must reproduce (docs/arithmetic.md). */
#ifndef WRI_SIMD_FLOAT16_H
#define WRI_SIMD_FLOAT16_H

#include <stdint.h>
#include <string.h>

#include "base/hd.h"

static WRI_HD inline uint32_t wri_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static WRI_HD inline float wri_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static WRI_HD inline uint16_t wri_bf16_from_float(float value)
{
    uint32_t bits = wri_float_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40); /* quiet; sign and leading payload kept */
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

static WRI_HD inline float wri_bf16_to_float(uint16_t half)
{
    return wri_bits_float((uint32_t)half << 16);
}

static WRI_HD inline uint16_t wri_fp16_from_float(float value)
{
    uint32_t bits = wri_float_bits(value);
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    uint32_t sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu)); /* as for bf16 */
    if (magnitude >= 0x47800000u)                                       /* 2^16 */
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude < 0x38800000u) /* 2^-14: adding 0.5 rounds to the subnormals' unit, 2^-24 */
        return (uint16_t)(sign | (wri_float_bits(wri_bits_float(magnitude) + 0.5f) - 0x3F000000u));
    uint32_t rebased = magnitude - 0x38000000u;
    return (uint16_t)(sign | (rebased + 0xFFFu + (rebased >> 13 & 1)) >> 13);
}

static WRI_HD inline float wri_fp16_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7FFFu;
    if (magnitude > 0x7C00u)
        return wri_bits_float(sign | 0x7FC00000u | magnitude << 13);
    if (magnitude == 0x7C00u)
        return wri_bits_float(sign | 0x7F800000u);
    if (magnitude < 0x400u)
        return wri_bits_float(sign | wri_float_bits((float)magnitude * 0x1p-24f));
    return wri_bits_float(sign | ((magnitude << 13) + 0x38000000u));
}

#endif
