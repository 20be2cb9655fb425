/* SPDX-License-Identifier: Apache-2.0 */
/* none: the float32 values as they are. Also what ends a chain that names no quantiser. As a whole
 * chain of its own it carries every type; run.c does that without coming here.
 *
 *     wire: | x[0] | x[1] | ... | x[count-1] |      float32, little-endian
 *
 * Error: none. Every bit is kept, NaN payloads and signs of zero too. */
#include "codec/codec.h"
#include "base/status.h"
#include "simd/kernels.h"

static size_t unit(const struct wring_stage *stage)
{
    (void)stage;
    return 1;
}

static size_t nbytes(const struct wring_stage *stage, size_t count)
{
    (void)stage;
    return count * sizeof(float);
}

static wring_status encode(struct wring_encode *e)
{
    struct wri_source source = {.src = e->src,
                                .residual_in = e->residual_in,
                                .residual_out = e->residual_out,
                                .beta = e->beta,
                                .count = e->count};
    e->nonfinite |= wri_kernels()->store_f32(&source, e->dst);
    return WRING_OK;
}

static wring_status decode(const struct wring_decode *d)
{
    if (d->nbytes != d->count * sizeof(float))
        WRI_FAIL(WRING_E_CORRUPT, "none: %zu bytes for %zu values", d->nbytes, d->count);
    wri_kernels()->load_f32(d->dst, d->count, d->src, d->add);
    return WRING_OK;
}

const struct wring_codec_ops wri_codec_none = {
    .size = sizeof(wri_codec_none),
    .name = "none",
    .summary = "values as they are, exact, for every type",
    .wire_id = 1,
    .order = WRING_ORDER_QUANTISER,
    .caps = WRING_CODEC_LOSSLESS,
    .size_class = WRING_SIZE_FIXED,
    .unit = unit,
    .nbytes = nbytes,
    .encode = encode,
    .decode = decode,
};
