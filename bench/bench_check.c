/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far off may a result be? One encoding errs by at most E times the largest magnitude of its
 * block, E being stated in the codec's file. With inputs up to V on each of n ranks, `direct` and
 * `allgather` encode n inputs (n E V) and one sum (E n V); a ring encodes partial sums of 1..n
 * inputs, E V n (n + 1) / 2. No element may be off by more than the larger of the two. Codecs that
 * drop values have no such bound, only that an encoding does not err by more than the norm of what
 * it encodes: there the norm of the whole error is held to the same sum with E = 1, and dec(x)
 * allowed twice the norm of x.
 */
#include "bench_check.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Largest error of one encoding, in units of the largest magnitude of its block. Twice a rounding
 * error, because stochastic rounding may go either way. */
static const struct {
    const char *stage;
    double error;
} bounds[] = {
    {"none", 0}, {"bf16", 0x1p-8}, {"fp16", 0x1p-11}, {"int8", 2 / 254.0}, {"int4", 2 / 14.0},
};

static double stage_error(const char *stage, size_t length)
{
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (strlen(bounds[i].stage) == length && strncmp(bounds[i].stage, stage, length) == 0)
            return bounds[i].error;
    return strncmp(stage, "ef", length) == 0 && length == 2 ? 0 : INFINITY;
}

/* Of a whole chain; INFINITY for one that drops values. */
static double chain_error(const char *spec)
{
    double error = 0;
    while (*spec) {
        size_t name = strcspn(spec, ":+");
        error = fmax(error, stage_error(spec, name));
        spec += strcspn(spec, "+");
        spec += *spec == '+';
    }
    return error;
}

/* Encodings times inputs that they hold, for the worst algorithm; see above. */
static double encoded_inputs(int n)
{
    return fmax(2.0 * n, n * (n + 1) / 2.0);
}

struct bench_verdict bench_check(const struct bench_exact *exact, const char *spec,
                                 const void *result, size_t count)
{
    double largest = (double)exact->magnitude * exact->scale;
    double unit =
        encoded_inputs(exact->nranks) * largest / (exact->op == WRING_AVG ? exact->nranks : 1);
    double chain = chain_error(spec);
    double limit = isfinite(chain) ? chain * (1 + chain) * unit : INFINITY;
    double error = 0, power = 0;
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        double want = bench_exact_result(exact, i);
        double off = bench_load(exact->dtype, result, i) - want;
        wrong += !(fabs(off) <= limit) || !isfinite(off);
        error += off * off;
        power += want * want;
    }
    if (!isfinite(chain) && !(sqrt(error) <= 2 * unit * sqrt((double)count)))
        wrong = count;
    return (struct bench_verdict){.wrong = wrong,
                                  .rel_l2 = power > 0 ? sqrt(error / power) : sqrt(error)};
}
