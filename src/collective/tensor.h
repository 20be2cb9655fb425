/* SPDX-License-Identifier: Apache-2.0 */
/* A named gradient. The functions with a wring_ twin have its contract. */
#ifndef WRI_COLLECTIVE_TENSOR_H
#define WRI_COLLECTIVE_TENSOR_H

#include <wring/wring.h>

wring_status wri_tensor_create(wring_comm *comm, const char *name, wring_dtype dtype, int ndim,
                               const size_t *shape, const wring_tensor_options *options,
                               wring_tensor **tensor_out);
void wri_tensor_destroy(wring_tensor *tensor);
size_t wri_tensor_count(const wring_tensor *tensor);
size_t wri_tensor_state_nbytes(const wring_tensor *tensor);
wring_status wri_tensor_residual(const wring_tensor *tensor, float *dst, size_t count);

wring_status wri_tensor_explain(wring_comm *comm, char **text_out);

/* Why the tensor has its codec, for explain: a text that stays as long as the tensor; or NULL. */
void wri_tensor_set_reason(wring_tensor *tensor, const char *reason);

/* The codec that calls on the tensor use. */
const wring_codec *wri_tensor_codec(const wring_tensor *tensor);

#endif
