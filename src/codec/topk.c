/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topk: the k elements of largest magnitude of each chunk, encoded by the rest of the chain; the
 * others are decoded as zero and stay in the residual (Aji and Heafield, EMNLP 2017; in chunks, as
 * here, ScaleCom, NeurIPS 2020).
 *
 *     tensor: | chunk 0 | chunk 1 | ... | last chunk, may be shorter |
 *     wire:   | record  | record  | ... | record                     |
 *     record: | indices of n elements (indices.c) | next stage's encoding of the k values |
 *
 *     k(n) = ratio * n rounded to nearest, halves up, but at least `least`, at most n
 *
 * The floor is for biases and other small tensors: one per cent of them would arrive a hundred
 * steps late, which a momentum optimizer does not forgive, and all of them cost next to nothing.
 *
 * Error: that of the next stage on the k values; all others are at most as large as the smallest
 * of these. Chosen exactly, of equal ones the first; NaN and Inf are larger than all numbers, so
 * that a chunk that holds one sends one.
 */
#include "codec/codec.h"
#include "base/memory.h"
#include "base/status.h"
#include "codec/indices.h"
#include "codec/select.h"
#include "simd/kernels.h"
#include <math.h>
#include <string.h>

enum { RATIO, UNIT, CHUNK, LEAST };
enum { UNIT_CHUNK, UNIT_TENSOR };

static const struct wring_param params[] = {
    {.name = "ratio",
     .help = "fraction of the elements that is sent, also as 1%",
     .def = 0.01,
     .min = 1e-9,
     .max = 1},
    {.name = "unit", .help = "what the largest are chosen from", .choices = "chunk tensor"},
    {.name = "chunk",
     .help = "elements of a chunk, a power of two",
     .def = 16384,
     .min = 256,
     .max = 65536,
     .integer = true},
    {.name = "least",
     .help = "elements sent of a chunk at the least",
     .def = 32,
     .min = 1,
     .max = 65536,
     .integer = true},
};

static wring_status check(const struct wring_stage *stage)
{
    size_t chunk = (size_t)stage->param[CHUNK];
    if (chunk & (chunk - 1))
        WRI_FAIL(WRING_E_SPEC, "chunk is not a power of two: %zu", chunk);
    return WRING_OK;
}

static size_t unit(const struct wring_stage *stage)
{
    return stage->param[UNIT] == UNIT_TENSOR ? SIZE_MAX : (size_t)stage->param[CHUNK];
}

/* How many of N elements are sent. */
static size_t kept(const struct wring_stage *stage, size_t n)
{
    size_t k = (size_t)floor(stage->param[RATIO] * (double)n + 0.5);
    size_t least = (size_t)stage->param[LEAST];
    return wri_min(k < least ? least : k, n);
}

static size_t record_nbytes(const struct wring_stage *stage, size_t n)
{
    size_t k = kept(stage, n);
    return wri_indices_layout(n, k).nbytes + wri_stage_nbytes(stage->next, k);
}

static size_t nbytes(const struct wring_stage *stage, size_t count)
{
    if (count == 0)
        return 0;
    size_t chunk = wri_min(unit(stage), count), rest = count % chunk;
    return count / chunk * record_nbytes(stage, chunk) + (rest ? record_nbytes(stage, rest) : 0);
}

/* Working memory of one chunk. */
struct work {
    struct wri_selection selection;
    size_t *position; /* k */
    float *value;     /* k */
    float *lost;      /* k: what the next stage loses of each value */
    float *fed;       /* n: the chunk with its residual */
    void *next;       /* scratch of the next stage */
};

/* Lay the work on chunks of N elements out over SCRATCH (NULL: only measure); bytes. */
static size_t lay_out(const struct wring_stage *stage, size_t n, void *scratch, struct work *work)
{
    struct wri_arena arena = {.base = scratch, .capacity = SIZE_MAX};
    size_t k = kept(stage, n);
    work->position = wri_arena_take(&arena, k, sizeof(*work->position));
    work->value = wri_arena_take(&arena, k, sizeof(*work->value));
    work->lost = wri_arena_take(&arena, k, sizeof(*work->lost));
    work->fed = wri_arena_take(&arena, n, sizeof(*work->fed));
    work->selection = (struct wri_selection){
        .keys = wri_arena_take(&arena, n, sizeof(uint32_t)),
        .bitmap = wri_arena_take(&arena, wri_div_up(n, 32), sizeof(uint32_t)),
    };
    work->next = wri_arena_take(&arena, wri_stage_scratch_nbytes(stage->next, k), 1);
    return arena.used;
}

static size_t scratch_nbytes(const struct wring_stage *stage, size_t count)
{
    struct work work;
    return count ? lay_out(stage, wri_min(unit(stage), count), NULL, &work) : 0;
}

/* The N elements from START on, with their residual: where they lie, or made in the new residual if
 * one is wanted, since that is what most of it will be. */
static const float *feed(const struct wring_encode *e, size_t start, size_t n, float *fed)
{
    struct wri_source source = {.src = e->src + start, .beta = e->beta, .count = n};
    if (!e->residual_in && !e->residual_out)
        return source.src;
    if (e->residual_in)
        source.residual_in = e->residual_in + start;
    if (e->residual_out)
        fed = e->residual_out + start;
    wri_kernels()->store_f32(&source, fed);
    return fed;
}

/* Encode the N elements from START on to DST. */
static wring_status encode_chunk(struct wring_encode *e, struct work *work, size_t start, size_t n,
                                 unsigned char *dst)
{
    const struct wri_indices layout = wri_indices_layout(n, kept(e->stage, n));
    const float *p = feed(e, start, n, work->fed);
    wri_select_largest(&work->selection, p, n, layout.k, work->position);
    wri_indices_write(&layout, work->position, dst);
    for (size_t j = 0; j < layout.k; j++)
        work->value[j] = p[work->position[j]];

    struct wring_encode next = *e;
    next.stage = e->stage->next;
    next.src = work->value;
    next.count = layout.k;
    next.residual_in = NULL;
    next.residual_out = e->residual_out ? work->lost : NULL;
    next.first = e->first + start;
    next.dst = dst + layout.nbytes;
    next.scratch = work->next;
    WRI_TRY(next.stage->ops->encode(&next));
    e->nonfinite |= next.nonfinite;
    for (size_t j = 0; e->residual_out && j < layout.k; j++)
        e->residual_out[start + work->position[j]] = work->lost[j];
    return WRING_OK;
}

static wring_status encode(struct wring_encode *e)
{
    struct work work;
    size_t chunk = wri_min(unit(e->stage), e->count);
    unsigned char *dst = e->dst;
    lay_out(e->stage, chunk, e->scratch, &work);
    for (size_t start = 0; start < e->count; start += chunk) {
        size_t n = wri_min(chunk, e->count - start);
        WRI_TRY(encode_chunk(e, &work, start, n, dst));
        dst += record_nbytes(e->stage, n);
    }
    return WRING_OK;
}

/* A sum that is NaN gets the bits that all of wring's sums have: which of two it would inherit
 * depends on the compiler. */
static void scatter(float *dst, const size_t *position, const float *value, size_t k, bool add)
{
    for (size_t j = 0; j < k; j++) {
        float sum = dst[position[j]] + value[j];
        dst[position[j]] = !add ? value[j] : sum == sum ? sum : NAN;
    }
}

/* Decode the record of N elements at SRC into DST. */
static wring_status decode_chunk(const struct wring_decode *d, const struct work *work,
                                 const unsigned char *src, float *dst, size_t n)
{
    const struct wri_indices layout = wri_indices_layout(n, kept(d->stage, n));
    WRI_TRY(wri_indices_read(&layout, src, work->position));
    struct wring_decode next = *d;
    next.stage = d->stage->next;
    next.src = src + layout.nbytes;
    next.nbytes = wri_stage_nbytes(next.stage, layout.k);
    next.dst = work->value;
    next.count = layout.k;
    next.add = false;
    next.scratch = work->next;
    WRI_TRY(next.stage->ops->decode(&next));
    if (!d->add)
        memset(dst, 0, n * sizeof(*dst));
    scatter(dst, work->position, work->value, layout.k, d->add);
    return WRING_OK;
}

static wring_status decode(const struct wring_decode *d)
{
    struct work work;
    size_t chunk = wri_min(unit(d->stage), d->count);
    const unsigned char *src = d->src;
    if (d->nbytes != nbytes(d->stage, d->count))
        WRI_FAIL(WRING_E_CORRUPT, "topk: %zu bytes for %zu elements", d->nbytes, d->count);
    lay_out(d->stage, chunk, d->scratch, &work);
    for (size_t start = 0; start < d->count; start += chunk) {
        size_t n = wri_min(chunk, d->count - start);
        WRI_TRY(decode_chunk(d, &work, src, d->dst + start, n));
        src += record_nbytes(d->stage, n);
    }
    return WRING_OK;
}

const struct wring_codec_ops wri_codec_topk = {
    .size = sizeof(wri_codec_topk),
    .name = "topk",
    .summary = "the largest elements of each chunk, with their indices",
    .wire_id = 40,
    .order = WRING_ORDER_SELECTION,
    .size_class = WRING_SIZE_FIXED,
    .params = params,
    .nparams = sizeof(params) / sizeof(*params),
    .unit = unit,
    .nbytes = nbytes,
    .scratch_nbytes = scratch_nbytes,
    .encode = encode,
    .decode = decode,
    .check = check,
};
