/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wring-bench-cuda: how fast are the codecs' kernels on a device, and how near to what its memory
 * can do? The device's copy, its read and an empty launch are measured in the same rounds, A B C A
 * B C, each as a batch of calls between two events; the fastest batch counts, since nothing but
 * other work makes a batch slower. It calls the device's table as the executor does, through
 * internal headers: codecs on device memory are no part of the public interface.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/device.h"
#include "base/status.h"
#include "bench_data.h"
#include "bench_options.h"
#include "bench_report.h"
#include "codec/codec.h"
#include "device_clock.h"
#include "program.h"

#define PATTERN ((size_t)4 << 20) /* values after which the input repeats */
#define BATCH_S 1e-3              /* a batch lasts as long as that, if it can */
#define BATCH_CALLS 500

struct cuda_options {
    struct bench_common common;
    size_t begin, end, factor; /* bytes of float32 */
};

/* Device memory, but for the codec. */
struct cuda_run {
    const wring_codec *codec;
    const struct wri_device *device;
    void *stream;
    struct wri_verdict *verdict;
    size_t count, nbytes; /* values, encoded bytes */
    float *src, *dst, *residual[2];
    void *encoded, *scratch;
};

static void check(wring_status status)
{
    if (status != WRING_OK)
        die("%s", wring_error_message());
}

/* ---- what is timed --------------------------------------------------------------------------- */

static void run_copy(void *arg)
{
    struct cuda_run *run = arg;
    device_copy(run->dst, run->src, run->count * sizeof(float), run->stream);
}

static void run_read(void *arg)
{
    struct cuda_run *run = arg;
    device_read(run->src, run->count * sizeof(float), &run->verdict->error, run->stream);
}

static void run_nothing(void *arg)
{
    struct cuda_run *run = arg;
    device_nothing(run->stream);
}

static void run_encode(void *arg)
{
    struct cuda_run *run = arg;
    struct wri_encode_run encode = {
        .codec = run->codec,
        .dtype = WRING_FLOAT32,
        .src_dtype = WRING_FLOAT32,
        .src = run->src,
        .count = run->count,
        .residual_in = run->codec->feedback ? run->residual[0] : NULL,
        .residual_out = run->codec->feedback ? run->residual[1] : NULL,
        .dst = run->encoded,
        .scratch = run->scratch,
        .place = {run->device, run->stream, run->verdict, 1},
    };
    check(wri_codec_encode_run(&encode));
}

static void decode(struct cuda_run *run, bool add)
{
    struct wri_decode_run decode = {
        .codec = run->codec,
        .dtype = WRING_FLOAT32,
        .dst_dtype = WRING_FLOAT32,
        .src = run->encoded,
        .nbytes = run->nbytes,
        .dst = run->dst,
        .count = run->count,
        .add = add,
        .op = WRING_SUM,
        .scratch = run->scratch,
        .place = {run->device, run->stream, run->verdict, 1},
    };
    check(wri_codec_decode_run(&decode));
}

static void run_decode(void *arg)
{
    decode(arg, false);
}

static void run_decode_add(void *arg)
{
    decode(arg, true);
}

enum { COPY, READ, LAUNCH, ENCODE, DECODE, DECODE_ADD, NSUBJECTS };
static void (*const subjects[NSUBJECTS])(void *) = {run_copy,   run_read,   run_nothing,
                                                    run_encode, run_decode, run_decode_add};

/* Seconds of one call of each subject, of its fastest batch. */
static void measure(struct cuda_run *run, int warmup, int batches, double seconds[NSUBJECTS])
{
    size_t calls[NSUBJECTS];
    for (int s = 0; s < NSUBJECTS; s++) {
        double once = INFINITY;
        for (int i = 0; i <= warmup; i++)
            once = fmin(once, device_seconds(subjects[s], run, 1, run->stream));
        double wanted = once > 0 ? ceil(BATCH_S / once) : BATCH_CALLS;
        calls[s] = wanted < BATCH_CALLS ? (size_t)wanted : BATCH_CALLS;
        seconds[s] = INFINITY;
    }
    for (int batch = 0; batch < batches; batch++)
        for (int s = 0; s < NSUBJECTS; s++) {
            double all = device_seconds(subjects[s], run, calls[s], run->stream);
            seconds[s] = fmin(seconds[s], all / (double)calls[s]);
        }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Bytes that a subject cannot do without, read and written: docs/performance-gpu.md. */
static double bytes_moved(const struct cuda_run *run, int subject)
{
    double dense = (double)run->count * sizeof(float), encoded = (double)run->nbytes;
    const struct wring_stage *stage = &run->codec->stage[0];
    switch (subject) {
    case COPY:
        return 2 * dense;
    case READ:
        return dense;
    case ENCODE:
        return dense + encoded + (run->codec->feedback ? 2 * dense : 0);
    case DECODE:
        return encoded + dense;
    default: /* adding touches the 32-byte sectors that hold a kept value */
        if (stage->ops->order == WRING_ORDER_SELECTION)
            return encoded + 2 * dense * (1 - pow(1 - stage->param[0], 8));
        return encoded + 2 * dense;
    }
}

static double of_the_copy(const struct cuda_run *run, const double *seconds, int subject)
{
    return bytes_moved(run, subject) / seconds[subject] / (bytes_moved(run, COPY) / seconds[COPY]);
}

static void report(const struct cuda_run *run, double nmse, const double seconds[NSUBJECTS],
                   bool head, bool json)
{
    struct device_about about = device_about();
    double dense = (double)run->count * sizeof(float), rate[NSUBJECTS], of_copy[NSUBJECTS];
    for (int s = 0; s < NSUBJECTS; s++) {
        rate[s] = dense / seconds[s] / 1e9;
        of_copy[s] = of_the_copy(run, seconds, s);
    }
    const struct bench_field fields[] = {
        {"codec", "codec", "", -32, BENCH_TEXT, 0, wring_codec_spec(run->codec), 0},
        {"count", "count", "(values)", 11, BENCH_INTEGER, 0, NULL, (double)run->count},
        {"encoded_bytes", NULL, "(bytes)", 11, BENCH_INTEGER, 0, NULL, (double)run->nbytes},
        {"ratio", "ratio", "", 7, BENCH_REAL, 4, NULL, dense / (double)run->nbytes},
        {"nmse", "nmse", "", 9, BENCH_REAL, 3, NULL, nmse},
        {"encode_gbps", "encode", "(GB/s)", 7, BENCH_REAL, 4, NULL, rate[ENCODE]},
        {"decode_gbps", "decode", "(GB/s)", 7, BENCH_REAL, 4, NULL, rate[DECODE]},
        {"decode_add_gbps", "dec+add", "(GB/s)", 7, BENCH_REAL, 4, NULL, rate[DECODE_ADD]},
        {"read_gbps", "read", "(GB/s)", 7, BENCH_REAL, 4, NULL, rate[READ]},
        {"memcpy_gbps", "memcpy", "(GB/s)", 7, BENCH_REAL, 4, NULL, rate[COPY]},
        {"copy_fraction_encode", "encode", "/ copy", 7, BENCH_REAL, 3, NULL, of_copy[ENCODE]},
        {"copy_fraction_decode", "decode", "/ copy", 7, BENCH_REAL, 3, NULL, of_copy[DECODE]},
        {"copy_fraction_decode_add", "dec+add", "/ copy", 7, BENCH_REAL, 3, NULL,
         of_copy[DECODE_ADD]},
        {"copy_fraction_read", "read", "/ copy", 7, BENCH_REAL, 3, NULL, of_copy[READ]},
        {"encode_us", "encode", "(us)", 7, BENCH_REAL, 3, NULL, 1e6 * seconds[ENCODE]},
        {"decode_us", NULL, "(us)", 7, BENCH_REAL, 3, NULL, 1e6 * seconds[DECODE]},
        {"decode_add_us", NULL, "(us)", 7, BENCH_REAL, 3, NULL, 1e6 * seconds[DECODE_ADD]},
        {"copy_us", NULL, "(us)", 7, BENCH_REAL, 3, NULL, 1e6 * seconds[COPY]},
        {"launch_us", "launch", "(us)", 7, BENCH_REAL, 3, NULL, 1e6 * seconds[LAUNCH]},
        {"isa", NULL, "", 7, BENCH_TEXT, 0, about.name, 0},
    };
    const size_t nfields = sizeof fields / sizeof fields[0];
    if (head && !json)
        bench_report_head(fields, nfields, NULL);
    bench_report_row(fields, nfields, json);
}

/* ---- one codec, one size --------------------------------------------------------------------- */

static void *block(const struct cuda_run *run, size_t nbytes)
{
    void *made;
    check(run->device->alloc(run->device, run->stream, nbytes, &made));
    return made;
}

static void copy(const struct cuda_run *run, void *dst, const void *src, size_t nbytes)
{
    check(run->device->copy(run->device, run->stream, dst, src, nbytes));
    check(run->device->stream_wait(run->stream));
}

/* The host's N values again and again, all over the source. */
static void fill(const struct cuda_run *run, const float *values, size_t n)
{
    copy(run, run->src, values, n * sizeof(float));
    for (size_t done = n; done < run->count; done += n) {
        size_t left = run->count - done;
        copy(run, run->src + done, run->src, (left < n ? left : n) * sizeof(float));
    }
}

/* Squared error over squared input of the first N values; VALUES are these. */
static double normalised_error(struct cuda_run *run, const float *values, size_t n)
{
    double error = 0, power = 0;
    struct wri_verdict found;
    float *decoded = must_alloc(n, sizeof(float));
    run_encode(run);
    run_decode(run);
    copy(run, decoded, run->dst, n * sizeof(float));
    copy(run, &found, run->verdict, sizeof found);
    if (found.error || found.nonfinite)
        die("%s: the device does not take what it wrote itself", wring_codec_spec(run->codec));
    for (size_t i = 0; i < n; i++) {
        double x = values[i], d = x - decoded[i];
        power += x * x;
        error += d * d;
    }
    free(decoded);
    return power > 0 ? error / power : 0;
}

static void bench_one(struct cuda_run *run, const float *values, const struct bench_common *common,
                      bool head)
{
    size_t dense = run->count * sizeof(float), n = run->count < PATTERN ? run->count : PATTERN;
    double seconds[NSUBJECTS];
    run->nbytes = wri_codec_nbytes(run->codec, WRING_FLOAT32, run->count);
    run->encoded = block(run, run->nbytes);
    run->scratch =
        block(run, 16 + wri_codec_device_scratch_nbytes(run->codec, run->device, run->count));
    for (int g = 0; g < 2; g++) {
        run->residual[g] = run->codec->feedback ? block(run, dense) : NULL;
        if (run->residual[g])
            check(run->device->zero(run->stream, run->residual[g], dense));
    }
    double nmse = normalised_error(run, values, n);
    measure(run, common->warmup, common->iterations, seconds);
    report(run, nmse, seconds, head, common->json);
    run->device->free(run->device, run->stream, run->encoded);
    run->device->free(run->device, run->stream, run->scratch);
    run->device->free(run->device, run->stream, run->residual[0]);
    run->device->free(run->device, run->stream, run->residual[1]);
    check(run->device->stream_wait(run->stream));
}

static void bench_size(struct cuda_run *run, const struct bench_common *common, bool *head)
{
    size_t dense = run->count * sizeof(float), n = run->count < PATTERN ? run->count : PATTERN;
    float *values = must_alloc(n, sizeof(float));
    bench_fill_distribution(0, values, n); /* gauss */
    run->src = block(run, dense);
    run->dst = block(run, dense);
    check(run->device->zero(run->stream, run->dst, dense));
    fill(run, values, n);
    for (size_t c = 0; c < common->codecs.n; c++) {
        wring_codec *codec;
        check(wring_codec_create(common->codecs.item[c], &codec));
        run->codec = codec;
        bench_one(run, values, common, *head);
        wring_codec_destroy(codec);
        *head = false;
    }
    run->device->free(run->device, run->stream, run->src);
    run->device->free(run->device, run->stream, run->dst);
    free(values);
}

/* ---- the device ------------------------------------------------------------------------------ */

static void open_device(struct cuda_run *run)
{
    const char *folder = getenv("WRING_MODULES");
    int count;
    check(wri_device_find("cuda", folder ? folder : MODULES, &run->device));
    check(run->device->count(&count));
    check(run->device->stream_open(&run->stream));
    run->verdict = block(run, sizeof *run->verdict);
    check(run->device->zero(run->stream, run->verdict, sizeof *run->verdict));
}

static void bench_all(const struct cuda_options *options)
{
    struct cuda_run run = {0};
    bool head = true;
    open_device(&run);
    size_t memory_nbytes = device_about().memory_nbytes;
    for (size_t size = options->begin; size <= options->end; size *= options->factor) {
        if (size > memory_nbytes / 8) {
            fprintf(stderr, "wring-bench-cuda: %zu bytes are left out: the device has %zu\n", size,
                    memory_nbytes);
            break;
        }
        run.count = size / 16 * 4;
        bench_size(&run, &options->common, &head);
    }
    run.device->free(run.device, run.stream, run.verdict);
    check(run.device->stream_wait(run.stream));
    run.device->stream_close(run.stream);
}

/* ---- command line ---------------------------------------------------------------------------- */

static const struct argp_option cuda_argp_options[] = {
    {"minbytes", 'b', "SIZE", 0, "smallest input, bytes of float32 (default 256K)", 0},
    {"maxbytes", 'e', "SIZE", 0, "largest input (default 1G)", 0},
    {"stepfactor", 'f', "N", 0, "from one size to the next (default 64)", 0},
    {0},
};

static error_t parse_cuda(int key, char *arg, struct argp_state *state)
{
    struct cuda_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->common;
        return 0;
    case 'b':
        options->begin = bench_parse_nbytes("--minbytes", arg);
        return options->begin >= 16 ? 0 : (argp_error(state, "--minbytes: at least 16"), 0);
    case 'e':
        options->end = bench_parse_nbytes("--maxbytes", arg);
        return options->end >= 16 ? 0 : (argp_error(state, "--maxbytes: at least 16"), 0);
    case 'f':
        options->factor = (size_t)parse_int("--stepfactor", arg, 2, 1 << 30);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "takes no argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&bench_common_argp, 0, NULL, 0}, {0}};
static const struct argp cuda_argp = {
    .options = cuda_argp_options,
    .parser = parse_cuda,
    .children = children,
    .doc = "Speed of codecs on a CUDA device, beside its copy, its read and an empty launch."
           "\vIterations (7 by default) are batches of calls, of which the fastest counts. "
           "docs/performance-gpu.md says what the columns are."};

int main(int argc, char **argv)
{
    static const char *const codecs[] = {"none",    "bf16",    "fp16",         "int8",
                                         "int4",    "sign",    "topk:0.01",    "ef+int8",
                                         "ef+int4", "ef+sign", "ef+topk:0.01", NULL};
    struct cuda_options options = {
        .common = {.iterations = 7, .warmup = 1}, .begin = 256 << 10, .end = 1 << 30, .factor = 64};
    argp_parse(&cuda_argp, argc, argv, 0, NULL, &options);
    bench_list_default(&options.common.codecs, codecs);
    bench_all(&options);
    return EXIT_SUCCESS;
}
