/* SPDX-License-Identifier: Apache-2.0 */
/* Results as a table for people, or as one JSON object a line: the same fields either way. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

enum bench_format { BENCH_TEXT, BENCH_INTEGER, BENCH_REAL };

struct bench_field {
    const char *key;     /* JSON name */
    const char *heading; /* of its column; NULL: JSON only */
    const char *unit;    /* under the heading */
    int width;           /* of the column; negative: flush left */
    enum bench_format format;
    int digits; /* REAL: significant ones */
    const char *text;
    double number;
};

/* The two heading lines, as comments. GROUPS (may be NULL) is a line above them. */
void bench_report_head(const struct bench_field *fields, size_t nfields, const char *groups);
void bench_report_row(const struct bench_field *fields, size_t nfields, bool json);

#endif
