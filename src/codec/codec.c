/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of stages, made from codecs.def, and what holds for a chain as a whole: its unit and
 * the types it takes. Spec.c makes chains, run.c drives them. */
#include "codec/codec.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/spec.h"
#include "simd/array.h"
#include <string.h>

#define WRING_CODEC(name, place) extern const struct wring_codec_ops wri_codec_##name;
#include "codec/codecs.def"
#undef WRING_CODEC

static const struct wring_codec_ops *const registry[] = {
#define WRING_CODEC(name, place) &wri_codec_##name,
#include "codec/codecs.def"

#define RESIDUAL_BLOCK 32 /* elements with 8 bits that share an exponent */
#undef WRING_CODEC
};

const struct wring_codec_ops *wri_codec_at(size_t index)
{
    return index < sizeof(registry) / sizeof(*registry) ? registry[index] : NULL;
}

const struct wring_codec_ops *wri_codec_find(const char *name, size_t length)
{
    const struct wring_codec_ops *ops;
    for (size_t i = 0; (ops = wri_codec_at(i)); i++)
        if (strlen(ops->name) == length && memcmp(ops->name, name, length) == 0)
            return ops;
    return NULL;
}

wring_status wri_codec_create(const char *spec, wring_codec **codec_out)
{
    void *block;
    WRI_TRY(wri_alloc(1, sizeof(wring_codec), &block));
    wring_status status = wri_spec_parse(spec, block);
    if (status != WRING_OK) {
        wri_free(block);
        return status;
    }
    *codec_out = block;
    return WRING_OK;
}

void wri_codec_destroy(wring_codec *codec)
{
    wri_free(codec);
}

size_t wri_stage_nbytes(const struct wring_stage *stage, size_t count)
{
    return stage->ops->nbytes(stage, count);
}

size_t wri_stage_scratch_nbytes(const struct wring_stage *stage, size_t count)
{
    return stage->ops->scratch_nbytes ? stage->ops->scratch_nbytes(stage, count) : 0;
}

/* The first stage answers for the chain: a selection hides the units of what follows it. */
static size_t declared_unit(const wring_codec *codec)
{
    return codec->stage[0].ops->unit(&codec->stage[0]);
}

bool wri_codec_whole_unit(const wring_codec *codec)
{
    return declared_unit(codec) == SIZE_MAX;
}

size_t wri_codec_unit(const wring_codec *codec, size_t count)
{
    if (wri_codec_whole_unit(codec))
        return count > 0 ? count : 1;
    size_t declared = declared_unit(codec), unit = declared;
    while (codec->residual_bits == 8 && unit % RESIDUAL_BLOCK != 0)
        unit += declared;
    return unit;
}

wring_status wri_codec_accepts(const wring_codec *codec, wring_dtype dtype, wring_op op)
{
    if (dtype >= WRING_DTYPE_COUNT || op >= WRING_OP_COUNT)
        WRI_FAIL(WRING_E_ARGUMENT, "element type %d or operation %d out of range", (int)dtype,
                 (int)op);
    if (op == WRING_AVG && !wri_dtype_is_float(dtype))
        WRI_FAIL(WRING_E_UNSUPPORTED, "%s cannot be averaged, only summed",
                 wring_dtype_name(dtype));
    if (codec->exact)
        return WRING_OK;
    if (dtype > WRING_BFLOAT16)
        WRI_FAIL(WRING_E_UNSUPPORTED,
                 "codec \"%s\" takes float32, float16 and bfloat16; %s travels "
                 "only with codec \"none\"",
                 codec->spec, wring_dtype_name(dtype));
    if (op != WRING_SUM && op != WRING_AVG)
        WRI_FAIL(WRING_E_UNSUPPORTED,
                 "codec \"%s\" sums and averages; minimum and maximum travel "
                 "only with codec \"none\"",
                 codec->spec);
    return WRING_OK;
}
