/* SPDX-License-Identifier: Apache-2.0 */
/* When to draw: not before the work has run for half a second, when the pace says whether it will
 * take more than two. */
#include "progress.h"

#include "program.h"

#include <stdio.h>
#include <unistd.h>

#define WIDTH 30

void progress_begin(struct progress *progress, size_t total)
{
    double now = now_s();
    *progress = (struct progress){.total = total,
                                  .terminal = total && isatty(STDERR_FILENO),
                                  .started_s = now,
                                  .next_s = now + 0.5};
}

void progress_update(struct progress *progress, size_t done, const char *note)
{
    double now = progress->terminal ? now_s() : 0;
    if (!progress->terminal || now < progress->next_s || done == 0)
        return;
    double elapsed = now - progress->started_s;
    double whole = elapsed * (double)progress->total / (double)done;
    if (whole < 2)
        return;
    progress->next_s = now + 0.1;
    progress->drawn = true;
    char bar[WIDTH + 1];
    for (size_t i = 0; i < WIDTH; i++)
        bar[i] = i * progress->total < done * WIDTH ? '#' : '.';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %zu/%zu, %.0f s left  %s", bar, done, progress->total,
            whole - elapsed, note);
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
}
