/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A residual's values in memory: two generations of float32, of bfloat16, or of 8 bits with a
 * power of two for every 32 elements, as the codec's `ef:bits` says. Narrow ones are widened and
 * narrowed on the way into and out of the codec, on the host only.
 *
 *     8 bits:  | exponent e | 32 codes |  33 bytes
 *              value = code * 2^e, e the least with |code| < 128
 *
 * Narrowing what was widened gives the same bytes. Its error is at most 1/127 of the largest value
 * of the 32, for bfloat16 2^-9 of the value (the residual of the LoCo codec: arXiv 2407.04480).
 */
#ifndef WRI_COLLECTIVE_RESIDUAL_H
#define WRI_COLLECTIVE_RESIDUAL_H

#include "base/device.h"

#define WRI_RESIDUAL_BLOCK 32 /* elements that narrow residuals begin and end at */

/* Error of elements [begin, end) of the tensor that was not sent yet; generation[current]
 * counts. */
struct wri_residual {
    struct wri_residual *next; /* of those that a tensor keeps as an owner */
    void *generation[2];       /* the same one twice if the tensor keeps a single one */
    int current, bits;
    size_t begin, end;
    uint32_t *on_device; /* what stands for `current` there; NULL: the host */
    float weight;        /* units of a rank's own residual in one of it */
    int calls;           /* unfinished ones that write it as an owner's */
};

/* Elements that it has memory for; 0 for NULL. */
static inline size_t wri_residual_count(const struct wri_residual *residual)
{
    return residual && residual->generation[0] ? residual->end - residual->begin : 0;
}

/* Bytes of COUNT elements from a block's first on. */
size_t wri_residual_nbytes(int bits, size_t count);

/* Where the element at INDEX of the tensor, a block's first, stands in a generation. */
void *wri_residual_at(const struct wri_residual *residual, int generation, size_t index);

/* COUNT elements from INDEX on, from and to float32 of the host. */
void wri_residual_widen(const struct wri_residual *residual, int generation, size_t index,
                        size_t count, float *dst);
void wri_residual_narrow(struct wri_residual *residual, int generation, size_t index, size_t count,
                         const float *src);

/* The generations of [begin, end) change places: by a word if that is all there is. Not of a single
 * generation, which has changed already. */
void wri_residual_exchange(struct wri_residual *residual, size_t begin, size_t end);

/* To TO goes what FROM has, times its weight; FROM becomes zero. */
void wri_residual_fold(struct wri_residual *to, struct wri_residual *from);

/* Both generations of [begin, end) become zero. */
void wri_residual_reset(struct wri_residual *residual, size_t begin, size_t end);

#endif
