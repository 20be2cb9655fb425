/* SPDX-License-Identifier: Apache-2.0 */
/* none as in src/codec/none.c: kernels in casts.cuh. */
#include "casts.cuh"

extern const struct wri_cuda_codec wri_codec_none_cuda;

const struct wri_cuda_codec wri_codec_none_cuda = {nullptr, encode_casts_run<float>,
                                                   decode_casts_run<float>};
