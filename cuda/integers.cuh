/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8 and int4, as src/codec/block.h draws them. A warp encodes a block: each lane holds four
 * neighbours of every 128 elements in registers from the maximum to the packing, so that source and
 * residual are read once. Blocks of more than HELD elements are read twice.
 *
 * Bytes per element, float32: int8 b128 4 read + 1.03 written; floor 0.2 of a copy's time above it.
 */
#ifndef WRI_CUDA_INTEGERS_CUH
#define WRI_CUDA_INTEGERS_CUH

#include "kernels.cuh"

struct integers {
    size_t block;
    bool random;
    struct wring_random_key key;
    uint64_t first_block;
};

static inline struct integers integers_of(const struct wri_device_encode *e)
{
    size_t block = (size_t)e->stage->param[0];
    return {block, e->stage->param[1] != 0, e->random, e->first / block};
}

/* What one block's elements are divided and multiplied by. */
struct scaling {
    float inverse, scale; /* scale NaN: the block is not finite */
};

INLINE struct scaling scaling_of(uint32_t largest, float limit)
{
    if (largest >= WRI_INFINITY_BITS)
        return {0.0f, quiet_nan()};
    if (largest < WRI_TINY_BITS)
        return {0.0f, 0.0f};
    float max = wri_bits_float(largest);
    return {limit / max, max / limit};
}

INLINE int round_nearest(float x)
{
    return (int)(wri_float_bits(x + 0x1.8p23f) - 0x4B400000u);
}
INLINE int round_random(float x, const struct wri_philox &state, uint32_t i, int limit)
{
    float t = x + (float)(int)wri_random16(state, i) * 0x1p-16f;
    int q = (int)floorf(t);
    q = q > limit ? limit : q;
    return q < -limit ? -limit : q;
}

/* Four codes of elements [i, i + 4) to their place; their padding is what zeros become. */
template <int BITS> INLINE void pack4(unsigned char *codes, size_t i, size_t count, const int q[4])
{
    if (i >= (BITS == 8 ? count : (count + 7) / 8 * 8))
        return;
    if (BITS == 8)
        *(uint32_t *)(codes + i) =
            (q[0] & 255) | (q[1] & 255) << 8 | (q[2] & 255) << 16 | (uint32_t)(q[3] & 255) << 24;
    else
        *(uint16_t *)(codes + i / 2) =
            (uint16_t)((q[0] & 15) | (q[1] & 15) << 4 | (q[2] & 15) << 8 | (q[3] & 15) << 12);
}

template <int BITS, typename S>
INLINE void quantise4(const source<S> &in, size_t i, size_t end, const float p[4],
                      const struct scaling &how, const struct wri_philox &state, bool random,
                      uint32_t index, unsigned char *codes)
{
    const int limit = (1 << (BITS - 1)) - 1;
    bool bad = how.scale != how.scale;
    int q[4];
    float rest[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float x = p[j] * how.inverse;
        q[j] = bad ? 0 : random ? round_random(x, state, index + j, limit) : round_nearest(x);
        rest[j] = bad ? quiet_nan() : p[j] - (float)q[j] * how.scale;
    }
    pack4<BITS>(codes, i, in.count, q);
    if (in.residual_out && i < end)
        store_rest(in.residual_out, i, end, rest);
}

/* Block B of the run, by one warp; VECTORS times 128 elements are held. */
template <int BITS, int VECTORS, typename S>
INLINE bool encode_block(const source<S> &in, const struct integers &how, uint64_t step, size_t b,
                         unsigned char *dst)
{
    const size_t held = (size_t)VECTORS * 128;
    size_t begin = b * how.block, left = in.count - begin;
    size_t n = left < how.block ? left : how.block, end = begin + n;
    float p[VECTORS][4];
    uint32_t largest = 0;
    for (size_t from = 0; from < n; from += held)
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            size_t i = from + v * 128 + lane_id() * 4;
            if (i < n)
                fetch4(in, begin + i, p[v]);
#pragma unroll
            for (int j = 0; j < 4 && i < n; j++) {
                uint32_t m = magnitude(p[v][j]);
                largest = m > largest ? m : largest;
            }
        }
    struct scaling scale = scaling_of(warp_max(largest), (float)((1 << (BITS - 1)) - 1));
    unsigned char *codes = dst + div_up(in.count, how.block) * sizeof(float);
    if (lane_id() == 0)
        ((float *)dst)[b] = scale.scale;
    struct wri_philox state = {};
    struct wring_random_key key = how.key;
    key.step = step;
    if (how.random)
        state = wri_random_block(&key, how.first_block + b);
    for (size_t from = 0; from < n; from += held)
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            size_t i = from + v * 128 + lane_id() * 4;
            if (i >= (n + 7) / 8 * 8)
                continue;
            if (n > held || i >= n)
                fetch4(in, begin + i, p[v]);
            quantise4<BITS>(in, begin + i, end, p[v], scale, state, how.random, (uint32_t)i, codes);
        }
    return scale.scale != scale.scale;
}

/* All blocks of a run, by warps FIRST, FIRST + STRIDE, ... */
template <int BITS, int VECTORS, typename S>
INLINE void encode_integers(const source<S> &in, const struct integers &how, uint64_t step,
                            unsigned char *dst, struct wri_verdict *verdict, size_t first,
                            size_t stride)
{
    bool bad = false;
    size_t blocks = div_up(in.count, how.block);
    for (size_t b = first; b < blocks; b += stride)
        bad |= encode_block<BITS, VECTORS>(in, how, step, b, dst);
    note_nonfinite(verdict, bad);
}

template <int BITS, int VECTORS, typename S>
__global__ void __launch_bounds__(256, 2)
    encode_integers_kernel(struct wri_device_encode e, struct integers how)
{
    encode_integers<BITS, VECTORS>(source_of<S>(e), how, step_of(e), (unsigned char *)e.dst,
                                   e.verdict, warp_id(), warp_count());
}

template <int BITS> static wring_status encode_integers_run(const struct wri_device_encode *e)
{
    struct integers how = integers_of(e);
    size_t blocks = div_up(div_up(e->count, how.block), 256 / WARP);
    return with_type(e->src_dtype, [&](auto type) {
        using S = decltype(type);
        auto kernel = how.block <= 128   ? encode_integers_kernel<BITS, 1, S>
                      : how.block <= 256 ? encode_integers_kernel<BITS, 2, S>
                                         : encode_integers_kernel<BITS, 8, S>;
        return launch(kernel, blocks, 256, e->stream, *e, how);
    });
}

/* Elements [i, i + 4), whose codes lie together. */
template <int BITS> INLINE void unpack4(const unsigned char *codes, size_t i, int q[4])
{
    if (BITS == 8) {
        uint32_t word = *(const uint32_t *)(codes + i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            q[j] = (int8_t)(word >> 8 * j);
    } else {
        uint32_t word = *(const uint16_t *)(codes + i / 2);
#pragma unroll
        for (int j = 0; j < 4; j++)
            q[j] = (int)((word >> 4 * j & 15) ^ 8) - 8;
    }
}

/* All elements of a run, four at a time, by threads FIRST, FIRST + STRIDE, ... */
template <int BITS, typename D>
INLINE void decode_integers(const unsigned char *src, size_t block, D *dst, size_t count, bool add,
                            bool poison, size_t first, size_t stride)
{
    const float *scales = (const float *)src;
    const unsigned char *codes = src + div_up(count, block) * sizeof(float);
    for (size_t i = first * 4; i < count; i += stride * 4) {
        int q[4];
        float x[4], scale = poison ? quiet_nan() : scales[i / block];
        bool bad = magnitude(scale) >= WRI_INFINITY_BITS;
        unpack4<BITS>(codes, i, q);
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = bad ? quiet_nan() : (float)q[j] * scale;
        put4(dst, i, count, x, add && !bad);
    }
}

template <int BITS, typename D>
__global__ void __launch_bounds__(256)
    decode_integers_kernel(const unsigned char *src, size_t block, D *dst, size_t count, bool add,
                           const struct wri_verdict *verdict)
{
    decode_integers<BITS>(src, block, dst, count, add, poisoned(verdict), thread_id(),
                          thread_count());
}

template <int BITS> static wring_status decode_integers_run(const struct wri_device_decode *d)
{
    return with_type(d->dst_dtype, [&](auto type) {
        using D = decltype(type);
        return launch(decode_integers_kernel<BITS, D>, div_up(d->count, 1024), 256, d->stream,
                      (const unsigned char *)d->src, (size_t)d->stage->param[0], (D *)d->dst,
                      d->count, d->add, d->verdict);
    });
}

#endif
