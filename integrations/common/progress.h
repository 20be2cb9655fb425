/* SPDX-License-Identifier: Apache-2.0 */
/* A progress bar on standard error: drawn on a terminal only, and only for work that takes longer
 * than two seconds, so that scripts and short runs stay silent. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

struct progress {
    size_t total;
    bool terminal, drawn;
    double started_s, next_s;
};

/* Begin work of TOTAL units; a total of 0 never draws (ranks other than 0 use that). */
void progress_begin(struct progress *progress, size_t total);

/* DONE units are finished. NOTE is shown at the end of the line. Cheap: draws ten times a second.
 */
void progress_update(struct progress *progress, size_t done, const char *note);

/* Wipe the bar. */
void progress_end(struct progress *progress);

#endif
