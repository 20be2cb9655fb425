/* SPDX-License-Identifier: Apache-2.0 */
/* How results look. Every line that is not a row begins with '#', as nccl-tests does, so that
 * plotting programs take either. */
#include "bench_report.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void print_heading(const char *text, const struct bench_field *field, bool first)
{
    int narrower = field->width > 0 ? field->width - 1 : field->width + 1;
    printf("%s%*s", first ? "#" : " ", first ? narrower : field->width, text);
}

void bench_report_head(const struct bench_field *fields, size_t nfields, const char *groups)
{
    if (groups)
        printf("# %s\n", groups);
    for (int line = 0; line < 2; line++) {
        bool first = true;
        for (size_t i = 0; i < nfields; i++) {
            if (!fields[i].heading)
                continue;
            print_heading(line == 0 ? fields[i].heading : fields[i].unit, &fields[i], first);
            first = false;
        }
        putchar('\n');
    }
    fflush(stdout);
}

/* Plain digits where they fit, else an exponent; what was not measured is a dash. */
static void format_real(const struct bench_field *field, char *text, size_t nbytes)
{
    double size = fabs(field->number);
    int whole = isfinite(size) && size > 0 ? (int)floor(log10(size)) + 1 : 1;
    if (!isfinite(size))
        snprintf(text, nbytes, "-");
    else if (whole < -2 || whole > abs(field->width))
        snprintf(text, nbytes, "%.2e", field->number);
    else
        snprintf(text, nbytes, "%.*f", whole < field->digits ? field->digits - whole : 0,
                 field->number);
}

static void print_cell(const struct bench_field *field)
{
    char text[64];
    if (field->format == BENCH_TEXT)
        snprintf(text, sizeof text, "%s", field->text);
    else if (field->format == BENCH_INTEGER)
        snprintf(text, sizeof text, "%.0f", field->number);
    else
        format_real(field, text, sizeof text);
    printf("%*s", field->width, text);
}

static json_t *json_value(const struct bench_field *field)
{
    if (field->format == BENCH_TEXT)
        return json_string(field->text);
    if (!isfinite(field->number))
        return json_null();
    if (field->format == BENCH_INTEGER)
        return json_integer((json_int_t)field->number);
    return json_real(field->number);
}

static void print_json(const struct bench_field *fields, size_t nfields)
{
    json_t *row = json_object();
    for (size_t i = 0; i < nfields; i++)
        json_object_set_new(row, fields[i].key, json_value(&fields[i]));
    json_dumpf(row, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(row);
}

void bench_report_row(const struct bench_field *fields, size_t nfields, bool json)
{
    if (json) {
        print_json(fields, nfields);
    } else {
        bool first = true;
        for (size_t i = 0; i < nfields; i++) {
            if (!fields[i].heading)
                continue;
            if (!first)
                putchar(' ');
            print_cell(&fields[i]);
            first = false;
        }
        putchar('\n');
    }
    fflush(stdout);
}
