/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA on the host, for tests: the part of the runtime API and of the device language that our .cu
 * files use. A translation unit compiled with this folder in front of the include path needs no
 * nvcc and no GPU. Kernels are started with cudaLaunchKernelEx, which is plain C++ on both sides.
 *
 * A block's threads are fibers that run one at a time, in an order shuffled by seed, and change at
 * barriers and warp collectives. What a GPU would not tell is reported and makes the launch fail:
 * a barrier or warp collective that not all of its threads reach. Shared memory (WRI_SHARED) is
 * allocated per block and filled with a pattern; under AddressSanitizer each array has its own red
 * zones, and so has each block of device memory.
 *
 * Streams are queues, each with a thread of its own, so that order is only what streams and events
 * say. Environment: EMU_SEED (order of threads), EMU_DEVICES (2), EMU_MEMORY (bytes per device),
 * EMU_DRIVER=missing|old (what a machine without a usable driver answers), EMU_STRICT=1 (a wrong
 * free, and at exit memory that nobody freed, end the process).
 */
#ifndef EMU_CUDA_RUNTIME_H
#define EMU_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EMU_CUDA 1
#define CUDART_VERSION 13000

/* ---- host API -------------------------------------------------------------------------------- */

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
    cudaErrorUnknown = 999
} cudaError_t;

typedef enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
} cudaMemcpyKind;

typedef enum cudaMemoryType {
    cudaMemoryTypeUnregistered,
    cudaMemoryTypeHost,
    cudaMemoryTypeDevice,
    cudaMemoryTypeManaged
} cudaMemoryType;

typedef struct emu_stream *cudaStream_t;
typedef struct emu_event *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *arg);

#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1 };

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor, multiProcessorCount;
};

cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaMalloc(void **block, size_t nbytes);
cudaError_t cudaFree(void *block);
cudaError_t cudaMallocAsync(void **block, size_t nbytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *block, cudaStream_t stream);
cudaError_t cudaHostAlloc(void **block, size_t nbytes, unsigned flags);
cudaError_t cudaFreeHost(void *block);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t nbytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t nbytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemset(void *dst, int byte, size_t nbytes);
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t nbytes, cudaStream_t stream);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *arg);

cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#ifdef __cplusplus

/* ---- device language ------------------------------------------------------------------------- */

#include <functional>
#include <tuple>

#define __global__ static
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct uint3 {
    unsigned x, y, z;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(4) ushort2 {
    uint16_t x, y;
};
struct alignas(8) ushort4 {
    uint16_t x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

/* Of the thread that runs. */
#define EMU_API __attribute__((visibility("default")))
#define EMU_TLS __attribute__((tls_model("initial-exec"))) /* found without a call */
extern EMU_API __thread uint3 threadIdx EMU_TLS, blockIdx EMU_TLS, blockDim EMU_TLS,
    gridDim EMU_TLS;
static constexpr int warpSize = 32;

/* KEY tells one shared array of a kernel from the other. NULL: the dynamic one. */
EMU_API void *emu_shared(const void *key, size_t nbytes);
EMU_API void emu_barrier(const char *name);
/* Give VALUE to the warp and get everyone's, lanes that are not in MASK undefined. */
EMU_API const uint64_t *emu_warp(unsigned mask, uint64_t value, const char *name);
EMU_API unsigned emu_lane();
EMU_API int emu_count(int predicate); /* a barrier; how many threads of the block said so */

/* An array in shared memory. */
#define WRI_SHARED(type, name, count)                                                              \
    static const char emu_key_##name = 0;                                                          \
    type *name = static_cast<type *>(emu_shared(&emu_key_##name, sizeof(type) * (count)))
#define WRI_SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(emu_shared(nullptr, 0))

static inline void __syncthreads()
{
    emu_barrier("__syncthreads");
}
static inline int __syncthreads_or(int predicate)
{
    return emu_count(predicate != 0) > 0;
}
static inline int __syncthreads_and(int predicate)
{
    return emu_count(predicate == 0) == 0;
}
static inline int __syncthreads_count(int predicate)
{
    return emu_count(predicate != 0);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu_warp(mask, 0, "__syncwarp");
}

template <typename T> static inline uint64_t emu_pack(T value)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(value));
    return bits;
}
template <typename T> static inline T emu_unpack(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize)
{
    const uint64_t *all = emu_warp(mask, emu_pack(value), "__shfl_sync");
    unsigned base = emu_lane() & ~(unsigned)(width - 1);
    return emu_unpack<T>(all[base + ((unsigned)lane & (unsigned)(width - 1))]);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = warpSize)
{
    const uint64_t *all = emu_warp(mask, emu_pack(value), "__shfl_xor_sync");
    unsigned from = emu_lane() ^ (unsigned)with;
    return emu_unpack<T>(
        all[from / (unsigned)width > emu_lane() / (unsigned)width ? emu_lane() : from]);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize)
{
    const uint64_t *all = emu_warp(mask, emu_pack(value), "__shfl_up_sync");
    unsigned lane = emu_lane(), place = lane & (unsigned)(width - 1);
    return emu_unpack<T>(all[place < delta ? lane : lane - delta]);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize)
{
    const uint64_t *all = emu_warp(mask, emu_pack(value), "__shfl_down_sync");
    unsigned lane = emu_lane(), place = lane & (unsigned)(width - 1);
    return emu_unpack<T>(all[place + delta >= (unsigned)width ? lane : lane + delta]);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const uint64_t *all = emu_warp(mask, predicate != 0, "__ballot_sync");
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1)
            bits |= (unsigned)(all[lane] & 1) << lane;
    return bits;
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}

/* Other blocks and other processes' host threads may look at the same word. */
template <typename T, typename U> static inline T atomicAdd(T *at, U value)
{
    return __atomic_fetch_add(at, (T)value, __ATOMIC_SEQ_CST);
}
static inline float atomicAdd(float *at, float value)
{
    float old = *at; /* threads of all blocks of a launch take turns */
    *at = old + value;
    return old;
}
static inline double atomicAdd(double *at, double value)
{
    double old = *at;
    *at = old + value;
    return old;
}
template <typename T, typename U> static inline T atomicOr(T *at, U value)
{
    return __atomic_fetch_or(at, (T)value, __ATOMIC_SEQ_CST);
}
template <typename T, typename U> static inline T atomicExch(T *at, U value)
{
    return __atomic_exchange_n(at, (T)value, __ATOMIC_SEQ_CST);
}
template <typename T, typename U> static inline T atomicCAS(T *at, U compare, U value)
{
    T expected = (T)compare;
    __atomic_compare_exchange_n(at, &expected, (T)value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
template <typename T, typename U> static inline T atomicMax(T *at, U value)
{
    T old = *at;
    while (old < (T)value && !__atomic_compare_exchange_n(at, &old, (T)value, false,
                                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return old;
}
template <typename T, typename U> static inline T atomicMin(T *at, U value)
{
    T old = *at;
    while (old > (T)value && !__atomic_compare_exchange_n(at, &old, (T)value, false,
                                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return old;
}

static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_block()
{
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline unsigned __float_as_uint(float x)
{
    return emu_unpack<unsigned>(emu_pack(x));
}
static inline float __uint_as_float(unsigned x)
{
    return emu_unpack<float>(x);
}
static inline double __longlong_as_double(long long x)
{
    return emu_unpack<double>((uint64_t)x);
}
static inline long long __double_as_longlong(double x)
{
    return (long long)emu_pack(x);
}
static inline int __float2int_rn(float x)
{
    return (int)rintf(x);
}
static inline int __float2int_rd(float x)
{
    return (int)floorf(x);
}
template <typename T> static inline T __ldg(const T *at)
{
    return *at;
}
template <typename T, typename U> static constexpr inline auto min(T a, U b)
{
    return b < a ? b : a;
}
template <typename T, typename U> static constexpr inline auto max(T a, U b)
{
    return a < b ? b : a;
}

/* ---- launch ---------------------------------------------------------------------------------- */

struct cudaLaunchAttribute {
    int id;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

/* THREAD runs one thread of the kernel. */
EMU_API cudaError_t emu_launch(const cudaLaunchConfig_t *config, std::function<void()> thread);

template <typename... Expected, typename... Given>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                             void (*kernel)(Expected...), Given &&...given)
{
    std::tuple<Expected...> arguments(static_cast<Expected>(given)...);
    return emu_launch(config, [kernel, arguments] { std::apply(kernel, arguments); });
}

template <typename T> static inline cudaError_t cudaMalloc(T **block, size_t nbytes)
{
    return cudaMalloc((void **)block, nbytes);
}
template <typename T>
static inline cudaError_t cudaHostAlloc(T **block, size_t nbytes, unsigned flags)
{
    return cudaHostAlloc((void **)block, nbytes, flags);
}
#endif
#endif
