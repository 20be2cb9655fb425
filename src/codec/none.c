/* SPDX-License-Identifier: Apache-2.0 */
/* none: the float32 values as they are. Also what ends a chain that names no quantiser. As a whole
 * chain of its own it carries every type; run.c does that without coming here.
 *
 *     wire: | x[0] | x[1] | ... | x[count-1] |      float32, little-endian
 *
 * Error: none. Every bit is kept, NaN payloads and signs of zero too. */
#include "codec/codec.h"
#include "base/status.h"
#include "simd/array.h"
#include <string.h>

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
    float *dst = e->dst;
    const float *src = e->src;
    if (e->residual_in) {
        for (size_t i = 0; i < e->count; i++)
            dst[i] = e->src[i] + e->beta * e->residual_in[i];
        src = dst;
    }
    e->nonfinite |= wri_array_convert(WRING_FLOAT32, dst, WRING_FLOAT32, src, e->count);
    if (e->residual_out)
        memset(e->residual_out, 0, e->count * sizeof(float));
    return WRING_OK;
}

static wring_status decode(const struct wring_decode *d)
{
    if (d->nbytes != d->count * sizeof(float))
        WRI_FAIL(WRING_E_CORRUPT, "none: %zu bytes for %zu values", d->nbytes, d->count);
    if (d->add)
        wri_array_reduce(WRING_SUM, WRING_FLOAT32, d->dst, WRING_FLOAT32, d->src, d->count);
    else
        wri_array_convert(WRING_FLOAT32, d->dst, WRING_FLOAT32, d->src, d->count);
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
