/* SPDX-License-Identifier: Apache-2.0 */
/* The casts to 16-bit floats, and float32 as it is: four elements a thread, in one pass. */
#ifndef WRI_CUDA_CASTS_CUH
#define WRI_CUDA_CASTS_CUH

#include "kernels.cuh"

INLINE bool nonfinite(float x)
{
    return magnitude(x) >= WRI_INFINITY_BITS;
}
INLINE bool nonfinite(bf16 x)
{
    return (x.bits & 0x7FFFu) >= 0x7F80u;
}
INLINE bool nonfinite(fp16 x)
{
    return (x.bits & 0x7FFFu) >= 0x7C00u;
}

/* Elements [i, i + 4) to an encoded array, 16-bit ones with the zero that fills up a word. */
INLINE void store_words(float *dst, size_t i, size_t count, const float x[4])
{
    store_rest(dst, i, count, x);
}
template <typename H> INLINE void store_words(H *dst, size_t i, size_t count, const float x[4])
{
    store_rest(dst, i, (count + 1) / 2 * 2, x);
}

/* All elements of a run as type T, by threads FIRST, FIRST + STRIDE, ... */
template <typename T, typename S>
INLINE void encode_casts(const source<S> &in, T *dst, struct wri_verdict *verdict, size_t first,
                         size_t stride)
{
    bool bad = false;
    for (size_t i = first * 4; i < in.count; i += stride * 4) {
        float p[4], rest[4];
        fetch4(in, i, p);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            T cast;
            if (in.residual_in)
                p[j] = canonical(p[j]);
            from_float(&cast, p[j]);
            bad |= nonfinite(cast);
            rest[j] = canonical(p[j] - to_float(cast));
        }
        store_words(dst, i, in.count, p);
        if (in.residual_out)
            store_rest(in.residual_out, i, in.count, rest);
    }
    note_nonfinite(verdict, bad);
}

template <typename T, typename S>
__global__ void __launch_bounds__(256) encode_casts_kernel(struct wri_device_encode e)
{
    encode_casts(source_of<S>(e), (T *)e.dst, e.verdict, thread_id(), thread_count());
}

template <typename T> static wring_status encode_casts_run(const struct wri_device_encode *e)
{
    return with_type(e->src_dtype, [&](auto type) {
        return launch(encode_casts_kernel<T, decltype(type)>, div_up(e->count, 1024), 256,
                      e->stream, *e);
    });
}

template <typename T, typename D>
INLINE void decode_casts(const T *src, D *dst, size_t count, bool add, bool poison, size_t first,
                         size_t stride)
{
    for (size_t i = first * 4; i < count; i += stride * 4) {
        float x[4];
        load_rest(src, i, count, x);
#pragma unroll
        for (int j = 0; j < 4 && poison; j++)
            x[j] = quiet_nan();
        put4(dst, i, count, x, add);
    }
}

template <typename T, typename D>
__global__ void __launch_bounds__(256)
    decode_casts_kernel(const T *src, D *dst, size_t count, bool add,
                        const struct wri_verdict *verdict)
{
    decode_casts(src, dst, count, add, poisoned(verdict), thread_id(), thread_count());
}

template <typename T> static wring_status decode_casts_run(const struct wri_device_decode *d)
{
    return with_type(d->dst_dtype, [&](auto type) {
        using D = decltype(type);
        return launch(decode_casts_kernel<T, D>, div_up(d->count, 1024), 256, d->stream,
                      (const T *)d->src, (D *)d->dst, d->count, d->add, d->verdict);
    });
}

#endif
