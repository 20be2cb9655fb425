/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the codecs on the CPU: one table of functions per SIMD level, chosen once. All
 * levels produce the same bits (docs/arithmetic.md), because all are made from one template,
 * kernels.inc. A level is a file that defines some thirty vector operations and includes it, and a
 * row in kernels.c.
 *
 * Arrays of float32 are aligned to 4 bytes, encoded bytes to nothing. The floating-point mode must
 * be round-to-nearest without flush-to-zero (wri_float_mode_enter).
 */
#ifndef WRI_SIMD_KERNELS_H
#define WRI_SIMD_KERNELS_H

#include <wring/plugin.h>

/* The values of the setting WRING_CPU, in the order of its choices. */
enum wri_simd_level { WRI_SIMD_AUTO, WRI_SIMD_SCALAR, WRI_SIMD_AVX2, WRI_SIMD_LEVEL_COUNT };

#define WRI_INFINITY_BITS 0x7F800000u /* |x| in bits is below: finite */
#define WRI_NAN_BITS 0x7FC00000u      /* every NaN that wring computes */
#define WRI_TINY_BITS 0x0D800000u     /* 2^-100: a block scale made of less is zero */

#define WRI_BLOCK_MIN 32 /* and every block size is a multiple of it */
#define WRI_BLOCK_MAX 16384
#define WRI_SUM_GROUP 128 /* elements summed by one float32 tree; sign blocks are multiples of it */

/* What is encoded: p[i] = src[i] + beta * residual_in[i], both operations rounded. */
struct wri_source {
    const float *src;
    const float *residual_in; /* NULL: p = src */
    float *residual_out;      /* NULL, or where p - decoded(p) goes; may equal residual_in */
    float beta;
    size_t count;
};

/* A run of blocks; only the last may be shorter than `block`. */
struct wri_blocks {
    struct wri_source source;
    size_t block;
    const struct wring_random_key *random; /* NULL: round to nearest even. Not used by signs */
    uint64_t first_block;                  /* index in the tensor, for the random bits */
};

struct wri_kernels {
    const char *name;

    /* Write one float32 scale per block to SCALES and 8, 4, or 1 bits per element to CODES, whose
     * last byte is filled up with zero bits. True if a block was not finite: its scale is NaN. */
    bool (*quantise8)(const struct wri_blocks *in, void *scales, void *codes);
    bool (*quantise4)(const struct wri_blocks *in, void *scales, void *codes);
    bool (*quantise1)(const struct wri_blocks *in, void *scales, void *codes);

    /* dst[i] = or += code[i] * scale of its block. Takes any bytes: a scale that is not finite
     * makes its block NaN. */
    void (*dequantise8)(float *dst, size_t count, size_t block, const void *scales,
                        const void *codes, bool add);
    void (*dequantise4)(float *dst, size_t count, size_t block, const void *scales,
                        const void *codes, bool add);
    void (*dequantise1)(float *dst, size_t count, size_t block, const void *scales,
                        const void *codes, bool add);

    /* Write p, rounded to nearest even, to DST (which may be `src` for f32). True if a value
     * written is NaN or Inf. */
    bool (*store_f32)(const struct wri_source *in, void *dst);
    bool (*store_bf16)(const struct wri_source *in, void *dst);
    bool (*store_fp16)(const struct wri_source *in, void *dst);

    /* dst[i] = or += src[i]. */
    void (*load_f32)(float *dst, size_t count, const void *src, bool add);
    void (*load_bf16)(float *dst, size_t count, const void *src, bool add);
    void (*load_fp16)(float *dst, size_t count, const void *src, bool add);

    /* Bit i % 32 of bitmap[i / 32] = 1 if the bits of |src[i]| are at least LEAST, which is below
     * 2^31. Bits from COUNT on are 0. */
    void (*find_large)(const float *src, size_t count, uint32_t least, uint32_t *bitmap);
};

/* The table in use: the level that WRING_CPU names, else the best that this CPU has, until
 * wri_simd_select. Any thread. */
const struct wri_kernels *wri_kernels(void);

/* The table of a level (AUTO: the best one); NULL if this CPU lacks it or LEVEL is out of range. */
const struct wri_kernels *wri_kernels_at(int level);

/* Use LEVEL from here on, in the whole process; results do not change. WRING_E_CONFIG if this CPU
 * lacks it. Any thread. */
wring_status wri_simd_select(int level);

/* The INDEX-th level for people; false past the end. */
bool wri_simd_info(size_t index, wring_info *info_out);

#endif
