/* SPDX-License-Identifier: Apache-2.0 */
/* Ends, memory and numbers of the programs. Programs never call setlocale(), so that numbers are
 * read and printed with a point everywhere. */
#include "program.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void die(const char *format, ...)
{
    char message[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    /* One write, so that lines of several ranks do not mix. */
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, message);
    exit(EXIT_FAILURE);
}

void *must_alloc(size_t count, size_t nbytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, nbytes, &total) || total > SIZE_MAX - 64)
        die("%zu times %zu bytes do not fit the address space", count, nbytes);
    total = (total + 63) / 64 * 64;
    void *block = aligned_alloc(64, total ? total : 64);
    if (!block)
        die("out of memory: %zu bytes wanted", total);
    return memset(block, 0, total);
}

long parse_int(const char *option, const char *text, long min, long max)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < min || value > max)
        die("%s: '%s' is not a whole number from %ld to %ld", option, text, min, max);
    return value;
}

double parse_real(const char *option, const char *text, double min, double max)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= min && value <= max))
        die("%s: '%s' is not a number from %g to %g", option, text, min, max);
    return value;
}

int parse_word(const char *option, const char *text, const char *const *words)
{
    char known[512] = "";
    for (int i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0)
            return i;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", words[i]);
    }
    die("%s: '%s' is not known; choose one of: %s", option, text, known);
}

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
