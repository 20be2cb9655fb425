/* SPDX-License-Identifier: Apache-2.0 */
/* What every program needs: ending with a clear message, memory that is there or the program is
 * not, numbers from the command line. The library returns a status for everything; a program, which
 * owns its process, may exit. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

/* Print "PROGRAM: message" on standard error and exit with status 1. The message says what is wrong
 * and what to do about it. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* COUNT * NBYTES zeroed bytes, 64-byte aligned, to be freed with free(); dies where there are none.
 */
void *must_alloc(size_t count, size_t nbytes);

/* The whole of TEXT as a number in [MIN, MAX]; dies naming OPTION, TEXT and the range. */
long parse_int(const char *option, const char *text, long min, long max);
double parse_real(const char *option, const char *text, double min, double max);

/* The index of TEXT in the NULL-terminated list WORDS; dies naming OPTION and all words. */
int parse_word(const char *option, const char *text, const char *const *words);

/* Monotonic time in seconds. */
double now_s(void);

#endif
