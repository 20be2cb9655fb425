/* SPDX-License-Identifier: Apache-2.0 */
/* Whole arrays of every type: the device's half of src/simd/array.c. */
#include "table.h"
#include "casts.cuh"

/* ---- convert --------------------------------------------------------------------------------- */

INLINE double canonical(double x)
{
    return x == x ? x : __longlong_as_double(0x7FF8000000000000ll);
}
INLINE bool nonfinite(double x)
{
    return !(fabs(x) <= 0x1.fffffffffffffp1023);
}

/* A block of a float type moves as four elements; the exact bits of a copy are kept. */
template <typename D, typename S>
__global__ void __launch_bounds__(256)
    convert_kernel(D *dst, const S *src, size_t count, float divisor, struct wri_verdict *verdict)
{
    bool poison = poisoned(verdict), bad = false;
    for (size_t i = thread_id() * 4; i < count; i += thread_count() * 4) {
        float x[4];
        load_rest(src, i, count, x);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            D written;
            if (divisor != 0.0f)
                x[j] = canonical(x[j] / divisor);
            if (poison)
                x[j] = quiet_nan();
            from_float(&written, x[j]);
            bad |= nonfinite(written);
        }
        store_rest(dst, i, count, x);
    }
    if (verdict)
        note_nonfinite(verdict, bad);
}

/* The same 16-bit type on both sides: through float32 a signalling NaN would become quiet. */
template <typename H>
__global__ void __launch_bounds__(256)
    copy_halves_kernel(H *dst, const H *src, size_t count, struct wri_verdict *verdict)
{
    bool poison = poisoned(verdict), bad = false;
    for (size_t i = thread_id(); i < count; i += thread_count()) {
        H x = src[i];
        if (poison)
            from_float(&x, quiet_nan());
        bad |= nonfinite(x);
        dst[i] = x;
    }
    if (verdict)
        note_nonfinite(verdict, bad);
}

__global__ void __launch_bounds__(256)
    copy_doubles_kernel(double *dst, const double *src, size_t count, double divisor,
                        struct wri_verdict *verdict)
{
    bool poison = poisoned(verdict), bad = false;
    for (size_t i = thread_id(); i < count; i += thread_count()) {
        double x = divisor != 0 ? canonical(src[i] / divisor) : src[i];
        x = poison ? canonical(NAN) : x;
        bad |= nonfinite(x);
        dst[i] = x;
    }
    if (verdict)
        note_nonfinite(verdict, bad);
}

template <typename D, typename S> static wring_status convert(const struct wri_device_convert *c)
{
    return launch(convert_kernel<D, S>, div_up(c->count, 1024), 256, c->stream, (D *)c->dst,
                  (const S *)c->src, c->count, (float)c->divisor, c->verdict);
}
template <typename H> static wring_status copy_halves(const struct wri_device_convert *c)
{
    return launch(copy_halves_kernel<H>, div_up(c->count, 1024), 256, c->stream, (H *)c->dst,
                  (const H *)c->src, c->count, c->verdict);
}

wring_status wri_cuda_convert(const struct wri_device_convert *c)
{
    int pair = (int)c->dst_dtype * WRING_DTYPE_COUNT + (int)c->src_dtype;
    switch (pair) {
    case WRING_FLOAT32 *WRING_DTYPE_COUNT + WRING_FLOAT32:
        return convert<float, float>(c);
    case WRING_FLOAT32 *WRING_DTYPE_COUNT + WRING_FLOAT16:
        return convert<float, fp16>(c);
    case WRING_FLOAT32 *WRING_DTYPE_COUNT + WRING_BFLOAT16:
        return convert<float, bf16>(c);
    case WRING_FLOAT16 *WRING_DTYPE_COUNT + WRING_FLOAT32:
        return convert<fp16, float>(c);
    case WRING_BFLOAT16 *WRING_DTYPE_COUNT + WRING_FLOAT32:
        return convert<bf16, float>(c);
    case WRING_FLOAT16 *WRING_DTYPE_COUNT + WRING_FLOAT16:
        return copy_halves<fp16>(c);
    case WRING_BFLOAT16 *WRING_DTYPE_COUNT + WRING_BFLOAT16:
        return copy_halves<bf16>(c);
    case WRING_FLOAT64 *WRING_DTYPE_COUNT + WRING_FLOAT64:
        return launch(copy_doubles_kernel, div_up(c->count, 1024), 256, c->stream, (double *)c->dst,
                      (const double *)c->src, c->count, c->divisor, c->verdict);
    default:
        break;
    }
    if (c->dst_dtype != c->src_dtype)
        return wri_cuda_fail(WRING_E_INTERNAL, "no conversion between types %d and %d",
                             (int)c->src_dtype, (int)c->dst_dtype);
    if (c->dst != c->src)
        CUDA_TRY(cudaMemcpyAsync(c->dst, c->src, c->count * wri_cuda_dtype_size(c->dst_dtype),
                                 cudaMemcpyDeviceToDevice, (cudaStream_t)c->stream),
                 "copy");
    return WRING_OK;
}

/* ---- reduce ---------------------------------------------------------------------------------- */

struct sum {
    template <typename T> static __device__ T of(T a, T b)
    {
        return (T)(a + b);
    }
    static __device__ float of(float a, float b)
    {
        return canonical(a + b);
    }
    static __device__ double of(double a, double b)
    {
        return canonical(a + b);
    }
    static __device__ int32_t of(int32_t a, int32_t b)
    {
        return (int32_t)((uint32_t)a + (uint32_t)b);
    }
    static __device__ int64_t of(int64_t a, int64_t b)
    {
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
};

/* NaN wins; of equal values the bits are combined, so that -0 is less than +0. */
template <typename T> INLINE bool unordered(T a, T b)
{
    return !(a <= b || a >= b);
}
template <typename T> INLINE T meet_or(T a, T)
{
    return a;
}
INLINE float meet_or(float a, float b)
{
    return wri_bits_float(wri_float_bits(a) | wri_float_bits(b));
}
INLINE double meet_or(double a, double b)
{
    return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
}
template <typename T> INLINE T meet_and(T a, T)
{
    return a;
}
INLINE float meet_and(float a, float b)
{
    return wri_bits_float(wri_float_bits(a) & wri_float_bits(b));
}
INLINE double meet_and(double a, double b)
{
    return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
}
struct smaller {
    template <typename T> static __device__ T of(T a, T b)
    {
        if (unordered(a, b))
            return sum::of(a, b); /* a NaN, the one that all computed ones are */
        return a < b ? a : b < a ? b : meet_or(a, b);
    }
};
struct larger {
    template <typename T> static __device__ T of(T a, T b)
    {
        if (unordered(a, b))
            return sum::of(a, b); /* a NaN, the one that all computed ones are */
        return a > b ? a : b > a ? b : meet_and(a, b);
    }
};

/* An element of the source in the accumulator's type. */
INLINE float widen(fp16 x)
{
    return to_float(x);
}
INLINE float widen(bf16 x)
{
    return to_float(x);
}
template <typename T> INLINE T widen(T x)
{
    return x;
}

template <typename Op, typename A, typename S>
__global__ void __launch_bounds__(256) reduce_kernel(A *acc, const S *src, size_t count)
{
    for (size_t i = thread_id(); i < count; i += thread_count())
        acc[i] = Op::of(acc[i], widen(src[i]));
}

template <typename A, typename S>
static wring_status reduce(wring_op op, void *acc, const void *src, size_t count, void *stream)
{
    auto kernel = op == WRING_MIN   ? reduce_kernel<smaller, A, S>
                  : op == WRING_MAX ? reduce_kernel<larger, A, S>
                                    : reduce_kernel<sum, A, S>;
    return launch(kernel, div_up(count, 1024), 256, stream, (A *)acc, (const S *)src, count);
}

wring_status wri_cuda_reduce(wring_op op, wring_dtype acc_dtype, void *acc, wring_dtype src_dtype,
                             const void *src, size_t count, void *stream)
{
    if (acc_dtype == WRING_FLOAT32 && src_dtype == WRING_FLOAT16)
        return reduce<float, fp16>(op, acc, src, count, stream);
    if (acc_dtype == WRING_FLOAT32 && src_dtype == WRING_BFLOAT16)
        return reduce<float, bf16>(op, acc, src, count, stream);
    if (acc_dtype != src_dtype)
        return wri_cuda_fail(WRING_E_INTERNAL, "no reduction of type %d into %d", (int)src_dtype,
                             (int)acc_dtype);
    switch (acc_dtype) {
    case WRING_FLOAT32:
        return reduce<float, float>(op, acc, src, count, stream);
    case WRING_FLOAT64:
        return reduce<double, double>(op, acc, src, count, stream);
    case WRING_INT8:
        return reduce<int8_t, int8_t>(op, acc, src, count, stream);
    case WRING_UINT8:
        return reduce<uint8_t, uint8_t>(op, acc, src, count, stream);
    case WRING_INT32:
        return reduce<int32_t, int32_t>(op, acc, src, count, stream);
    case WRING_INT64:
        return reduce<int64_t, int64_t>(op, acc, src, count, stream);
    default:
        return wri_cuda_fail(WRING_E_INTERNAL, "no sums are kept in type %d", (int)acc_dtype);
    }
}

/* ---- weigh ----------------------------------------------------------------------------------- */

template <typename A, typename S>
__global__ void __launch_bounds__(256)
    weigh_kernel(A *acc, A scale, const S *src, A weight, size_t count)
{
    for (size_t i = thread_id(); i < count; i += thread_count())
        acc[i] = canonical(scale * acc[i] + weight * (A)widen(src[i]));
}

template <typename A, typename S>
static wring_status weigh(void *acc, double scale, const void *src, double weight, size_t count,
                          void *stream)
{
    return launch(weigh_kernel<A, S>, div_up(count, 1024), 256, stream, (A *)acc, (A)scale,
                  (const S *)src, (A)weight, count);
}

wring_status wri_cuda_weigh(wring_dtype acc_dtype, void *acc, double scale, wring_dtype src_dtype,
                            const void *src, double weight, size_t count, void *stream)
{
    if (acc_dtype == WRING_FLOAT32 && src_dtype == WRING_FLOAT32)
        return weigh<float, float>(acc, scale, src, weight, count, stream);
    if (acc_dtype == WRING_FLOAT32 && src_dtype == WRING_FLOAT16)
        return weigh<float, fp16>(acc, scale, src, weight, count, stream);
    if (acc_dtype == WRING_FLOAT32 && src_dtype == WRING_BFLOAT16)
        return weigh<float, bf16>(acc, scale, src, weight, count, stream);
    if (acc_dtype == WRING_FLOAT64 && src_dtype == WRING_FLOAT64)
        return weigh<double, double>(acc, scale, src, weight, count, stream);
    return wri_cuda_fail(WRING_E_INTERNAL, "no weighted sum of type %d into %d", (int)src_dtype,
                         (int)acc_dtype);
}

template <typename T>
__global__ void __launch_bounds__(256) scale_kernel(T *array, float factor, size_t count)
{
    for (size_t i = thread_id(); i < count; i += thread_count())
        from_float(array + i, canonical(factor * to_float(array[i])));
}

__global__ void __launch_bounds__(256)
    scale_doubles_kernel(double *array, double factor, size_t count)
{
    for (size_t i = thread_id(); i < count; i += thread_count())
        array[i] = canonical(factor * array[i]);
}

template <typename T>
static wring_status scale(void *array, double factor, size_t count, void *stream)
{
    return launch(scale_kernel<T>, div_up(count, 1024), 256, stream, (T *)array, (float)factor,
                  count);
}

wring_status wri_cuda_scale(wring_dtype dtype, void *array, double factor, size_t count,
                            void *stream)
{
    switch (dtype) {
    case WRING_FLOAT32:
        return scale<float>(array, factor, count, stream);
    case WRING_FLOAT16:
        return scale<fp16>(array, factor, count, stream);
    case WRING_BFLOAT16:
        return scale<bf16>(array, factor, count, stream);
    case WRING_FLOAT64:
        return launch(scale_doubles_kernel, div_up(count, 1024), 256, stream, (double *)array,
                      factor, count);
    default:
        return wri_cuda_fail(WRING_E_INTERNAL, "type %d is not scaled", (int)dtype);
    }
}

/* ---- squares --------------------------------------------------------------------------------- */

#define LANES WRI_SQUARES_LANES

template <typename T> INLINE double to_double(T x)
{
    return (double)to_float(x);
}
INLINE double to_double(double x)
{
    return x;
}

/* A thread is a lane of the tree, a block walks over groups. */
template <typename T>
__global__ void __launch_bounds__(LANES)
    squares_kernel(const T *src, size_t count, double *sums, size_t ngroups)
{
    WRI_SHARED(double, lane, LANES);
    for (size_t g = blockIdx.x; g < ngroups; g += gridDim.x) {
        size_t begin = g * WRI_SQUARES_GROUP, end = begin + WRI_SQUARES_GROUP;
        end = end < count ? end : count;
        double sum = 0;
        for (size_t i = begin + threadIdx.x; i < end; i += LANES) {
            double x = to_double(src[i]);
            sum = sum + x * x;
        }
        lane[threadIdx.x] = sum;
        __syncthreads();
        for (unsigned half = LANES / 2; half > 0; half /= 2) {
            if (threadIdx.x < half)
                lane[threadIdx.x] = lane[threadIdx.x] + lane[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0)
            sums[g] = lane[0];
        __syncthreads();
    }
}

template <typename T>
static wring_status squares(const void *src, size_t count, double *sums, void *stream)
{
    size_t ngroups = div_up(count, WRI_SQUARES_GROUP);
    return launch(squares_kernel<T>, ngroups, LANES, stream, (const T *)src, count, sums, ngroups);
}

wring_status wri_cuda_squares(wring_dtype dtype, const void *src, size_t count, double *sums,
                              void *stream)
{
    switch (dtype) {
    case WRING_FLOAT32:
        return squares<float>(src, count, sums, stream);
    case WRING_FLOAT16:
        return squares<fp16>(src, count, sums, stream);
    case WRING_BFLOAT16:
        return squares<bf16>(src, count, sums, stream);
    case WRING_FLOAT64:
        return squares<double>(src, count, sums, stream);
    default:
        return wri_cuda_fail(WRING_E_INTERNAL, "type %d has no norm", (int)dtype);
    }
}
