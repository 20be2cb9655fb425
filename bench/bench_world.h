/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that take part, and small exact reductions between them. */
#ifndef BENCH_WORLD_H
#define BENCH_WORLD_H

#include <wring/wring.h>

struct bench_world {
    wring_context *context;
    wring_comm *comm;
    int rank, nranks;
};

/* Join the ranks that the launcher (mpirun, torchrun, WRING_RANK ...) started. */
void bench_world_open(struct bench_world *world);
void bench_world_close(struct bench_world *world);

/* End the program with the library's message unless STATUS is WRING_OK. */
void bench_require(wring_status status);

/* VALUE reduced over all ranks, exactly. */
double bench_world_reduce(const struct bench_world *world, double value, wring_op op);

#endif
