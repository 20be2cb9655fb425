/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for stages and chains whichever they are: sizes of nothing, bytes of another length,
 * residuals that are only read, units for narrow residuals, and stages that fail. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "codec/codec.h"
#include "says.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))
#define COUNT ((size_t)5000)

static const char *const specs[] = {"none",          "bf16",
                                    "fp16",          "int8",
                                    "int4",          "sign",
                                    "topk:0.1",      "topk:0.1,chunk=1024+int8",
                                    "topk:50%+bf16", "topk:unit=tensor+sign"};

static float src[COUNT], back[COUNT], residual[2][COUNT];
static unsigned char *wire[2], *scratch;

static wring_codec *chain(const char *before, const char *spec)
{
    char text[64];
    wring_codec *codec;
    snprintf(text, sizeof(text), "%s%s", before, spec);
    require(wri_codec_create(text, &codec));
    return codec;
}

static int open_buffers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        src[i] = (float)(int)(i * 2654435761u % 2001) * 0.01f - 10;
        residual[0][i] = (float)(int)(i * 40503u % 201) * 0.001f - 0.1f;
    }
    return wri_alloc(1, 1 << 20, (void **)&scratch) != WRING_OK ||
           wri_alloc(1, 1 << 16, (void **)&wire[0]) != WRING_OK ||
           wri_alloc(1, 1 << 16, (void **)&wire[1]) != WRING_OK;
}

static int close_buffers(void **state)
{
    (void)state;
    wri_free(scratch);
    wri_free(wire[0]);
    wri_free(wire[1]);
    return 0;
}

static wring_status encode_run(const wring_codec *codec, wring_dtype dtype, float *residual_out,
                               void *dst)
{
    struct wri_encode_run run = {.codec = codec,
                                 .dtype = dtype,
                                 .src_dtype = dtype,
                                 .src = src,
                                 .count = COUNT,
                                 .residual_in = residual[0],
                                 .residual_out = residual_out,
                                 .dst = dst,
                                 .scratch = scratch};
    assert_true(wri_codec_scratch_nbytes(codec, dtype, COUNT) <= 1 << 20);
    assert_true(wri_codec_nbytes(codec, dtype, COUNT) <= 1 << 16);
    return wri_codec_encode_run(&run);
}

static wring_status decode_run(const wring_codec *codec, wring_dtype dtype, const void *bytes)
{
    struct wri_decode_run run = {.codec = codec,
                                 .dtype = dtype,
                                 .dst_dtype = dtype,
                                 .src = bytes,
                                 .nbytes = wri_codec_nbytes(codec, dtype, COUNT),
                                 .dst = back,
                                 .count = COUNT,
                                 .scratch = scratch};
    return wri_codec_decode_run(&run);
}

static void nothing_takes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(specs); i++) {
        wring_codec *codec = chain("", specs[i]);
        for (size_t s = 0; s < codec->nstages; s++) {
            assert_int_equal(wri_stage_nbytes(&codec->stage[s], 0), 0);
            assert_int_equal(wri_stage_scratch_nbytes(&codec->stage[s], 0), 0);
        }
        wri_codec_destroy(codec);
    }
}

/* Whoever calls a stage: bytes of another length are not its own. */
static void a_stage_refuses_another_length(void **state)
{
    (void)state;
    static const int more[] = {-4, 4, 1, -1};
    for (size_t i = 0; i < LENGTH(specs); i++) {
        wring_codec *codec = chain("", specs[i]);
        for (size_t s = 0; s < codec->nstages; s++) {
            const struct wring_stage *stage = &codec->stage[s];
            struct wring_decode decode = {.size = sizeof(decode),
                                          .stage = stage,
                                          .src = wire[0],
                                          .dst = back,
                                          .count = 100,
                                          .scratch = scratch};
            size_t right = wri_stage_nbytes(stage, 100);
            memset(back, 0xA5, sizeof(back));
            for (size_t m = 0; m < LENGTH(more); m++) {
                decode.nbytes = right + (size_t)more[m];
                assert_int_equal(stage->ops->decode(&decode), WRING_E_CORRUPT);
                assert_says(stage->ops->name);
            }
            for (size_t b = 0; b < sizeof(back); b++)
                assert_int_equal(((unsigned char *)back)[b], 0xA5);
        }
        wri_codec_destroy(codec);
    }
}

/* Which bytes are sent does not depend on whether the new residual is wanted, and an old one that
 * is only read stays what it was. */
static void the_new_residual_is_optional(void **state)
{
    (void)state;
    static float before[COUNT];
    memcpy(before, residual[0], sizeof(before));
    for (size_t i = 1; i < LENGTH(specs); i++) {
        wring_codec *codec = chain("ef+", specs[i]);
        size_t nbytes = wri_codec_nbytes(codec, WRING_FLOAT32, COUNT);
        memset(wire[0], 0x11, nbytes);
        memset(wire[1], 0x22, nbytes);
        require(encode_run(codec, WRING_FLOAT32, residual[1], wire[0]));
        require(encode_run(codec, WRING_FLOAT32, NULL, wire[1]));
        assert_memory_equal(wire[0], wire[1], nbytes);
        assert_memory_equal(residual[0], before, sizeof(before));
        wri_codec_destroy(codec);
    }
}

/* Residuals of 8 bits share exponents: no part of a tensor ends within 32 elements. */
static void units_fit_narrow_residuals(void **state)
{
    (void)state;
    static const char *const befores[] = {"ef:bits=32+", "ef:bits=16+", "ef:bits=8+"};
    for (size_t b = 0; b < LENGTH(befores); b++)
        for (size_t i = 1; i < LENGTH(specs); i++) {
            wring_codec *plain = chain("", specs[i]), *codec = chain(befores[b], specs[i]);
            size_t own = wri_codec_unit(plain, COUNT), unit = wri_codec_unit(codec, COUNT);
            bool whole = wri_codec_whole_unit(codec);
            assert_int_equal(whole, strstr(specs[i], "unit=tensor") != NULL);
            assert_int_equal(unit % own, 0);
            if (whole || b < 2)
                assert_int_equal(unit, own);
            else
                assert_int_equal(unit % 32, 0);
            assert_true(unit == own || unit <= 32 * own);
            wri_codec_destroy(plain);
            wri_codec_destroy(codec);
        }
}

/* ---- stages that fail ------------------------------------------------------------------------ */

static int calls_before_it_fails;

static wring_status fail_encode(struct wring_encode *e)
{
    (void)e;
    return calls_before_it_fails-- > 0 ? WRING_OK : WRING_E_UNSUPPORTED;
}

static wring_status fail_decode(const struct wring_decode *d)
{
    memset(d->dst, 0, d->count * sizeof(*d->dst));
    return calls_before_it_fails-- > 0 ? WRING_OK : WRING_E_CORRUPT;
}

static float third(void)
{
    volatile float one = 1, three = 3, quotient = one / three; /* here, not after a call */
    return quotient;
}

/* Stage WHICH of the chain fails after SKIP good calls: so does the chain, at once, and the
 * caller's rounding mode comes back. */
static void check_failing(const char *spec, size_t which, int skip, wring_dtype dtype)
{
    wring_codec *codec = chain("", spec);
    struct wring_codec_ops ops = *codec->stage[which].ops;
    require(encode_run(codec, dtype, NULL, wire[0]));
    ops.encode = fail_encode;
    ops.decode = fail_decode;
    codec->stage[which].ops = &ops;
    fesetround(FE_DOWNWARD);
    calls_before_it_fails = skip;
    wring_status encoded = encode_run(codec, dtype, NULL, wire[1]);
    int encode_calls = calls_before_it_fails;
    calls_before_it_fails = skip;
    wring_status decoded = decode_run(codec, dtype, wire[0]);
    float downward = third();
    fesetround(FE_TONEAREST);
    assert_int_equal(encoded, WRING_E_UNSUPPORTED);
    assert_int_equal(decoded, WRING_E_CORRUPT);
    assert_int_equal(encode_calls, -1);
    assert_int_equal(calls_before_it_fails, -1);
    assert_true(downward < third());
    wri_codec_destroy(codec);
}

static void a_stage_that_fails_fails_the_chain(void **state)
{
    (void)state;
    for (int type = WRING_FLOAT32; type <= WRING_BFLOAT16; type++) {
        check_failing("int8", 0, 0, (wring_dtype)type);
        for (int skip = 0; skip < 5; skip++) /* in any chunk */
            check_failing("topk:0.1,chunk=1024+int8", 1, skip, (wring_dtype)type);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_takes_nothing),
        cmocka_unit_test(a_stage_refuses_another_length),
        cmocka_unit_test(the_new_residual_is_optional),
        cmocka_unit_test(units_fit_narrow_residuals),
        cmocka_unit_test(a_stage_that_fails_fails_the_chain),
    };
    return cmocka_run_group_tests(tests, open_buffers, close_buffers);
}
