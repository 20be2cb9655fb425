/* SPDX-License-Identifier: Apache-2.0 */
/* int8 as in src/codec/int8.c: kernels in integers.cuh. */
#include "integers.cuh"

extern const struct wri_cuda_codec wri_codec_int8_cuda;

const struct wri_cuda_codec wri_codec_int8_cuda = {nullptr, encode_integers_run<8>,
                                                   decode_integers_run<8>};
