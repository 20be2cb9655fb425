/* SPDX-License-Identifier: Apache-2.0 */
/* A set of K increasing indices below N in few bits, of a size that follows from N and K alone:
 * Elias-Fano (P. Elias, J. ACM 1974; R. Fano, MIT 1971), half a bit per index from the best. */
#ifndef WRI_CODEC_INDICES_H
#define WRI_CODEC_INDICES_H

#include <wring/wring.h>

struct wri_indices {
    size_t n, k;       /* k <= n <= 2^56 */
    unsigned low_bits; /* kept as they are, at most 32 */
    size_t upper_bits; /* length of the unary part, in bits */
    size_t nbytes;     /* of the record, a multiple of 4; 0 if all of N are in the set */
};

struct wri_indices wri_indices_layout(size_t n, size_t k);

/* Write the record of INDEX[0..k), increasing: layout->nbytes bytes at DST. */
void wri_indices_write(const struct wri_indices *layout, const size_t *index, void *dst);

/* Read a hostile record: WRING_OK with exactly k increasing indices below n, or WRING_E_CORRUPT. */
wring_status wri_indices_read(const struct wri_indices *layout, const void *src, size_t *index_out);

#endif
