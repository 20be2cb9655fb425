/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16: the upper half of a float32, rounded to nearest even. On the wire, as drawn in cast.h, with
 * elements
 *
 *     | 15 sign | 14-7 exponent, as of float32 | 6-0 mantissa |
 *
 * Relative error at most 2^-8 from 2^-126 on. Only the last half step of float32's range becomes
 * Inf, which is reported. The format of Kalamkar et al., "A study of BFLOAT16 for deep learning
 * training",
 * 2019.
 */
#include "codec/cast.h"

static wring_status encode(struct wring_encode *args)
{
    return wri_cast_encode(args, wri_kernels()->store_bf16);
}

static wring_status decode(const struct wring_decode *args)
{
    return wri_cast_decode(args, wri_kernels()->load_bf16);
}

const struct wring_codec_ops wri_codec_bf16 = {
    .size = sizeof(struct wring_codec_ops),
    .name = "bf16",
    .summary = "cast to bfloat16",
    .wire_id = 2,
    .order = WRING_ORDER_QUANTISER,
    .size_class = WRING_SIZE_FIXED,
    .unit = wri_cast_unit,
    .nbytes = wri_cast_nbytes,
    .encode = encode,
    .decode = decode,
};
