/* SPDX-License-Identifier: Apache-2.0 */
/* Time by events: all that counts is what lies between two of them on a stream. The host and the
 * way to the device do not, as long as the host enqueues faster than the device works. */
#include "device_clock.h"

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 256
#define LOADS 4 /* of 16 bytes, all under way at once */

static void check(cudaError_t error, const char *doing)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "wring-bench-cuda: %s: %s\n", doing, cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}

struct device_about device_about(void)
{
    struct device_about about = {};
    struct cudaDeviceProp prop;
    int index;
    check(cudaGetDevice(&index), "current device");
    check(cudaGetDeviceProperties(&prop, index), "asking for the device");
    memcpy(about.name, prop.name, sizeof about.name - 1);
    about.memory_nbytes = prop.totalGlobalMem;
    return about;
}

double device_seconds(void (*run)(void *arg), void *arg, size_t n, void *stream)
{
    cudaEvent_t begin, end;
    float milliseconds = 0;
    check(cudaEventCreate(&begin), "making an event");
    check(cudaEventCreate(&end), "making an event");
    check(cudaEventRecord(begin, (cudaStream_t)stream), "recording an event");
    for (size_t i = 0; i < n; i++)
        run(arg);
    check(cudaEventRecord(end, (cudaStream_t)stream), "recording an event");
    check(cudaEventSynchronize(end), "waiting for the device");
    check(cudaEventElapsedTime(&milliseconds, begin, end), "asking for the time");
    check(cudaEventDestroy(begin), "closing an event");
    check(cudaEventDestroy(end), "closing an event");
    return 1e-3 * milliseconds;
}

/* ---- floors ---------------------------------------------------------------------------------- */

/* The write is there so that no load can be left out; data whose bits add up to it are rare. */
__global__ void __launch_bounds__(THREADS)
    read_kernel(const uint4 *src, size_t count, unsigned *sum)
{
    size_t first = (size_t)blockIdx.x * THREADS * LOADS + threadIdx.x;
    uint4 word[LOADS];
    unsigned total = 0;
#pragma unroll
    for (int j = 0; j < LOADS; j++) {
        size_t i = first + (size_t)j * THREADS;
        word[j] = i < count ? src[i] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < LOADS; j++)
        total += word[j].x + word[j].y + word[j].z + word[j].w;
    if (total == 0x9E3779B9u)
        *sum = total;
}

__global__ void __launch_bounds__(THREADS) nothing_kernel()
{
}

static cudaLaunchConfig_t grid(size_t blocks, void *stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(THREADS);
    config.stream = (cudaStream_t)stream;
    return config;
}

void device_copy(void *dst, const void *src, size_t nbytes, void *stream)
{
    check(cudaMemcpyAsync(dst, src, nbytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream),
          "copying");
}

void device_read(const void *src, size_t nbytes, unsigned *sum, void *stream)
{
    size_t count = nbytes / sizeof(uint4), block = (size_t)THREADS * LOADS;
    cudaLaunchConfig_t config = grid((count + block - 1) / block, stream);
    check(cudaLaunchKernelEx(&config, read_kernel, (const uint4 *)src, count, sum), "reading");
}

void device_nothing(void *stream)
{
    cudaLaunchConfig_t config = grid(1, stream);
    check(cudaLaunchKernelEx(&config, nothing_kernel), "launching");
}
