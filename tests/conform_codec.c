/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec of the registry, alone, behind ef and behind topk, against what plugin.h and
 * codec.h promise: sizes, bounds, residuals, the same bits everywhere, non-finite values, hostile
 * bytes. All buffers end at a page that must not be touched. Names bNN are cases that broke other
 * libraries. */
#include <fenv.h>
#include <math.h>

#include "codec_trial.h"

#define COUNT_MAX 1000003u

/* ---- error bounds -------------------------------------------------------------------------- */

static const struct wring_stage *last_stage(const wring_codec *codec)
{
    return &codec->stage[codec->nstages - 1];
}

static float largest(const float *x, size_t count)
{
    float max = 0;
    for (size_t i = 0; i < count; i++)
        max = fmaxf(max, fabsf(x[i]));
    return max;
}

static bool is(const wring_codec *codec, const char *name)
{
    return strcmp(last_stage(codec)->ops->name, name) == 0;
}

/* The stated bound of the quantiser for an element of a unit whose largest is MAX. Selections:
 * what is dropped is at most the largest. */
static double bound(const wring_codec *codec, float x, float max)
{
    double tiny = 0x1p-99; /* scales below 2^-100 are zero */
    bool random = last_stage(codec)->param[1] == 1;
    if (selects(codec))
        return max * 1.0001 + 0x1p-24;
    if (is(codec, "none"))
        return 0;
    if (is(codec, "bf16"))
        return fabsf(x) * 0x1p-8 + 0x1p-134;
    if (is(codec, "fp16"))
        return fabsf(x) * 0x1p-11 + 0x1p-25;
    if (is(codec, "int8"))
        return max * (1 / 127.0) * (random ? 1 : 0.5) + max * 0x1p-22 + tiny;
    if (is(codec, "int4"))
        return max * (1 / 7.0) * (random ? 1 : 0.5) + max * 0x1p-22 + tiny;
    assert_true(is(codec, "sign")); /* a new codec states its bound here */
    return max * 1.0001 + tiny;
}

static void check_bound(const struct trial *t)
{
    size_t unit = wri_codec_unit(t->codec, t->count);
    for (size_t first = 0; first < t->count; first += unit) {
        size_t n = wri_min(unit, t->count - first);
        float max = largest(t->fed + first, n);
        for (size_t i = first; i < first + n; i++)
            if (!(fabs((double)t->fed[i] - t->decoded[i]) <= bound(t->codec, t->fed[i], max)))
                fail_msg("%s: %zu of %zu: %a became %a, largest %a", t->codec->spec, i, t->count,
                         t->fed[i], t->decoded[i], max);
    }
}

/* topk with exact values: as many as stated, exact, and none that was dropped is larger. */
static void check_selection(const struct trial *t)
{
    size_t unit = wri_codec_unit(t->codec, t->count);
    for (size_t first = 0; first < t->count; first += unit) {
        size_t n = wri_min(unit, t->count - first), kept = 0;
        double ratio = t->codec->stage[0].param[0];
        float least = INFINITY, dropped = 0;
        for (size_t i = first; i < first + n; i++)
            if (t->decoded[i] != 0) {
                assert_true(t->decoded[i] == t->fed[i]);
                least = fminf(least, fabsf(t->fed[i]));
                kept++;
            } else {
                dropped = fmaxf(dropped, fabsf(t->fed[i]));
            }
        assert_true(dropped <= least);
        assert_true(kept <= fmax(t->codec->stage[0].param[3], floor(ratio * (double)n + 0.5)));
    }
}

/* ---- tests --------------------------------------------------------------------------------- */

static const wring_dtype lossy_types[] = {WRING_FLOAT32, WRING_FLOAT16, WRING_BFLOAT16};
static const size_t sizes[] = {0,   1,   2,    3,    31,   32,   33,   127,   128,   129,   255,
                               256, 257, 1009, 1023, 1024, 1025, 4097, 16383, 16384, 16385, 32771};

static void for_each_trial(void (*check)(struct trial *))
{
    for (size_t c = 0; c < nchains; c++)
        for (size_t type = 0; type < LENGTH(lossy_types); type++)
            for (size_t d = 0; d < LENGTH(data_sets); d++)
                for (size_t s = 0; s < LENGTH(sizes); s++) {
                    if (d > 0 && sizes[s] > 1100)
                        continue;
                    struct trial t =
                        run_trial(chains[c], lossy_types[type], data_sets[d], sizes[s]);
                    check(&t);
                }
}

static void check_round_trip(struct trial *t)
{
    assert_false(t->nonfinite);
    assert_int_equal(t->nbytes % 4, 0);
    check_bound(t);
    if (selects(t->codec) && is(t->codec, "none"))
        check_selection(t);
}

/* B01, B03, B04: zeros, denormals and constants are among the data. */
static void b01_b03_round_trips_within_the_bound(void **state)
{
    (void)state;
    for_each_trial(check_round_trip);
    for (size_t c = 0; c < nchains; c++) {
        struct trial t = run_trial(chains[c], WRING_FLOAT32, ordinary, COUNT_MAX);
        check_round_trip(&t);
    }
}

static void check_residual(struct trial *t)
{
    for (size_t i = 0; i < t->count; i++) {
        float lost = t->fed[i] - t->decoded[i];
        if (t->codec->exact ? t->residual[i] != 0 : memcmp(&t->residual[i], &lost, 4) != 0)
            fail_msg("%s: %zu of %zu: %a became %a, residual %a", t->codec->spec, i, t->count,
                     t->fed[i], t->decoded[i], t->residual[i]);
    }
}

static void the_residual_is_what_was_lost(void **state)
{
    (void)state;
    for_each_trial(check_residual);
}

static void check_add(struct trial *t)
{
    float *sum = at_end(SUMMED, t->count * sizeof(float));
    for (size_t i = 0; i < t->count; i++)
        sum[i] = (float)(i % 100);
    assert_int_equal(decode_part(t, t->encoded, t->nbytes, sum, t->count, true), WRING_OK);
    for (size_t i = 0; i < t->count; i++)
        assert_true(sum[i] == (float)(i % 100) + t->decoded[i]);
}

static void add_adds_what_set_sets(void **state)
{
    (void)state;
    for_each_trial(check_add);
}

/* Encode once more over other bytes, at the scalar level, and from misaligned copies. */
static void check_same_bits(struct trial *t)
{
    unsigned char *first = at_end(OTHER, t->nbytes);
    size_t typed = t->count * wring_dtype_size(t->dtype);
    memcpy(first, t->encoded, t->nbytes);
    for (int level = WRI_SIMD_SCALAR; level < WRI_SIMD_LEVEL_COUNT; level++) {
        if (wri_simd_select(level) != WRING_OK)
            continue;
        for (size_t shift = 0; shift < (t->count < 5000 ? 4 : 1); shift++) {
            struct trial again = *t;
            void *src = at_end(SRC, typed + shift * wring_dtype_size(t->dtype));
            again.src = memmove(src, t->src, typed);
            again.encoded = at_end(ENCODED, t->nbytes + 4 * shift);
            t->src = again.src;
            for (size_t i = 0; t->codec->feedback && i < t->count; i++)
                again.residual[i] = ordinary(i + 77) * 0x1p-10f;
            encode(&again, level * 16 + (int)shift);
            assert_memory_equal(again.encoded, first, t->nbytes);
            again.decoded = at_end(SUMMED, (t->count + shift) * sizeof(float));
            decode(&again);
            assert_memory_equal(again.decoded, t->decoded, t->count * sizeof(float));
        }
    }
    assert_int_equal(wri_simd_select(WRI_SIMD_AUTO), WRING_OK);
}

static void the_same_bits_at_every_level_and_alignment(void **state)
{
    (void)state;
    for_each_trial(check_same_bits);
}

/* Asked of what codecs compute with: fegetround may look at another unit's mode. */
static bool rounds_upward(void)
{
    volatile float one = 1, tiny = 0x1p-30f, sum = one + tiny; /* here, not after a call */
    return sum > 1;
}

/* A caller may run in any rounding mode, and gets it back. */
static void the_callers_float_mode_does_not_matter(void **state)
{
    (void)state;
    for (size_t c = 0; c < nchains; c++) {
        struct trial t = run_trial(chains[c], WRING_FLOAT32, ordinary, 3001);
        unsigned char *first = at_end(OTHER, t.nbytes);
        float *decoded = at_end(SUMMED, t.count * sizeof(float));
        memcpy(first, t.encoded, t.nbytes);
        memcpy(decoded, t.decoded, t.count * sizeof(float));
        feed_residual(&t);
        assert_int_equal(fesetround(FE_UPWARD), 0);
        encode(&t, 0);
        bool after_encode = rounds_upward();
        decode(&t);
        bool after_decode = rounds_upward();
        fesetround(FE_TONEAREST);
        assert_true(after_encode && after_decode);
        assert_memory_equal(t.encoded, first, t.nbytes);
        assert_memory_equal(t.decoded, decoded, t.count * sizeof(float));
    }
}

/* Cut in two at a multiple of the unit: the same values and residuals as in one. */
static void check_parts(struct trial *t)
{
    size_t unit = wri_codec_unit(t->codec, t->count), cut = (t->count / unit + 1) / 2 * unit;
    float *whole = at_end(OTHER, t->count * sizeof(float));
    bool nonfinite = false;
    if (cut == 0 || cut >= t->count)
        return;
    memcpy(whole, t->decoded, t->count * sizeof(float));
    for (size_t i = 0; t->codec->feedback && i < t->count; i++)
        t->residual[i] = ordinary(i + 77) * 0x1p-10f;
    const size_t firsts[] = {0, cut, t->count};
    for (int part = 0; part < 2; part++) {
        size_t first = firsts[part], n = firsts[part + 1] - first;
        size_t nbytes = wri_codec_nbytes(t->codec, t->dtype, n);
        void *dst = at_end(ENCODED, nbytes);
        assert_int_equal(encode_part(t, first, n, dst, &nonfinite), WRING_OK);
        assert_int_equal(decode_part(t, dst, nbytes, t->decoded + first, n, false), WRING_OK);
    }
    assert_memory_equal(t->decoded, whole, t->count * sizeof(float));
    check_residual(t);
}

static void parts_decode_as_the_whole(void **state)
{
    (void)state;
    for_each_trial(check_parts);
}

/* What is added to a NaN becomes the one NaN of wring, whatever compiler added it. */
static void check_nan_sum(const struct trial *t, size_t at)
{
    float *sum = at_end(SUMMED, t->count * sizeof(float));
    memset(sum, 0, t->count * sizeof(float));
    sum[at] = wri_bits_float(0xFFC01234);
    assert_int_equal(decode_part(t, t->encoded, t->nbytes, sum, t->count, true), WRING_OK);
    assert_int_equal(wri_float_bits(sum[at]), WRI_NAN_BITS);
}

/* One NaN or Inf in the middle unit: reported, there on the other side, and not beyond its unit. */
static void check_poison(const wring_codec *codec, wring_dtype dtype, uint32_t bits)
{
    size_t unit = wri_codec_unit(codec, 1000);
    size_t count = wri_codec_whole_unit(codec) ? unit : 3 * unit;
    struct trial t = prepare(codec, dtype, ordinary, count);
    size_t at = count / 2, low = at / unit * unit, nbad = 0;
    feed_residual(&t);
    t.fed[at] = wri_bits_float(bits);
    wri_array_convert(dtype, at_end(SRC, count * wring_dtype_size(dtype)), WRING_FLOAT32, t.fed,
                      count);
    encode(&t, 0);
    decode(&t);
    assert_true(t.nonfinite);
    for (size_t i = 0; i < count; i++) {
        nbad += !isfinite(t.decoded[i]);
        assert_true(isfinite(t.decoded[i]) || (i >= low && i < low + unit));
    }
    assert_true(nbad > 0);
    check_nan_sum(&t, at);
}

static void b27_nonfinite_in_nonfinite_out(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0x7FC00000, 0xFFC00000, 0x7F800000, 0xFF800000};
    for (size_t c = 0; c < nchains; c++)
        for (size_t type = 0; type < LENGTH(lossy_types); type++)
            for (size_t b = 0; b < LENGTH(bits); b++)
                check_poison(chains[c], lossy_types[type], bits[b]);
}

static float scaled_by;
static float scaled(size_t i)
{
    return ordinary(i) * scaled_by;
}

/* Nothing but the casts depends on absolute magnitude. */
static void b21_scale_passes_through(void **state)
{
    (void)state;
    static const float scales[] = {0x1p-20f, 0x1p-33f, 0x1p33f};
    for (size_t c = 0; c < nchains; c++)
        for (size_t s = 0; s < LENGTH(scales) && !is(chains[c], "fp16"); s++) {
            struct trial t = prepare(chains[c], WRING_FLOAT32, ordinary, 3000);
            float *plain = at_end(OTHER, t.count * sizeof(float));
            memset(t.residual, 0, t.count * sizeof(float));
            encode(&t, 0);
            decode(&t);
            memcpy(plain, t.decoded, t.count * sizeof(float));
            scaled_by = scales[s];
            t = prepare(chains[c], WRING_FLOAT32, scaled, 3000);
            memset(t.residual, 0, t.count * sizeof(float));
            encode(&t, 0);
            decode(&t);
            for (size_t i = 0; i < t.count; i++)
                assert_true(t.decoded[i] == plain[i] * scales[s]);
        }
}

static size_t spike;
static float spike_at(size_t i)
{
    return i == spike ? 3 : (float)(i % 7) * 0x1p-4f;
}

static void b13_one_of_many(void **state)
{
    (void)state;
    static const size_t places[] = {0, 32767, 32768, 65535, 65536, 69999};
    wring_codec *codec;
    assert_int_equal(wri_codec_create("topk:1e-5,unit=tensor,least=1", &codec), WRING_OK);
    for (size_t p = 0; p < LENGTH(places); p++) {
        spike = places[p];
        struct trial t = run_trial(codec, WRING_FLOAT16, spike_at, 70000);
        for (size_t i = 0; i < t.count; i++)
            assert_true(t.decoded[i] == (i == spike ? 3 : 0));
    }
    wri_codec_destroy(codec);
}

static void b29_of_equal_ones_the_first(void **state)
{
    (void)state;
    wring_codec *codec;
    assert_int_equal(wri_codec_create("topk:least=10", &codec), WRING_OK);
    struct trial t = run_trial(codec, WRING_FLOAT32, alternating, 1000);
    for (size_t i = 0; i < t.count; i++)
        assert_true(t.decoded[i] == (i < 10 ? t.fed[i] : 0));
    wri_codec_destroy(codec);
}

/* ---- hostile bytes ------------------------------------------------------------------------- */

static void decode_hostile(const struct trial *t, size_t nbytes)
{
    wring_status status =
        decode_part(t, at_end(ENCODED, nbytes), nbytes, t->decoded, t->count, word(nbytes) & 1);
    assert_true(status == WRING_E_CORRUPT || (status == WRING_OK && nbytes == t->nbytes));
}

static void check_hostile(struct trial *t)
{
    for (size_t cut = 4; cut <= t->nbytes && cut < 40; cut += 4)
        decode_hostile(t, t->nbytes - cut);
    for (size_t i = 0; i < 256 && t->nbytes > 0; i++) {
        size_t bit = i < 128 ? i % (8 * t->nbytes) : word(i) % (8 * t->nbytes);
        t->encoded[bit / 8] ^= (unsigned char)(1 << bit % 8);
        decode_hostile(t, t->nbytes);
        t->encoded[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t round = 0; round < 8; round++) {
        for (size_t i = 0; i < t->nbytes; i++)
            t->encoded[i] =
                round < 2 ? (unsigned char)-round : (unsigned char)word(i + round * 999);
        decode_hostile(t, t->nbytes);
    }
}

static void hostile_bytes_do_no_harm(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 3, 127, 1000, 2049};
    for (size_t c = 0; c < nchains; c++)
        for (size_t n = 0; n < LENGTH(counts); n++) {
            struct trial t = run_trial(chains[c], WRING_FLOAT32, ordinary, counts[n]);
            check_hostile(&t);
        }
}

/* ---- what a chain refuses ------------------------------------------------------------------ */

static void only_none_takes_the_other_types(void **state)
{
    (void)state;
    for (size_t c = 0; c < nchains; c++)
        for (int type = 0; type < WRING_DTYPE_COUNT; type++)
            for (int op = 0; op < WRING_OP_COUNT; op++) {
                bool lossless = chains[c]->exact, is_float = wri_dtype_is_float(type);
                bool taken = lossless ? op != WRING_AVG || is_float
                                      : type <= WRING_BFLOAT16 && op <= WRING_AVG;
                wring_status status = wri_codec_accepts(chains[c], type, op);
                assert_int_equal(status, taken ? WRING_OK : WRING_E_UNSUPPORTED);
                assert_int_equal(wri_codec_nbytes(chains[c], type, 5) > 0,
                                 lossless || type <= WRING_BFLOAT16);
            }
}

/* Every bit of every type, NaN payloads and -0 too. */
static void none_is_exact_for_every_type(void **state)
{
    (void)state;
    const wring_codec *none = chains[0];
    assert_true(none->exact);
    for (int type = 0; type < WRING_DTYPE_COUNT; type++)
        for (size_t count = 0; count < 70; count++) {
            size_t used = count * wring_dtype_size(type), nbytes = wri_round_up(used, 4);
            unsigned char *src = at_end(SRC, used), *dst = at_end(ENCODED, nbytes);
            unsigned char *back = at_end(DECODED, used);
            for (size_t i = 0; i < used; i++)
                src[i] = (unsigned char)word(i);
            memset(dst, 0xA5, nbytes);
            struct wri_encode_run encode = {.codec = none,
                                            .dtype = type,
                                            .src_dtype = type,
                                            .src = src,
                                            .count = count,
                                            .dst = dst};
            assert_int_equal(wri_codec_nbytes(none, type, count), nbytes);
            assert_int_equal(wri_codec_encode_run(&encode), WRING_OK);
            struct wri_decode_run decode = {.codec = none,
                                            .dtype = type,
                                            .dst_dtype = type,
                                            .src = dst,
                                            .nbytes = nbytes,
                                            .dst = back,
                                            .count = count};
            assert_int_equal(wri_codec_decode_run(&decode), WRING_OK);
            assert_memory_equal(back, src, used);
            if (nbytes > used) {
                dst[used] = 1; /* filling bytes are zero or it is not ours */
                assert_int_equal(wri_codec_decode_run(&decode), WRING_E_CORRUPT);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b01_b03_round_trips_within_the_bound),
        cmocka_unit_test(the_residual_is_what_was_lost),
        cmocka_unit_test(add_adds_what_set_sets),
        cmocka_unit_test(the_same_bits_at_every_level_and_alignment),
        cmocka_unit_test(the_callers_float_mode_does_not_matter),
        cmocka_unit_test(parts_decode_as_the_whole),
        cmocka_unit_test(b27_nonfinite_in_nonfinite_out),
        cmocka_unit_test(b21_scale_passes_through),
        cmocka_unit_test(b13_one_of_many),
        cmocka_unit_test(b29_of_equal_ones_the_first),
        cmocka_unit_test(hostile_bytes_do_no_harm),
        cmocka_unit_test(only_none_takes_the_other_types),
        cmocka_unit_test(none_is_exact_for_every_type),
    };
    return cmocka_run_group_tests(tests, make_chains, destroy_chains);
}
