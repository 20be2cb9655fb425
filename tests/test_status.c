/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of statuses and types, and the per-thread message of failures. */
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/status.h"

static void every_status_has_its_name_and_text(void **state)
{
    (void)state;
#define CHECK(name, value, text)                                                                   \
    assert_int_equal(name, value);                                                                 \
    assert_string_equal(wring_status_name(name), #name);                                           \
    assert_string_equal(wring_status_text(name), text);
    WRING_STATUS_LIST(CHECK)
#undef CHECK
    assert_string_equal(wring_status_name((wring_status)999), "WRING_E_UNKNOWN");
    assert_string_equal(wring_status_text((wring_status)-1), "unknown status");
}

static void the_message_is_kept_and_prefixed(void **state)
{
    (void)state;
    assert_int_equal(wri_fail(WRING_E_FULL, "%d of %s", 3, "four"), WRING_E_FULL);
    assert_string_equal(wring_error_message(), "3 of four");
    assert_int_equal(wri_fail_context(WRING_E_FULL, "rank %d", 7), WRING_E_FULL);
    assert_string_equal(wring_error_message(), "rank 7: 3 of four");
    wri_fail(WRING_E_STATE, "again: %s", wring_error_message());
    assert_string_equal(wring_error_message(), "again: rank 7: 3 of four");
}

static void a_long_message_is_cut_not_overrun(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    wri_fail(WRING_E_INTERNAL, "%s", text);
    size_t length = strlen(wring_error_message());
    for (int i = 0; i < 3; i++)
        wri_fail_context(WRING_E_INTERNAL, "%s", text);
    assert_int_equal(strlen(wring_error_message()), length);
    wri_fail_context(WRING_E_INTERNAL, "short");
    assert_memory_equal(wring_error_message(), "short: xxx", 10);
}

static wring_status forward(wring_status status, int *reached)
{
    WRI_TRY(status);
    *reached += 1;
    return WRING_OK;
}

static void try_forwards_only_failures(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(forward(WRING_E_TIMEOUT, &reached), WRING_E_TIMEOUT);
    assert_int_equal(reached, 0);
    assert_int_equal(forward(WRING_OK, &reached), WRING_OK);
    assert_int_equal(reached, 1);
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    bool clean = wring_error_message()[0] == '\0';
    wri_fail(WRING_E_SYSTEM, "elsewhere");
    return clean ? "clean" : NULL;
}

static void each_thread_has_its_own_message(void **state)
{
    (void)state;
    pthread_t thread;
    void *clean;
    wri_fail(WRING_E_STATE, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, &clean);
    assert_non_null(clean);
    assert_string_equal(wring_error_message(), "here");
}

static void the_version_is_the_header_s(void **state)
{
    (void)state;
    assert_int_equal(wring_version(),
                     WRING_VERSION_MAJOR * 10000 + WRING_VERSION_MINOR * 100 + WRING_VERSION_PATCH);
}

static void every_type_has_its_size_and_name(void **state)
{
    (void)state;
    const struct {
        wring_dtype dtype;
        size_t nbytes;
        const char *name;
    } cases[] = {{WRING_FLOAT32, 4, "float32"},   {WRING_FLOAT16, 2, "float16"},
                 {WRING_BFLOAT16, 2, "bfloat16"}, {WRING_FLOAT64, 8, "float64"},
                 {WRING_INT8, 1, "int8"},         {WRING_UINT8, 1, "uint8"},
                 {WRING_INT32, 4, "int32"},       {WRING_INT64, 8, "int64"},
                 {WRING_DTYPE_COUNT, 0, "?"},     {(wring_dtype)-1, 0, "?"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(wring_dtype_size(cases[i].dtype), cases[i].nbytes);
        assert_string_equal(wring_dtype_name(cases[i].dtype), cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name_and_text),
        cmocka_unit_test(the_message_is_kept_and_prefixed),
        cmocka_unit_test(a_long_message_is_cut_not_overrun),
        cmocka_unit_test(try_forwards_only_failures),
        cmocka_unit_test(each_thread_has_its_own_message),
        cmocka_unit_test(every_type_has_its_size_and_name),
        cmocka_unit_test(the_version_is_the_header_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
