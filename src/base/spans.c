/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of numbers are told by their ends, so that many fit into a message. */
#include "base/spans.h"

#include <stdio.h>

void wri_spans(int n, wri_chosen_fn chosen, const void *arg, char *text, size_t nbytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int number = 0; number < n && used < nbytes; number++) {
        int last = number;
        if (!chosen(arg, number))
            continue;
        while (last + 1 < n && chosen(arg, last + 1))
            last++;
        used += (size_t)snprintf(text + used, nbytes - used, last > number ? "%s%d-%d" : "%s%d",
                                 used ? ", " : "", number, last);
        number = last;
    }
}
