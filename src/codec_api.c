/* SPDX-License-Identifier: Apache-2.0 */
/* The public codec calls: are their arguments valid? They serve tools and tests; the collective
 * layer calls the run functions directly, with memory of its own. */
#include "base/memory.h"
#include "base/status.h"
#include "codec/codec.h"

wring_status wring_codec_create(const char *spec, wring_codec **codec_out)
{
    if (!spec || !codec_out)
        WRI_FAIL(WRING_E_ARGUMENT, "wring_codec_create: spec and codec_out must not be NULL");
    return wri_codec_create(spec, codec_out);
}

void wring_codec_destroy(wring_codec *codec)
{
    wri_codec_destroy(codec);
}

const char *wring_codec_spec(const wring_codec *codec)
{
    return codec ? codec->spec : "";
}

size_t wring_codec_nbytes(const wring_codec *codec, wring_dtype dtype, size_t count)
{
    return codec ? wri_codec_nbytes(codec, dtype, count) : 0;
}

/* Types, pointers and alignments of a call: ENCODED at 4 and at its type's size, VALUES at the
 * latter. */
static wring_status check(const wring_codec *codec, wring_dtype dtype, size_t count,
                          const void *values, const void *encoded)
{
    if (!codec)
        WRI_FAIL(WRING_E_ARGUMENT, "the codec must not be NULL");
    WRI_TRY(wri_codec_accepts(codec, dtype, WRING_SUM));
    if (count == 0)
        return WRING_OK;
    if (!values || !encoded)
        WRI_FAIL(WRING_E_ARGUMENT, "a buffer is NULL for %zu elements", count);
    size_t size = wring_dtype_size(dtype);
    if ((uintptr_t)values % size || (uintptr_t)encoded % size || (uintptr_t)encoded % 4)
        WRI_FAIL(WRING_E_ARGUMENT,
                 "buffers must be aligned to their elements, encoded ones to 4 bytes");
    if (wri_codec_nbytes(codec, dtype, count) == 0)
        WRI_FAIL(WRING_E_ARGUMENT, "%zu elements are too many", count);
    return WRING_OK;
}

wring_status wring_codec_encode(const wring_codec *codec, wring_dtype dtype, const void *src,
                                size_t count, void *dst, size_t dst_nbytes, size_t *nbytes_out)
{
    if (!nbytes_out)
        WRI_FAIL(WRING_E_ARGUMENT, "wring_codec_encode: nbytes_out must not be NULL");
    WRI_TRY(check(codec, dtype, count, src, dst));
    size_t nbytes = wri_codec_nbytes(codec, dtype, count);
    if (dst_nbytes < nbytes)
        WRI_FAIL(WRING_E_FULL, "codec \"%s\" needs %zu bytes for %zu elements of %s, got %zu",
                 codec->spec, nbytes, count, wring_dtype_name(dtype), dst_nbytes);
    void *scratch;
    WRI_TRY(wri_alloc(wri_codec_scratch_nbytes(codec, dtype, count), 1, &scratch));
    struct wri_encode_run run = {.codec = codec,
                                 .dtype = dtype,
                                 .src_dtype = dtype,
                                 .src = src,
                                 .count = count,
                                 .dst = dst,
                                 .scratch = scratch};
    wring_status status = wri_codec_encode_run(&run);
    wri_free(scratch);
    if (status == WRING_OK)
        *nbytes_out = nbytes;
    return status;
}

wring_status wring_codec_decode(const wring_codec *codec, wring_dtype dtype, const void *src,
                                size_t src_nbytes, void *dst, size_t count, bool add)
{
    WRI_TRY(check(codec, dtype, count, dst, src));
    if (add && dtype != WRING_FLOAT32)
        WRI_FAIL(WRING_E_UNSUPPORTED, "decoding with add takes float32, not %s",
                 wring_dtype_name(dtype));
    void *scratch;
    WRI_TRY(wri_alloc(wri_codec_scratch_nbytes(codec, dtype, count), 1, &scratch));
    struct wri_decode_run run = {.codec = codec,
                                 .dtype = dtype,
                                 .dst_dtype = dtype,
                                 .src = src,
                                 .nbytes = src_nbytes,
                                 .dst = dst,
                                 .count = count,
                                 .add = add,
                                 .op = WRING_SUM,
                                 .scratch = scratch};
    wring_status status = wri_codec_decode_run(&run);
    wri_free(scratch);
    return status;
}
