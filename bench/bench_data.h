/* SPDX-License-Identifier: Apache-2.0 */
/* Input data: distributions for codecs, exactly summable numbers for collectives. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include <stddef.h>
#include <stdint.h>

#include <wring/wring.h>

/* Names of the distributions, NULL-terminated. */
extern const char *const bench_distributions[];

/* COUNT values of distribution number DIST; the same ones every time. */
void bench_fill_distribution(int dist, float *dst, size_t count);

/* Numbers of which any sum or average over NRANKS ranks is exact in DTYPE, whatever its order. */
struct bench_exact {
    wring_dtype dtype;
    wring_op op;
    int nranks;
    int magnitude; /* values are whole multiples of SCALE, up to magnitude * scale */
    int scale;
};
struct bench_exact bench_exact_make(wring_dtype dtype, wring_op op, int nranks);

/* Element I of RANK's input, and of the result. */
double bench_exact_value(const struct bench_exact *exact, int rank, size_t i);
double bench_exact_result(const struct bench_exact *exact, size_t i);

/* Fill DST with RANK's input; element I of an array as a number. */
void bench_exact_fill(const struct bench_exact *exact, int rank, void *dst, size_t count);
double bench_load(wring_dtype dtype, const void *src, size_t i);

#endif
