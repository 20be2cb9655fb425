/* SPDX-License-Identifier: Apache-2.0 */
/* Encode and decode a run of any element type through a chain. Decides how types meet codecs: exact
 * chains copy and convert, lossy ones see float32 only, so 16-bit floats pass through scratch. */
#include "codec/codec.h"
#include "base/memory.h"
#include "base/status.h"
#include "simd/array.h"
#include <string.h>

#define COUNT_MAX ((size_t)1 << 56) /* keeps every size formula far from overflow */

static bool takes(const wring_codec *codec, wring_dtype dtype)
{
    return dtype < (codec->exact ? WRING_DTYPE_COUNT : WRING_FLOAT64);
}

size_t wri_codec_nbytes(const wring_codec *codec, wring_dtype dtype, size_t count)
{
    if (count == 0 || count > COUNT_MAX || !takes(codec, dtype))
        return 0;
    if (codec->exact)
        return wri_round_up(count * wring_dtype_size(dtype), 4);
    return wri_stage_nbytes(&codec->stage[0], count);
}

/* Bytes of the float32 copy that a run of 16-bit floats needs. */
static size_t staging_nbytes(wring_dtype dtype, size_t count)
{
    return dtype == WRING_FLOAT32 ? 0 : wri_round_up(count * sizeof(float), WRI_ALIGN);
}

size_t wri_codec_scratch_nbytes(const wring_codec *codec, wring_dtype dtype, size_t count)
{
    if (codec->exact || wri_codec_nbytes(codec, dtype, count) == 0)
        return 0;
    return staging_nbytes(dtype, count) + wri_stage_scratch_nbytes(&codec->stage[0], count);
}

static void encode_exact(struct wri_encode_run *run)
{
    size_t used = run->count * wring_dtype_size(run->dtype);
    run->nonfinite |= wri_array_convert(run->dtype, run->dst, run->src_dtype, run->src, run->count);
    memset((char *)run->dst + used, 0, wri_round_up(used, 4) - used);
    if (run->residual_out)
        memset(run->residual_out, 0, run->count * sizeof(float));
}

static wring_status encode_lossy(struct wri_encode_run *run)
{
    const wring_codec *codec = run->codec;
    size_t staging = staging_nbytes(run->src_dtype, run->count);
    struct wring_encode encode = {
        .size = sizeof(encode),
        .stage = &codec->stage[0],
        .src = staging ? run->scratch : run->src,
        .count = run->count,
        .residual_in = codec->feedback ? run->residual_in : NULL,
        .residual_out = run->residual_out,
        .beta = codec->beta,
        .random = run->random,
        .first = run->first,
        .dst = run->dst,
        .scratch = (char *)run->scratch + staging,
    };
    if (staging)
        wri_array_convert(WRING_FLOAT32, run->scratch, run->src_dtype, run->src, run->count);
    WRI_TRY(codec->stage[0].ops->encode(&encode));
    run->nonfinite |= encode.nonfinite;
    return WRING_OK;
}

wring_status wri_codec_encode_run(struct wri_encode_run *run)
{
    wring_status status = WRING_OK;
    if (run->count == 0)
        return WRING_OK;
    if (run->place.device != NULL)
        return wri_codec_encode_device(run);
    unsigned saved = wri_float_mode_enter();
    if (run->codec->exact)
        encode_exact(run);
    else
        status = encode_lossy(run);
    wri_float_mode_leave(saved);
    return status;
}

static wring_status decode_exact(const struct wri_decode_run *run)
{
    static const unsigned char zeros[4];
    size_t used = run->count * wring_dtype_size(run->dtype);
    if (memcmp((const char *)run->src + used, zeros, run->nbytes - used) != 0)
        WRI_FAIL(WRING_E_CORRUPT, "bytes after the last element are not zero");
    if (run->add)
        wri_array_reduce(run->op, run->dst_dtype, run->dst, run->dtype, run->src, run->count);
    else
        wri_array_convert(run->dst_dtype, run->dst, run->dtype, run->src, run->count);
    return WRING_OK;
}

static wring_status decode_lossy(const struct wri_decode_run *run)
{
    const wring_codec *codec = run->codec;
    size_t staging = staging_nbytes(run->dst_dtype, run->count);
    struct wring_decode decode = {
        .size = sizeof(decode),
        .stage = &codec->stage[0],
        .src = run->src,
        .nbytes = run->nbytes,
        .dst = staging ? run->scratch : run->dst,
        .count = run->count,
        .add = run->add,
        .scratch = (char *)run->scratch + staging,
    };
    WRI_TRY(codec->stage[0].ops->decode(&decode));
    if (staging)
        wri_array_convert(run->dst_dtype, run->dst, WRING_FLOAT32, run->scratch, run->count);
    return WRING_OK;
}

wring_status wri_codec_decode_run(const struct wri_decode_run *run)
{
    size_t nbytes = wri_codec_nbytes(run->codec, run->dtype, run->count);
    if (run->nbytes != nbytes)
        WRI_FAIL(WRING_E_CORRUPT, "codec \"%s\": %zu bytes for %zu elements of %s, expected %zu",
                 run->codec->spec, run->nbytes, run->count, wring_dtype_name(run->dtype), nbytes);
    if (run->count == 0)
        return WRING_OK;
    if (run->place.device != NULL)
        return wri_codec_decode_device(run);
    unsigned saved = wri_float_mode_enter();
    wring_status status = run->codec->exact ? decode_exact(run) : decode_lossy(run);
    wri_float_mode_leave(saved);
    return status;
}
