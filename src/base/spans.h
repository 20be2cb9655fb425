/* SPDX-License-Identifier: Apache-2.0 */
/* Which of many, for people. */
#ifndef WRI_BASE_SPANS_H
#define WRI_BASE_SPANS_H

#include <stdbool.h>
#include <stddef.h>

typedef bool (*wri_chosen_fn)(const void *arg, int number);

/* "1, 3-7": the numbers below N that CHOSEN is true of, cut off where TEXT ends. */
void wri_spans(int n, wri_chosen_fn chosen, const void *arg, char *text, size_t nbytes);

#endif
