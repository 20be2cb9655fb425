/* SPDX-License-Identifier: Apache-2.0 */
/* A run on a device: which of its kernels. Exact chains are conversions and reductions there too;
 * lossy ones take every float type as it lies, so nothing is staged. */
#include "base/status.h"
#include "codec/codec.h"

size_t wri_codec_device_scratch_nbytes(const wring_codec *codec, const struct wri_device *device,
                                       size_t count)
{
    return codec->exact ? 0 : device->scratch_nbytes(&codec->stage[0], count);
}

wring_status wri_codec_on_device(const wring_codec *codec, const struct wri_device *device)
{
    wring_status status = device->supports(&codec->stage[0]);
    if (codec->feedback && codec->residual_bits < 32)
        status = wri_fail(WRING_E_UNSUPPORTED, "on a device residuals have 32 bits");
    return status == WRING_OK ? status : wri_fail_context(status, "codec \"%s\"", codec->spec);
}

/* The bytes after the last element, which a reader expects to be zero. */
static wring_status clear_padding(const struct wri_encode_run *run)
{
    size_t used = run->count * wring_dtype_size(run->dtype);
    size_t nbytes = wri_codec_nbytes(run->codec, run->dtype, run->count);
    return run->place.device->zero(run->place.stream, (char *)run->dst + used, nbytes - used);
}

wring_status wri_codec_encode_device(const struct wri_encode_run *run)
{
    const struct wri_device *device = run->place.device;
    if (run->codec->exact) {
        struct wri_device_convert convert = {.dst_dtype = run->dtype,
                                             .src_dtype = run->src_dtype,
                                             .dst = run->dst,
                                             .src = run->src,
                                             .count = run->count,
                                             .divisor = run->divisor,
                                             .verdict = run->place.verdict,
                                             .stream = run->place.stream};
        WRI_TRY(device->convert(&convert));
        return clear_padding(run); /* a residual of an exact codec was zero and stays it */
    }
    struct wri_device_encode encode = {
        .stage = &run->codec->stage[0],
        .src_dtype = run->src_dtype,
        .src = run->src,
        .count = run->count,
        .divisor = (float)run->divisor,
        .residual = {run->codec->feedback ? (float *)run->residual_in : NULL, run->residual_out},
        .beta = run->codec->beta,
        .random = run->random,
        .current = run->current,
        .step = run->step,
        .first = run->first,
        .dst = run->dst,
        .scratch = run->scratch,
        .verdict = run->place.verdict,
        .stream = run->place.stream,
    };
    return device->encode(&encode);
}

static wring_status decode_exact(const struct wri_decode_run *run)
{
    const struct wri_device *device = run->place.device;
    if (run->add)
        return device->reduce(run->op, run->dst_dtype, run->dst, run->dtype, run->src, run->count,
                              run->place.stream);
    struct wri_device_convert convert = {.dst_dtype = run->dst_dtype,
                                         .src_dtype = run->dtype,
                                         .dst = run->dst,
                                         .src = run->src,
                                         .count = run->count,
                                         .verdict = run->place.verdict,
                                         .stream = run->place.stream};
    return device->convert(&convert);
}

wring_status wri_codec_decode_device(const struct wri_decode_run *run)
{
    if (run->codec->exact)
        return decode_exact(run);
    struct wri_device_decode decode = {
        .stage = &run->codec->stage[0],
        .src = run->src,
        .dst_dtype = run->dst_dtype,
        .dst = run->dst,
        .count = run->count,
        .add = run->add,
        .scratch = run->scratch,
        .verdict = run->place.verdict,
        .error = run->place.error,
        .stream = run->place.stream,
    };
    return run->place.device->decode(&decode);
}
