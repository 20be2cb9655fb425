/* SPDX-License-Identifier: Apache-2.0 */
/* A residual's values in memory; see residual.h. */
#include "collective/residual.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "simd/array.h"

#define BLOCK WRI_RESIDUAL_BLOCK
#define RECORD_NBYTES (1 + BLOCK)
#define STEP (8 * BLOCK) /* elements that are on the stack at a time */

size_t wri_residual_nbytes(int bits, size_t count)
{
    return bits == 8 ? wri_div_up(count, BLOCK) * RECORD_NBYTES : count * (size_t)(bits / 8);
}

void *wri_residual_at(const struct wri_residual *residual, int generation, size_t index)
{
    return (char *)residual->generation[generation] +
           wri_residual_nbytes(residual->bits, index - residual->begin);
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */

static void widen_block(const int8_t *record, size_t count, float *dst)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = ldexpf(record[1 + i], record[0]);
}

/* The least exponent that keeps the codes below 128; what is smaller than all of them is zero. */
static int exponent_of(float most)
{
    int exponent;
    float fraction =
        frexpf(most, &exponent); /* most = fraction * 2^exponent, 0.5 <= fraction < 1 */
    exponent -= fraction * 128 > 127 ? 6 : 7;
    return exponent < -127 ? -127 : exponent;
}

static void narrow_block(int8_t *record, size_t count, const float *src)
{
    float most = 0;
    for (size_t i = 0; i < count; i++)
        most = fabsf(src[i]) > most ? fabsf(src[i]) : most;
    memset(record, 0, RECORD_NBYTES);
    if (!(most > 0x1p-128f) || isinf(most)) /* or all codes are zero */
        return;                             /* non-finite ones are never committed */
    int exponent = exponent_of(most);
    record[0] = (int8_t)exponent;
    for (size_t i = 0; i < count; i++)
        record[1 + i] = (int8_t)lrintf(ldexpf(src[i], -exponent));
}

/* ---- any width ------------------------------------------------------------------------------- */

static void widen(int bits, const void *src, size_t count, float *dst)
{
    if (bits == 32)
        memcpy(dst, src, count * sizeof(*dst));
    else if (bits == 16)
        wri_array_convert(WRING_FLOAT32, dst, WRING_BFLOAT16, src, count);
    else
        for (size_t i = 0; i < count; i += BLOCK)
            widen_block((const int8_t *)src + i / BLOCK * RECORD_NBYTES, wri_min(BLOCK, count - i),
                        dst + i);
}

void wri_residual_widen(const struct wri_residual *residual, int generation, size_t index,
                        size_t count, float *dst)
{
    widen(residual->bits, wri_residual_at(residual, generation, index), count, dst);
}

void wri_residual_narrow(struct wri_residual *residual, int generation, size_t index, size_t count,
                         const float *src)
{
    void *dst = wri_residual_at(residual, generation, index);
    if (residual->bits == 32)
        memcpy(dst, src, count * sizeof(*src));
    else if (residual->bits == 16)
        wri_array_convert(WRING_BFLOAT16, dst, WRING_FLOAT32, src, count);
    else
        for (size_t i = 0; i < count; i += BLOCK)
            narrow_block((int8_t *)dst + i / BLOCK * RECORD_NBYTES, wri_min(BLOCK, count - i),
                         src + i);
}

void wri_residual_exchange(struct wri_residual *residual, size_t begin, size_t end)
{
    if (wri_residual_count(residual) == 0 || begin == end ||
        residual->generation[0] == residual->generation[1])
        return;
    if (begin <= residual->begin && residual->end <= end) {
        residual->current = !residual->current;
        return;
    }
    char *one = wri_residual_at(residual, 0, begin), *other = wri_residual_at(residual, 1, begin);
    for (size_t i = 0; i < wri_residual_nbytes(residual->bits, end - begin); i++) {
        char was = one[i];
        one[i] = other[i];
        other[i] = was;
    }
}

void wri_residual_fold(struct wri_residual *to, struct wri_residual *from)
{
    float sum[STEP], part[STEP];
    for (size_t i = from->begin; i < from->end; i += STEP) {
        size_t count = wri_min(STEP, from->end - i);
        wri_residual_widen(to, to->current, i, count, sum);
        wri_residual_widen(from, from->current, i, count, part);
        for (size_t k = 0; k < count; k++)
            sum[k] += from->weight * part[k];
        wri_residual_narrow(to, to->current, i, count, sum);
    }
    wri_residual_reset(from, from->begin, from->end);
}

void wri_residual_reset(struct wri_residual *residual, size_t begin, size_t end)
{
    if (wri_residual_count(residual) == 0)
        return;
    for (int generation = 0; generation < 2; generation++)
        memset(wri_residual_at(residual, generation, begin), 0,
               wri_residual_nbytes(residual->bits, end - begin));
}
