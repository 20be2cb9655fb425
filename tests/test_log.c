/* SPDX-License-Identifier: Apache-2.0 */
/* Who receives which line: level, callback, one call at a time, one line per call. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/status.h"

#define THREADS 4
#define LINES 500

struct record {
    int lines, inside, overlaps;
    wring_log_level level;
    char last[2048];
};

static void keep(void *arg, wring_log_level level, const char *line)
{
    struct record *record = arg;
    record->overlaps += record->inside++ != 0;
    record->lines++;
    sched_yield();
    errno = 5;
    record->level = level;
    strncpy(record->last, line, sizeof(record->last) - 1);
    record->inside--;
}

static void lines_up_to_the_level_arrive(void **state)
{
    (void)state;
    struct record record = {0};
    wring_log_set(keep, &record);
    assert_true(wri_log_enabled(WRING_LOG_INFO));
    assert_false(wri_log_enabled(WRING_LOG_DEBUG));
    wri_log(WRING_LOG_DEBUG, "not wanted");
    wri_fail(WRING_E_STATE, "logged at debug level only");
    assert_int_equal(record.lines, 0);
    errno = 77;
    wri_log(WRING_LOG_WARN, "%d\nlines\x1b[1m", 2);
    assert_int_equal(errno, 77);
    assert_int_equal(record.lines, 1);
    assert_int_equal(record.level, WRING_LOG_WARN);
    assert_string_equal(record.last, "2 lines [1m");
    wring_log_set(NULL, NULL);
}

/* A callback may log and replace itself without deadlock; its own lines are dropped. */
static void keep_and_log(void *arg, wring_log_level level, const char *line)
{
    keep(arg, level, line);
    wri_log(WRING_LOG_ERROR, "from inside");
    wring_log_set(keep, arg);
}

static void a_callback_may_call_back(void **state)
{
    (void)state;
    struct record record = {0};
    wring_log_set(keep_and_log, &record);
    wri_log(WRING_LOG_INFO, "first");
    assert_int_equal(record.lines, 1);
    wri_log(WRING_LOG_INFO, "second");
    assert_int_equal(record.lines, 2);
    assert_string_equal(record.last, "second");
    wring_log_set(NULL, NULL);
}

static void *log_lines(void *unused)
{
    (void)unused;
    for (int i = 0; i < LINES; i++)
        wri_log(WRING_LOG_INFO, "line %d", i);
    return NULL;
}

static void threads_take_turns(void **state)
{
    (void)state;
    struct record record = {0};
    pthread_t threads[THREADS];
    wring_log_set(keep, &record);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_lines, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    wring_log_set(NULL, NULL);
    assert_int_equal(record.lines, THREADS * LINES);
    assert_int_equal(record.overlaps, 0);
}

static void standard_error_gets_whole_lines(void **state)
{
    (void)state;
    int pipe_fds[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipe_fds), 0);
    dup2(pipe_fds[1], STDERR_FILENO);
    wri_log(WRING_LOG_ERROR, "lost %s", "peer");
    dup2(saved, STDERR_FILENO);
    char text[100] = "", expected[100];
    assert_true(read(pipe_fds[0], text, sizeof(text) - 1) > 0);
    snprintf(expected, sizeof(expected), "wring[%ld] error: lost peer\n", (long)getpid());
    assert_string_equal(text, expected);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    close(saved);
}

int main(void)
{
    setenv("WRING_LOG", "info", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_up_to_the_level_arrive),
        cmocka_unit_test(a_callback_may_call_back),
        cmocka_unit_test(threads_take_turns),
        cmocka_unit_test(standard_error_gets_whole_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
