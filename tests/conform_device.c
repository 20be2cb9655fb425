/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec of the registry on a device, against itself on the host, bit for bit: what is
 * encoded, what is decoded, the residual, and what is said about non-finite values; for all types,
 * sizes and alignments. Runs on whatever module "cuda" drives: emulated here, a GPU where there is
 * one. */
#include <math.h>

#include "base/device.h"
#include "base/status.h"
#include "codec_trial.h"

static const struct wri_device *device;
static void *stream;

/* WRING_TEST_SMALL: only what a tool can bear that watches every access. */
static bool small(void)
{
    return getenv("WRING_TEST_SMALL") != NULL;
}

/* ---- data that broke others ------------------------------------------------------------------ */

static float with_nan(size_t i)
{
    return i % 1000 == 999 ? wri_bits_float(0xFFC12345u) : ordinary(i);
}
static float with_infinity(size_t i)
{
    return i % 300 == 7 ? -INFINITY : ordinary(i);
}
static float huge(size_t i)
{
    return ordinary(i) * 0x1p126f;
}
static float tiny(size_t i)
{
    return ordinary(i) * 0x1p-95f;
}
static float ties(size_t i)
{
    return (float)(int)(word(i) % 5) - 2;
}
static float signed_zero(size_t i)
{
    return i % 3 ? -0.0f : 0.0f;
}

static data_fn *const sets[] = {ordinary,      zero, alternating, denormal, with_nan,
                                with_infinity, huge, tiny,        ties,     signed_zero};

/* ---- device memory --------------------------------------------------------------------------- */

static void ok(wring_status status)
{
    if (status != WRING_OK)
        fail_msg("%s", wring_error_message());
}

/* A block of NBYTES, with SRC's content unless NULL. */
static void *device_block(const void *src, size_t nbytes)
{
    void *block;
    ok(device->alloc(device, stream, nbytes, &block));
    if (src != NULL)
        ok(device->copy(device, stream, block, src, nbytes));
    ok(device->stream_wait(stream)); /* the caller may change SRC */
    return block;
}

static void fetch(void *dst, const void *block, size_t nbytes)
{
    ok(device->copy(device, stream, dst, block, nbytes));
    ok(device->stream_wait(stream));
}

static void drop(void *block)
{
    device->free(device, stream, block);
}

static void assert_same(const char *what, const struct trial *t, const void *expected,
                        const void *found, size_t nbytes)
{
    const unsigned char *a = expected, *b = found;
    for (size_t i = 0; i < nbytes; i++)
        if (a[i] != b[i])
            fail_msg("%s, %s, %zu elements: %s differs at byte %zu of %zu: %02x, not %02x",
                     t->codec->spec, wring_dtype_name(t->dtype), t->count, what, i, nbytes, b[i],
                     a[i]);
}

/* ---- one trial there ------------------------------------------------------------------------- */

struct there {
    void *verdict, *state, *encoded, *scratch;
    float *residual[2];
    struct wri_verdict found;
};

/* Encode what T holds, its source SHIFT elements into a block. */
static struct there encode_there(const struct trial *t, const float *residual, size_t shift)
{
    size_t size = wring_dtype_size(t->dtype), floats = t->count * sizeof(float);
    struct wri_verdict clean = {0};
    struct { /* as a call finds it */
        uint32_t current, unused;
        uint64_t step;
    } state = {1, 0, 3};
    struct there there = {
        .verdict = device_block(&clean, sizeof(clean)),
        .state = device_block(&state, sizeof(state)),
        .encoded = device_block(NULL, t->nbytes),
        .scratch = device_block(NULL, wri_codec_device_scratch_nbytes(t->codec, device, t->count)),
        .residual = {device_block(NULL, floats), device_block(residual, floats)},
    };
    char *src = device_block(NULL, (t->count + shift) * size);
    ok(device->copy(device, stream, src + shift * size, t->src, t->count * size));
    struct wri_encode_run run = {
        .codec = t->codec,
        .dtype = t->dtype,
        .src_dtype = t->dtype,
        .src = src + shift * size,
        .count = t->count,
        .residual_in = there.residual[0],
        .residual_out = there.residual[1],
        .random = {.seed = 1, .tensor = 2, .rank = 4},
        .dst = there.encoded,
        .scratch = there.scratch,
        .place = {device, stream, there.verdict, 9},
        .current = (const uint32_t *)there.state, /* the second residual is the old one */
        .step = (const uint64_t *)there.state + 1,
    };
    if (!t->codec->feedback)
        run.residual_in = run.residual_out = NULL;
    ok(wri_codec_encode_run(&run));
    fetch(&there.found, there.verdict, sizeof(there.found));
    drop(src);
    return there;
}

static void decode_there(const struct trial *t, const struct there *there, wring_dtype dtype,
                         size_t shift, const void *before, void *after)
{
    size_t nbytes = t->count * wring_dtype_size(dtype);
    char *dst = device_block(NULL, nbytes + shift * wring_dtype_size(dtype));
    char *at = dst + shift * wring_dtype_size(dtype);
    ok(device->copy(device, stream, at, before ? before : after, nbytes));
    struct wri_decode_run run = {
        .codec = t->codec,
        .dtype = t->dtype,
        .dst_dtype = dtype,
        .src = there->encoded,
        .nbytes = t->nbytes,
        .dst = at,
        .count = t->count,
        .add = before != NULL,
        .op = WRING_SUM,
        .scratch = there->scratch,
        .place = {device, stream, there->verdict, 9},
    };
    ok(wri_codec_decode_run(&run));
    fetch(after, at, nbytes);
    drop(dst);
}

static void close_there(struct there *there)
{
    drop(there->verdict);
    drop(there->state);
    drop(there->encoded);
    drop(there->scratch);
    drop(there->residual[0]);
    drop(there->residual[1]);
}

/* Host results of decoding into float32 with what stands there, and into the trial's own type. */
static void decode_here(const struct trial *t, float *sum, void *own)
{
    size_t scratch = wri_codec_scratch_nbytes(t->codec, t->dtype, t->count);
    for (size_t i = 0; i < t->count; i++)
        sum[i] = ordinary(i + 5);
    ok(decode_part(t, t->encoded, t->nbytes, sum, t->count, true));
    struct wri_decode_run run = {
        .codec = t->codec,
        .dtype = t->dtype,
        .dst_dtype = t->dtype,
        .src = t->encoded,
        .nbytes = t->nbytes,
        .dst = own,
        .count = t->count,
        .scratch = at_end(WORK, wri_round_up(scratch, WRI_ALIGN)),
    };
    ok(wri_codec_decode_run(&run));
}

static void compare(const wring_codec *codec, wring_dtype dtype, data_fn *values, size_t count,
                    size_t shift)
{
    size_t floats = count * sizeof(float), typed = count * wring_dtype_size(dtype);
    struct trial t = prepare(codec, dtype, values, count);
    feed_residual(&t);
    float *old = malloc(3 * floats + typed + 1), *sum = old + count, *found = sum + count;
    void *own = found + count;
    memcpy(old, t.residual, floats);
    encode(&t, 0x5A);
    struct there there = encode_there(&t, old, shift);
    fetch(at_end(OTHER, t.nbytes), there.encoded, t.nbytes);
    assert_same("encoding", &t, t.encoded, at_end(OTHER, t.nbytes), t.nbytes);
    assert_int_equal(there.found.nonfinite != 0, t.nonfinite);
    assert_int_equal(there.found.error, 0);
    if (codec->feedback && !codec->exact) {
        fetch(found, there.residual[0], floats);
        assert_same("residual", &t, t.residual, found, floats);
    }
    decode(&t);
    decode_there(&t, &there, WRING_FLOAT32, shift, NULL, found);
    assert_same("decoding", &t, t.decoded, found, floats);
    decode_here(&t, sum, own);
    for (size_t i = 0; i < count; i++)
        found[i] = ordinary(i + 5);
    decode_there(&t, &there, WRING_FLOAT32, shift, found, found);
    assert_same("sum", &t, sum, found, floats);
    if (dtype != WRING_FLOAT32) {
        decode_there(&t, &there, dtype, shift, NULL, found);
        assert_same("decoding to its own type", &t, own, found, typed);
    }
    close_there(&there);
    free(old);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const wring_dtype types[] = {WRING_FLOAT32, WRING_FLOAT16, WRING_BFLOAT16};
static const size_t counts[] = {1,   2,   3,   4,   5,    31,   32,   33,    127,  128,
                                129, 257, 511, 513, 1023, 1025, 4099, 16384, 16385};

static void same_bits_for_all_sizes_and_types(void **state)
{
    (void)state;
    for (size_t c = 0; c < nchains; c++)
        for (size_t type = 0; type < LENGTH(types); type++)
            for (size_t s = 0; s < LENGTH(counts); s++)
                if (counts[s] < 600 || (type == 0 && !small()))
                    compare(chains[c], types[type], ordinary, counts[s], 0);
}

static void same_bits_at_any_alignment(void **state)
{
    (void)state;
    for (size_t c = 0; c < nchains; c++)
        for (size_t type = 0; type < LENGTH(types); type++)
            for (size_t shift = 1; shift < 4; shift++)
                compare(chains[c], types[type], ordinary, 387, shift);
}

static void same_bits_on_adversarial_data(void **state)
{
    (void)state;
    for (size_t c = 0; c < nchains; c++)
        for (size_t type = 0; type < LENGTH(types); type++)
            for (size_t d = 0; d < LENGTH(sets); d++)
                compare(chains[c], types[type], sets[d], type == 0 ? 2051 : 700, 0);
}

static void same_bits_of_many_elements(void **state)
{
    (void)state;
    for (size_t c = 0; c < nchains; c++)
        compare(chains[c], WRING_FLOAT32, ordinary, small() ? 5003 : 100003, 0);
}

/* Bytes that no encoder wrote: no access out of bounds, NaN all over, and the error word set. */
static void hostile_indices_are_refused(void **state)
{
    (void)state;
    for (size_t c = 0; c < nchains; c++) {
        if (!selects(chains[c]) || chains[c]->stage[0].param[0] == 1)
            continue;
        for (uint32_t seed = 0; seed < 20; seed++) {
            struct trial t = run_trial(chains[c], WRING_FLOAT32, ordinary, 5000);
            struct there there = encode_there(&t, t.residual, 0);
            float *found = at_end(OTHER, t.count * sizeof(float));
            for (size_t i = 0; i < t.nbytes; i++)
                t.encoded[i] = seed == 0 ? 0xFF : (unsigned char)word(i + 1000 * seed);
            ok(device->copy(device, stream, there.encoded, t.encoded, t.nbytes));
            bool here = decode_part(&t, t.encoded, t.nbytes, t.decoded, t.count, false) == WRING_OK;
            decode_there(&t, &there, WRING_FLOAT32, 0, NULL, found);
            fetch(&there.found, there.verdict, sizeof(there.found));
            assert_int_equal(there.found.error, here ? 0 : 9);
            close_there(&there);
        }
    }
}

static void a_poisoned_call_decodes_to_nan(void **state)
{
    (void)state;
    for (size_t c = 0; c < nchains; c++) {
        struct trial t = run_trial(chains[c], WRING_FLOAT32, ordinary, 1300);
        struct there there = encode_there(&t, t.residual, 0);
        struct wri_verdict wrong = {.error = 4};
        ok(device->copy(device, stream, there.verdict, &wrong, sizeof(wrong)));
        decode_there(&t, &there, WRING_FLOAT32, 0, NULL, t.decoded);
        for (size_t i = 0; i < t.count; i++)
            assert_true(isnan(t.decoded[i]));
        close_there(&there);
    }
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static void fill(wring_dtype dtype, void *array, size_t count, size_t from)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = (uint64_t)word(i + from) << 32 | word(i + from + 7);
        if (dtype == WRING_FLOAT64 && i % 5)
            memcpy((double *)array + i, &(double){ordinary(i + from)}, sizeof(double));
        else if (dtype == WRING_FLOAT32 && i % 5)
            ((float *)array)[i] = i % 7 ? ordinary(i + from) : i % 2 ? -0.0f : 0.0f;
        else
            memcpy((char *)array + i * wring_dtype_size(dtype), &bits, wring_dtype_size(dtype));
    }
}

static void reductions_of_every_type(void **state)
{
    (void)state;
    enum { N = 1003 };
    static uint64_t acc[N], src[N], found[N];
    for (int op = 0; op < WRING_OP_COUNT; op++)
        for (int dtype = 0; dtype < WRING_DTYPE_COUNT; dtype++) {
            wring_dtype acc_dtype = wri_dtype_accumulator((wring_dtype)dtype);
            size_t nbytes = N * wring_dtype_size(acc_dtype);
            fill(acc_dtype, acc, N, 1);
            fill((wring_dtype)dtype, src, N, 100);
            void *there = device_block(acc, nbytes);
            void *from = device_block(src, N * wring_dtype_size((wring_dtype)dtype));
            ok(device->reduce((wring_op)op, acc_dtype, there, (wring_dtype)dtype, from, N, stream));
            wri_array_reduce((wring_op)op, acc_dtype, acc, (wring_dtype)dtype, src, N);
            fetch(found, there, nbytes);
            assert_memory_equal(found, acc, nbytes);
            drop(there);
            drop(from);
        }
}

static void conversions_of_every_pair(void **state)
{
    (void)state;
    enum { N = 517 };
    static uint64_t src[N], dst[N], found[N];
    for (int to = 0; to < WRING_DTYPE_COUNT; to++)
        for (int from = 0; from < WRING_DTYPE_COUNT; from++) {
            bool halves = to < 3 && from < 3 && (to == WRING_FLOAT32 || from == WRING_FLOAT32);
            if (to != from && !halves)
                continue;
            size_t nbytes = N * wring_dtype_size((wring_dtype)to);
            struct wri_verdict verdict = {0};
            fill((wring_dtype)from, src, N, 3);
            bool nonfinite = wri_array_convert((wring_dtype)to, dst, (wring_dtype)from, src, N);
            struct wri_device_convert convert = {
                .dst_dtype = (wring_dtype)to,
                .src_dtype = (wring_dtype)from,
                .dst = device_block(NULL, nbytes),
                .src = device_block(src, N * wring_dtype_size((wring_dtype)from)),
                .count = N,
                .verdict = device_block(&verdict, sizeof(verdict)),
                .stream = stream};
            ok(device->convert(&convert));
            fetch(found, convert.dst, nbytes);
            fetch(&verdict, convert.verdict, sizeof(verdict));
            assert_memory_equal(found, dst, nbytes);
            assert_int_equal(verdict.nonfinite, nonfinite);
            drop(convert.dst);
            drop((void *)convert.src);
            drop(convert.verdict);
        }
}

static int open_device(void **state)
{
    int count = 0;
    if (wri_device_find("cuda", getenv("WRING_LIB") ? getenv("WRING_LIB") : "", &device) !=
            WRING_OK ||
        device->count(&count) != WRING_OK) {
        printf("skipped: %s\n", wring_error_message());
        exit(77);
    }
    ok(device->stream_open(&stream));
    return make_chains(state);
}

static int close_device(void **state)
{
    device->stream_close(stream);
    return destroy_chains(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_all_sizes_and_types),
        cmocka_unit_test(same_bits_at_any_alignment),
        cmocka_unit_test(same_bits_on_adversarial_data),
        cmocka_unit_test(same_bits_of_many_elements),
        cmocka_unit_test(hostile_indices_are_refused),
        cmocka_unit_test(a_poisoned_call_decodes_to_nan),
        cmocka_unit_test(reductions_of_every_type),
        cmocka_unit_test(conversions_of_every_pair),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
