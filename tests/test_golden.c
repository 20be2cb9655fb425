/* SPDX-License-Identifier: Apache-2.0 */
/* The wire form of every stage is frozen: tests/golden/<stage>.bin holds what a fixed input was
 * once encoded as, and then the hash of what that was decoded to. A difference is an incompatible
 * change: it needs a new wire id, not a new file. `test_golden --write` makes the files of new
 * stages only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/rng.h"
#include "codec/codec.h"

#define COUNT 1301 /* ends inside a block of every kind */
#define NBYTES_MAX (COUNT * sizeof(float) + sizeof(uint64_t))

/* A chain for each stage. */
static const struct {
    const char *stage, *spec;
} golden[] = {
    {"none", "none"},
    {"bf16", "bf16"},
    {"fp16", "fp16"},
    {"int8", "int8:round=stochastic"},
    {"int4", "int4"},
    {"sign", "sign:256"},
    {"topk", "topk:5%,chunk=512,least=1+int8:32"},
    {"ef", "ef:0.5+sign:128"},
};

/* Some octaves of magnitudes, and zeros of both signs. */
static float value(uint32_t i)
{
    struct wri_philox counter = {{i, 0, 0, 0}};
    uint32_t word = wri_philox4x32_10(counter, 2, 7).word[0];
    float magnitude = (float)(word >> 16) / (float)(1u << (word % 24));
    return i % 50 == 0 ? 0.0f : word & 256 ? -magnitude : magnitude;
}

/* The contents of the file of SPEC; how many bytes. */
static size_t make(const char *spec, unsigned char *contents)
{
    static float src[COUNT], residual[COUNT], decoded[COUNT];
    wring_codec *codec;
    void *scratch;
    for (uint32_t i = 0; i < COUNT; i++) {
        src[i] = value(i);
        residual[i] = value(i + COUNT);
    }
    src[100] = -0.0f;
    assert_int_equal(wri_codec_create(spec, &codec), WRING_OK);
    size_t nbytes = wri_codec_nbytes(codec, WRING_FLOAT32, COUNT);
    assert_true(nbytes + sizeof(uint64_t) <= NBYTES_MAX);
    assert_int_equal(wri_alloc(wri_codec_scratch_nbytes(codec, WRING_FLOAT32, COUNT), 1, &scratch),
                     WRING_OK);
    struct wri_encode_run encode = {.codec = codec,
                                    .src = src,
                                    .count = COUNT,
                                    .residual_in = residual,
                                    .dst = contents,
                                    .random = {.seed = 1, .tensor = 2, .step = 3, .rank = 4},
                                    .scratch = scratch};
    assert_int_equal(wri_codec_encode_run(&encode), WRING_OK);
    struct wri_decode_run decode = {.codec = codec,
                                    .src = contents,
                                    .nbytes = nbytes,
                                    .dst = decoded,
                                    .count = COUNT,
                                    .scratch = scratch};
    assert_int_equal(wri_codec_decode_run(&decode), WRING_OK);
    uint64_t hash = wri_hash(decoded, sizeof(decoded), 0);
    memcpy(contents + nbytes, &hash, sizeof(hash));
    wri_free(scratch);
    wri_codec_destroy(codec);
    return nbytes + sizeof(hash);
}

static FILE *open_file(const char *stage, const char *mode)
{
    char path[1024];
    const char *source = getenv("WRING_SOURCE");
    snprintf(path, sizeof(path), "%s/tests/golden/%s.bin", source ? source : ".", stage);
    FILE *file = *mode == 'w' && access(path, F_OK) == 0 ? NULL : fopen(path, mode);
    return file;
}

static void wire_forms_have_not_changed(void **state)
{
    (void)state;
    static unsigned char contents[NBYTES_MAX], wanted[NBYTES_MAX + 1];
    for (size_t i = 0; i < sizeof(golden) / sizeof(*golden); i++) {
        size_t nbytes = make(golden[i].spec, contents);
        FILE *file = open_file(golden[i].stage, "r");
        if (!file)
            fail_msg("no golden file of stage %s", golden[i].stage);
        size_t wanted_nbytes = fread(wanted, 1, sizeof(wanted), file);
        fclose(file);
        if (nbytes != wanted_nbytes || memcmp(contents, wanted, nbytes) != 0)
            fail_msg("%s: the wire form is not what it was", golden[i].spec);
    }
}

static void every_stage_has_a_golden_file(void **state)
{
    (void)state;
    const struct wring_codec_ops *ops;
    for (size_t i = 0; (ops = wri_codec_at(i)); i++) {
        size_t found = 0;
        for (size_t g = 0; g < sizeof(golden) / sizeof(*golden); g++)
            found += strcmp(golden[g].stage, ops->name) == 0;
        if (found == 0)
            fail_msg("no golden file of stage %s", ops->name);
    }
}

static void write_files(void)
{
    static unsigned char contents[NBYTES_MAX];
    for (size_t i = 0; i < sizeof(golden) / sizeof(*golden); i++) {
        FILE *file = open_file(golden[i].stage, "w");
        if (!file)
            continue;
        fwrite(contents, 1, make(golden[i].spec, contents), file);
        fclose(file);
        printf("wrote %s\n", golden[i].stage);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_forms_have_not_changed),
        cmocka_unit_test(every_stage_has_a_golden_file),
    };
    if (argc > 1 && strcmp(argv[1], "--write") == 0) {
        write_files();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
