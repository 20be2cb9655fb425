/* SPDX-License-Identifier: Apache-2.0 */
/* Codec specs: what they mean, what is refused and how it is said, in any locale; and that
 * docs/codecs.md says of the stages what their tables say (`test_spec --write` makes it so). */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "codec/text.h"
#include "comma_locale.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static const struct {
    const char *spec, *canonical;
    size_t nstages;
    bool feedback, exact;
} good[] = {
    {"none", "none", 1, false, true},
    {"bf16", "bf16", 1, false, false},
    {"int8", "int8", 1, false, false},
    {"int8:128", "int8", 1, false, false},
    {"int8:block=64", "int8:64", 1, false, false},
    {"int8:64,round=stochastic", "int8:64,round=stochastic", 1, false, false},
    {"int8:round=stochastic,block=64", "int8:64,round=stochastic", 1, false, false},
    {"int8:round=nearest", "int8", 1, false, false},
    {"int8:round=stochastic", "int8:round=stochastic", 1, false, false},
    {"topk", "topk", 2, false, false},
    {"topk+none", "topk", 2, false, false},
    {"topk:1%", "topk", 2, false, false},
    {"topk:0.01+int8", "topk+int8", 2, false, false},
    {"topk:ratio=100%", "topk:1", 2, false, false},
    {"topk:0.1%,chunk=1024,unit=tensor", "topk:0.001,unit=tensor,chunk=1024", 2, false, false},
    {"topk:0.7%", "topk:0.007", 2, false, false},
    {"topk:1e-5", "topk:1e-05", 2, false, false},
    {"topk:.025", "topk:0.025", 2, false, false},
    {"topk:0.30000000000000004", "topk:0.30000000000000004", 2, false, false},
    {"ef+topk:2%+int4:32", "ef+topk:0.02+int4:32", 2, true, false},
    {"ef:0.5+sign", "ef:0.5+sign", 1, true, false},
    {"ef:beta=50%+sign", "ef:0.5+sign", 1, true, false},
    {"ef:-0+sign", "ef:0+sign", 1, true, false},
    {"ef", "ef", 1, false, true}, /* nothing is lost: nothing to keep */
    {"ef+none", "ef", 1, false, true},
};

static void specs_and_their_canonical_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(good); i++) {
        wring_codec *codec, *again;
        assert_int_equal(wri_codec_create(good[i].spec, &codec), WRING_OK);
        assert_string_equal(codec->spec, good[i].canonical);
        assert_int_equal(codec->nstages, good[i].nstages);
        assert_int_equal(codec->feedback, good[i].feedback);
        assert_int_equal(codec->exact, good[i].exact);
        assert_int_equal(codec->digest, wri_hash(codec->spec, strlen(codec->spec), 0));
        for (size_t j = 0; j < codec->nstages; j++)
            assert_ptr_equal(codec->stage[j].next,
                             j + 1 < codec->nstages ? &codec->stage[j + 1] : NULL);
        assert_int_equal(wri_codec_create(codec->spec, &again), WRING_OK);
        assert_int_equal(again->digest, codec->digest);
        assert_memory_equal(again->stage[0].param, codec->stage[0].param,
                            sizeof(codec->stage[0].param));
        wri_codec_destroy(again);
        wri_codec_destroy(codec);
    }
}

/* Each is refused with a message that holds `says`. */
static const struct {
    const char *spec, *says;
} bad[] = {
    {"", "stage 1 \"\", at character 1: empty stage; accepted: none, bf16"},
    {"+", "stage 1 \"\", at character 1: empty stage"},
    {"ef+", "stage 2 \"\", at character 4: empty stage"},
    {"ef++int8", "stage 2 \"\", at character 4: empty stage"},
    {":", "stage 1 \":\", at character 1: empty stage"},
    {"zip", "stage 1 \"zip\", at character 1: unknown stage; accepted: none, bf16"},
    {"ef+Int8", "stage 2 \"Int8\", at character 4: unknown stage"},
    {" int8", "unknown stage"},
    {"int8 ", "unknown stage"},
    {"none:1", "unexpected \"1\"; accepted: none"},
    {"bf16:", "unexpected \"\""},
    {"int8:", "block is not a number: \"\"; accepted: int8[:[block="},
    {"int8:,", "block is not a number"},
    {"int8:64,", "unexpected \"\""},
    {"int8:64,64", "unexpected \"64\""},
    {"int8:64,block=64", "block is given twice"},
    {"int8:round=nearest,round=nearest", "round is given twice"},
    {"int8:round=up", "round has no choice \"up\""},
    {"int8:round=", "round has no choice \"\""},
    {"int8:round=near", "round has no choice \"near\""},
    {"int8:round=nearest stochastic", "round has no choice"},
    {"int8:size=64", "no parameter \"size\""},
    {"int8:=64", "no parameter \"\""},
    {"int8:block==64", "block is not a number: \"=64\""},
    {"int8:64.5", "block is not an integer: 64.5"},
    {"int8:33", "33"},
    {"int8:0", "block is out of range: 0"},
    {"int8:1e9", "block is out of range: 1e9"},
    {"int8:nan", "block is not a number"},
    {"int8:0x40", "block is not a number"},
    {"topk:inf", "ratio is not a number"},
    {"topk:0", "ratio is out of range: 0"},
    {"topk:-1%", "ratio is out of range: -1%"},
    {"topk:101%", "ratio is out of range: 101%"},
    {"topk:0,01", "ratio is out of range: 0"},
    {"topk:1e+5", "ratio is not a number: \"1e\""},
    {"topk:chunk=1000", "chunk is not a power of two: 1000"},
    {"ef:2+sign", "beta is out of range: 2"},
    {"ef+ef+int8", "a feedback stage cannot follow a feedback stage"},
    {"int8+ef", "a feedback stage cannot follow a quantiser stage"},
    {"int8+topk", "a selection stage cannot follow a quantiser stage"},
    {"topk+topk", "a selection stage cannot follow a selection stage"},
    {"int8+int4", "stage 2 \"int4\", at character 6: a quantiser stage cannot follow a quantiser"},
};

static void check_refused(const char *spec, const char *says)
{
    wring_codec *codec = NULL;
    assert_int_equal(wri_codec_create(spec, &codec), WRING_E_SPEC);
    assert_null(codec);
    if (!strstr(wring_error_message(), says))
        fail_msg("\"%s\": %s\ndoes not say: %s", spec, wring_error_message(), says);
}

static void bad_specs_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(bad); i++)
        check_refused(bad[i].spec, bad[i].says);
}

static void long_specs_are_refused(void **state)
{
    (void)state;
    char spec[WRI_SPEC_MAX + 100];
    for (size_t length = WRI_SPEC_MAX - 1; length < sizeof(spec); length += 50) {
        memset(spec, 'x', length);
        spec[length] = '\0';
        check_refused(spec, length < WRI_SPEC_MAX ? "unknown stage" : "longer than 255 characters");
    }
}

/* Any prefix, and any change of one character, is a spec or refused; nothing else happens. */
static void damaged_specs_do_no_harm(void **state)
{
    (void)state;
    static const char spec[] = "ef:0.5+topk:1%,unit=chunk+int8:64,round=stochastic";
    char damaged[sizeof(spec)];
    for (size_t at = 0; at < sizeof(spec); at++)
        for (int c = 0; c < 256; c++) {
            wring_codec *codec;
            memcpy(damaged, spec, sizeof(spec));
            damaged[at] = (char)c;
            damaged[sizeof(spec) - 1] = '\0';
            wring_status status = wri_codec_create(damaged, &codec);
            assert_true(status == WRING_OK || status == WRING_E_SPEC);
            wri_codec_destroy(status == WRING_OK ? codec : NULL);
        }
}

/* The shortest that reads back, whatever the size. */
static void numbers_and_their_text(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {{0, "0"},
                {-3, "-3"},
                {0.1, "0.1"},
                {-2.5e-7, "-2.5e-07"},
                {1e15 - 1, "999999999999999"},
                {1e15, "1e15"},
                {-4e20, "-4e20"},
                {1.0 / 3, "0.3333333333333333"},
                {0.1 + 0.2, "0.30000000000000004"},
                {DBL_MAX, "1.7976931348623157e308"}, /* in fewer digits: out of range */
                {DBL_MIN, "2.2250738585072014e-308"}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        char at[64];
        struct wri_text text = {.at = at, .size = sizeof(at)};
        wri_text_add_real(&text, rows[i].value);
        assert_string_equal(at, rows[i].text);
        assert_int_equal(text.used, strlen(at));
    }
}

/* What does not fit is cut, and stays full, with the end of the buffer where it was. */
static void text_never_leaves_its_buffer(void **state)
{
    (void)state;
    for (size_t size = 1; size < 12; size++) {
        char at[12];
        memset(at, '#', sizeof(at));
        struct wri_text text = {.at = at, .size = size};
        wri_text_add(&text, "%s", "abc");
        wri_text_add(&text, "%d", 4567);
        wri_text_add(&text, "%s", "");
        assert_int_equal(text.full, size <= 7);
        assert_int_equal(strlen(at), size <= 7 ? size - 1 : 7);
        assert_int_equal(text.used, strlen(at));
        assert_memory_equal(at, "abc4567", strlen(at));
        assert_int_equal(at[size], '#');
    }
}

static void words_are_counted(void **state)
{
    (void)state;
    static const char *const words[] = {"chunk", "tensor", "x", "", "", ""};
    for (size_t i = 0; i < LENGTH(words); i++) {
        size_t length = 99;
        const char *word = wri_word_at("chunk tensor x", i, &length);
        assert_int_equal(length, strlen(words[i]));
        assert_memory_equal(word, words[i], length);
    }
}

static void the_locale_does_not_matter(void **state)
{
    char folder[] = "/tmp/wring_locale_XXXXXX";
    bool entered = comma_locale_enter(folder);
    if (entered) {
        specs_and_their_canonical_text(state);
        bad_specs_are_refused_by_name(state);
        numbers_and_their_text(state);
    }
    assert_true(comma_locale_leave(folder));
    if (!entered)
        skip();
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    wring_codec *codec;
    wri_alloc_fail_at(1);
    assert_int_equal(wring_codec_create("int8", &codec), WRING_E_MEMORY);
    wri_alloc_fail_at(0);
}

/* The public calls check their arguments. */
static void public_calls_check_arguments(void **state)
{
    (void)state;
    wring_codec *codec;
    float x[4] = {1, 2, 3, 4}, back[4];
    uint32_t encoded[8];
    size_t nbytes = 99;
    assert_int_equal(wring_codec_create(NULL, &codec), WRING_E_ARGUMENT);
    assert_int_equal(wring_codec_create("int8", NULL), WRING_E_ARGUMENT);
    assert_int_equal(wring_codec_create("int8", &codec), WRING_OK);
    assert_string_equal(wring_codec_spec(codec), "int8");
    assert_int_equal(wring_codec_nbytes(codec, WRING_FLOAT32, 4), 8);
    assert_int_equal(wring_codec_nbytes(codec, WRING_FLOAT32, 0), 0);
    assert_int_equal(wring_codec_nbytes(codec, WRING_INT32, 4), 0);
    assert_int_equal(wring_codec_nbytes(codec, WRING_FLOAT32, SIZE_MAX), 0);
    assert_int_equal(wring_codec_nbytes(NULL, WRING_FLOAT32, 4), 0);
#define ENCODE(codec, type, src, count, dst, room)                                                 \
    wring_codec_encode(codec, type, src, count, dst, room, &nbytes)
    assert_int_equal(ENCODE(NULL, WRING_FLOAT32, x, 4, encoded, 32), WRING_E_ARGUMENT);
    assert_int_equal(ENCODE(codec, WRING_FLOAT32, NULL, 4, encoded, 32), WRING_E_ARGUMENT);
    assert_int_equal(ENCODE(codec, WRING_FLOAT32, x, 4, NULL, 32), WRING_E_ARGUMENT);
    assert_int_equal(ENCODE(codec, WRING_FLOAT64, x, 1, encoded, 32), WRING_E_UNSUPPORTED);
    assert_int_equal(ENCODE(codec, (wring_dtype)99, x, 1, encoded, 32), WRING_E_ARGUMENT);
    assert_int_equal(wri_codec_accepts(codec, WRING_FLOAT32, (wring_op)99), WRING_E_ARGUMENT);
    assert_int_equal(ENCODE(codec, WRING_FLOAT32, x, 4, encoded, 7), WRING_E_FULL);
    assert_int_equal(ENCODE(codec, WRING_FLOAT32, (char *)x + 2, 1, encoded, 32), WRING_E_ARGUMENT);
    assert_int_equal(ENCODE(codec, WRING_FLOAT32, x, 4, (char *)encoded + 2, 30), WRING_E_ARGUMENT);
    assert_int_equal(nbytes, 99);
    assert_int_equal(ENCODE(codec, WRING_FLOAT32, NULL, 0, NULL, 0), WRING_OK);
    assert_int_equal(nbytes, 0);
    assert_int_equal(ENCODE(codec, WRING_FLOAT32, x, 4, encoded, 32), WRING_OK);
    assert_int_equal(nbytes, 8);
#undef ENCODE
    assert_int_equal(wring_codec_decode(codec, WRING_FLOAT32, encoded, 8, back, 4, false),
                     WRING_OK);
    assert_true(back[3] == 4);
    assert_int_equal(wring_codec_decode(codec, WRING_FLOAT32, encoded, 8, back, 4, true), WRING_OK);
    assert_true(back[3] == 8);
    assert_int_equal(wring_codec_decode(codec, WRING_FLOAT32, encoded, 8, back, 5, false),
                     WRING_E_CORRUPT);
    assert_int_equal(wring_codec_decode(codec, WRING_FLOAT16, encoded, 8, back, 4, true),
                     WRING_E_UNSUPPORTED);
    wring_codec_destroy(codec);
    wring_codec_destroy(NULL);
}

/* ---- documentation ------------------------------------------------------------------------- */

static const char begin[] = "<!-- made by test_spec --write -->\n", end[] = "<!-- end -->\n";

/* The part of docs/codecs.md that says what the tables say. */
static void print_stages(FILE *out)
{
    wring_info info;
    fprintf(out, "| stage | what it does | accepted |\n|---|---|---|\n");
    for (size_t i = 0; wri_codec_info(i, &info); i++) {
        fprintf(out, "| `%s` | %s | `", info.name, info.summary);
        for (const char *c = info.value; *c; c++)
            fprintf(out, *c == '|' ? "\\|" : "%c", *c);
        fprintf(out, "` |\n");
    }
    fprintf(out, "\nParameters, with their defaults:\n\n");
    for (size_t i = 0; wri_codec_info(i, &info); i++)
        for (const char *line = info.detail; *line; line += *line == '\n') {
            size_t length = strcspn(line, "\n"), key = strcspn(line, ":");
            fprintf(out, "- `%s`: `%.*s`%.*s\n", info.name, (int)key, line, (int)(length - key),
                    line + key);
            line += length;
        }
}

/* Read the whole document, a string to be freed. */
static char *read_document(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 16);
    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static void document_path(char *path, size_t size)
{
    const char *source = getenv("WRING_SOURCE");
    snprintf(path, size, "%s/docs/codecs.md", source ? source : ".");
}

static void write_document(void)
{
    char path[1024];
    document_path(path, sizeof(path));
    char *text = read_document(path), *from = strstr(text, begin), *to = strstr(text, end);
    FILE *out = fopen(path, "w");
    fwrite(text, 1, (size_t)(from - text) + strlen(begin), out);
    print_stages(out);
    fputs(to, out);
    fclose(out);
    free(text);
}

static void the_document_says_what_the_tables_say(void **state)
{
    (void)state;
    char path[1024], wanted[1 << 14] = "";
    document_path(path, sizeof(path));
    FILE *out = fmemopen(wanted, sizeof(wanted), "w");
    print_stages(out);
    fclose(out);
    char *text = read_document(path), *from = strstr(text, begin), *to = strstr(text, end);
    assert_non_null(from);
    assert_non_null(to);
    *to = '\0';
    assert_string_equal(from + strlen(begin), wanted);
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs_and_their_canonical_text),
        cmocka_unit_test(bad_specs_are_refused_by_name),
        cmocka_unit_test(long_specs_are_refused),
        cmocka_unit_test(damaged_specs_do_no_harm),
        cmocka_unit_test(numbers_and_their_text),
        cmocka_unit_test(text_never_leaves_its_buffer),
        cmocka_unit_test(words_are_counted),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(public_calls_check_arguments),
        cmocka_unit_test(the_document_says_what_the_tables_say),
    };
    if (argc > 1 && strcmp(argv[1], "--write") == 0) {
        write_document();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
