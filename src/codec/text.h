/* SPDX-License-Identifier: Apache-2.0 */
/* Text that is built piece by piece in a buffer of fixed size: canonical specs and help. */
#ifndef WRI_CODEC_TEXT_H
#define WRI_CODEC_TEXT_H

#include <wring/wring.h>

struct wri_text {
    char *at; /* always terminated */
    size_t size, used;
    bool full; /* something did not fit */
};

void wri_text_add(struct wri_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The shortest digits that wri_parse_real reads back as VALUE, in any locale, without '+'. */
void wri_text_add_real(struct wri_text *text, double value);

/* The INDEX-th of the WORDS, which are separated by spaces; length 0 past the end. */
const char *wri_word_at(const char *words, size_t index, size_t *length_out);

#endif
