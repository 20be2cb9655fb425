/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wring-bench codec: how fast and how good is a codec on one core of this machine? As the executor
 * does, input is encoded in pieces, into a few wire buffers that are used again and again. Copying
 * and reading the same input are measured in the same rounds: the ratios are what counts.
 */
#include "bench.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_data.h"
#include "bench_measure.h"
#include "bench_options.h"
#include "bench_report.h"
#include "program.h"

#define SLOTS 4 /* wire buffers in flight, as setting WRING_WINDOW */

struct codec_options {
    struct bench_common common;
    struct bench_list dists;
    size_t count, piece_nbytes;
};

/* One input, and what is being done to it. */
struct codec_run {
    const wring_codec *codec;
    float *src, *dst; /* count each */
    size_t count, piece;
    unsigned char *slot[SLOTS + 1]; /* the last one is for the tail, when it is shorter */
    size_t slot_nbytes;
    uint64_t sum; /* of the input's bits: so that reading it cannot be skipped */
};

/* ---- what is timed --------------------------------------------------------------------------- */

static void check(wring_status status)
{
    if (status != WRING_OK)
        die("%s", wring_error_message());
}

static size_t piece_count(const struct codec_run *run, size_t first)
{
    size_t left = run->count - first;
    return left < run->piece ? left : run->piece;
}

static unsigned char *slot_of(const struct codec_run *run, size_t first)
{
    bool tail = piece_count(run, first) < run->piece;
    return run->slot[tail ? SLOTS : first / run->piece % SLOTS];
}

static void encode_piece(struct codec_run *run, size_t first)
{
    size_t nbytes;
    check(wring_codec_encode(run->codec, WRING_FLOAT32, run->src + first, piece_count(run, first),
                             slot_of(run, first), run->slot_nbytes, &nbytes));
}

static void decode_piece(struct codec_run *run, size_t first, bool add)
{
    size_t n = piece_count(run, first);
    check(wring_codec_decode(run->codec, WRING_FLOAT32, slot_of(run, first),
                             wring_codec_nbytes(run->codec, WRING_FLOAT32, n), run->dst + first, n,
                             add));
}

static void run_encode(void *arg)
{
    struct codec_run *run = arg;
    for (size_t first = 0; first < run->count; first += run->piece)
        encode_piece(run, first);
}

static void run_decode(void *arg)
{
    struct codec_run *run = arg;
    for (size_t first = 0; first < run->count; first += run->piece)
        decode_piece(run, first, false);
}

static void run_decode_add(void *arg)
{
    struct codec_run *run = arg;
    for (size_t first = 0; first < run->count; first += run->piece)
        decode_piece(run, first, true);
}

static void run_memcpy(void *arg)
{
    struct codec_run *run = arg;
    memcpy(run->dst, run->src, run->count * sizeof(float));
}

/* The compiler turns this into vector loads and adds, fast enough for any memory. */
static void run_read(void *arg)
{
    struct codec_run *run = arg;
    enum { LANES = 8, STEP = LANES * sizeof(uint64_t) / sizeof(float) };
    uint64_t sum[LANES] = {0}, word[LANES];
    for (size_t i = 0; i + STEP <= run->count; i += STEP) {
        memcpy(word, run->src + i, sizeof word);
        for (int k = 0; k < LANES; k++)
            sum[k] += word[k];
    }
    for (int k = 0; k < LANES; k++)
        run->sum += sum[k];
}

/* ---- quality --------------------------------------------------------------------------------- */

/* Squared error over squared input, piece by piece; BYTES_OUT: encoded size of the whole. */
static double normalised_error(struct codec_run *run, size_t *nbytes_out)
{
    double error = 0, power = 0;
    *nbytes_out = 0;
    for (size_t first = 0; first < run->count; first += run->piece) {
        size_t n = piece_count(run, first);
        encode_piece(run, first);
        decode_piece(run, first, false);
        *nbytes_out += wring_codec_nbytes(run->codec, WRING_FLOAT32, n);
        for (size_t i = first; i < first + n; i++) {
            double x = run->src[i], d = x - run->dst[i];
            power += x * x;
            error += d * d;
        }
    }
    return power > 0 ? error / power : 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const char *isa(void)
{
    static char name[32];
    wring_info info;
    for (size_t i = 0; wring_info_get(WRING_INFO_CPU, i, &info); i++)
        if (strcmp(info.detail, "selected") == 0)
            snprintf(name, sizeof name, "%s", info.name);
    return name;
}

enum { READ, MEMCPY, ENCODE, DECODE, DECODE_ADD, NSUBJECTS };

static void report(const struct codec_run *run, const char *dist, double nmse, size_t nbytes,
                   const struct bench_subject *subjects, bool head, bool json)
{
    double dense = (double)run->count * sizeof(float), gbps[NSUBJECTS];
    for (int i = 0; i < NSUBJECTS; i++)
        gbps[i] = dense / subjects[i].statistics.median_s / 1e9;
    const struct bench_field fields[] = {
        {"codec", "codec", "", -24, BENCH_TEXT, 0, wring_codec_spec(run->codec), 0},
        {"dist", "dist", "", 8, BENCH_TEXT, 0, dist, 0},
        {"count", "count", "(values)", 11, BENCH_INTEGER, 0, NULL, (double)run->count},
        {"encoded_bytes", "encoded", "(bytes)", 11, BENCH_INTEGER, 0, NULL, (double)nbytes},
        {"ratio", "ratio", "", 7, BENCH_REAL, 4, NULL, dense / (double)nbytes},
        {"nmse", "nmse", "", 9, BENCH_REAL, 3, NULL, nmse},
        {"encode_gbps", "encode", "(GB/s)", 7, BENCH_REAL, 4, NULL, gbps[ENCODE]},
        {"decode_gbps", "decode", "(GB/s)", 7, BENCH_REAL, 4, NULL, gbps[DECODE]},
        {"decode_add_gbps", "dec+add", "(GB/s)", 7, BENCH_REAL, 4, NULL, gbps[DECODE_ADD]},
        {"read_gbps", "read", "(GB/s)", 7, BENCH_REAL, 4, NULL, gbps[READ]},
        {"memcpy_gbps", "memcpy", "(GB/s)", 7, BENCH_REAL, 4, NULL, gbps[MEMCPY]},
        {"isa", "isa", "", 7, BENCH_TEXT, 0, isa(), 0},
    };
    const size_t nfields = sizeof fields / sizeof fields[0];
    if (head && !json)
        bench_report_head(fields, nfields, NULL);
    bench_report_row(fields, nfields, json);
}

static void bench_one(struct codec_run *run, const char *dist, const struct bench_common *common,
                      bool head)
{
    run->slot_nbytes = wring_codec_nbytes(run->codec, WRING_FLOAT32, run->piece);
    for (int i = 0; i <= SLOTS; i++)
        run->slot[i] = must_alloc(1, run->slot_nbytes);
    size_t nbytes;
    double nmse = normalised_error(run, &nbytes);
    struct bench_subject subjects[NSUBJECTS] = {
        [READ] = {.run = run_read, .arg = run},
        [MEMCPY] = {.run = run_memcpy, .arg = run},
        [ENCODE] = {.run = run_encode, .arg = run},
        [DECODE] = {.run = run_decode, .arg = run},
        [DECODE_ADD] = {.run = run_decode_add, .arg = run},
    };
    bench_measure(subjects, NSUBJECTS, common->warmup, common->iterations,
                  wring_codec_spec(run->codec));
    report(run, dist, nmse, nbytes, subjects, head, common->json);
    for (int i = 0; i <= SLOTS; i++)
        free(run->slot[i]);
}

static void bench_all(const struct codec_options *options)
{
    struct codec_run run = {.count = options->count,
                            .piece = options->piece_nbytes / sizeof(float)};
    run.src = must_alloc(run.count, sizeof(float));
    run.dst = must_alloc(run.count, sizeof(float));
    for (size_t d = 0; d < options->dists.n; d++) {
        const char *dist = options->dists.item[d];
        bench_fill_distribution(parse_word("--dist", dist, bench_distributions), run.src,
                                run.count);
        for (size_t c = 0; c < options->common.codecs.n; c++) {
            wring_codec *codec;
            check(wring_codec_create(options->common.codecs.item[c], &codec));
            run.codec = codec;
            bench_one(&run, dist, &options->common, d + c == 0);
            wring_codec_destroy(codec);
        }
    }
    free(run.src);
    free(run.dst);
}

/* ---- command line ---------------------------------------------------------------------------- */

enum { OPTION_DIST = 0x200, OPTION_COUNT, OPTION_PIECE };

static const struct argp_option codec_argp_options[] = {
    {"dist", OPTION_DIST, "NAME", 0,
     "distribution of the input: gauss, laplace, t3, mix or uniform; may be given several times "
     "(default gauss)",
     0},
    {"count", OPTION_COUNT, "N", 0, "input values, suffix K, M or G (default 64M)", 0},
    {"piece", OPTION_PIECE, "BYTES", 0,
     "uncompressed bytes that are encoded at a time (default 512K)", 0},
    {0},
};

static error_t parse_codec(int key, char *arg, struct argp_state *state)
{
    struct codec_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->common;
        return 0;
    case OPTION_DIST:
        parse_word("--dist", arg, bench_distributions);
        bench_list_add(&options->dists, "--dist", arg);
        return 0;
    case OPTION_COUNT:
        options->count = bench_parse_nbytes("--count", arg);
        return options->count ? 0 : (argp_error(state, "--count: at least 1"), 0);
    case OPTION_PIECE:
        options->piece_nbytes = bench_parse_nbytes("--piece", arg) / 65536 * 65536;
        return options->piece_nbytes ? 0 : (argp_error(state, "--piece: at least 64K"), 0);
    case ARGP_KEY_ARG:
        argp_error(state, "takes no argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&bench_common_argp, 0, NULL, 0}, {0}};
static const struct argp codec_argp = {
    .options = codec_argp_options,
    .parser = parse_codec,
    .children = children,
    .doc = "Speed, size and error of codecs on one core, beside reading and copying the same data."
           "\vSpeeds are in 1e9 bytes of float32 input a second, medians over the iterations (10 "
           "by default). bench/README.md defines every column."};

int bench_codec(int argc, char **argv)
{
    static const char *const codecs[] = {"none", "bf16", "int8", "int4", "sign", "topk:0.01", NULL};
    static const char *const dists[] = {"gauss", NULL};
    struct codec_options options = {
        .common = {.iterations = 10, .warmup = 1}, .count = 64 << 20, .piece_nbytes = 512 << 10};
    argp_parse(&codec_argp, argc, argv, 0, NULL, &options);
    bench_list_default(&options.common.codecs, codecs);
    bench_list_default(&options.dists, dists);
    bench_all(&options);
    return EXIT_SUCCESS;
}
