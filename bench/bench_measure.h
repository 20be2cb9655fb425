/* SPDX-License-Identifier: Apache-2.0 */
/* The one timing loop of wring-bench, and its statistics. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>

struct bench_statistics {
    double median_s, p95_s, min_s;
};

/* Something to time. BEFORE (may be NULL) runs untimed ahead of each RUN. Both end the program
 * where they fail. */
struct bench_subject {
    void (*before)(void *arg);
    void (*run)(void *arg);
    void *arg;
    struct bench_statistics statistics; /* out */
};

/* Run all subjects in turn, WARMUP rounds and then ITERATIONS timed ones: A B C A B C ... What one
 * suffers from the machine's other work, its neighbours suffer too, so ratios between them hold. A
 * progress bar says NOTE; NULL: no bar. */
void bench_measure(struct bench_subject *subjects, size_t nsubjects, int warmup, int iterations,
                   const char *note);

#endif
