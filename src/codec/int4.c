/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int4: 4 bits per element and one float32 scale per block of 128 (default) elements. On the
 * wire, as drawn in block.h, with codes
 *
 *     byte i    = element 2i in bits 0-3, element 2i + 1 in bits 4-7; two's complement, -7..7;
 *                 -8 is never written, but is read as it is
 *
 * value = code * scale, scale = max |p| of the block / 7. Error of an element: at most half a scale
 * to nearest, less than one scale stochastically; plus 2^-22 of the maximum for rounding.
 * Block-wise absolute-maximum scaling is QSGD's max-norm variant (Alistarh et al., NIPS 2017);
 * nearest instead of stochastic rounding halves the mean squared error and leaves a bias to error
 * feedback.
 */
#include "codec/block.h"

#define BITS 4

static size_t nbytes(const struct wring_stage *stage, size_t count)
{
    return wri_block_nbytes(stage, BITS, count);
}

static wring_status encode(struct wring_encode *args)
{
    return wri_block_encode(args, BITS, wri_kernels()->quantise4, wri_integer_random(args->stage));
}

static wring_status decode(const struct wring_decode *args)
{
    return wri_block_decode(args, BITS, wri_kernels()->dequantise4);
}

static wring_status check(const struct wring_stage *stage)
{
    return wri_block_check(stage, WRI_BLOCK_MIN);
}

const struct wring_codec_ops wri_codec_int4 = {
    .size = sizeof(struct wring_codec_ops),
    .name = "int4",
    .summary = "4-bit integers with a scale per block",
    .wire_id = 11,
    .order = WRING_ORDER_QUANTISER,
    .size_class = WRING_SIZE_FIXED,
    .params = wri_integer_params,
    .nparams = 2,
    .unit = wri_block_size,
    .nbytes = nbytes,
    .encode = encode,
    .decode = decode,
    .check = check,
};
