/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a group in one process, each with a scheduler and its gradients. */
#ifndef TESTS_SCHEDULER_GROUP_H
#define TESTS_SCHEDULER_GROUP_H

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "self_ranks.h"

#include <wring/wring.h>

#define RANKS_MAX 5
#define PARAMS_MAX 4
#define COUNT_MAX 3000

/* Ranks, their schedulers, and their gradients: grad[rank][param]. */
struct group {
    wring_context *context;
    wring_comm *comm[RANKS_MAX];
    wring_scheduler *scheduler[RANKS_MAX];
    int nranks, nparams;
    float grad[RANKS_MAX][PARAMS_MAX][COUNT_MAX];
};

/* COUNTS: of NPARAMS float32 parameters; OPTIONS: with codec as text. */
static inline void group_open(struct group *group, int nranks, int nparams, const size_t *counts,
                              const char *codec, const wring_scheduler_options *options)
{
    memset(group, 0, sizeof *group);
    group->nranks = nranks;
    group->nparams = nparams;
    wring_comm_options comm = WRING_COMM_OPTIONS_INIT;
    comm.codec = codec;
    comm.algorithm = "direct";
    group->context = self_open(nranks, &comm, group->comm);
    for (int r = 0; r < nranks; r++) {
        require(wring_scheduler_create(group->comm[r], options, &group->scheduler[r]));
        for (int p = 0; p < nparams; p++) {
            char name[16];
            int param;
            snprintf(name, sizeof name, "p%d", p);
            require(wring_scheduler_add(group->scheduler[r], name, WRING_FLOAT32, 1, &counts[p],
                                        group->grad[r][p], &param));
            assert_int_equal(param, p);
        }
    }
}

static inline void group_close(struct group *group)
{
    for (int r = 0; r < group->nranks; r++)
        wring_scheduler_destroy(group->scheduler[r]);
    self_close(group->context, group->nranks, group->comm);
}

static inline void ready(struct group *group, int rank, int param)
{
    require(wring_scheduler_ready(group->scheduler[rank], param));
}

static inline void ready_all(struct group *group)
{
    for (int r = 0; r < group->nranks; r++)
        for (int p = 0; p < group->nparams; p++)
            ready(group, r, p);
}

static inline void finish_all(struct group *group)
{
    for (int r = 0; r < group->nranks; r++)
        require(wring_scheduler_finish(group->scheduler[r], NULL));
}

static inline void *finish_one(void *scheduler)
{
    wring_status status = wring_scheduler_finish(scheduler, NULL);
    if (status != WRING_OK)
        fprintf(stderr, "%s\n", wring_error_message());
    return status == WRING_OK ? scheduler : NULL;
}

/* A thread for each rank: the ranks start something for each other in `finish`. */
static inline void finish_together(struct group *group)
{
    pthread_t thread[RANKS_MAX];
    for (int r = 0; r < group->nranks; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, finish_one, group->scheduler[r]), 0);
    for (int r = 0; r < group->nranks; r++) {
        void *done;
        pthread_join(thread[r], &done);
        assert_non_null(done);
    }
}

static inline void assert_ranks_agree(const struct group *group)
{
    for (int r = 1; r < group->nranks; r++)
        assert_memory_equal(group->grad[0], group->grad[r], sizeof group->grad[0]);
}

static struct group group; /* large: not for the stack */

/* Small buckets, sums, K micro-steps. */
static inline wring_scheduler_options options_of(int accumulate, wring_op op, size_t bucket_nbytes)
{
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.accumulate = accumulate;
    options.op = op;
    options.bucket_nbytes = options.first_bucket_nbytes = bucket_nbytes;
    return options;
}

static inline float uneven(int rank, int micro, int param, size_t i)
{
    unsigned x = (unsigned)i * 2654435761u + (unsigned)(rank * 977 + micro * 131 + param) * 40503u;
    return (float)(int)((x ^ x >> 15) % 19997) / 7.0f - 1400.0f;
}

#endif
