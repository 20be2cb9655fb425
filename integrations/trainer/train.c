/* SPDX-License-Identifier: Apache-2.0 */
/* The loop, and who sees which sample. A step's global batch is a stretch of the epoch's order, cut
 * in rank-major micro-batches:
 *
 *     | rank 0, micro-step 0 | rank 0, micro-step 1 | rank 1, micro-step 0 | ...
 *
 * so that any number of ranks and micro-steps sees the samples that one rank sees in one go. Where
 * the cuts cannot be equal, wring weighs them by their samples: the mean over the global batch. */
#include "train.h"

#include "data.h"
#include "optimizer.h"
#include "program.h"
#include "progress.h"

#include <math.h>
#include <stdlib.h>

#define WINDOW 50     /* steps whose losses are summed over ranks in one go */
#define LAST 100      /* steps that the reported training loss is the mean of */
#define EVALUATED 100 /* test images evaluated at a time */

struct run {
    const struct options *options;
    struct sync *sync;
    struct device *device;
    struct model model;
    struct optimizer optimizer;
    struct scaler scaler;

    size_t steps, steps_per_epoch, warmup;
    size_t micro; /* samples of a micro-step, at most */

    /* In the device's memory. */
    struct dataset data, test;
    float *normaliser;
    uint32_t *order;      /* of the samples in the current epoch */
    uint8_t *labels;      /* of the current micro-batch */
    struct score *scores; /* of the steps in the window, and one of the evaluation */

    struct step_record window[WINDOW]; /* steps not yet in the log: their losses are of one rank */
    size_t in_window;
    double last_loss[LAST]; /* of the steps that are, ring-wise */
    double accuracy, test_loss;

    double compute_s, exposed_s;
    uint64_t wire_nbytes, dense_nbytes;
    FILE *log; /* rank 0 */
    struct progress progress;
};

/* End all ranks, which all found the same; one of them says why. */
_Noreturn static void stop(const struct run *run, const char *why, size_t number)
{
    if (run->sync->rank == 0)
        die(why, number);
    exit(EXIT_FAILURE);
}

static void cut_batch(struct run *run)
{
    const struct options *o = run->options;
    size_t parts = (size_t)run->sync->nranks * o->accumulate;
    if (o->batch > run->data.count)
        stop(run, "--batch is larger than the data set of %zu samples", run->data.count);
    run->micro = (o->batch + parts - 1) / parts;
    run->steps_per_epoch = run->data.count / o->batch; /* an incomplete last batch is left out */
    run->steps = o->steps ? o->steps : o->epochs * run->steps_per_epoch;
    run->warmup = o->warmup < 0 ? run->steps / 20 : (size_t)o->warmup;
}

static void load(struct run *run)
{
    float normaliser[256];
    data_load(model_data(run->options->model), run->options->data, &run->data, &run->test,
              normaliser);
    run->normaliser = device_alloc(run->device, 256, sizeof(float));
    run->device->ops->put(run->device, run->normaliser, normaliser, sizeof normaliser);
    device_take(run->device, &run->data);
    device_take(run->device, &run->test);
}

static void open_run(struct run *run, const struct options *options, struct device *device,
                     struct sync *sync)
{
    *run = (struct run){.options = options, .sync = sync, .device = device};
    load(run);
    cut_batch(run);
    size_t memory = run->micro > EVALUATED ? run->micro : EVALUATED;
    size_t labels = memory * run->data.nlabels;
    run->order = device_alloc(device, run->data.count, sizeof *run->order);
    run->labels = device_alloc(device, labels, sizeof *run->labels);
    run->scores = device_alloc(device, WINDOW + 1, sizeof *run->scores);
    model_create(&run->model, device, options->model, memory, options->seed);
    optimizer_create(&run->optimizer, options->optimizer, options->momentum, options->weight_decay,
                     &run->model);
    run->scaler = options->scaler;
    sync_register(sync, &run->model, options->accumulate,
                  options->batch % ((size_t)sync->nranks * options->accumulate) != 0,
                  options->precision);
    if (sync->rank == 0)
        run->log = report_log_open(options->log);
    progress_begin(&run->progress, sync->rank == 0 ? run->steps : 0);
}

static void close_run(struct run *run)
{
    progress_end(&run->progress);
    report_log_close(run->log, run->options->log);
    optimizer_destroy(&run->optimizer, &run->model);
    model_destroy(&run->model);
    void *blocks[] = {run->scores, run->labels, run->order, run->normaliser};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        run->device->ops->free(run->device, blocks[i]);
    device_drop(run->device, &run->test);
    device_drop(run->device, &run->data);
}

static void begin_epoch(struct run *run, uint64_t epoch)
{
    size_t count = run->data.count;
    uint32_t *order = must_alloc(count, sizeof *order);
    epoch_order(order, count, run->options->seed, epoch);
    run->device->ops->put(run->device, run->order, order, count * sizeof *order);
    free(order);
}

/* The first sample of part NUMBER of all the micro-steps of a step. */
static size_t part_start(const struct run *run, size_t number)
{
    return run->options->batch * number / ((size_t)run->sync->nranks * run->options->accumulate);
}

/* Gradient of micro-step K of a step whose samples begin at FIRST of the order. The gradients leave
 * as they become ready, below the rest of backward. */
static void micro_step(struct run *run, size_t step, size_t first, size_t k, struct score *score)
{
    struct model *model = &run->model;
    size_t part = (size_t)run->sync->rank * run->options->accumulate + k;
    size_t begin = part_start(run, part), count = part_start(run, part + 1) - begin;
    float scale = (float)(run->scaler.scale / (double)(count * model->nlabels));
    bool last_rank = run->sync->rank == run->sync->nranks - 1;
    sync_weigh(run->sync, count);
    if (count == 0)
        return;
    run->device->ops->gather(run->device, &run->data, run->normaliser, run->order, first + begin,
                             count, model->activation[0], run->labels);
    model_forward(model, count);
    if (step + 1 == run->options->poison && last_rank)
        scale = INFINITY;
    model_backward(model, count, run->labels, scale, score, sync_ready, run->sync);
}

/* All micro-steps of STEP. Seconds of waiting for communication go to EXPOSED_OUT. */
static wring_result make_gradients(struct run *run, size_t step, double *exposed_out)
{
    const struct options *o = run->options;
    struct score *score = &run->scores[run->in_window];
    size_t batch = step % run->steps_per_epoch;
    wring_result result = {0};
    *exposed_out = 0;
    for (size_t k = 0; k < o->accumulate; k++) {
        micro_step(run, step, batch * o->batch, k, score);
        device_wait(run->device); /* the gradients are on their way; this tells the times apart */
        double waiting = now_s();
        result = sync_finish(run->sync, k + 1 == o->accumulate);
        *exposed_out += now_s() - waiting;
    }
    return result;
}

/* Change the parameters by the gradients, unless these are not finite on some rank: such a step is
 * skipped, or ends the run on all ranks. */
static void apply(struct run *run, size_t step, const wring_result *result,
                  struct step_record *record)
{
    double unscale = 1 / run->scaler.scale;
    if (!scaler_update(&run->scaler, result->nonfinite))
        stop(run,
             "training diverged: a gradient of step %zu holds NaN or Inf; lower --lr, lengthen "
             "--warmup, or set --loss-scale dynamic",
             step + 1);
    if (result->nonfinite)
        return;
    if (run->options->clip > 0) {
        record->norm = unscale * model_gradient_norm(&run->model);
        if (record->norm > run->options->clip)
            unscale *= run->options->clip / record->norm;
    }
    optimizer_step(&run->optimizer, &run->model, record->lr, (float)unscale);
}

static void train_step(struct run *run, size_t step)
{
    const struct options *o = run->options;
    struct step_record *record = &run->window[run->in_window];
    double started = now_s(), exposed;
    if (step % run->steps_per_epoch == 0 || step == 0)
        begin_epoch(run, step / run->steps_per_epoch);
    wring_result result = make_gradients(run, step, &exposed);
    double lr = o->lr * schedule_factor(o->schedule, step, run->steps, run->warmup);
    *record = (struct step_record){lr, run->scaler.scale, NAN, result.wire_nbytes};
    apply(run, step, &result, record);
    run->in_window++;
    run->wire_nbytes += result.wire_nbytes;
    run->dense_nbytes += result.dense_nbytes;
    run->exposed_s += exposed;
    run->compute_s += now_s() - started - exposed;
}

/* Fetch COUNT scores FROM the device, where they begin again at 0. */
static void take_scores(struct run *run, struct score *from, struct score *scores_out, size_t count)
{
    static const struct score zero[WINDOW];
    run->device->ops->get(run->device, scores_out, from, count * sizeof *from);
    run->device->ops->put(run->device, from, zero, count * sizeof *from);
    device_wait(run->device);
}

/* Sum the losses of the window over ranks and log them; DONE steps are finished. */
static void flush_window(struct run *run, size_t done)
{
    struct score scores[WINDOW];
    double losses[WINDOW];
    take_scores(run, run->scores, scores, run->in_window);
    for (size_t i = 0; i < run->in_window; i++)
        losses[i] = scores[i].loss / (double)(run->options->batch * run->data.nlabels);
    sync_sum(run->sync, losses, run->in_window);
    size_t first = done - run->in_window;
    for (size_t i = 0; i < run->in_window; i++) {
        run->last_loss[(first + i) % LAST] = losses[i];
        report_log_step(run->log, first + i + 1, losses[i], &run->window[i]);
    }
    run->in_window = 0;
}

/* Each rank takes every nranks-th stretch of the test set. */
static void evaluate(struct run *run, size_t done)
{
    struct score *score = &run->scores[WINDOW], sum;
    size_t stride = (size_t)run->sync->nranks * EVALUATED;
    for (size_t first = (size_t)run->sync->rank * EVALUATED; first < run->test.count;
         first += stride) {
        size_t left = run->test.count - first;
        size_t count = left < EVALUATED ? left : EVALUATED;
        run->device->ops->gather(run->device, &run->test, run->normaliser, NULL, first, count,
                                 run->model.activation[0], run->labels);
        const float *logits = model_forward(&run->model, count);
        run->device->ops->softmax(run->device, count * run->model.nlabels, run->model.classes,
                                  logits, run->labels, 0, NULL, score);
    }
    take_scores(run, score, &sum, 1);
    double sums[2] = {(double)sum.correct, sum.loss};
    sync_sum(run->sync, sums, 2);
    double labels = (double)(run->test.count * run->test.nlabels);
    run->accuracy = sums[0] / labels;
    run->test_loss = sums[1] / labels;
    report_log_evaluation(run->log, done, run->accuracy, run->test_loss);
}

static void show_progress(struct run *run, size_t done)
{
    char note[96];
    double loss = run->last_loss[(done - 1 - run->in_window) % LAST];
    if (model_data(run->options->model) == DATA_TEXT)
        snprintf(note, sizeof note, "loss %.3f, test loss %.3f", loss, run->test_loss);
    else
        snprintf(note, sizeof note, "loss %.3f, test accuracy %.2f %%", loss, 100 * run->accuracy);
    progress_update(&run->progress, done, run->accuracy > 0 ? note : "");
}

static double mean_last_loss(const struct run *run)
{
    size_t n = run->steps < LAST ? run->steps : LAST;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += run->last_loss[i];
    return sum / (double)n;
}

static void summarise(struct run *run, struct summary *summary)
{
    double bytes[2] = {(double)run->wire_nbytes, (double)run->dense_nbytes};
    sync_sum(run->sync, bytes, 2);
    double share = (double)run->steps * run->sync->nranks;
    summary->ranks = run->sync->nranks;
    summary->parameters = run->model.count;
    summary->steps = run->steps;
    summary->train_loss = mean_last_loss(run);
    summary->text = model_data(run->options->model) == DATA_TEXT;
    summary->test_accuracy = run->accuracy;
    summary->test_loss = run->test_loss;
    summary->seconds_compute = run->compute_s;
    summary->seconds_exposed_comm = run->exposed_s;
    summary->seconds = run->compute_s + run->exposed_s;
    summary->wire_bytes_per_step = bytes[0] / share;
    summary->dense_bytes_per_step = bytes[1] / share;
    summary->digest = model_digest(&run->model);
    summary->loss_scale = run->scaler.scale;
    summary->steps_skipped = run->scaler.skipped;
    uint64_t scaled = (uint64_t)run->scaler.scale ^ (uint64_t)run->scaler.skipped << 48;
    summary->replicas_equal = sync_all_equal(run->sync, summary->digest ^ scaled);
}

void train(const struct options *options, struct device *device, struct sync *sync,
           struct summary *summary)
{
    struct run run;
    open_run(&run, options, device, sync);
    size_t every = options->eval_every ? options->eval_every : run.steps_per_epoch;
    for (size_t step = 0; step < run.steps; step++) {
        train_step(&run, step);
        size_t done = step + 1;
        bool evaluation = done % every == 0 || done == run.steps;
        if (run.in_window == WINDOW || evaluation)
            flush_window(&run, done);
        if (evaluation)
            evaluate(&run, done);
        show_progress(&run, done);
    }
    summarise(&run, summary);
    close_run(&run);
}
