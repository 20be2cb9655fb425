/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks, their failure on demand, the two passes of an arena, and the host device on top. */
#include <stdarg.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/device.h"
#include "base/hash.h"
#include "base/memory.h"

static void sizes_are_checked(void **state)
{
    (void)state;
    size_t n = 42;
    assert_true(wri_size_mul(SIZE_MAX / 3, 3, &n));
    assert_int_equal(n, SIZE_MAX / 3 * 3);
    assert_false(wri_size_mul(SIZE_MAX / 2 + 1, 2, &n));
    assert_false(wri_size_add(SIZE_MAX, 1, &n));
    assert_int_equal(wri_round_up(65, 64), 128);
    assert_int_equal(wri_round_up(64, 64), 64);
    assert_int_equal(wri_div_up(SIZE_MAX, 2), SIZE_MAX / 2 + 1);
    assert_int_equal(wri_min(3, 2), 2);
}

static void blocks_are_aligned_and_zeroed(void **state)
{
    (void)state;
    /* Each size twice: the second block is likely to be the first one, used before. */
    const size_t counts[] = {0, 1, 1, 63, 63, 64, 65, 4097, 4097};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        void *block = NULL;
        assert_int_equal(wri_alloc(counts[i], 3, &block), WRING_OK);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % WRI_ALIGN, 0);
        for (size_t at = 0; at < counts[i] * 3; at++)
            assert_int_equal(((unsigned char *)block)[at], 0);
        memset(block, 0xff, counts[i] * 3);
        wri_free(block);
    }
    wri_free(NULL);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    const size_t sizes[][2] = {
        {SIZE_MAX, 2}, {SIZE_MAX / 2 + 1, 2}, {1, SIZE_MAX}, {PTRDIFF_MAX, 1}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *block = &i;
        assert_int_equal(wri_alloc(sizes[i][0], sizes[i][1], &block), WRING_E_MEMORY);
        assert_ptr_equal(block, &i);
        assert_non_null(strstr(wring_error_message(), "exceed"));
    }
}

static void the_chosen_allocation_fails(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        uint64_t before = wri_alloc_count();
        wri_alloc_fail_at(n);
        for (uint64_t i = 1; i <= 4; i++) {
            char *text = NULL;
            assert_int_equal(wri_strdup("text", &text), i == n ? WRING_E_MEMORY : WRING_OK);
            assert_true(i == n ? !text : strcmp(text, "text") == 0);
            wri_free(text);
        }
        assert_int_equal(wri_alloc_count() - before, 4);
    }
    void *block;
    wri_alloc_fail_at(1);
    wri_alloc_fail_at(0);
    assert_int_equal(wri_alloc(1, 1, &block), WRING_OK);
    wri_free(block);
}

struct parts {
    float *a;
    unsigned char *b;
    uint64_t *none, *c;
};

static void take_parts(struct wri_arena *arena, struct parts *parts)
{
    parts->a = wri_arena_take(arena, 17, sizeof(*parts->a));
    parts->b = wri_arena_take(arena, 1, 1);
    parts->none = wri_arena_take(arena, 0, sizeof(*parts->none));
    parts->c = wri_arena_take(arena, 9, sizeof(*parts->c));
}

static void an_arena_is_sized_then_carved(void **state)
{
    (void)state;
    struct wri_arena arena = {0};
    struct parts parts;
    uint64_t before = wri_alloc_count();
    take_parts(&arena, &parts);
    assert_null(parts.a);
    assert_int_equal(arena.used, 128 + 64 + 128);
    assert_int_equal(wri_arena_open(&arena), WRING_OK);
    take_parts(&arena, &parts);
    assert_int_equal(wri_alloc_count() - before, 1);
    assert_int_equal(arena.used, arena.capacity);
    assert_ptr_equal(parts.a, arena.base);
    assert_ptr_equal(parts.b, arena.base + 128);
    assert_ptr_equal(parts.c, arena.base + 192);
    memset(parts.c, 1, 9 * sizeof(*parts.c));
    wri_arena_close(&arena);
    assert_null(arena.base);
    wri_arena_close(&arena);
}

static void an_arena_reports_overflow_and_lack(void **state)
{
    (void)state;
    struct wri_arena arena = {0};
    wri_arena_take(&arena, SIZE_MAX / 2, 4);
    wri_arena_take(&arena, 1, 1);
    assert_int_equal(wri_arena_open(&arena), WRING_E_MEMORY);
    wri_arena_close(&arena);

    struct wri_arena second = {0};
    wri_arena_take(&second, 1, 1);
    wri_alloc_fail_at(1);
    assert_int_equal(wri_arena_open(&second), WRING_E_MEMORY);
    wri_arena_close(&second);
}

static void the_host_is_a_device(void **state)
{
    (void)state;
    const struct wri_device *host = &wri_device_host;
    const float source[3] = {1, 2, 3};
    void *block, *event = NULL;
    assert_int_equal(host->size, sizeof(*host));
    assert_true(host->host);
    assert_int_equal(host->alloc(host, NULL, sizeof(source), &block), WRING_OK);
    assert_int_equal(host->copy(host, NULL, block, source, sizeof(source)), WRING_OK);
    assert_int_equal(host->copy(host, NULL, NULL, NULL, 0), WRING_OK);
    assert_memory_equal(block, source, sizeof(source));
    assert_int_equal(host->event_open(host, &event), WRING_OK);
    assert_non_null(event);
    assert_int_equal(host->event_record(host, event, NULL), WRING_OK);
    assert_int_equal(host->event_wait(host, event, NULL), WRING_OK);
    assert_int_equal(host->event_test(host, event), WRING_OK);
    host->event_close(host, event);
    host->free(host, NULL, block);
}

/* The reference values of XXH3 for the empty input: frames and digests must not change. */
static void the_hash_is_frozen(void **state)
{
    (void)state;
    assert_true(wri_hash("", 0, 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(wri_hash("abc", 3, 0) == UINT64_C(0x78af5f94892f3950));
    assert_true(wri_hash("abc", 3, 1) != wri_hash("abc", 3, 0));
}

static void the_clock_never_goes_back(void **state)
{
    (void)state;
    int64_t last = wri_clock_ns();
    for (int i = 0; i < 1000; i++) {
        int64_t now = wri_clock_ns();
        assert_true(now >= last);
        last = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(blocks_are_aligned_and_zeroed),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(the_chosen_allocation_fails),
        cmocka_unit_test(an_arena_is_sized_then_carved),
        cmocka_unit_test(an_arena_reports_overflow_and_lack),
        cmocka_unit_test(the_host_is_a_device),
        cmocka_unit_test(the_hash_is_frozen),
        cmocka_unit_test(the_clock_never_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
