/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's use of wring: a communicator, a scheduler that is told of each gradient as backward
 * finishes it, and three small blocking collectives. */
#include "sync.h"

#include "program.h"
#include "setting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static void check(wring_status status, const char *doing)
{
    if (status != WRING_OK)
        die("%s: %s (%s)", doing, wring_error_message(), wring_status_name(status));
}

/* The same, where a lost rank may be survived. True if all went well. */
static bool try(struct sync *sync, wring_status status, const char *doing)
{
    bool lost =
        status == WRING_E_PEER_LOST || status == WRING_E_TIMEOUT || status == WRING_E_ABORTED;
    if (!sync->shrinks || !lost)
        check(status, doing);
    if (status == WRING_OK)
        return true;
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, doing, wring_error_message());
    sync->failed = true;
    return false;
}

static char *copy(const char *text)
{
    char *text_copy = strdup(text);
    if (!text_copy)
        die("out of memory");
    return text_copy;
}

char *sync_codec_text(const char *spec)
{
    char *text = spec ? copy(spec) : setting_text("WRING_CODEC");
    wring_codec *codec;
    check(wring_codec_create(text, &codec), "--codec");
    wring_codec_destroy(codec);
    return text;
}

char *sync_algorithm_text(const char *algorithm)
{
    char *text = algorithm ? copy(algorithm) : setting_text("WRING_ALGORITHM");
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
    check(wring_allgather(sync->control, &mine, all, 1, WRING_INT64), "exchanging host names");
    int local = 0;
    for (int rank = 0; rank < sync->nranks; rank++)
        local += all[rank] == mine;
    free(all);
    return local;
}

/* No launcher that wring knows has started this process. */
static bool is_alone(void)
{
    wring_info info;
    for (size_t i = 0; wring_info_get(WRING_INFO_LAUNCHER, i, &info); i++)
        if (info.value[0] || info.detail[0])
            return false;
    return true;
}

int sync_local_rank(void)
{
    static const char *const names[] = {"WRING_LOCAL_RANK",           "LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "MV2_COMM_WORLD_LOCAL_RANK",  "SLURM_LOCALID"};
    const char *text = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !text; i++)
        text = getenv(names[i]);
    int rank = text ? atoi(text) : 0; /* wring itself complains of what is no number */
    return rank < 0 ? 0 : rank;
}

/* NCCL moves device memory only. */
static bool takes_host_memory(void)
{
    char *transport = setting_text("WRING_TRANSPORT");
    bool takes = strcmp(transport, "nccl") != 0;
    free(transport);
    return takes;
}

static wring_context *open_context(const char *transport)
{
    wring_context *context;
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    options.transport = transport;
    check(wring_context_create(&options, &context), "starting wring");
    return context;
}

/* A wring_allgather_fn: the control communicator helps the other one's ranks find each other. */
static int gather_bytes(void *arg, const void *send, void *recv, size_t nbytes)
{
    return wring_allgather(arg, send, recv, nbytes, WRING_UINT8) != WRING_OK;
}

/* Join the other ranks over ucx, and let OPTIONS join the same ranks again. */
static void open_control(struct sync *sync, wring_comm_options *options)
{
    wring_comm_options control_options = WRING_COMM_OPTIONS_INIT;
    control_options.codec = "none";
    control_options.algorithm = "auto";
    sync->control_context = open_context("ucx");
    check(wring_comm_create(sync->control_context, &control_options, &sync->control),
          "joining the other ranks");
    options->rank = wring_comm_rank(sync->control);
    options->nranks = wring_comm_size(sync->control);
    options->allgather = gather_bytes;
    options->allgather_arg = sync->control;
}

void sync_open(struct sync *sync, const char *codec, const char *algorithm)
{
    bool alone = is_alone();
    *sync = (struct sync){0};
    check(wring_codec_create(codec, &sync->codec), "--codec");
    sync->codec_text = copy(wring_codec_spec(sync->codec));
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    options.codec = "none";
    options.algorithm = algorithm;
    if (!alone && !takes_host_memory())
        open_control(sync, &options);
    sync->context = open_context(alone ? "self" : NULL);
    check(alone ? wring_comm_create_local(sync->context, 1, &options, &sync->comm)
                : wring_comm_create(sync->context, &options, &sync->comm),
          "joining the other ranks");
    if (!sync->control)
        sync->control = sync->comm;
    sync->rank = wring_comm_rank(sync->comm);
    sync->nranks = wring_comm_size(sync->comm);
    sync->local_nranks = count_local(sync);
}

void sync_close(struct sync *sync)
{
    wring_scheduler_destroy(sync->scheduler);
    if (sync->narrow)
        sync->model->device->ops->free(sync->model->device, sync->narrow);
    wring_codec_destroy(sync->codec);
    free(sync->codec_text);
    wring_comm_destroy(sync->comm);
    wring_context_destroy(sync->context);
    if (!sync->control_context)
        return;
    wring_comm_destroy(sync->control);
    wring_context_destroy(sync->control_context);
}

void sync_sum(struct sync *sync, double *values, size_t count)
{
    if (!sync->failed)
        try(sync, wring_allreduce(sync->control, values, values, count, WRING_FLOAT64, WRING_SUM),
            "summing over ranks");
}

uint64_t sync_most(struct sync *sync, uint64_t value)
{
    int64_t most = (int64_t)value;
    if (!sync->failed)
        try(sync, wring_allreduce(sync->control, &most, &most, 1, WRING_INT64, WRING_MAX),
            "comparing what was done");
    return sync->failed ? value : (uint64_t)most;
}

/* Tell what has become of residuals, all ranks' together, unless every bit is back. */
static void tell_residuals(struct sync *sync, const wring_state_report *report)
{
    double sums[4] = {(double)report->nrestored, (double)report->nhanded, (double)report->ndropped,
                      report->dropped};
    sync_sum(sync, sums, 4);
    if (sync->rank == 0 && (sums[1] > 0 || sums[2] > 0))
        fprintf(stderr,
                "%s: residuals: %.0f restored, %.0f handed over with their sums preserved, %.0f "
                "dropped (%g in all)\n",
                program_invocation_short_name, sums[0], sums[1], sums[2], sums[3]);
}

static void load_states(struct sync *sync, const void *const *bytes, const size_t *nbytes, size_t n)
{
    wring_state_report report = {0};
    check(wring_state_load(sync->comm, bytes, nbytes, n, &report), "restoring what wring kept");
    tell_residuals(sync, &report);
}

/* What this rank kept before others were lost. */
static void restore_own(struct sync *sync)
{
    const void *bytes = sync->kept;
    load_states(sync, &bytes, &sync->kept_nbytes, 1);
    free(sync->kept);
    sync->kept = NULL;
}

static const wring_dtype dtypes[] = {WRING_FLOAT32, WRING_BFLOAT16, WRING_FLOAT16};
const char *const precision_names[] = {"float32", "bfloat16", "float16", NULL};

/* The gradient of P as it travels: where, or NULL if that is where the model has it. */
static uint16_t *narrowed(const struct sync *sync, const struct parameter *p)
{
    return sync->narrow ? sync->narrow + (p->grad - sync->model->grads) : NULL;
}

static void add_parameter(struct sync *sync, const struct parameter *p)
{
    void *narrow = narrowed(sync, p);
    int number;
    check(wring_scheduler_add(sync->scheduler, p->name, dtypes[sync->precision], p->ndim, p->shape,
                              narrow ? narrow : p->grad, &number),
          p->name);
}

void sync_register(struct sync *sync, const struct model *model, size_t accumulate, bool weighted,
                   enum precision precision)
{
    sync->model = model;
    sync->accumulate = accumulate;
    sync->weighted = weighted;
    sync->precision = precision;
    if (precision != PRECISION_FLOAT32 && !sync->narrow)
        sync->narrow = device_alloc(model->device, model->count, sizeof *sync->narrow);
    wring_scheduler_options options = WRING_SCHEDULER_OPTIONS_INIT;
    options.accumulate = (int)accumulate;
    options.op = WRING_AVG;
    options.weighted = weighted;
    options.codec = sync->codec;
    options.stream = model->device->stream;
    check(wring_scheduler_create(sync->comm, &options, &sync->scheduler), "creating the scheduler");
    for (int i = 0; i < model->nparameters; i++)
        add_parameter(sync, model->parameters[i]);
    if (sync->kept)
        restore_own(sync);
}

void sync_weigh(struct sync *sync, size_t count)
{
    if (!sync->weighted || sync->failed)
        return;
    if (!try(sync, wring_scheduler_weigh(sync->scheduler, (double)count), "weighing a micro-step"))
        return;
    if (count == 0)
        try(sync, wring_scheduler_absent(sync->scheduler, WRING_ALL_PARAMS), "an empty micro-step");
}

void sync_ready(void *arg, int parameter)
{
    struct sync *sync = arg;
    const struct parameter *p = sync->model->parameters[parameter];
    if (sync->failed)
        return;
    struct device *device = sync->model->device;
    if (sync->narrow)
        device->ops->narrow(device, sync->precision, p->count, p->grad, narrowed(sync, p));
    try(sync, wring_scheduler_ready(sync->scheduler, parameter), "sending a gradient");
}

wring_result sync_finish(struct sync *sync, bool last)
{
    wring_result result = {0};
    if (sync->failed ||
        !try(sync, wring_scheduler_finish(sync->scheduler, &result), "averaging gradients"))
        return result;
    const struct model *model = sync->model;
    if (last && sync->narrow)
        model->device->ops->widen(model->device, sync->precision, model->count, sync->narrow,
                                  model->grads);
    return result;
}

double sync_norm(struct sync *sync)
{
    double norm = 0;
    check(wring_scheduler_norm(sync->scheduler, &norm), "the norm of the gradients");
    return norm;
}

void sync_broadcast(struct sync *sync, int root, void *bytes, size_t nbytes)
{
    if (!sync->failed)
        try(sync, wring_broadcast(sync->control, bytes, bytes, nbytes, WRING_UINT8, root),
            "sharing a checkpoint");
}

void sync_share(struct sync *sync, int root, uint8_t **bytes, size_t *nbytes)
{
    uint64_t size = *nbytes;
    sync_broadcast(sync, root, &size, sizeof size);
    if (sync->rank != root) {
        *nbytes = sync->failed ? 0 : size;
        *bytes = must_alloc(*nbytes, 1);
    }
    if (*nbytes)
        sync_broadcast(sync, root, *bytes, *nbytes);
}

uint8_t *sync_state(struct sync *sync, size_t *nbytes_out)
{
    void *bytes;
    check(wring_state_save(sync->comm, &bytes, nbytes_out), "saving what wring keeps");
    return bytes;
}

/* Rank r of m takes those of the old ranks r, r + m, ... */
void sync_restore(struct sync *sync, const struct section *states, int nranks)
{
    const void **bytes = must_alloc((size_t)nranks, sizeof *bytes);
    size_t *nbytes = must_alloc((size_t)nranks, sizeof *nbytes), n = 0;
    for (int rank = sync->rank; rank < nranks; rank += sync->nranks) {
        bytes[n] = states[rank].bytes;
        nbytes[n++] = states[rank].nbytes;
    }
    load_states(sync, bytes, nbytes, n);
    free(bytes);
    free(nbytes);
}

void sync_meet(struct sync *sync)
{
    if (!sync->failed)
        try(sync, wring_barrier(sync->control), "meeting after a step");
}

void sync_survive(struct sync *sync)
{
    sync_meet(sync);
    sync->shrinks = true;
}

/* *COMM with those of its ranks that are left. */
static void shrink(wring_comm **comm)
{
    wring_comm *left;
    check(wring_comm_shrink(*comm, &left), "going on with the ranks that are left");
    wring_comm_destroy(*comm);
    *comm = left;
}

size_t sync_shrink(struct sync *sync, size_t done)
{
    uint64_t least;
    bool two = sync->control != sync->comm;
    if (two) /* what is in flight there ends, whichever of them has met the loss */
        check(wring_comm_abort(sync->comm), "ending what was begun");
    check(wring_comm_agree(sync->control, done, &least), "agreeing on the last step");
    if (done > least)
        check(wring_scheduler_undo(sync->scheduler), "taking the last step back");
    free(sync->kept); /* of a recovery that was cut short */
    sync->kept = sync_state(sync, &sync->kept_nbytes);
    wring_scheduler_destroy(sync->scheduler);
    sync->scheduler = NULL;
    shrink(&sync->comm);
    if (two)
        shrink(&sync->control);
    else
        sync->control = sync->comm;
    sync->rank = wring_comm_rank(sync->control);
    sync->nranks = wring_comm_size(sync->control);
    /* A rank that died between the two is lost to both the next time. */
    sync->failed = wring_comm_size(sync->comm) != sync->nranks;
    return least;
}

bool sync_all_equal(struct sync *sync, uint64_t digest)
{
    uint64_t *all = must_alloc((size_t)sync->nranks, sizeof *all);
    bool equal =
        !sync->failed && try(sync, wring_allgather(sync->control, &digest, all, 1, WRING_INT64),
                             "comparing replicas");
    for (int rank = 0; rank < sync->nranks; rank++)
        equal = equal && all[rank] == digest;
    free(all);
    return equal;
}
