/* SPDX-License-Identifier: Apache-2.0 */
/* int4 as in src/codec/int4.c: kernels in integers.cuh. */
#include "integers.cuh"

extern const struct wri_cuda_codec wri_codec_int4_cuda;

const struct wri_cuda_codec wri_codec_int4_cuda = {nullptr, encode_integers_run<4>,
                                                   decode_integers_run<4>};
