/* SPDX-License-Identifier: Apache-2.0 */
/* How time is taken: each call by itself, monotonic clock, medians, because on a shared machine a
 * mean says more about the neighbours than about the code. */
#include "bench_measure.h"

#include <stdlib.h>

#include "program.h"
#include "progress.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* p95 by nearest rank: the smallest sample that at least 95 % do not exceed. */
static struct bench_statistics statistics(double *samples, size_t n)
{
    qsort(samples, n, sizeof *samples, compare);
    size_t rank95 = (95 * n + 99) / 100;
    return (struct bench_statistics){.median_s = (samples[(n - 1) / 2] + samples[n / 2]) / 2,
                                     .p95_s = samples[rank95 - 1],
                                     .min_s = samples[0]};
}

static double time_once(const struct bench_subject *subject)
{
    if (subject->before)
        subject->before(subject->arg);
    double start = now_s();
    subject->run(subject->arg);
    return now_s() - start;
}

void bench_measure(struct bench_subject *subjects, size_t nsubjects, int warmup, int iterations,
                   const char *note)
{
    size_t n = (size_t)iterations, done = 0;
    double *samples = must_alloc(nsubjects * n, sizeof *samples);
    struct progress progress;
    progress_begin(&progress, note ? nsubjects * (size_t)(warmup + iterations) : 0);
    for (int round = -warmup; round < iterations; round++)
        for (size_t s = 0; s < nsubjects; s++) {
            double seconds = time_once(&subjects[s]);
            if (round >= 0)
                samples[s * n + (size_t)round] = seconds;
            progress_update(&progress, ++done, note);
        }
    progress_end(&progress);
    for (size_t s = 0; s < nsubjects; s++)
        subjects[s].statistics = statistics(samples + s * n, n);
    free(samples);
}
