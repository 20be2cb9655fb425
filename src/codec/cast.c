/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how the casts frame their elements; the kernels convert them. */
#include "codec/cast.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

size_t wri_cast_unit(const struct wring_stage *stage)
{
    (void)stage;
    return 1;
}

size_t wri_cast_nbytes(const struct wring_stage *stage, size_t count)
{
    (void)stage;
    return wri_div_up(count, 2) * 4;
}

wring_status wri_cast_encode(struct wring_encode *args,
                             bool (*store)(const struct wri_source *in, void *dst))
{
    struct wri_source source = {.src = args->src,
                                .residual_in = args->residual_in,
                                .residual_out = args->residual_out,
                                .beta = args->beta,
                                .count = args->count};
    args->nonfinite |= store(&source, args->dst);
    if (args->count % 2 != 0)
        memset((char *)args->dst + args->count * sizeof(uint16_t), 0, sizeof(uint16_t));
    return WRING_OK;
}

wring_status wri_cast_decode(const struct wring_decode *args,
                             void (*load)(float *dst, size_t count, const void *src, bool add))
{
    size_t expected = wri_cast_nbytes(args->stage, args->count);
    if (args->nbytes != expected)
        WRI_FAIL(WRING_E_CORRUPT, "%s: %zu elements in %zu bytes instead of %zu",
                 args->stage->ops->name, args->count, args->nbytes, expected);
    load(args->dst, args->count, args->src, args->add);
    return WRING_OK;
}
