/* SPDX-License-Identifier: Apache-2.0 */
/* What device.cu puts into its table from the other files. */
#ifndef WRI_CUDA_TABLE_H
#define WRI_CUDA_TABLE_H

#include "base/device.h"

size_t wri_cuda_dtype_size(wring_dtype dtype);
wring_status wri_cuda_convert(const struct wri_device_convert *);
wring_status wri_cuda_reduce(wring_op op, wring_dtype acc_dtype, void *acc, wring_dtype src_dtype,
                             const void *src, size_t count, void *stream);
wring_status wri_cuda_weigh(wring_dtype acc_dtype, void *acc, double scale, wring_dtype src_dtype,
                            const void *src, double weight, size_t count, void *stream);
wring_status wri_cuda_scale(wring_dtype dtype, void *array, double factor, size_t count,
                            void *stream);
wring_status wri_cuda_squares(wring_dtype dtype, const void *src, size_t count, double *sums,
                              void *stream);
wring_status wri_cuda_seal(const struct wri_device_frame *, size_t n, const struct wri_verdict *,
                           void *stream);
wring_status wri_cuda_verify(const struct wri_device_frame *, size_t n, struct wri_verdict *,
                             void *stream);
wring_status wri_cuda_fold(float *const to[2], const uint32_t *to_current, size_t to_begin,
                           float *const from[2], const uint32_t *from_current, size_t n,
                           float weight, const struct wri_verdict *, void *stream);
wring_status wri_cuda_commit(const struct wri_device_commit *, size_t n, uint64_t by,
                             const struct wri_verdict *, void *stream);

#endif
