/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sign, as src/codec/block.h draws it. A warp encodes a block, in groups of 128: lane l holds
 * elements l, l + 32, l + 64 and l + 96, so that a ballot is a word of codes, and the first two
 * steps of the halving tree stay within the lane. A group's four loads are each one line.
 */
#ifndef WRI_CUDA_SIGNS_CUH
#define WRI_CUDA_SIGNS_CUH

#include "kernels.cuh"

#define GROUPS_HELD 8 /* of a block of 1024; more are read again for the residual */

/* p of the group at BEGIN; zeros from END on. */
template <typename S>
INLINE void fetch_group(const source<S> &in, size_t begin, size_t end, float p[4])
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        size_t i = begin + w * WARP + lane_id();
        p[w] = i < end ? fetch1(in, i) : 0.0f;
    }
}

/* Sum of |p| over a group, in every lane. */
INLINE float group_sum(const float p[4])
{
    float low = wri_bits_float(magnitude(p[0])) + wri_bits_float(magnitude(p[2]));
    float high = wri_bits_float(magnitude(p[1])) + wri_bits_float(magnitude(p[3]));
    return warp_tree_sum(low + high);
}

/* Write the signs of the group that begins at element AT; all zero if CLEAR. */
INLINE void store_signs(unsigned char *codes, size_t at, size_t end, const float p[4], bool clear)
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        unsigned word = __ballot_sync(ALL, p[w] < 0.0f);
        if (lane_id() == 0 && at + w * WARP < end)
            *(uint32_t *)(codes + (at + w * WARP) / 8) = clear ? 0 : word;
    }
}

template <typename S>
INLINE void store_group_residual(const source<S> &in, size_t begin, size_t end, const float p[4],
                                 float scale)
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        size_t i = begin + w * WARP + lane_id();
        float decoded = p[w] < 0.0f && scale != 0.0f ? -scale : scale;
        if (i < end)
            in.residual_out[i] = scale != scale ? quiet_nan() : p[w] - decoded;
    }
}

/* The block's scale; lane l has summed groups l, l + 32, l + 64 and l + 96. */
INLINE float sign_scale(const double sums[4], size_t n)
{
    double sum = warp_tree_sum((sums[0] + sums[2]) + (sums[1] + sums[3]));
    float scale = (float)(sum / (double)n);
    if (wri_float_bits(scale) >= WRI_INFINITY_BITS)
        return quiet_nan();
    return wri_float_bits(scale) < WRI_TINY_BITS ? 0.0f : scale;
}

/* Block B of the run, by one warp; true if it is not finite. */
template <typename S>
INLINE bool encode_sign_block(const source<S> &in, size_t block, size_t b, unsigned char *dst)
{
    size_t begin = b * block, left = in.count - begin;
    size_t n = left < block ? left : block, end = begin + n;
    unsigned char *codes = dst + div_up(in.count, block) * sizeof(float);
    float held[GROUPS_HELD][4];
    double sums[4] = {0, 0, 0, 0};
    for (size_t from = 0; from < n; from += GROUPS_HELD * WRI_SUM_GROUP)
#pragma unroll
        for (int g = 0; g < GROUPS_HELD; g++) {
            size_t at = from + g * WRI_SUM_GROUP, number = at / WRI_SUM_GROUP;
            if (at >= n)
                break;
            fetch_group(in, begin + at, end, held[g]);
            store_signs(codes, begin + at, end, held[g], false);
            double sum = (double)group_sum(held[g]);
#pragma unroll
            for (int part = 0; part < 4; part++)
                if (number / WARP == (size_t)part && number % WARP == lane_id())
                    sums[part] = sum;
        }
    float scale = sign_scale(sums, n);
    if (lane_id() == 0)
        ((float *)dst)[b] = scale;
    bool clear = !(scale > 0.0f);
    for (size_t from = 0; (clear || in.residual_out) && from < n;
         from += GROUPS_HELD * WRI_SUM_GROUP)
#pragma unroll
        for (int g = 0; g < GROUPS_HELD; g++) {
            size_t at = from + g * WRI_SUM_GROUP;
            if (at >= n)
                break;
            if (n > GROUPS_HELD * WRI_SUM_GROUP)
                fetch_group(in, begin + at, end, held[g]);
            if (clear)
                store_signs(codes, begin + at, end, held[g], true);
            if (in.residual_out)
                store_group_residual(in, begin + at, end, held[g], scale);
        }
    return scale != scale;
}

template <typename S>
INLINE void encode_signs(const source<S> &in, size_t block, unsigned char *dst,
                         struct wri_verdict *verdict, size_t first, size_t stride)
{
    bool bad = false;
    size_t blocks = div_up(in.count, block);
    for (size_t b = first; b < blocks; b += stride)
        bad |= encode_sign_block(in, block, b, dst);
    note_nonfinite(verdict, bad);
}

template <typename S>
__global__ void __launch_bounds__(256, 2)
    encode_signs_kernel(struct wri_device_encode e, size_t block)
{
    encode_signs(source_of<S>(e), block, (unsigned char *)e.dst, e.verdict, warp_id(),
                 warp_count());
}

template <typename D>
INLINE void decode_signs(const unsigned char *src, size_t block, D *dst, size_t count, bool add,
                         bool poison, size_t first, size_t stride)
{
    const float *scales = (const float *)src;
    const unsigned char *codes = src + div_up(count, block) * sizeof(float);
    for (size_t i = first * 4; i < count; i += stride * 4) {
        float x[4], scale = poison ? quiet_nan() : scales[i / block];
        bool bad = magnitude(scale) >= WRI_INFINITY_BITS;
        uint32_t bits = *(const uint32_t *)(codes + i / WARP * 4) >> i % WARP;
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] =
                bad ? quiet_nan() : wri_bits_float(wri_float_bits(scale) ^ (bits >> j & 1) << 31);
        put4(dst, i, count, x, add && !bad);
    }
}

template <typename D>
__global__ void __launch_bounds__(256)
    decode_signs_kernel(const unsigned char *src, size_t block, D *dst, size_t count, bool add,
                        const struct wri_verdict *verdict)
{
    decode_signs(src, block, dst, count, add, poisoned(verdict), thread_id(), thread_count());
}

#endif
