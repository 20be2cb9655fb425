/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topk as in src/codec/topk.c, one thread block a chunk, in one launch:
 *
 *   feed      the chunk with its residual goes to the new residual, or to scratch
 *   threshold the k-th largest magnitude by its digits, 11 + 10 + 10 bits, each from a histogram of
 *             those that share the digits before
 *   choose    every warp takes a stretch of the chunk; two prefix sums over warps say where its
 *             positions go, and how many of those equal to the threshold are still wanted
 *   write     index record, values through the next stage, and what that loses into the residual
 *
 * The order of threads never shows: histograms are sums, positions come out in increasing order.
 * After the feed a chunk of the default size is read from the cache. A chunk of a whole tensor is
 * still one block's work: correct, and slow.
 */
#include <math.h>

#include "casts.cuh"
#include "integers.cuh"
#include "signs.cuh"

#define THREADS 512
#define WARPS (THREADS / WARP)
#define BINS 2048

/* ---- layout, as src/codec/topk.c and indices.c have it --------------------------------------- */

enum next_kind { NEXT_NONE, NEXT_BF16, NEXT_FP16, NEXT_INT8, NEXT_INT4, NEXT_SIGN };

/* The stage that encodes the values. */
struct next_stage {
    enum next_kind kind;
    struct integers integers; /* its block also of signs */
};

/* Records of chunks of N elements, of which K are kept. */
struct record {
    size_t n, k, upper_bits, indices_nbytes, nbytes;
    unsigned low_bits;
};

struct plan {
    struct next_stage next;
    struct record whole, last;
    size_t chunks;
};

/* What one chunk needs besides; offsets into its scratch. */
struct chunk_scratch {
    uint32_t *position;
    float *value, *lost, *fed;
};

/* Bytes of it. */
static WRI_HD size_t scratch_of_chunk(const struct record &r)
{
    return (r.k * 3 + r.n + 3) / 4 * 16;
}

static struct record record_of(const struct wring_stage *stage, size_t n)
{
    struct record r = {};
    size_t k = (size_t)floor(stage->param[0] * (double)n + 0.5), least = (size_t)stage->param[3];
    k = k < least ? least : k;
    r.n = n;
    r.k = k < n ? k : n;
    if (r.k < n) {
        while (r.low_bits < 32 && ((n - 1) >> r.low_bits) - ((n - 1) >> (r.low_bits + 1)) > r.k)
            r.low_bits++;
        r.upper_bits = r.k + ((n - 1) >> r.low_bits);
        r.indices_nbytes = div_up(r.upper_bits + r.k * r.low_bits, 32) * 4;
    }
    r.nbytes = r.indices_nbytes + stage->next->ops->nbytes(stage->next, r.k);
    return r;
}

static wring_status plan_of(const struct wring_stage *stage, size_t count, struct plan *plan)
{
    static const char *const names[] = {"none", "bf16", "fp16", "int8", "int4", "sign"};
    size_t unit = stage->ops->unit(stage), chunk = unit < count ? unit : count;
    const struct wring_stage *next = stage->next;
    int kind = 0;
    while (kind <= NEXT_SIGN && strcmp(names[kind], next->ops->name) != 0)
        kind++;
    if (kind > NEXT_SIGN)
        return wri_cuda_fail(WRING_E_UNSUPPORTED, "topk on CUDA cannot be followed by %s",
                             next->ops->name);
    if (chunk > UINT32_MAX)
        return wri_cuda_fail(WRING_E_UNSUPPORTED, "topk:unit=tensor on CUDA takes 2^32 elements");
    *plan = {};
    plan->next.kind = (enum next_kind)kind;
    plan->next.integers.block = kind >= NEXT_INT8 ? (size_t)next->param[0] : 1;
    plan->next.integers.random = kind >= NEXT_INT8 && kind <= NEXT_INT4 && next->param[1] != 0;
    plan->chunks = div_up(count, chunk);
    plan->whole = record_of(stage, chunk);
    plan->last = record_of(stage, count - (plan->chunks - 1) * chunk);
    return WRING_OK;
}

static size_t scratch_nbytes(const struct wring_stage *stage, size_t count)
{
    struct plan plan;
    if (count == 0 || plan_of(stage, count, &plan) != WRING_OK)
        return 0;
    return plan.chunks * scratch_of_chunk(plan.whole);
}

INLINE struct chunk_scratch scratch_at(void *scratch, size_t chunk, const struct record &whole,
                                       const struct record &own)
{
    uint32_t *base = (uint32_t *)((unsigned char *)scratch + chunk * scratch_of_chunk(whole));
    float *values = (float *)(base + own.k);
    return {base, values, values + own.k, values + 2 * own.k};
}

/* ---- over a block ---------------------------------------------------------------------------- */

/* Sum over the threads before this one; the sum over all goes to *TOTAL. PART: WARPS + 1 words. */
INLINE uint32_t block_prefix(uint32_t x, uint32_t *part, uint32_t *total)
{
    uint32_t sum = x;
#pragma unroll
    for (unsigned with = 1; with < WARP; with *= 2) {
        uint32_t before = __shfl_up_sync(ALL, sum, with);
        sum += lane_id() >= with ? before : 0;
    }
    __syncthreads();
    if (lane_id() == WARP - 1)
        part[threadIdx.x / WARP] = sum;
    __syncthreads();
    uint32_t before = 0, all = 0;
    for (unsigned w = 0; w < WARPS; w++) {
        before += w < threadIdx.x / WARP ? part[w] : 0;
        all += part[w];
    }
    *total = all;
    return before + sum - x;
}

/* ---- threshold ------------------------------------------------------------------------------- */

/* In which of the digit's BINS the *K-th largest lies; *K becomes its rank in there. Counts come
 * from BIN, all threads get the result. */
INLINE uint32_t find_bin(const uint32_t *bin, uint32_t *part, uint32_t *found, uint32_t *k)
{
    const unsigned each = BINS / THREADS;
    uint32_t own = 0, total;
    for (unsigned j = 0; j < each; j++) /* from the top: thread 0 has the largest bins */
        own += bin[BINS - 1 - (threadIdx.x * each + j)];
    uint32_t above = block_prefix(own, part, &total);
    if (above < *k && *k <= above + own) {
        unsigned b = BINS - 1 - threadIdx.x * each;
        for (; above + bin[b] < *k; b--)
            above += bin[b];
        found[0] = b;
        found[1] = *k - above;
    }
    __syncthreads();
    *k = found[1];
    uint32_t result = found[0];
    __syncthreads();
    return result;
}

/* The K-th largest magnitude; *TIES: how many of those equal to it are among the k largest. */
INLINE uint32_t threshold(const float *p, size_t n, uint32_t k, uint32_t *ties)
{
    WRI_SHARED(uint32_t, bin, BINS);
    WRI_SHARED(uint32_t, part, WARPS + 1);
    WRI_SHARED(uint32_t, found, 2);
    uint32_t prefix = 0, mask = 0;
    for (int digit = 0; digit < 3; digit++) {
        int shift = digit == 0 ? 20 : digit == 1 ? 10 : 0;
        uint32_t width = digit == 0 ? BINS - 1 : 1023;
        for (unsigned b = threadIdx.x; b < BINS; b += THREADS)
            bin[b] = 0;
        __syncthreads();
        for (size_t i = threadIdx.x; i < n; i += THREADS) {
            uint32_t key = magnitude(p[i]);
            if ((key & mask) == prefix)
                atomicAdd(&bin[key >> shift & width], 1u);
        }
        __syncthreads();
        prefix |= find_bin(bin, part, found, &k) << shift;
        mask |= width << shift;
    }
    *ties = k;
    return prefix;
}

/* ---- choose ---------------------------------------------------------------------------------- */

/* Positions of all magnitudes above LEAST and of the first TIES equal to it, in order. */
INLINE void choose(const float *p, size_t n, uint32_t least, uint32_t ties, uint32_t *position)
{
    WRI_SHARED(uint32_t, above, WARPS);
    WRI_SHARED(uint32_t, equal, WARPS);
    unsigned warp = threadIdx.x / WARP;
    size_t stretch = div_up(div_up(n, WARPS), WARP) * WARP;
    size_t begin = warp * stretch, end = begin + stretch < n ? begin + stretch : n;
    uint32_t mine_above = 0, mine_equal = 0;
    for (size_t i = begin; i < end; i += WARP) {
        size_t at = i + lane_id();
        uint32_t key = at < end ? magnitude(p[at]) : 0;
        mine_above += __popc(__ballot_sync(ALL, at < end && key > least));
        mine_equal += __popc(__ballot_sync(ALL, at < end && key == least));
    }
    if (lane_id() == 0) {
        above[warp] = mine_above;
        equal[warp] = mine_equal;
    }
    __syncthreads();
    uint32_t out = 0, equal_before = 0;
    for (unsigned w = 0; w < warp; w++) {
        uint32_t wanted = equal_before < ties ? ties - equal_before : 0;
        out += above[w] + (equal[w] < wanted ? equal[w] : wanted);
        equal_before += equal[w];
    }
    for (size_t i = begin; i < end; i += WARP) {
        size_t at = i + lane_id();
        uint32_t key = at < end ? magnitude(p[at]) : 0, before = (1u << lane_id()) - 1;
        uint32_t ones = __ballot_sync(ALL, at < end && key == least);
        bool tie = ones >> lane_id() & 1 && equal_before + __popc(ones & before) < ties;
        uint32_t chosen = __ballot_sync(ALL, tie || (at < end && key > least));
        if (chosen >> lane_id() & 1)
            position[out + __popc(chosen & before)] = (uint32_t)at;
        out += __popc(chosen);
        equal_before += __popc(ones);
    }
    __syncthreads();
}

/* ---- indices --------------------------------------------------------------------------------- */

INLINE void write_indices(const struct record &r, const uint32_t *position, uint32_t *words)
{
    for (size_t w = threadIdx.x; w < r.indices_nbytes / 4; w += THREADS)
        words[w] = 0;
    __syncthreads();
    uint64_t mask = ((uint64_t)1 << r.low_bits) - 1;
    for (size_t j = threadIdx.x; j < r.k && r.indices_nbytes > 0; j += THREADS) {
        size_t one = (position[j] >> r.low_bits) + j, at = r.upper_bits + j * r.low_bits;
        uint64_t field = (position[j] & mask) << at % 32;
        atomicOr(&words[one / 32], 1u << one % 32);
        if ((uint32_t)field)
            atomicOr(&words[at / 32], (uint32_t)field);
        if (field >> 32)
            atomicOr(&words[at / 32 + 1], (uint32_t)(field >> 32));
    }
}

INLINE uint64_t low_field(const uint32_t *words, size_t at, unsigned low_bits)
{
    uint64_t bits = words[at / 32];
    if (at % 32 + low_bits > 32)
        bits |= (uint64_t)words[at / 32 + 1] << 32;
    return bits >> at % 32 & (((uint64_t)1 << low_bits) - 1);
}

/* Positions from a record; false in all threads if it is malformed. */
INLINE bool read_indices(const struct record &r, const uint32_t *words, uint32_t *position)
{
    WRI_SHARED(uint32_t, part, WARPS + 1);
    if (r.indices_nbytes == 0) {
        for (size_t j = threadIdx.x; j < r.k; j += THREADS)
            position[j] = (uint32_t)j;
        __syncthreads();
        return true;
    }
    size_t found = 0, upper_words = div_up(r.upper_bits, 32);
    bool good = true;
    for (size_t base = 0; base < upper_words; base += THREADS) {
        size_t w = base + threadIdx.x;
        uint32_t ones = w < upper_words ? words[w] : 0, total;
        if (w == upper_words - 1 && r.upper_bits % 32 != 0)
            ones &= (1u << r.upper_bits % 32) - 1;
        size_t j = found + block_prefix((uint32_t)__popc(ones), part, &total);
        found += total;
        for (; ones && j < r.k; ones &= ones - 1, j++) {
            uint64_t bucket = w * 32 + (size_t)__ffs((int)ones) - 1 - j;
            size_t at = r.upper_bits + j * r.low_bits;
            uint64_t index = bucket << r.low_bits;
            index |= r.low_bits ? low_field(words, at, r.low_bits) : 0;
            good = good && index < r.n;
            position[j] = (uint32_t)index;
        }
    }
    size_t used = r.upper_bits + r.k * r.low_bits;
    good = good && found == r.k && (used % 32 == 0 || words[used / 32] >> used % 32 == 0);
    if (!__syncthreads_and(good))
        return false;
    for (size_t j = threadIdx.x + 1; j < r.k; j += THREADS)
        good = good && position[j - 1] < position[j];
    return __syncthreads_and(good);
}

/* ---- values ---------------------------------------------------------------------------------- */

INLINE void encode_values(const struct next_stage &next, const source<float> &in, uint64_t step,
                          unsigned char *dst, struct wri_verdict *verdict)
{
    size_t warp = threadIdx.x / WARP, thread = threadIdx.x;
    switch (next.kind) {
    case NEXT_NONE:
        return encode_casts(in, (float *)dst, verdict, thread, THREADS);
    case NEXT_BF16:
        return encode_casts(in, (bf16 *)dst, verdict, thread, THREADS);
    case NEXT_FP16:
        return encode_casts(in, (fp16 *)dst, verdict, thread, THREADS);
    case NEXT_INT8:
        return encode_integers<8, 1>(in, next.integers, step, dst, verdict, warp, WARPS);
    case NEXT_INT4:
        return encode_integers<4, 1>(in, next.integers, step, dst, verdict, warp, WARPS);
    case NEXT_SIGN:
        return encode_signs(in, next.integers.block, dst, verdict, warp, WARPS);
    }
}

INLINE void decode_values(const struct next_stage &next, const unsigned char *src, float *dst,
                          size_t k)
{
    size_t thread = threadIdx.x, block = next.integers.block;
    switch (next.kind) {
    case NEXT_NONE:
        return decode_casts((const float *)src, dst, k, false, false, thread, THREADS);
    case NEXT_BF16:
        return decode_casts((const bf16 *)src, dst, k, false, false, thread, THREADS);
    case NEXT_FP16:
        return decode_casts((const fp16 *)src, dst, k, false, false, thread, THREADS);
    case NEXT_INT8:
        return decode_integers<8>(src, block, dst, k, false, false, thread, THREADS);
    case NEXT_INT4:
        return decode_integers<4>(src, block, dst, k, false, false, thread, THREADS);
    case NEXT_SIGN:
        return decode_signs(src, block, dst, k, false, false, thread, THREADS);
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* p of the chunk, in the new residual or in scratch. */
template <typename S>
INLINE const float *feed(const source<S> &in, size_t begin, size_t n, float *fed)
{
    if (in.residual_out)
        fed = in.residual_out + begin;
    for (size_t i = threadIdx.x; i < n; i += THREADS) {
        float p = fetch1(in, begin + i);
        fed[i] = in.residual_in ? canonical(p) : p;
    }
    __syncthreads();
    return fed;
}

template <typename S>
__global__ void __launch_bounds__(THREADS, 1)
    encode_topk_kernel(struct wri_device_encode e, struct plan plan)
{
    source<S> in = source_of<S>(e);
    for (size_t c = blockIdx.x; c < plan.chunks; c += gridDim.x) {
        const struct record &r = c + 1 < plan.chunks ? plan.whole : plan.last;
        struct chunk_scratch work = scratch_at(e.scratch, c, plan.whole, r);
        size_t begin = c * plan.whole.n;
        unsigned char *dst = (unsigned char *)e.dst + c * plan.whole.nbytes;
        const float *p = feed(in, begin, r.n, work.fed);
        uint32_t ties, least = threshold(p, r.n, (uint32_t)r.k, &ties);
        choose(p, r.n, least, ties, work.position);
        write_indices(r, work.position, (uint32_t *)dst);
        for (size_t j = threadIdx.x; j < r.k; j += THREADS)
            work.value[j] = p[work.position[j]];
        __syncthreads();
        source<float> values = {
            work.value, r.k, 0.0f, nullptr, in.residual_out ? work.lost : nullptr, 0.0f};
        struct next_stage next = plan.next;
        next.integers.key = e.random;
        next.integers.first_block = (e.first + begin) / next.integers.block;
        encode_values(next, values, step_of(e), dst + r.indices_nbytes, e.verdict);
        __syncthreads();
        for (size_t j = threadIdx.x; in.residual_out && j < r.k; j += THREADS)
            in.residual_out[begin + work.position[j]] = work.lost[j];
        __syncthreads();
    }
}

template <typename D>
__global__ void __launch_bounds__(THREADS, 1)
    decode_topk_kernel(const unsigned char *src, D *dst, struct plan plan, bool add, void *scratch,
                       struct wri_verdict *verdict, uint32_t error)
{
    bool poison = poisoned(verdict);
    for (size_t c = blockIdx.x; c < plan.chunks; c += gridDim.x) {
        const struct record &r = c + 1 < plan.chunks ? plan.whole : plan.last;
        struct chunk_scratch work = scratch_at(scratch, c, plan.whole, r);
        const unsigned char *from = src + c * plan.whole.nbytes;
        D *to = dst + c * plan.whole.n;
        bool good = read_indices(r, (const uint32_t *)from, work.position);
        if (!good && verdict && threadIdx.x == 0)
            atomicCAS(&verdict->error, 0u, error);
        bool bad = poison || !good;
        for (size_t i = threadIdx.x; (bad || !add) && i < r.n; i += THREADS)
            from_float(&to[i], bad ? quiet_nan() : 0.0f);
        if (!bad)
            decode_values(plan.next, from + r.indices_nbytes, work.value, r.k);
        __syncthreads();
        for (size_t j = threadIdx.x; !bad && j < r.k; j += THREADS) {
            D *at = &to[work.position[j]];
            from_float(at, add ? canonical(to_float(*at) + work.value[j]) : work.value[j]);
        }
        __syncthreads();
    }
}

static wring_status encode(const struct wri_device_encode *e)
{
    struct plan plan;
    wring_status status = plan_of(e->stage, e->count, &plan);
    if (status != WRING_OK)
        return status;
    return with_type(e->src_dtype, [&](auto type) {
        return launch(encode_topk_kernel<decltype(type)>, plan.chunks, THREADS, e->stream, *e,
                      plan);
    });
}

static wring_status decode(const struct wri_device_decode *d)
{
    struct plan plan;
    wring_status status = plan_of(d->stage, d->count, &plan);
    if (status != WRING_OK)
        return status;
    return with_type(d->dst_dtype, [&](auto type) {
        using D = decltype(type);
        return launch(decode_topk_kernel<D>, plan.chunks, THREADS, d->stream,
                      (const unsigned char *)d->src, (D *)d->dst, plan, d->add, d->scratch,
                      d->verdict, d->error);
    });
}

extern const struct wri_cuda_codec wri_codec_topk_cuda;

const struct wri_cuda_codec wri_codec_topk_cuda = {scratch_nbytes, encode, decode};
