/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from the environment: values, refusals by name, the same in every locale; and the rows
 * of config.def themselves. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/config.h"
#include "comma_locale.h"

static const char *const names[] = {
#define WRI_SETTING(kind, field, env, def, min, max, choices, help) env,
#include "base/config.def"
#undef WRI_SETTING
};
#define NAMES (sizeof(names) / sizeof(names[0]))

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < NAMES; i++)
        unsetenv(names[i]);
    return 0;
}

static void every_default_is_accepted(void **state)
{
    (void)state;
    struct wri_config config;
    assert_int_equal(wri_config_load(&config), WRING_OK);
    assert_string_equal(config.codec, "none");
    assert_int_equal(config.timeout_ms, 600000);
    assert_int_equal(config.bucket_nbytes, 25 << 20);
    assert_int_equal(config.log, WRING_LOG_WARN);
    assert_int_equal(config.checksum, 2);
    assert_int_equal(config.rank, -1);
    assert_true(config.link_gbps == 10.0);
}

static void the_environment_overrides(void **state)
{
    (void)state;
    struct wri_config config;
    setenv("WRING_CODEC", "ef+topk:0.01", 1);
    setenv("WRING_LOG", "debug", 1);
    setenv("WRING_WINDOW", "64", 1);
    setenv("WRING_SEED", "9223372036854775807", 1);
    setenv("WRING_PIECE", "3k", 1);
    setenv("WRING_BUCKET", "2G", 1);
    setenv("WRING_LINK_GBPS", "2.5e1", 1);
    setenv("WRING_CHECKSUM", "1", 1);
    setenv("WRING_ALGORITHM", "", 1);
    assert_int_equal(wri_config_load(&config), WRING_OK);
    assert_string_equal(config.codec, "ef+topk:0.01");
    assert_int_equal(config.log, WRING_LOG_DEBUG);
    assert_int_equal(config.window, 64);
    assert_true(config.seed == INT64_MAX);
    assert_int_equal(config.piece_nbytes, 3072);
    assert_true(config.bucket_nbytes == (uint64_t)2 << 30);
    assert_true(config.link_gbps == 25.0);
    assert_int_equal(config.checksum, 1);
    assert_string_equal(config.algorithm, "auto");
    assert_int_equal(wri_config_word("WRING_LOG"), WRING_LOG_DEBUG);
}

/* Each is refused by its name, with what would be accepted, and leaves the target alone. */
static void bad_values_are_refused_by_name(void **state)
{
    (void)state;
    const char *const cases[][3] = {
        {"WRING_WINDOW", "0", "1 to 64"},
        {"WRING_WINDOW", "65", "1 to 64"},
        {"WRING_WINDOW", "4x", "1 to 64"},
        {"WRING_WINDOW", " 4", "1 to 64"},
        {"WRING_WINDOW", "4.0", "1 to 64"},
        {"WRING_WINDOW", "4K", "1 to 64"},
        {"WRING_WINDOW", "-", "1 to 64"},
        {"WRING_SEED", "9223372036854775808", "integer"},
        {"WRING_SEED", "-1", "integer"},
        {"WRING_PIECE", "K", "K, M, G meaning"},
        {"WRING_PIECE", "2G", "1073741824"},
        {"WRING_PIECE", "1T", "K, M, G meaning"},
        {"WRING_PIECE", "17179869184G", "K, M, G meaning"},
        {"WRING_PIECE", "00000000000000000000000000000000000001", "K, M, G meaning"},
        {"WRING_LINK_GBPS", "0", "0.001 to 100000"},
        {"WRING_LINK_GBPS", "nan", "0.001 to 100000"},
        {"WRING_LINK_GBPS", "50%", "0.001 to 100000"},
        {"WRING_LINK_GBPS", "1,5", "0.001 to 100000"},
        {"WRING_CHECKSUM", "2", "0 1 auto"},
        {"WRING_CHECKSUM", "yes", "0 1 auto"},
        {"WRING_FORCE", "auto", "0 1"},
        {"WRING_TIMEOUT", "5s", "milliseconds, an integer from 10 to 86400000"},
        {"WRING_JOIN_TIMEOUT", "9", "milliseconds, an integer from 10"},
        {"WRING_HEARTBEAT_TIMEOUT", "30.0", "milliseconds, an integer from 100"},
        {"WRING_MODULES", "lib", "an absolute path"},
        {"WRING_MODULES", "./lib", "an absolute path"},
        {"WRING_CPU", "avx", "auto scalar avx2"},
        {"WRING_CPU", "auto scalar", "auto scalar avx2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct wri_config config = {.window = 4711};
        setenv(cases[i][0], cases[i][1], 1);
        assert_int_equal(wri_config_load(&config), WRING_E_CONFIG);
        assert_int_equal(config.window, 4711);
        assert_non_null(strstr(wring_error_message(), cases[i][0]));
        assert_non_null(strstr(wring_error_message(), cases[i][1]));
        assert_non_null(strstr(wring_error_message(), cases[i][2]));
        unsetenv(cases[i][0]);
    }
}

/* Neither information nor a refusal shows it. */
static void a_secret_is_never_shown(void **state)
{
    (void)state;
    static const char *const values[] = {"fifteen bytes..", "sixteen bytes..."};
    struct wri_config config;
    wring_info info;
    for (int good = 0; good < 2; good++) {
        setenv("WRING_SECRET", values[good], 1);
        assert_int_equal(wri_config_load(&config), good ? WRING_OK : WRING_E_CONFIG);
        assert_non_null(strstr(wring_error_message(), "WRING_SECRET=(not shown): expected text"));
        for (size_t i = 0; wri_config_info(i, &info); i++)
            if (strcmp(info.name, "WRING_SECRET") == 0)
                assert_string_equal(info.value, good ? "(not shown)" : "(not shown) (refused)");
    }
    assert_string_equal(config.secret, values[1]);
    unsetenv("WRING_SECRET");
}

static void a_long_text_is_refused_not_cut(void **state)
{
    (void)state;
    struct wri_config config;
    char text[WRI_CONFIG_TEXT_MAX + 1];
    memset(text, 'a', WRI_CONFIG_TEXT_MAX);
    text[0] = text[1] = '/';
    text[WRI_CONFIG_TEXT_MAX] = '\0';
    setenv("WRING_MODULES", text, 1);
    assert_int_equal(wri_config_load(&config), WRING_E_CONFIG);
    setenv("WRING_MODULES", text + 1, 1);
    assert_int_equal(wri_config_load(&config), WRING_OK);
    assert_string_equal(config.modules, text + 1);
}

static void a_bad_word_counts_as_unset_before_loading(void **state)
{
    (void)state;
    setenv("WRING_LOG", "loud", 1);
    assert_int_equal(wri_config_word("WRING_LOG"), WRING_LOG_WARN);
    setenv("WRING_CPU", "avx2", 1);
    assert_int_equal(wri_config_word("WRING_CPU"), 2);
}

static void help_covers_every_setting(void **state)
{
    (void)state;
    wring_info info;
    setenv("WRING_WINDOW", "8", 1);
    setenv("WRING_LOG", "loud", 1);
    for (size_t i = 0; i < NAMES; i++) {
        assert_true(wri_config_info(i, &info));
        assert_string_equal(info.name, names[i]);
        assert_true(strlen(info.summary) > 5);
        assert_non_null(strstr(info.detail, "default "));
        if (strcmp(info.name, "WRING_WINDOW") == 0) {
            assert_string_equal(info.value, "8");
            assert_string_equal(info.detail, "default 4; an integer from 1 to 64");
        }
        if (strcmp(info.name, "WRING_LOG") == 0)
            assert_string_equal(info.value, "loud (refused)");
    }
    assert_false(wri_config_info(NAMES, &info));
}

struct real_case {
    const char *text;
    bool good;
    double value;
};

static const struct real_case reals[] = {
    {"0", true, 0},
    {"-0.25", true, -0.25},
    {"+.5", true, 0.5},
    {"5.", true, 5},
    {"1e3", true, 1000},
    {"1E-2", true, 0.01},
    {"1%", true, 0.01},
    {"0.7%", true, 0.007},
    {"1e1%", false, 0},
    {"0.01", true, 0.01},
    {"0.1", true, 0.1},
    {"179769313486231570000000000000000000000", true, 1.7976931348623157e38},
    {"", false, 0},
    {".", false, 0},
    {"-", false, 0},
    {"+-1", false, 0},
    {"1e", false, 0},
    {"1e+", false, 0},
    {"e5", false, 0},
    {"1,5", false, 0},
    {"1.5.2", false, 0},
    {" 1", false, 0},
    {"1 ", false, 0},
    {"0x10", false, 0},
    {"inf", false, 0},
    {"nan", false, 0},
    {"1e999", false, 0},
    {"%", false, 0},
    {"1%%", false, 0},
    {"0000000000000000000000000000000000000000000000000000000000000001", false, 0},
};

static void check_reals(void)
{
    for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++) {
        double value = 123;
        bool good = wri_parse_real(reals[i].text, strlen(reals[i].text), &value);
        if (good != reals[i].good || value != (good ? reals[i].value : 123))
            fail_msg("\"%s\" gave %d %g", reals[i].text, good, value);
    }
    double value;
    assert_true(wri_parse_real("1.5,rest", 3, &value));
    assert_true(value == 1.5);
}

static void numbers_are_read_exactly(void **state)
{
    (void)state;
    check_reals();
}

static void a_decimal_comma_changes_nothing(void **state)
{
    (void)state;
    char folder[] = "/tmp/wring_locale_XXXXXX", text[8];
    bool entered = comma_locale_enter(folder);
    snprintf(text, sizeof(text), "%.1f", 0.5);
    if (entered) {
        struct wri_config config;
        check_reals();
        setenv("WRING_LINK_GBPS", "2.5", 1);
        assert_int_equal(wri_config_load(&config), WRING_OK);
        assert_true(config.link_gbps == 2.5);
    }
    assert_true(comma_locale_leave(folder));
    if (!entered)
        skip();
    assert_string_equal(text, "0,5");
}

struct lines {
    int count;
    char text[4096];
};

static void keep(void *arg, wring_log_level level, const char *line)
{
    struct lines *lines = arg;
    assert_int_equal(level, WRING_LOG_WARN);
    lines->count++;
    strncat(lines->text, line, sizeof(lines->text) - strlen(lines->text) - 1);
}

/* Must run first: the warning comes once per process. */
static void unknown_variables_are_named_once(void **state)
{
    (void)state;
    struct lines lines = {0};
    struct wri_config config;
    setenv("WRING_CODEX", "none", 1);
    setenv("WRING_UCX_TLS", "tcp", 1);
    setenv("WRING_SPAWN_FD", "3", 1);
    setenv("WRING_BINARY", "x", 1);
    setenv("WRING", "x", 1);
    wring_log_set(keep, &lines);
    assert_int_equal(wri_config_load(&config), WRING_OK);
    assert_int_equal(wri_config_load(&config), WRING_OK);
    wring_log_set(NULL, NULL);
    assert_int_equal(lines.count, 2);
    assert_non_null(strstr(lines.text, "WRING_CODEX is no setting"));
    assert_non_null(strstr(lines.text, "WRING_BINARY is no setting"));
}

int main(void)
{
    clear_environment(NULL);
#define TEST(function) cmocka_unit_test_setup(function, clear_environment)
    const struct CMUnitTest tests[] = {
        TEST(unknown_variables_are_named_once), TEST(every_default_is_accepted),
        TEST(the_environment_overrides),        TEST(bad_values_are_refused_by_name),
        TEST(a_long_text_is_refused_not_cut),   TEST(a_bad_word_counts_as_unset_before_loading),
        TEST(help_covers_every_setting),        TEST(numbers_are_read_exactly),
        TEST(a_decimal_comma_changes_nothing),  TEST(a_secret_is_never_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
