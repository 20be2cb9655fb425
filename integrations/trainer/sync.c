/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's use of wring: a communicator, a scheduler that is told of each gradient as backward
 * finishes it, and three small blocking collectives. */
#include "sync.h"

#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static void check(wring_status status, const char *doing)
{
    if (status != WRING_OK)
        die("%s: %s (%s)", doing, wring_error_message(), wring_status_name(status));
}

static char *copy(const char *text)
{
    char *text_copy = strdup(text);
    if (!text_copy)
        die("out of memory");
    return text_copy;
}

/* Current value of a setting of wring. */
static char *setting(const char *name)
{
    wring_info info;
    for (size_t i = 0; wring_info_get(WRING_INFO_SETTING, i, &info); i++) {
        if (strcmp(info.name, name) == 0)
            return copy(info.value);
    }
    die("this wring has no setting %s; trainer and library are of different versions", name);
}

char *sync_codec_text(const char *spec)
{
    char *text = spec ? copy(spec) : setting("WRING_CODEC");
    wring_codec *codec;
    check(wring_codec_create(text, &codec), "--codec");
    wring_codec_destroy(codec);
    return text;
}

char *sync_algorithm_text(const char *algorithm)
{
    char *text = algorithm ? copy(algorithm) : setting("WRING_ALGORITHM");
    char known[256] = "auto";
    wring_info info;
    bool found = strcmp(text, "auto") == 0;
    for (size_t i = 0; wring_info_get(WRING_INFO_ALGORITHM, i, &info); i++) {
        found = found || strcmp(text, info.name) == 0;
        strncat(known, ", ", sizeof known - strlen(known) - 1);
        strncat(known, info.name, sizeof known - strlen(known) - 1);
    }
    if (!found)
        die("--algorithm: '%s' is not known; choose one of: %s", text, known);
    return text;
}

static int count_local(struct sync *sync)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    uint64_t mine = XXH3_64bits(host, strlen(host));
    uint64_t *all = must_alloc((size_t)sync->nranks, sizeof *all);
    check(wring_allgather(sync->comm, &mine, all, 1, WRING_INT64), "exchanging host names");
    int local = 0;
    for (int rank = 0; rank < sync->nranks; rank++)
        local += all[rank] == mine;
    free(all);
    return local;
}

/* No launcher that wring knows has set its variables. */
static bool is_alone(void)
{
    return !getenv("WRING_SIZE") && !getenv("WORLD_SIZE") && !getenv("OMPI_COMM_WORLD_SIZE");
}

void sync_open(struct sync *sync, const char *codec, const char *algorithm)
{
    bool alone = is_alone();
    *sync = (struct sync){0};
    wring_context_options context_options = WRING_CONTEXT_OPTIONS_INIT;
    context_options.transport = alone ? "self" : NULL;
    check(wring_context_create(&context_options, &sync->context), "starting wring");
    check(wring_codec_create(codec, &sync->codec), "--codec");
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    options.codec = "none";
    options.algorithm = algorithm;
    check(alone ? wring_comm_create_local(sync->context, 1, &options, &sync->comm)
                : wring_comm_create(sync->context, &options, &sync->comm),
          "joining the other ranks");
    sync->rank = wring_comm_rank(sync->comm);
    sync->nranks = wring_comm_size(sync->comm);
    sync->local_nranks = count_local(sync);
}

void sync_close(struct sync *sync)
{
    wring_scheduler_destroy(sync->scheduler);
    wring_codec_destroy(sync->codec);
    wring_comm_destroy(sync->comm);
    wring_context_destroy(sync->context);
}

void sync_register(struct sync *sync, const struct model *model, size_t accumulate)
{
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.accumulate = (int)accumulate;
    options.op = WRING_AVG;
    options.codec = sync->codec;
    check(wring_scheduler_create(sync->comm, &options, &sync->scheduler), "creating the scheduler");
    for (int i = 0; i < model->nparameters; i++) {
        const struct parameter *p = model->parameters[i];
        int number;
        check(wring_scheduler_add(sync->scheduler, p->name, WRING_FLOAT32, p->ndim, p->shape,
                                  p->grad, &number),
              p->name);
    }
}

void sync_ready(void *arg, int parameter)
{
    struct sync *sync = arg;
    check(wring_scheduler_ready(sync->scheduler, parameter), "sending a gradient");
}

wring_result sync_finish(struct sync *sync)
{
    wring_result result = {0};
    check(wring_scheduler_finish(sync->scheduler, &result), "averaging gradients");
    return result;
}

void sync_sum(struct sync *sync, double *values, size_t count)
{
    check(wring_allreduce(sync->comm, values, values, count, WRING_FLOAT64, WRING_SUM),
          "summing over ranks");
}

bool sync_all_equal(struct sync *sync, uint64_t digest)
{
    uint64_t *all = must_alloc((size_t)sync->nranks, sizeof *all);
    check(wring_allgather(sync->comm, &digest, all, 1, WRING_INT64), "comparing replicas");
    bool equal = true;
    for (int rank = 0; rank < sync->nranks; rank++)
        equal = equal && all[rank] == digest;
    free(all);
    return equal;
}
