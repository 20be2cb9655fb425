/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all kernels are written with: launching, warps, and how elements are fetched and stored. The
 * arithmetic is that of docs/arithmetic.md, to the bit; the file is compiled without contraction.
 *
 * A run of elements is worked on by warps or by threads that stride over it, so that the same code
 * serves a whole grid and, inside topk, one block. Four neighbouring elements move as one 16-byte
 * access where the address allows it, and one by one where it does not.
 */
#ifndef WRI_CUDA_KERNELS_CUH
#define WRI_CUDA_KERNELS_CUH

#include <cuda_runtime.h>

#include "base/device.h"
#include "base/rng.h"
#include "simd/float16.h"
#include "simd/kernels.h"

#ifndef EMU_CUDA
/* An array in shared memory. */
#define WRI_SHARED(type, name, count) __shared__ type name[count]
#endif

#define INLINE static __device__ __forceinline__

#define WARP 32
#define ALL 0xffffffffu

/* ---- host side ------------------------------------------------------------------------------- */

/* Status of a CUDA call, with its message; implemented in device.cu. */
wring_status wri_cuda_status(cudaError_t error, const char *doing);
#define CUDA_TRY(call, doing)                                                                      \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess)                                                                 \
            return wri_cuda_status(error_, doing);                                                 \
    } while (0)
wring_status wri_cuda_fail(wring_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A grid of BLOCKS (at least one; kernels stride over what is more than fits). */
template <typename... Expected, typename... Given>
static wring_status launch(void (*kernel)(Expected...), size_t blocks, unsigned threads,
                           void *stream, Given &&...given)
{
    cudaLaunchConfig_t config = {};
    size_t most = (size_t)1 << 30;
    config.gridDim = dim3((unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks));
    config.blockDim = dim3(threads);
    config.stream = (cudaStream_t)stream;
    CUDA_TRY(cudaLaunchKernelEx(&config, kernel, static_cast<Expected>(given)...), "launch");
    return WRING_OK;
}

static WRI_HD inline size_t div_up(size_t n, size_t by)
{
    return n / by + (n % by != 0);
}

/* The 16-bit floats as types of their own. */
struct bf16 {
    uint16_t bits;
};
struct fp16 {
    uint16_t bits;
};

/* ---- elements -------------------------------------------------------------------------------- */

INLINE float canonical(float x)
{
    return x == x ? x : wri_bits_float(WRI_NAN_BITS);
}
INLINE uint32_t magnitude(float x)
{
    return wri_float_bits(x) & 0x7FFFFFFFu;
}
INLINE float quiet_nan()
{
    return wri_bits_float(WRI_NAN_BITS);
}

INLINE float to_float(float x)
{
    return x;
}
INLINE float to_float(bf16 x)
{
    return wri_bf16_to_float(x.bits);
}
INLINE float to_float(fp16 x)
{
    return wri_fp16_to_float(x.bits);
}
INLINE void from_float(float *to, float x)
{
    *to = x;
}
INLINE void from_float(bf16 *to, float x)
{
    to->bits = wri_bf16_from_float(x);
}
INLINE void from_float(fp16 *to, float x)
{
    to->bits = wri_fp16_from_float(x);
}

template <typename T> INLINE bool aligned(const T *at, size_t nbytes)
{
    return ((uintptr_t)at & (nbytes - 1)) == 0;
}

INLINE void load4(const float *at, float x[4])
{
    if (aligned(at, 16)) {
        float4 v = *(const float4 *)at;
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        x[j] = at[j];
}
template <typename H> INLINE void load4(const H *at, float x[4])
{
    H h[4];
    if (aligned(at, 8)) {
        uint2 v = *(const uint2 *)at;
        h[0].bits = (uint16_t)v.x, h[1].bits = (uint16_t)(v.x >> 16);
        h[2].bits = (uint16_t)v.y, h[3].bits = (uint16_t)(v.y >> 16);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            h[j] = at[j];
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        x[j] = to_float(h[j]);
}
INLINE void store4(float *at, const float x[4])
{
    if (aligned(at, 16)) {
        *(float4 *)at = make_float4(x[0], x[1], x[2], x[3]);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        at[j] = x[j];
}
template <typename H> INLINE void store4(H *at, const float x[4])
{
    H h[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        from_float(&h[j], x[j]);
    if (aligned(at, 8)) {
        *(uint2 *)at = make_uint2(h[0].bits | (uint32_t)h[1].bits << 16,
                                  h[2].bits | (uint32_t)h[3].bits << 16);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        at[j] = h[j];
}

/* Elements [i, i + 4) of COUNT; zeros past the end. */
template <typename T> INLINE void load_rest(const T *src, size_t i, size_t count, float x[4])
{
    if (i + 4 <= count) {
        load4(src + i, x);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        x[j] = i + j < count ? to_float(src[i + j]) : 0.0f;
}
template <typename T> INLINE void store_rest(T *dst, size_t i, size_t count, const float x[4])
{
    if (i + 4 <= count) {
        store4(dst + i, x);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (i + j < count)
            from_float(dst + i + j, x[j]);
}

/* ---- warps ----------------------------------------------------------------------------------- */

INLINE unsigned lane_id()
{
    return threadIdx.x % WARP;
}
INLINE size_t warp_id()
{
    return ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
}
INLINE size_t warp_count()
{
    return (size_t)gridDim.x * blockDim.x / WARP;
}
INLINE size_t thread_id()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}
INLINE size_t thread_count()
{
    return (size_t)gridDim.x * blockDim.x;
}

INLINE uint32_t warp_max(uint32_t x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(ALL, x);
#else
#pragma unroll
    for (int with = WARP / 2; with > 0; with /= 2) {
        uint32_t other = __shfl_xor_sync(ALL, x, with);
        x = other > x ? other : x;
    }
    return x;
#endif
}
/* The halving tree over lanes; every lane gets the sum. */
template <typename T> INLINE T warp_tree_sum(T x)
{
#pragma unroll
    for (int with = WARP / 2; with > 0; with /= 2)
        x = x + __shfl_xor_sync(ALL, x, with);
    return x;
}

/* ---- what is encoded ------------------------------------------------------------------------- */

/* struct wri_device_encode as a kernel sees it, and COUNT elements of it. */
template <typename S> struct source {
    const S *src;
    size_t count;
    float divisor;
    const float *residual_in;
    float *residual_out;
    float beta;
};

/* p of elements [i, i + 4); zeros past the end. */
template <typename S> INLINE void fetch4(const source<S> &in, size_t i, float p[4])
{
    load_rest(in.src, i, in.count, p);
    if (in.divisor != 0.0f)
#pragma unroll
        for (int j = 0; j < 4; j++)
            p[j] = canonical(p[j] / in.divisor);
    if (in.residual_in) {
        float r[4];
        load_rest(in.residual_in, i, in.count, r);
#pragma unroll
        for (int j = 0; j < 4; j++)
            p[j] = p[j] + in.beta * r[j];
    }
}
template <typename S> INLINE float fetch1(const source<S> &in, size_t i)
{
    if (i >= in.count)
        return 0.0f;
    float p = to_float(in.src[i]);
    if (in.divisor != 0.0f)
        p = canonical(p / in.divisor);
    return in.residual_in ? p + in.beta * in.residual_in[i] : p;
}

/* The source of a call: which generation of the residual is read, and which written. */
template <typename S> INLINE source<S> source_of(const struct wri_device_encode &e)
{
    unsigned now = e.current ? *e.current & 1 : 0;
    /* No indexing: arguments stay in registers. */
    float *in = now ? e.residual[1] : e.residual[0], *out = now ? e.residual[0] : e.residual[1];
    return {(const S *)e.src, e.count, e.divisor, in, out, e.beta};
}
INLINE uint64_t step_of(const struct wri_device_encode &e)
{
    return e.step ? *e.step : e.random.step;
}

INLINE void note_nonfinite(struct wri_verdict *verdict, bool nonfinite)
{
    if (nonfinite)
        atomicOr(&verdict->nonfinite, 1u);
}
INLINE bool poisoned(const struct wri_verdict *verdict)
{
    return verdict && *(const volatile uint32_t *)&verdict->error != 0;
}

/* Four decoded values to their place. */
template <typename D> INLINE void put4(D *dst, size_t i, size_t count, float x[4], bool add)
{
    if (add) {
        float old[4];
        load_rest(dst, i, count, old);
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = canonical(old[j] + x[j]);
    }
    store_rest(dst, i, count, x);
}

/* Call FUNCTION with a value of the type that DTYPE names, of those that lossy codecs take. */
template <typename F> static wring_status with_type(wring_dtype dtype, F function)
{
    switch (dtype) {
    case WRING_FLOAT32:
        return function(float());
    case WRING_FLOAT16:
        return function(fp16());
    case WRING_BFLOAT16:
        return function(bf16());
    default:
        return wri_cuda_fail(WRING_E_UNSUPPORTED, "codecs on a device take no such type");
    }
}

/* A codec's half on the device. */
struct wri_cuda_codec {
    size_t (*scratch_nbytes)(const struct wring_stage *, size_t count); /* NULL: none */
    wring_status (*encode)(const struct wri_device_encode *);
    wring_status (*decode)(const struct wri_device_decode *);
};

#endif
