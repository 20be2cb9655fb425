/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wring-bench allreduce: time, traffic and correctness of all-reduce, with the options, columns and
 * comment lines of nccl-tests, and further columns after them. For each size every codec asked for,
 * and codecs "none" and "bf16" to compare with, are measured in turn within the same rounds, so
 * that the machine's other work hits all of them alike.
 */
#include "bench.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_check.h"
#include "bench_data.h"
#include "bench_measure.h"
#include "bench_options.h"
#include "bench_report.h"
#include "bench_world.h"
#include "program.h"

struct allreduce_options {
    struct bench_common common;
    size_t min_nbytes, max_nbytes, step_nbytes;
    int factor, checks;
    wring_dtype dtype;
    wring_op op;
    const char *algorithm;
};

/* One size: buffers that all subjects share. */
struct job {
    const struct bench_world *world;
    const struct allreduce_options *options;
    struct bench_exact exact;
    size_t count, nbytes;
    void *send, *recv;
};

/* One thing to time: a codec, in or out of place. */
struct subject {
    const struct job *job;
    const wring_codec *codec;
    bool in_place;
    wring_result result; /* of the last run */
};

/* What all ranks together found out about a subject. */
struct outcome {
    double time_s, p95_s, algbw, busbw, wrong, rel_l2, wire_nbytes, dense_nbytes;
};

/* ---- what is timed --------------------------------------------------------------------------- */

/* In place, the last result is replaced by fresh input. Then all ranks start together. */
static void prepare(void *arg)
{
    struct subject *subject = arg;
    if (subject->in_place)
        memcpy(subject->job->recv, subject->job->send, subject->job->nbytes);
    bench_require(wring_barrier(subject->job->world->comm));
}

static void run_allreduce(void *arg)
{
    struct subject *subject = arg;
    const struct job *job = subject->job;
    const wring_segment segment = {
        .send = subject->in_place ? job->recv : job->send, .recv = job->recv, .count = job->count};
    wring_call call = WRING_CALL_INIT;
    call.kind = WRING_ALLREDUCE;
    call.op = job->options->op;
    call.dtype = job->options->dtype;
    call.segments = &segment;
    call.nsegments = 1;
    call.codec = subject->codec;
    call.algorithm = job->options->algorithm;
    wring_request *request;
    bench_require(wring_comm_start(job->world->comm, &call, &request));
    bench_require(wring_request_wait(request, &subject->result));
}

/* ---- results --------------------------------------------------------------------------------- */

/* Run again, from a poisoned buffer, and compare every element. */
static struct bench_verdict check(struct subject *subject)
{
    const struct job *job = subject->job;
    struct bench_verdict worst = {0};
    for (int i = 0; i < job->options->checks; i++) {
        memset(job->recv, 0xFF, job->nbytes);
        prepare(subject);
        run_allreduce(subject);
        struct bench_verdict verdict =
            bench_check(&job->exact, wring_codec_spec(subject->codec), job->recv, job->count);
        worst.wrong += verdict.wrong;
        if (verdict.rel_l2 > worst.rel_l2)
            worst.rel_l2 = verdict.rel_l2;
    }
    return worst;
}

/* Times of the slowest rank, traffic of the mean one, errors of all. */
static struct outcome settle(struct subject *subject, const struct bench_statistics *statistics)
{
    const struct bench_world *world = subject->job->world;
    struct bench_verdict verdict = check(subject);
    double bus = 2.0 * (world->nranks - 1) / world->nranks;
    struct outcome outcome = {
        .time_s = bench_world_reduce(world, statistics->median_s, WRING_MAX),
        .p95_s = bench_world_reduce(world, statistics->p95_s, WRING_MAX),
        .wrong = bench_world_reduce(world, (double)verdict.wrong, WRING_SUM),
        .rel_l2 = bench_world_reduce(world, verdict.rel_l2, WRING_MAX),
        .wire_nbytes = bench_world_reduce(world, (double)subject->result.wire_nbytes, WRING_AVG),
        .dense_nbytes = bench_world_reduce(world, (double)subject->result.dense_nbytes, WRING_AVG)};
    outcome.algbw = (double)subject->job->nbytes / outcome.time_s / 1e9;
    outcome.busbw = outcome.algbw * bus;
    return outcome;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const char *const op_names[] = {"sum", "avg", "min", "max", NULL};

/* BASELINE_S, BF16_S: the same call with these codecs; NAN where there is no such measurement. */
static void report(const struct job *job, const char *spec, const struct outcome *out,
                   const struct outcome *in, double baseline_s, double bf16_s, bool head)
{
    const struct allreduce_options *options = job->options;
    const char *algorithm = options->algorithm ? options->algorithm : "auto";
    const struct bench_field fields[] = {
        {"size", "size", "(B)", 12, BENCH_INTEGER, 0, NULL, (double)job->nbytes},
        {"count", "count", "(elements)", 12, BENCH_INTEGER, 0, NULL, (double)job->count},
        {"type", "type", "", 9, BENCH_TEXT, 0, wring_dtype_name(options->dtype), 0},
        {"redop", "redop", "", 6, BENCH_TEXT, 0, op_names[options->op], 0},
        {"root", "root", "", 5, BENCH_INTEGER, 0, NULL, -1},
        {"time_us", "time", "(us)", 9, BENCH_REAL, 5, NULL, 1e6 * out->time_s},
        {"algbw", "algbw", "(GB/s)", 8, BENCH_REAL, 4, NULL, out->algbw},
        {"busbw", "busbw", "(GB/s)", 8, BENCH_REAL, 4, NULL, out->busbw},
        {"wrong", "#wrong", "", 6, BENCH_INTEGER, 0, NULL, out->wrong},
        {"in_place_time_us", "time", "(us)", 9, BENCH_REAL, 5, NULL, 1e6 * in->time_s},
        {"in_place_algbw", "algbw", "(GB/s)", 8, BENCH_REAL, 4, NULL, in->algbw},
        {"in_place_busbw", "busbw", "(GB/s)", 8, BENCH_REAL, 4, NULL, in->busbw},
        {"in_place_wrong", "#wrong", "", 6, BENCH_INTEGER, 0, NULL, in->wrong},
        {"codec", "codec", "", 20, BENCH_TEXT, 0, spec, 0},
        {"algorithm", "algorithm", "", 9, BENCH_TEXT, 0, algorithm, 0},
        {"wire_bytes", "wire_bytes", "(B/rank)", 11, BENCH_INTEGER, 0, NULL, out->wire_nbytes},
        {"ratio", "ratio", "", 7, BENCH_REAL, 4, NULL, out->dense_nbytes / out->wire_nbytes},
        {"rel_l2", "rel_l2", "", 8, BENCH_REAL, 3, NULL, out->rel_l2},
        {"baseline_us", "baseline", "(us)", 9, BENCH_REAL, 5, NULL, 1e6 * baseline_s},
        {"bf16_us", "bf16", "(us)", 9, BENCH_REAL, 5, NULL, 1e6 * bf16_s},
        {"p95_us", NULL, "", 0, BENCH_REAL, 6, NULL, 1e6 * out->p95_s},
        {"ranks", NULL, "", 0, BENCH_INTEGER, 0, NULL, job->world->nranks},
    };
    const size_t nfields = sizeof fields / sizeof fields[0];
    char groups[128];
    snprintf(groups, sizeof groups, "%70s%35s", "out-of-place", "in-place");
    if (head && !options->common.json)
        bench_report_head(fields, nfields, groups);
    bench_report_row(fields, nfields, options->common.json);
}

/* ---- one size -------------------------------------------------------------------------------- */

/* Codecs that are measured: those asked for, then the ones to compare with. */
struct codecs {
    wring_codec *codec[BENCH_LIST_MAX + 2];
    size_t n, nasked;
    size_t none, bf16; /* where these two stand */
};

static size_t find_or_add(struct codecs *codecs, const char *spec)
{
    wring_codec *codec;
    bench_require(wring_codec_create(spec, &codec));
    for (size_t i = 0; i < codecs->n; i++)
        if (strcmp(wring_codec_spec(codecs->codec[i]), wring_codec_spec(codec)) == 0) {
            wring_codec_destroy(codec);
            return i;
        }
    codecs->codec[codecs->n] = codec;
    return codecs->n++;
}

/* Types that lossy codecs do not take are compared with "none" in place of "bf16". */
static void codecs_init(struct codecs *codecs, const struct bench_list *list, wring_dtype dtype)
{
    *codecs = (struct codecs){0};
    for (size_t i = 0; i < list->n; i++)
        find_or_add(codecs, list->item[i]);
    codecs->nasked = codecs->n;
    codecs->none = find_or_add(codecs, "none");
    codecs->bf16 = dtype <= WRING_BFLOAT16 ? find_or_add(codecs, "bf16") : codecs->none;
}

static void codecs_fini(struct codecs *codecs)
{
    for (size_t i = 0; i < codecs->n; i++)
        wring_codec_destroy(codecs->codec[i]);
}

/* Sums over the rows, for the last lines. */
struct totals {
    double wrong;
    double busbw[BENCH_LIST_MAX]; /* by codec: bandwidths of unlike codecs have no mean */
    size_t nsizes;
};

static void bench_size(struct job *job, const struct codecs *codecs, struct totals *totals)
{
    enum { OUT, IN, PLACES };
    struct subject subjects[(BENCH_LIST_MAX + 2) * PLACES];
    struct bench_subject timed[(BENCH_LIST_MAX + 2) * PLACES];
    for (size_t i = 0; i < codecs->n * PLACES; i++) {
        subjects[i] = (struct subject){
            .job = job, .codec = codecs->codec[i / PLACES], .in_place = i % PLACES == IN};
        timed[i] =
            (struct bench_subject){.before = prepare, .run = run_allreduce, .arg = &subjects[i]};
    }
    char note[64];
    snprintf(note, sizeof note, "%zu bytes", job->nbytes);
    bench_measure(timed, codecs->n * PLACES, job->options->common.warmup,
                  job->options->common.iterations, job->world->rank == 0 ? note : NULL);
    struct outcome outcome[(BENCH_LIST_MAX + 2) * PLACES];
    for (size_t i = 0; i < codecs->n * PLACES; i++)
        outcome[i] = settle(&subjects[i], &timed[i].statistics);
    for (size_t c = 0; c < codecs->nasked; c++) {
        const struct outcome *out = &outcome[c * PLACES + OUT], *in = &outcome[c * PLACES + IN];
        if (job->world->rank == 0)
            report(job, wring_codec_spec(codecs->codec[c]), out, in,
                   outcome[codecs->none * PLACES].time_s, outcome[codecs->bf16 * PLACES].time_s,
                   c + totals->nsizes == 0);
        totals->wrong += out->wrong + in->wrong;
        totals->busbw[c] += (out->busbw + in->busbw) / 2;
    }
    totals->nsizes++;
}

/* ---- all sizes ------------------------------------------------------------------------------- */

static size_t next_nbytes(const struct allreduce_options *options, size_t nbytes)
{
    return options->factor > 1 ? nbytes * (size_t)options->factor : nbytes + options->step_nbytes;
}

static void print_preamble(const struct bench_world *world, const struct allreduce_options *options)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    printf("# wring-bench allreduce, wring %d.%d.%d, %d ranks, rank 0 on %s pid %d\n",
           WRING_VERSION_MAJOR, WRING_VERSION_MINOR, WRING_VERSION_PATCH, world->nranks, host,
           (int)getpid());
    printf(
        "# minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d validation: %d\n#\n",
        options->min_nbytes, options->max_nbytes,
        options->factor > 1 ? (size_t)options->factor : options->step_nbytes,
        options->factor > 1 ? "factor" : "bytes", options->common.warmup,
        options->common.iterations, options->checks);
}

static void print_trailer(const struct totals *totals, const struct codecs *codecs)
{
    printf("# Out of bounds values : %.0f %s\n", totals->wrong, totals->wrong ? "FAILED" : "OK");
    for (size_t c = 0; c < codecs->nasked; c++)
        printf("# Avg bus bandwidth    : %g (%s)\n", totals->busbw[c] / (double)totals->nsizes,
               wring_codec_spec(codecs->codec[c]));
    printf("#\n");
}

/* Values that were out of bounds. */
static double bench_sizes(const struct bench_world *world, const struct allreduce_options *options)
{
    size_t element = wring_dtype_size(options->dtype);
    struct codecs codecs;
    codecs_init(&codecs, &options->common.codecs, options->dtype);
    struct job job = {.world = world,
                      .options = options,
                      .exact = bench_exact_make(options->dtype, options->op, world->nranks),
                      .send = must_alloc(1, options->max_nbytes),
                      .recv = must_alloc(1, options->max_nbytes)};
    bench_exact_fill(&job.exact, world->rank, job.send, options->max_nbytes / element);
    struct totals totals = {0};
    bool talk = world->rank == 0 && !options->common.json;
    if (talk)
        print_preamble(world, options);
    for (size_t nbytes = options->min_nbytes; nbytes <= options->max_nbytes;
         nbytes = next_nbytes(options, nbytes)) {
        job.count = nbytes / element;
        job.nbytes = job.count * element;
        if (job.count)
            bench_size(&job, &codecs, &totals);
    }
    if (talk && totals.nsizes)
        print_trailer(&totals, &codecs);
    codecs_fini(&codecs);
    free(job.send);
    free(job.recv);
    return totals.wrong;
}

/* ---- command line ---------------------------------------------------------------------------- */

enum { OPTION_ALGORITHM = 0x200, OPTION_SPAWN };

static const struct argp_option allreduce_argp_options[] = {
    {"minbytes", 'b', "BYTES", 0, "smallest size (default 4K)", 0},
    {"maxbytes", 'e', "BYTES", 0, "largest size (default 64M)", 0},
    {"stepbytes", 'i', "BYTES", 0, "step between sizes, unless -f is above 1 (default 1M)", 0},
    {"stepfactor", 'f', "N", 0, "factor between sizes (default 4)", 0},
    {"check", 'c', "N", 0, "calls whose every element is checked; 0: none (default 1)", 0},
    {"datatype", 'd', "TYPE", 0,
     "element type: float, half, bfloat16, double, int8 ... (default float)", 0},
    {"op", 'o', "OP", 0, "sum, avg, min or max (default sum)", 0},
    {"algorithm", OPTION_ALGORITHM, "NAME", 0, "algorithm (default: the planner chooses)", 0},
    {"spawn", OPTION_SPAWN, "N", 0, "start N ranks on this machine", 0},
    {0},
};

/* Names of nccl-tests, else ours. */
static wring_dtype parse_dtype(const char *text)
{
    static const struct {
        const char *name;
        wring_dtype dtype;
    } aliases[] = {{"float", WRING_FLOAT32}, {"half", WRING_FLOAT16}, {"double", WRING_FLOAT64}};
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(text, aliases[i].name) == 0)
            return aliases[i].dtype;
    const char *names[WRING_DTYPE_COUNT + 1] = {NULL};
    for (int i = 0; i < WRING_DTYPE_COUNT; i++)
        names[i] = wring_dtype_name((wring_dtype)i);
    return (wring_dtype)parse_word("-d", text, names);
}

static error_t parse_size_option(int key, char *arg, struct allreduce_options *options)
{
    switch (key) {
    case 'b':
        options->min_nbytes = bench_parse_nbytes("-b", arg);
        return 0;
    case 'e':
        options->max_nbytes = bench_parse_nbytes("-e", arg);
        return 0;
    case 'i':
        options->step_nbytes = bench_parse_nbytes("-i", arg);
        return 0;
    case 'f':
        options->factor = (int)parse_int("-f", arg, 0, 1 << 20);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_allreduce(int key, char *arg, struct argp_state *state)
{
    struct allreduce_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->common;
        return 0;
    case 'c':
        options->checks = (int)parse_int("-c", arg, 0, 1000);
        return 0;
    case 'd':
        options->dtype = parse_dtype(arg);
        return 0;
    case 'o':
        options->op = (wring_op)parse_word("-o", arg, op_names);
        return 0;
    case OPTION_ALGORITHM:
        options->algorithm = arg;
        return 0;
    case OPTION_SPAWN: /* taken by spawn_if_asked before; here for --help */
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "takes no argument '%s'", arg);
        return 0;
    case ARGP_KEY_END:
        if (options->min_nbytes == 0 || options->max_nbytes < options->min_nbytes)
            argp_error(state, "-b must be at least 1, and -e no less than -b");
        if (options->factor <= 1 && options->step_nbytes == 0)
            argp_error(state, "-i must be at least 1 where -f is not above 1");
        return 0;
    default:
        return parse_size_option(key, arg, options);
    }
}

static const struct argp_child children[] = {{&bench_common_argp, 0, NULL, 0}, {0}};
static const struct argp allreduce_argp = {
    .options = allreduce_argp_options,
    .parser = parse_allreduce,
    .children = children,
    .doc =
        "Time all-reduce between the ranks that mpirun, torchrun, WRING_RANK and WRING_SIZE, or "
        "--spawn give, for a range of sizes, with each codec."
        "\vSizes take a suffix K, M or G. Times are medians over the iterations (20 by default), "
        "of the slowest rank; algbw and busbw count uncompressed bytes. bench/README.md defines "
        "every column. Exits with 1 if any value is out of bounds."};

int bench_allreduce(int argc, char **argv)
{
    static const char *const codecs[] = {"none", "int8", NULL};
    struct allreduce_options options = {.common = {.iterations = 20, .warmup = 1},
                                        .min_nbytes = 4 << 10,
                                        .max_nbytes = 64 << 20,
                                        .step_nbytes = 1 << 20,
                                        .factor = 4,
                                        .checks = 1};
    argp_parse(&allreduce_argp, argc, argv, 0, NULL, &options);
    bench_list_default(&options.common.codecs, codecs);
    struct bench_world world;
    bench_world_open(&world);
    double wrong = bench_sizes(&world, &options);
    bench_world_close(&world);
    return wrong != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
