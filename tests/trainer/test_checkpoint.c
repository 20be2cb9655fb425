/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: what is written is read; every truncation, every flipped bit and every table that
 * points outside is refused; a disk that is full costs nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "checkpoint.h"
#include "random.h"

static char folder[] = "/tmp/test_checkpoint.XXXXXX", path[64];

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/" CHECKPOINT_FILE, folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails if anything else was left there */
}

/* A checkpoint of three sections, of which FILL is all bytes of the last. */
static uint8_t *make(uint8_t fill, size_t *nbytes_out)
{
    uint8_t large[300], *bytes;
    memset(large, fill, sizeof large);
    const struct section sections[] = {
        {"first", "abc", 3}, {"empty", NULL, 0}, {"last", large, sizeof large}};
    assert_null(checkpoint_write(folder, sections, 3));
    assert_null(checkpoint_read(folder, &bytes, nbytes_out));
    assert_non_null(bytes);
    return bytes;
}

static void test_round_trip(void **state)
{
    (void)state;
    size_t nbytes;
    struct section found;
    uint8_t *bytes = make(7, &nbytes);
    assert_true(checkpoint_find(bytes, "first", &found));
    assert_true(found.nbytes == 3 && memcmp(found.bytes, "abc", 3) == 0);
    assert_true(checkpoint_find(bytes, "empty", &found) && found.nbytes == 0);
    assert_true(checkpoint_find(bytes, "last", &found) && found.nbytes == 300);
    assert_int_equal(((const uint8_t *)found.bytes)[299], 7);
    assert_false(checkpoint_find(bytes, "firs", &found));
    free(bytes);
}

static void test_none(void **state)
{
    (void)state;
    uint8_t *bytes;
    size_t nbytes;
    assert_null(checkpoint_read("/nonexistent", &bytes, &nbytes));
    assert_null(bytes);
    assert_non_null(strstr(checkpoint_read("/dev/null", &bytes, &nbytes), "Not a directory"));
}

/* Each is copied to memory of its own size, so that the sanitizer sees a read behind the end. */
static void test_truncated(void **state)
{
    (void)state;
    size_t nbytes;
    uint8_t *bytes = make(7, &nbytes);
    for (size_t n = 0; n < nbytes; n++) {
        uint8_t *part = malloc(n ? n : 1);
        memcpy(part, bytes, n);
        const char *why = checkpoint_check(part, n);
        assert_non_null(strstr(why, n < 8 ? "not a checkpoint" : "truncated"));
        free(part);
    }
    free(bytes);
}

static void test_flipped(void **state)
{
    (void)state;
    size_t nbytes;
    uint8_t *bytes = make(7, &nbytes);
    for (size_t bit = 0; bit < 8 * nbytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_non_null(checkpoint_check(bytes, nbytes));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_null(checkpoint_check(bytes, nbytes));
    bytes[8] = 0;
    assert_non_null(strstr(checkpoint_check(bytes, nbytes), "of version 0"));
    free(bytes);
}

/* Make the checksum of BYTES fit, as whoever forges a checkpoint would. */
static void seal(uint8_t *bytes, size_t nbytes)
{
    uint64_t hash = XXH3_64bits_withSeed(bytes + 32, nbytes - 32, XXH3_64bits(bytes, 24));
    memcpy(bytes + 24, &hash, sizeof hash);
}

static void test_forged(void **state)
{
    (void)state;
    size_t nbytes, refused = 0;
    enum { N = 20000 };
    uint8_t *bytes = make(7, &nbytes), *forged = malloc(nbytes);
    const char *names[] = {"first", "empty", "last", "other"};
    for (uint64_t i = 0; i < N; i++) {
        memcpy(forged, bytes, nbytes);
        uint64_t bits = random_bits(3, 1, i);
        size_t at = bits % (32 + 3 * 40), count = 1 + (bits >> 32) % 8;
        for (size_t j = at; j < at + count; j++)
            forged[j] = bits & 1 << 20 ? 0xFF : (uint8_t)random_bits(3, 2, i * 8 + j);
        seal(forged, nbytes);
        const char *why = checkpoint_check(forged, nbytes);
        refused += why != NULL;
        for (size_t j = 0; !why && j < 4; j++) {
            struct section found;
            if (!checkpoint_find(forged, names[j], &found))
                continue;
            assert_true((const uint8_t *)found.bytes + found.nbytes <= forged + nbytes);
            XXH3_64bits(found.bytes, found.nbytes); /* reads it all */
        }
    }
    assert_true(refused > N / 4 && refused < N);
    free(forged);
    free(bytes);
}

static void test_foreign(void **state)
{
    (void)state;
    uint8_t *bytes;
    size_t nbytes;
    FILE *file = fopen(path, "w");
    fputs("something else that stands here", file);
    fclose(file);
    const char *why = checkpoint_read(folder, &bytes, &nbytes);
    assert_true(strstr(why, path) && strstr(why, "not a checkpoint"));
    assert_null(bytes);
}

/* A limit on the size of files is what a full disk looks like. */
static void test_full_disk(void **state)
{
    (void)state;
    size_t nbytes;
    free(make(1, &nbytes));
    struct rlimit before, small = {100, 0};
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    static const uint8_t large[1000];
    const struct section section = {"last", large, sizeof large};
    const char *why = checkpoint_write(folder, &section, 1);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_non_null(why);
    assert_non_null(strstr(why, "File too large"));
    uint8_t *bytes;
    struct section found;
    assert_null(checkpoint_read(folder, &bytes, &nbytes));
    assert_true(checkpoint_find(bytes, "last", &found) && found.nbytes == 300);
    free(bytes);
}

static void test_no_folder(void **state)
{
    (void)state;
    const struct section section = {"a", "b", 1};
    assert_non_null(strstr(checkpoint_write("/nonexistent/a/b", &section, 1), "No such file"));
    assert_non_null(strstr(checkpoint_write("/dev/null", &section, 1), "Not a directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_none),
        cmocka_unit_test(test_truncated),  cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_forged),     cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_full_disk),  cmocka_unit_test(test_no_folder),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
