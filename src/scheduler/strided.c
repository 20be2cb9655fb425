/* SPDX-License-Identifier: Apache-2.0 */
/* Strided gradients are packed when they are ready and unpacked when they are reduced: codecs,
 * state and wire know contiguous tensors only, so the bits do not depend on how memory is laid
 * out. */
#include "scheduler/strided.h"

#include <string.h>

#include "base/status.h"

static bool is_empty(int ndim, const size_t *shape)
{
    for (int d = 0; d < ndim; d++)
        if (shape[d] == 0)
            return true;
    return false;
}

bool wri_strided_is_plain(int ndim, const size_t *shape, const ptrdiff_t *strides)
{
    size_t expected = 1;
    for (int d = ndim; d-- > 0 && !is_empty(ndim, shape);) {
        if (shape[d] > 1 && strides[d] != (ptrdiff_t)expected)
            return false;
        if (__builtin_mul_overflow(expected, shape[d], &expected))
            return false;
    }
    return true;
}

static size_t magnitude(ptrdiff_t stride)
{
    return stride < 0 ? 0 - (size_t)stride : (size_t)stride;
}

/* Sufficient, and true of every view that slices, transposes or reverses: sorted by stride, each
 * dimension steps over all that the smaller ones reach. */
static bool may_overlap(const struct wri_strided *strided)
{
    bool done[WRI_STRIDED_DIMS] = {false};
    size_t reach = 0;
    for (int turn = 0; turn < strided->ndim; turn++) {
        int next = -1;
        for (int d = 0; d < strided->ndim; d++)
            if (!done[d] && strided->shape[d] > 1 &&
                (next < 0 || magnitude(strided->stride[d]) < magnitude(strided->stride[next])))
                next = d;
        if (next < 0)
            return false;
        size_t step = magnitude(strided->stride[next]), more;
        done[next] = true;
        if (step <= reach || step > PTRDIFF_MAX / 16 ||
            __builtin_mul_overflow(step, strided->shape[next] - 1, &more) ||
            __builtin_add_overflow(reach, more, &reach) || reach > PTRDIFF_MAX / 16)
            return true;
    }
    return false;
}

wring_status wri_strided_init(struct wri_strided *strided, const char *name, wring_dtype dtype,
                              int ndim, const size_t *shape, const ptrdiff_t *strides, void *base)
{
    if (ndim > WRI_STRIDED_DIMS)
        WRI_FAIL(WRING_E_ARGUMENT, "parameter '%s': strides in %d dimensions, at most %d", name,
                 ndim, WRI_STRIDED_DIMS);
    *strided =
        (struct wri_strided){.base = base, .element_nbytes = wring_dtype_size(dtype), .ndim = ndim};
    memcpy(strided->shape, shape, (size_t)ndim * sizeof(*shape));
    memcpy(strided->stride, strides, (size_t)ndim * sizeof(*strides));
    if (may_overlap(strided))
        WRI_FAIL(WRING_E_ARGUMENT,
                 "parameter '%s': by its strides two elements may share their memory", name);
    return WRING_OK;
}

/* One element; the size is known to the compiler where it matters. */
static inline void copy_element(char *dst, const char *src, size_t nbytes)
{
    if (nbytes == 4)
        memcpy(dst, src, 4);
    else if (nbytes == 2)
        memcpy(dst, src, 2);
    else
        memcpy(dst, src, nbytes);
}

/* A row along the last dimension; BACK: from the packed side. */
static void copy_row(char *at, ptrdiff_t stride, char *packed, size_t n, size_t nbytes, bool back)
{
    if (stride == 1) {
        memcpy(back ? at : packed, back ? packed : at, n * nbytes);
        return;
    }
    for (size_t i = 0; i < n; i++, packed += nbytes, at += stride * (ptrdiff_t)nbytes)
        copy_element(back ? at : packed, back ? packed : at, nbytes);
}

static void copy(const struct wri_strided *strided, char *packed, bool back)
{
    size_t index[WRI_STRIDED_DIMS] = {0}, nbytes = strided->element_nbytes;
    int last = strided->ndim - 1, d;
    if (is_empty(strided->ndim, strided->shape))
        return;
    do {
        ptrdiff_t offset = 0;
        for (d = 0; d < last; d++)
            offset += (ptrdiff_t)index[d] * strided->stride[d];
        copy_row(strided->base + offset * (ptrdiff_t)nbytes, strided->stride[last], packed,
                 strided->shape[last], nbytes, back);
        packed += strided->shape[last] * nbytes;
        for (d = last - 1; d >= 0 && ++index[d] == strided->shape[d]; d--)
            index[d] = 0;
    } while (d >= 0);
}

void wri_strided_pack(const struct wri_strided *strided, void *packed)
{
    copy(strided, packed, false);
}

void wri_strided_unpack(const struct wri_strided *strided, const void *packed)
{
    copy(strided, (char *)(uintptr_t)packed, true);
}
