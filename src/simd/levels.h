/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that the level files define, for kernels.c alone. */
#ifndef WRI_SIMD_LEVELS_H
#define WRI_SIMD_LEVELS_H

#include "simd/kernels.h"

extern const struct wri_kernels wri_kernels_scalar;

/* NULL where the CPU, or the architecture, has no AVX2 with FMA and F16C. */
const struct wri_kernels *wri_kernels_avx2(void);

#endif
