/* SPDX-License-Identifier: Apache-2.0 */
/* sign as in src/codec/sign.c: kernels in signs.cuh. */
#include "signs.cuh"

static wring_status encode(const struct wri_device_encode *e)
{
    size_t block = (size_t)e->stage->param[0];
    return with_type(e->src_dtype, [&](auto type) {
        return launch(encode_signs_kernel<decltype(type)>, div_up(div_up(e->count, block), 8), 256,
                      e->stream, *e, block);
    });
}

static wring_status decode(const struct wri_device_decode *d)
{
    return with_type(d->dst_dtype, [&](auto type) {
        using D = decltype(type);
        return launch(decode_signs_kernel<D>, div_up(d->count, 1024), 256, d->stream,
                      (const unsigned char *)d->src, (size_t)d->stage->param[0], (D *)d->dst,
                      d->count, d->add, d->verdict);
    });
}

extern const struct wri_cuda_codec wri_codec_sign_cuda;

const struct wri_cuda_codec wri_codec_sign_cuda = {nullptr, encode, decode};
