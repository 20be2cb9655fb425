/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are wrong in one way each, and their right twins: tests of what the emulator is for.
 * Each reverses blocks of 64 elements through shared memory. */
#ifndef EMU_TEST_KERNELS_CUH
#define EMU_TEST_KERNELS_CUH

#include <cuda_runtime.h>

#ifndef EMU_CUDA
#define WRI_SHARED(type, name, count) __shared__ type name[count]
#endif

#define THREADS 64
#define TILE (THREADS + 1) /* no whole words of 16 bytes, to which a size might be rounded */

enum fault {
    RIGHT,
    MISSING_BARRIER,      /* reads what another thread may not have written yet */
    WRONG_TAIL,           /* one element past the end */
    UNINITIALISED,        /* reads a shared element that nobody wrote */
    SHARED_TAIL,          /* writes one element past a shared array */
    DIVERGENT_BARRIER,    /* some threads leave before a barrier */
    DIVERGENT_COLLECTIVE, /* a lane of the mask does not come */
    DIVERGENT_MASKS,      /* a lane comes with another mask */
    FAULTS
};

template <int FAULT> __global__ void reverse(const float *src, float *dst, int count)
{
    WRI_SHARED(float, tile, TILE);
    int first = blockIdx.x * THREADS, i = first + threadIdx.x;
    int n = count - first < THREADS ? count - first : THREADS, t = threadIdx.x;
    if (FAULT == DIVERGENT_BARRIER && t >= n)
        return;
    if (t < n)
        tile[t] = src[i];
    if (FAULT == SHARED_TAIL && t == 0)
        tile[TILE] = 0;
    if (FAULT == UNINITIALISED)
        n = THREADS;
    if (FAULT != MISSING_BARRIER)
        __syncthreads();
    if (FAULT == DIVERGENT_COLLECTIVE && t % 32 != 5)
        __syncwarp();
    if (FAULT == DIVERGENT_MASKS)
        __syncwarp(t % 32 == 5 ? 0xffffffffu : ~(1u << 5));
    if (t < n || (FAULT == WRONG_TAIL && t == n))
        dst[i] = tile[(FAULT == UNINITIALISED ? THREADS : n) - 1 - (t < n ? t : 0)];
}

#endif
