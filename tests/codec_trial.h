/* SPDX-License-Identifier: Apache-2.0 */
/* What a codec test runs: buffers that end at a page that must not be touched, data, one chain for
 * each way in which a codec of the registry can be used, and a trial: one run there and back. */
#ifndef TESTS_CODEC_TRIAL_H
#define TESTS_CODEC_TRIAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "simd/array.h"
#include "simd/float16.h"
#include "simd/kernels.h"

#define AREA ((size_t)32 << 20)
#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* ---- buffers ------------------------------------------------------------------------------- */

enum area { SRC, ENCODED, DECODED, SUMMED, FED, RESIDUAL, WORK, OTHER, AREAS };
static unsigned char *area_end[AREAS];

static int map_areas(void **state)
{
    (void)state;
    for (int i = 0; i < AREAS; i++) {
        unsigned char *map = mmap(NULL, AREA + (size_t)getpagesize(), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED || mprotect(map + AREA, (size_t)getpagesize(), PROT_NONE) != 0)
            return -1;
        area_end[i] = map + AREA;
    }
    return 0;
}

/* The last NBYTES of an area: one byte more is a fault. */
static void *at_end(enum area area, size_t nbytes)
{
    assert_true(nbytes <= AREA);
    return area_end[area] - nbytes;
}

/* ---- data ---------------------------------------------------------------------------------- */

static uint32_t word(size_t i)
{
    struct wri_philox counter = {{(uint32_t)i, 0, 0, 0}};
    return wri_philox4x32_10(counter, 5, 9).word[0];
}

static float ordinary(size_t i)
{
    return ((float)(word(i) >> 8) * 0x1p-23f - 1) * ((float)(word(i) & 255) * 0x1p-12f + 0x1p-9f);
}

static float zero(size_t i)
{
    (void)i;
    return 0;
}

static float alternating(size_t i)
{
    return i % 2 ? -9.0f : 9.0f;
}

static float denormal(size_t i)
{
    return wri_bits_float(word(i) & 0x807FFFFFu);
}

typedef float data_fn(size_t);
static data_fn *const data_sets[] = {ordinary, zero, alternating, denormal};

/* ---- chains -------------------------------------------------------------------------------- */

static wring_codec *chains[64];
static size_t nchains;

static void add_chain(const char *before, const char *name)
{
    char spec[64];
    snprintf(spec, sizeof(spec), "%s%s", before, name);
    assert_true(nchains < LENGTH(chains));
    assert_int_equal(wri_codec_create(spec, &chains[nchains++]), WRING_OK);
}

static int make_chains(void **state)
{
    static const char *const more[] = {"int8:block=32,round=stochastic",
                                       "int4:block=16384,round=stochastic",
                                       "sign:128",
                                       "topk:0.1,chunk=256,least=1",
                                       "topk:unit=tensor+int8",
                                       "topk:100%",
                                       "topk:0.1,chunk=256+int4:32,round=stochastic",
                                       "ef:beta=0.5+topk:0.05,chunk=1024+int4"};
    const struct wring_codec_ops *ops;
    for (size_t i = 0; (ops = wri_codec_at(i)); i++)
        if (ops->order == WRING_ORDER_QUANTISER) {
            add_chain("", ops->name);
            add_chain("ef+", ops->name);
            add_chain("topk:0.01+", ops->name);
            add_chain("ef+topk:0.01+", ops->name);
        }
    for (size_t i = 0; i < LENGTH(more); i++)
        add_chain("", more[i]);
    return map_areas(state);
}

static int destroy_chains(void **state)
{
    (void)state;
    while (nchains > 0)
        wri_codec_destroy(chains[--nchains]);
    return 0;
}

static bool selects(const wring_codec *codec)
{
    return codec->stage[0].ops->order == WRING_ORDER_SELECTION;
}

/* ---- one run ------------------------------------------------------------------------------- */

struct trial {
    const wring_codec *codec;
    wring_dtype dtype;
    size_t count, nbytes;
    const void *src;
    float *fed; /* what is encoded, as float32: source and beta * residual */
    unsigned char *encoded;
    float *decoded, *residual;
    bool nonfinite;
};

static wring_status encode_part(const struct trial *t, size_t first, size_t count, void *dst,
                                bool *nonfinite)
{
    size_t size = wring_dtype_size(t->dtype);
    size_t scratch = wri_codec_scratch_nbytes(t->codec, t->dtype, count);
    struct wri_encode_run run = {
        .codec = t->codec,
        .dtype = t->dtype,
        .src_dtype = t->dtype,
        .src = (const char *)t->src + first * size,
        .count = count,
        .residual_in = t->codec->feedback ? t->residual + first : NULL,
        .residual_out = t->residual + first,
        .random = {.seed = 1, .tensor = 2, .step = 3, .rank = 4},
        .first = first,
        .dst = dst,
        .scratch = at_end(WORK, wri_round_up(scratch, WRI_ALIGN)),
    };
    wring_status status = wri_codec_encode_run(&run);
    *nonfinite |= run.nonfinite;
    return status;
}

static wring_status decode_part(const struct trial *t, const void *src, size_t nbytes, float *dst,
                                size_t count, bool add)
{
    size_t scratch = wri_codec_scratch_nbytes(t->codec, t->dtype, count);
    struct wri_decode_run run = {
        .codec = t->codec,
        .dtype = t->dtype,
        .dst_dtype = WRING_FLOAT32,
        .src = src,
        .nbytes = nbytes,
        .dst = dst,
        .count = count,
        .add = add,
        .op = WRING_SUM,
        .scratch = at_end(WORK, wri_round_up(scratch, WRI_ALIGN)),
    };
    return wri_codec_decode_run(&run);
}

static void feed_residual(struct trial *t)
{
    for (size_t i = 0; i < t->count; i++) {
        t->residual[i] = t->codec->feedback ? ordinary(i + 77) * 0x1p-10f : 0;
        if (t->codec->feedback)
            t->fed[i] += t->codec->beta * t->residual[i];
    }
}

/* Lay out a trial of VALUES in its type. */
static struct trial prepare(const wring_codec *codec, wring_dtype dtype, data_fn *values,
                            size_t count)
{
    struct trial t = {.codec = codec, .dtype = dtype, .count = count};
    size_t floats = count * sizeof(float), typed = count * wring_dtype_size(dtype);
    t.fed = at_end(FED, floats);
    t.residual = at_end(RESIDUAL, floats);
    t.decoded = at_end(DECODED, floats);
    t.src = at_end(SRC, typed);
    t.nbytes = wri_codec_nbytes(codec, dtype, count);
    t.encoded = at_end(ENCODED, t.nbytes);
    for (size_t i = 0; i < count; i++)
        t.fed[i] = values(i);
    wri_array_convert(dtype, at_end(SRC, typed), WRING_FLOAT32, t.fed, count);
    wri_array_convert(WRING_FLOAT32, t.fed, dtype, t.src, count);
    return t;
}

static void encode(struct trial *t, int poison)
{
    memset(t->encoded, poison, t->nbytes);
    assert_int_equal(encode_part(t, 0, t->count, t->encoded, &t->nonfinite), WRING_OK);
}

static void decode(struct trial *t)
{
    memset(t->decoded, 0xA5, t->count * sizeof(float));
    assert_int_equal(decode_part(t, t->encoded, t->nbytes, t->decoded, t->count, false), WRING_OK);
}

static struct trial run_trial(const wring_codec *codec, wring_dtype dtype, data_fn *values,
                              size_t count)
{
    struct trial t = prepare(codec, dtype, values, count);
    feed_residual(&t);
    encode(&t, 0xA5);
    decode(&t);
    return t;
}

#endif
