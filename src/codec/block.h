/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the block quantisers share: a run of blocks with one float32 scale each and a fixed number
 * of bits per element. On the wire, planar, all little endian:
 *
 *     | scale of block 0 | scale of block 1 | ... | codes of all elements, in order | zeros |
 *       4 bytes            4 bytes                  BITS bits per element             to 4 bytes
 *
 *     nbytes(count) = 4 * ceil(count / block) + 4 * ceil(ceil(count * BITS / 8) / 4)
 *
 * Codes are packed from the low bits of a byte upwards. The first parameter of such a codec is the
 * block size. Scales, codes and rounding: docs/arithmetic.md. The decoder accepts every content of
 * the right size; a scale that is not finite makes its block NaN.
 */
#ifndef WRI_CODEC_BLOCK_H
#define WRI_CODEC_BLOCK_H

#include <wring/plugin.h>

#include "simd/kernels.h"

typedef bool (*wri_quantise_fn)(const struct wri_blocks *in, void *scales, void *codes);
typedef void (*wri_dequantise_fn)(float *dst, size_t count, size_t block, const void *scales,
                                  const void *codes, bool add);

/* The block size of a stage; `unit` of its table. */
size_t wri_block_size(const struct wring_stage *stage);

size_t wri_block_nbytes(const struct wring_stage *stage, unsigned bits, size_t count);

/* Refuse block sizes that are no multiple of MULTIPLE. */
wring_status wri_block_check(const struct wring_stage *stage, size_t multiple);

/* `encode` and `decode` of such a codec. RANDOM: round stochastically. */
wring_status wri_block_encode(struct wring_encode *args, unsigned bits, wri_quantise_fn quantise,
                              bool random);
wring_status wri_block_decode(const struct wring_decode *args, unsigned bits,
                              wri_dequantise_fn dequantise);

/* The parameters of int8 and int4, which differ in nothing but their bits. */
extern const struct wring_param wri_integer_params[2];
bool wri_integer_random(const struct wring_stage *stage);

#endif
