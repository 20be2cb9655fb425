/* SPDX-License-Identifier: Apache-2.0 */
/* The k elements of largest magnitude. */
#ifndef WRI_CODEC_SELECT_H
#define WRI_CODEC_SELECT_H

#include <wring/wring.h>

/* Write the positions of the K (1..n) largest |values[i]| to POSITIONS_OUT (room for k + 1), in
 * increasing order. Of equal ones the first are taken. NaN of either sign is larger than Inf. KEYS:
 * room for n. *HINT, 0 at first, carries the threshold from one call to the next on similar data: it
 * makes the search faster and never changes the result. */
void wri_select_largest(const float *values, size_t n, size_t k, uint32_t *keys, uint32_t *hint,
                        size_t *positions_out);

#endif
