/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 as in src/codec/bf16.c: kernels in casts.cuh. */
#include "casts.cuh"

extern const struct wri_cuda_codec wri_codec_bf16_cuda;

const struct wri_cuda_codec wri_codec_bf16_cuda = {nullptr, encode_casts_run<bf16>,
                                                   decode_casts_run<bf16>};
