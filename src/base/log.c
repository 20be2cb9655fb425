/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets a log line. One mutex makes lines whole and calls of the user's function one at a time;
 * the level is read once, because a line may be wanted before any context exists. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/config.h"

#define LINE_MAX_NBYTES 1200

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static int highest_level;

/* Recursive, so that the user's function may call wring_log_set; `writing` drops lines that it
 * causes itself. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static bool writing;
static wring_log_fn user_fn;
static void *user_arg;

static void read_level(void)
{
    highest_level = wri_config_word("WRING_LOG");
}

bool wri_log_enabled(wring_log_level level)
{
    pthread_once(&level_once, read_level);
    return (int)level <= highest_level;
}

void wring_log_set(wring_log_fn fn, void *arg)
{
    pthread_mutex_lock(&lock);
    user_fn = fn;
    user_arg = arg;
    pthread_mutex_unlock(&lock);
}

/* One call is one line, also where the text holds bytes that a peer or a user chose. */
static void make_one_line(char *line)
{
    for (; *line; line++)
        if ((unsigned char)*line < ' ' || *line == 0x7f)
            *line = ' ';
}

static void write_line(wring_log_level level, const char *line)
{
    pthread_mutex_lock(&lock);
    if (!writing) {
        writing = true;
        if (user_fn)
            user_fn(user_arg, level, line);
        else
            fprintf(stderr, "wring[%ld] %s: %s\n", (long)getpid(), level_names[level], line);
        writing = false;
    }
    pthread_mutex_unlock(&lock);
}

void wri_log(wring_log_level level, const char *format, ...)
{
    if (!wri_log_enabled(level))
        return;
    int saved_errno = errno;
    char line[LINE_MAX_NBYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    make_one_line(line);
    write_line(level, line);
    errno = saved_errno;
}
