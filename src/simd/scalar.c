/* SPDX-License-Identifier: Apache-2.0 */
/* The level that every machine has, one element at a time: the reference for all others. */
#include "simd/float16.h"
#include "simd/levels.h"

#define INLINE static inline __attribute__((always_inline))
#define KERNEL static
#define LANES 1

typedef float VF;
typedef uint32_t VI;
typedef uint16_t VH;

INLINE VF v_load(const void *src)
{
    VF x;
    memcpy(&x, src, sizeof(x));
    return x;
}

INLINE void v_store(void *dst, VF x)
{
    memcpy(dst, &x, sizeof(x));
}

INLINE VH v_load_half(const void *src)
{
    VH x;
    memcpy(&x, src, sizeof(x));
    return x;
}

INLINE void v_store_half(void *dst, VH x)
{
    memcpy(dst, &x, sizeof(x));
}

INLINE VF v_set(float x)
{
    return x;
}

INLINE VI v_set_bits(uint32_t x)
{
    return x;
}

INLINE VI v_lanes(void)
{
    return 0;
}

INLINE VF v_add(VF a, VF b)
{
    return a + b;
}

INLINE VF v_sub(VF a, VF b)
{
    return a - b;
}

INLINE VF v_mul(VF a, VF b)
{
    return a * b;
}

INLINE VI v_and(VI a, VI b)
{
    return a & b;
}

INLINE VI v_xor(VI a, VI b)
{
    return a ^ b;
}

INLINE VI v_plus(VI a, VI b)
{
    return a + b;
}

INLINE VI v_times(VI a, VI b)
{
    return a * b;
}

INLINE VI v_shift_right(VI a, int n)
{
    return a >> n;
}

INLINE VI v_smaller(VI a, VI b)
{
    return (int32_t)a < (int32_t)b ? a : b;
}

INLINE VI v_larger(VI a, VI b)
{
    return (int32_t)a > (int32_t)b ? a : b;
}

INLINE VI v_bits(VF x)
{
    return wri_float_bits(x);
}

INLINE VF v_float(VI x)
{
    return wri_bits_float(x);
}

INLINE VF v_convert(VI x)
{
    return (float)(int32_t)x;
}

/* |x| < 2^22: the sum's unit in the last place is 1, so that the addition rounds to nearest
 * even. */
INLINE VI v_round(VF x)
{
    return wri_float_bits(x + 0x1.8p23f) - 0x4B400000u;
}

INLINE VI v_floor(VF x)
{
    int32_t towards_zero = (int32_t)x;
    return (VI)(towards_zero - (x < (float)towards_zero));
}

INLINE VF v_canonical(VF x)
{
    return x == x ? x : wri_bits_float(WRI_NAN_BITS);
}

INLINE uint32_t v_negative(VF x)
{
    return x < 0;
}

INLINE VI v_spread(uint32_t bits, int shift)
{
    return bits << (31 - shift) & 0x80000000u;
}

INLINE VF v_sum(VF x)
{
    return x;
}

INLINE uint32_t v_max(VI x)
{
    return x;
}

INLINE VH v_larger_half(VH a, VH b)
{
    b &= 0x7FFF;
    return a > b ? a : b;
}

INLINE uint32_t v_max_half(VH x)
{
    return x;
}

INLINE VF v_from_bf16(VH x)
{
    return wri_bf16_to_float(x);
}

INLINE VH v_to_bf16(VF x)
{
    return wri_bf16_from_float(x);
}

INLINE VF v_from_fp16(VH x)
{
    return wri_fp16_to_float(x);
}

INLINE VH v_to_fp16(VF x)
{
    return wri_fp16_from_float(x);
}

INLINE void pack8(unsigned char *codes, const VI q[32])
{
    for (int i = 0; i < 32; i++)
        codes[i] = (unsigned char)q[i];
}

INLINE void pack4(unsigned char *codes, const VI q[32])
{
    for (int i = 0; i < 16; i++)
        codes[i] = (unsigned char)((q[2 * i] & 15) | q[2 * i + 1] << 4);
}

INLINE void unpack8(const unsigned char *codes, VI q[32])
{
    for (int i = 0; i < 32; i++)
        q[i] = (VI)(int8_t)codes[i];
}

INLINE void unpack4(const unsigned char *codes, VI q[32])
{
    for (int i = 0; i < 16; i++) {
        q[2 * i] = ((codes[i] & 15u) ^ 8) - 8;
        q[2 * i + 1] = ((unsigned)(codes[i] >> 4) ^ 8) - 8;
    }
}

#include "simd/kernels.inc"

const struct wri_kernels wri_kernels_scalar = WRI_KERNELS_TABLE("scalar");
