/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how numbers are written in specs: shortest form that reads back exactly, so that a spec
 * and its canonical text always mean, and hash to, the same. */
#include "codec/text.h"
#include "base/config.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void wri_text_add(struct wri_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = text->size - text->used;
    int wanted = vsnprintf(text->at + text->used, room, format, arguments);
    va_end(arguments);
    text->full |= (size_t)wanted >= room; /* negative: cannot be printed, so does not fit either */
    text->used = text->full ? text->size - 1 : text->used + (size_t)wanted;
}

/* printf writes the decimal point of the locale, which may be several bytes: whatever is not part
 * of a number in C stands for a point. The plus sign of exponents would separate stages. The first
 * character is a digit or a sign. */
static void normalise(char *number)
{
    char *out = number + 1;
    for (const char *in = out; *in; in++) {
        if (strchr("0123456789-e", *in))
            *out++ = *in;
        else if (*in != '+' && out[-1] != '.')
            *out++ = '.';
    }
    *out = '\0';
}

void wri_text_add_real(struct wri_text *text, double value)
{
    if (value == floor(value) && fabs(value) < 1e15) {
        wri_text_add(text, "%.0f", value);
        return;
    }
    char number[64];
    double back;
    int digits = 0;
    do {
        snprintf(number, sizeof(number), "%.*g", ++digits, value);
        normalise(number);
    } while (digits < 17 && !(wri_parse_real(number, strlen(number), &back) && back == value));
    wri_text_add(text, "%s", number);
}

const char *wri_word_at(const char *words, size_t index, size_t *length_out)
{
    for (; index > 0; index--) { /* at the end it stays there */
        words += strcspn(words, " ");
        words += *words == ' ';
    }
    *length_out = strcspn(words, " ");
    return words;
}
