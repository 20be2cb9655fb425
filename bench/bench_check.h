/* SPDX-License-Identifier: Apache-2.0 */
/* Is a result right? Exact for lossless codecs, within the codec's stated bound for the others. */
#ifndef BENCH_CHECK_H
#define BENCH_CHECK_H

#include "bench_data.h"

struct bench_verdict {
    size_t wrong;  /* elements outside the bound, or not finite */
    double rel_l2; /* norm of the error over norm of the exact result */
};

/* SPEC: of the codec that RESULT came through. */
struct bench_verdict bench_check(const struct bench_exact *exact, const char *spec,
                                 const void *result, size_t count);

#endif
