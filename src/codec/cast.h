/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the casts to 16-bit floats share. On the wire, little endian:
 *
 *     | element 0 | element 1 | ... | zeros |
 *       2 bytes     2 bytes           to 4 bytes
 *
 *     nbytes(count) = 4 * ceil(count / 2)
 *
 * Every element stands for itself (unit 1), there are no parameters, and all bytes are well-formed.
 */
#ifndef WRI_CODEC_CAST_H
#define WRI_CODEC_CAST_H

#include <wring/plugin.h>

#include "simd/kernels.h"

size_t wri_cast_unit(const struct wring_stage *stage);
size_t wri_cast_nbytes(const struct wring_stage *stage, size_t count);
wring_status wri_cast_encode(struct wring_encode *args,
                             bool (*store)(const struct wri_source *in, void *dst));
wring_status wri_cast_decode(const struct wring_decode *args,
                             void (*load)(float *dst, size_t count, const void *src, bool add));

#endif
