/* SPDX-License-Identifier: Apache-2.0 */
/* The k elements of largest magnitude. */
#ifndef WRI_CODEC_SELECT_H
#define WRI_CODEC_SELECT_H

#include <wring/wring.h>

/* Working memory for N elements: KEYS has room for n, BITMAP for a bit of each in whole words. */
struct wri_selection {
    uint32_t *keys, *bitmap;
    uint32_t hint; /* 0 at first; carries the threshold from one call to the next on similar data,
                    * which makes the search faster and never changes the result */
};

/* Write the positions of the K (1..n) largest |values[i]| to POSITIONS_OUT, in increasing order. Of
 * equal ones the first are taken. NaN of either sign is larger than Inf. */
void wri_select_largest(struct wri_selection *selection, const float *values, size_t n, size_t k,
                        size_t *positions_out);

#endif
