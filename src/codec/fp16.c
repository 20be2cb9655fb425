/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp16: IEEE 754 binary16, rounded to nearest even. On the wire, as drawn in cast.h, with elements
 *
 *     | 15 sign | 14-10 exponent, bias 15 | 9-0 mantissa |
 *
 * Relative error at most 2^-11 from 2^-14 on; below, absolute error at most 2^-25. Magnitudes from
 * 65520 on become Inf, which is reported: use a loss scale, or bf16.
 */
#include "codec/cast.h"

static wring_status encode(struct wring_encode *args)
{
    return wri_cast_encode(args, wri_kernels()->store_fp16);
}

static wring_status decode(const struct wring_decode *args)
{
    return wri_cast_decode(args, wri_kernels()->load_fp16);
}

const struct wring_codec_ops wri_codec_fp16 = {
    .size = sizeof(struct wring_codec_ops),
    .name = "fp16",
    .summary = "cast to IEEE half precision",
    .wire_id = 3,
    .order = WRING_ORDER_QUANTISER,
    .size_class = WRING_SIZE_FIXED,
    .unit = wri_cast_unit,
    .nbytes = wri_cast_nbytes,
    .encode = encode,
    .decode = decode,
};
