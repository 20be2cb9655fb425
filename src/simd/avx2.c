/* SPDX-License-Identifier: Apache-2.0 */
/* The level of x86-64 with AVX2, FMA and F16C: eight elements at a time. Only these functions are
 * compiled for it, by attribute, so that nothing else of the library can come to need it. */
#include <string.h>

#include "simd/levels.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define KERNEL static TARGET
#define LANES 8

typedef __m256 VF;
typedef __m256i VI;
typedef __m128i VH;

INLINE VF v_load(const void *src)
{
    return _mm256_loadu_ps(src);
}

INLINE void v_store(void *dst, VF x)
{
    _mm256_storeu_ps(dst, x);
}

INLINE VH v_load_half(const void *src)
{
    return _mm_loadu_si128(src);
}

INLINE void v_store_half(void *dst, VH x)
{
    _mm_storeu_si128(dst, x);
}

INLINE VF v_set(float x)
{
    return _mm256_set1_ps(x);
}

INLINE VI v_set_bits(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}

INLINE VI v_lanes(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

INLINE VF v_add(VF a, VF b)
{
    return _mm256_add_ps(a, b);
}

INLINE VF v_sub(VF a, VF b)
{
    return _mm256_sub_ps(a, b);
}

INLINE VF v_mul(VF a, VF b)
{
    return _mm256_mul_ps(a, b);
}

INLINE VI v_and(VI a, VI b)
{
    return _mm256_and_si256(a, b);
}

INLINE VI v_xor(VI a, VI b)
{
    return _mm256_xor_si256(a, b);
}

INLINE VI v_plus(VI a, VI b)
{
    return _mm256_add_epi32(a, b);
}

INLINE VI v_times(VI a, VI b)
{
    return _mm256_mullo_epi32(a, b);
}

INLINE VI v_shift_right(VI a, int n)
{
    return _mm256_srli_epi32(a, n);
}

INLINE VI v_smaller(VI a, VI b)
{
    return _mm256_min_epi32(a, b);
}

INLINE VI v_larger(VI a, VI b)
{
    return _mm256_max_epi32(a, b);
}

INLINE VI v_bits(VF x)
{
    return _mm256_castps_si256(x);
}

INLINE VF v_float(VI x)
{
    return _mm256_castsi256_ps(x);
}

INLINE VF v_convert(VI x)
{
    return _mm256_cvtepi32_ps(x);
}

INLINE VI v_round(VF x)
{
    return _mm256_cvtps_epi32(x);
}

INLINE VI v_floor(VF x)
{
    return _mm256_cvttps_epi32(_mm256_floor_ps(x));
}

INLINE VF v_canonical(VF x)
{
    VF nan = v_float(v_set_bits(WRI_NAN_BITS));
    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

INLINE uint32_t v_negative(VF x)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}

INLINE VI v_spread(uint32_t bits, int shift)
{
    VI left = _mm256_sub_epi32(_mm256_set1_epi32(31 - shift), v_lanes());
    return v_and(_mm256_sllv_epi32(v_set_bits(bits), left), v_set_bits(0x80000000u));
}

INLINE float v_sum(VF x)
{
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
}

INLINE uint32_t v_max(VI x)
{
    __m128i max = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4E));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(max);
}

INLINE VH v_larger_half(VH a, VH b)
{
    return _mm_max_epi16(a, _mm_and_si128(b, _mm_set1_epi16(0x7FFF)));
}

INLINE uint32_t v_max_half(VH x)
{
    VH inverted = _mm_sub_epi16(_mm_set1_epi16(0x7FFF), x); /* SSE has only the minimum of a row */
    return 0x7FFFu - ((uint32_t)_mm_cvtsi128_si32(_mm_minpos_epu16(inverted)) & 0xFFFFu);
}

INLINE VF v_from_bf16(VH x)
{
    return v_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

INLINE VH v_to_bf16(VF x)
{
    VI bits = v_bits(x);
    VI odd = v_and(v_shift_right(bits, 16), v_set_bits(1));
    VI rounded = v_plus(v_plus(bits, v_set_bits(0x7FFF)), odd);
    VI quiet = _mm256_or_si256(bits, v_set_bits(0x400000));
    VI nan = v_bits(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    VI half = v_shift_right(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

INLINE VF v_from_fp16(VH x)
{
    return _mm256_cvtph_ps(x);
}

INLINE VH v_to_fp16(VF x)
{
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

/* 32 words to bytes in order. The packing instructions work on each half of a register, which
 * leaves groups of four bytes shuffled. */
INLINE VI bytes_of(const VI q[4])
{
    VI pairs = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(pairs, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE void pack8(unsigned char *codes, const VI q[4])
{
    _mm256_storeu_si256((__m256i *)codes, bytes_of(q));
}

INLINE void pack4(unsigned char *codes, const VI q[4])
{
    VI nibbles = v_and(bytes_of(q), _mm256_set1_epi8(15));
    VI pairs = _mm256_maddubs_epi16(nibbles, _mm256_set1_epi16(0x1001)); /* even + 16 * odd */
    _mm_storeu_si128((__m128i *)codes, _mm_packus_epi16(_mm256_castsi256_si128(pairs),
                                                        _mm256_extracti128_si256(pairs, 1)));
}

INLINE void unpack8(const unsigned char *codes, VI q[4])
{
    for (int v = 0; v < 4; v++)
        q[v] = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(codes + 8 * v)));
}

/* Lane i shifts its nibble to the top of the word, then back with its sign. */
INLINE void unpack4(const unsigned char *codes, VI q[4])
{
    VI left = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    for (int v = 0; v < 4; v++) {
        uint32_t eight;
        memcpy(&eight, codes + 4 * v, sizeof(eight));
        q[v] = _mm256_srai_epi32(_mm256_sllv_epi32(v_set_bits(eight), left), 28);
    }
}

#include "simd/kernels.inc"

static const struct wri_kernels table = WRI_KERNELS_TABLE("avx2");

static bool cpu_has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

const struct wri_kernels *wri_kernels_avx2(void)
{
    __builtin_cpu_init();
    bool usable = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
    return usable ? &table : NULL;
}

#else

const struct wri_kernels *wri_kernels_avx2(void)
{
    return NULL;
}

#endif
