/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8: 8 bits per element and one float32 scale per block of 128 (default) elements. On the
 * wire, as drawn in block.h, with codes
 *
 *     byte i    = element i, two's complement, -127..127; -128 is never written, but read as it is
 *
 * value = code * scale, scale = max |p| of the block / 127. Error of an element: at most half a
 * scale to nearest, less than one scale stochastically; plus 2^-22 of the maximum for rounding.
 * Block-wise absolute-maximum scaling is QSGD's max-norm variant (Alistarh et al., NIPS 2017);
 * nearest instead of stochastic rounding halves the mean squared error and leaves a bias to error
 * feedback.
 */
#include "codec/block.h"

#define BITS 8

static size_t nbytes(const struct wring_stage *stage, size_t count)
{
    return wri_block_nbytes(stage, BITS, count);
}

static wring_status encode(struct wring_encode *args)
{
    return wri_block_encode(args, BITS, wri_kernels()->quantise8, wri_integer_random(args->stage));
}

static wring_status decode(const struct wring_decode *args)
{
    return wri_block_decode(args, BITS, wri_kernels()->dequantise8);
}

static wring_status check(const struct wring_stage *stage)
{
    return wri_block_check(stage, WRI_BLOCK_MIN);
}

const struct wring_codec_ops wri_codec_int8 = {
    .size = sizeof(struct wring_codec_ops),
    .name = "int8",
    .summary = "8-bit integers with a scale per block",
    .wire_id = 10,
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
