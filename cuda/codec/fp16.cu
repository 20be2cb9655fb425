/* SPDX-License-Identifier: Apache-2.0 */
/* fp16 as in src/codec/fp16.c: kernels in casts.cuh. */
#include "casts.cuh"

extern const struct wri_cuda_codec wri_codec_fp16_cuda;

const struct wri_cuda_codec wri_codec_fp16_cuda = {nullptr, encode_casts_run<fp16>,
                                                   decode_casts_run<fp16>};
