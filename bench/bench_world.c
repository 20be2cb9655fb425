/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks of a benchmark are brought together and compare notes. */
#include "bench_world.h"

#include "program.h"

void bench_require(wring_status status)
{
    if (status != WRING_OK)
        die("%s (%s)", wring_error_message(), wring_status_name(status));
}

void bench_world_open(struct bench_world *world)
{
    /* Codec "none": what the benchmark exchanges for itself stays exact. */
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    options.codec = "none";
    bench_require(wring_context_create(NULL, &world->context));
    bench_require(wring_comm_create(world->context, &options, &world->comm));
    world->rank = wring_comm_rank(world->comm);
    world->nranks = wring_comm_size(world->comm);
}

void bench_world_close(struct bench_world *world)
{
    bench_require(wring_barrier(world->comm));
    wring_comm_destroy(world->comm);
    wring_context_destroy(world->context);
}

double bench_world_reduce(const struct bench_world *world, double value, wring_op op)
{
    double result;
    bench_require(wring_allreduce(world->comm, &value, &result, 1, WRING_FLOAT64, op));
    return result;
}
