/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that are not contiguous: where their elements are. */
#ifndef WRI_SCHEDULER_STRIDED_H
#define WRI_SCHEDULER_STRIDED_H

#include <wring/wring.h>

#define WRI_STRIDED_DIMS 8

/* Element (i, j, ...) is at base + i * stride[0] + j * stride[1] + ... elements. */
struct wri_strided {
    char *base;
    size_t element_nbytes;
    int ndim;
    size_t shape[WRI_STRIDED_DIMS];
    ptrdiff_t stride[WRI_STRIDED_DIMS];
};

/* Whether STRIDES say no more than the order of elements in memory: then they are not needed. */
bool wri_strided_is_plain(int ndim, const size_t *shape, const ptrdiff_t *strides);

/* WRING_E_ARGUMENT if two elements may share their place, or there are too many dimensions. */
wring_status wri_strided_init(struct wri_strided *strided, const char *name, wring_dtype dtype,
                              int ndim, const size_t *shape, const ptrdiff_t *strides, void *base);

/* Copy all elements, in order of their indices, to PACKED or from it. */
void wri_strided_pack(const struct wri_strided *strided, void *packed);
void wri_strided_unpack(const struct wri_strided *strided, const void *packed);

#endif
