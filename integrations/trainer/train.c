/* SPDX-License-Identifier: Apache-2.0 */
/* The loop, and who sees which sample. A step's global batch is a stretch of the epoch's order, cut
 * in rank-major micro-batches:
 *
 *     | rank 0, micro-step 0 | rank 0, micro-step 1 | rank 1, micro-step 0 | ...
 *
 * so that any number of ranks and micro-steps sees the samples that one rank sees in one go. Where
 * the cuts cannot be equal, wring weighs them by their samples: the mean over the global batch. */
#include "train.h"

#include "program.h"
#include "run.h"

#include <math.h>
#include <stdlib.h>

_Noreturn void run_stop(const struct run *run, const char *why, size_t number)
{
    if (run->sync->rank == 0)
        die(why, number);
    exit(EXIT_FAILURE);
}

/* How many samples a micro-step has at most, by which memory is taken: where ranks may be lost,
 * those of the last one. */
static size_t largest_part(const struct run *run)
{
    const struct options *o = run->options;
    size_t parts = (o->shrink ? 1 : (size_t)run->sync->nranks) * o->accumulate;
    size_t part = (o->batch + parts - 1) / parts;
    return part > EVALUATED ? part : EVALUATED;
}

/* Long for gpt: what error feedback sends late comes in large pieces, which disturb it less when it
 * has settled (docs/accuracy.md). */
static size_t usual_warmup(const struct run *run)
{
    if (model_data(run->options->model) != DATA_TEXT)
        return run->steps / 20;
    size_t most = 2 * run->steps / 3;
    return most < 200 ? most : 200;
}

static void plan(struct run *run)
{
    const struct options *o = run->options;
    if (o->batch > run->data.count)
        run_stop(run, "--batch is larger than the data set of %zu samples", run->data.count);
    run->steps_per_epoch = run->data.count / o->batch; /* an incomplete last batch is left out */
    run->steps = o->steps ? o->steps : o->epochs * run->steps_per_epoch;
    run->warmup = o->warmup < 0 ? usual_warmup(run) : (size_t)o->warmup;
}

static void load(struct run *run)
{
    float normaliser[256];
    data_load(model_data(run->options->model), run->options->data, &run->data, &run->test,
              normaliser);
    run->data_digest = dataset_digest(&run->data);
    run->normaliser = device_alloc(run->device, 256, sizeof(float));
    run->device->ops->put(run->device, run->normaliser, normaliser, sizeof normaliser);
    device_take(run->device, &run->data);
    device_take(run->device, &run->test);
}

void run_register(struct run *run)
{
    const struct options *o = run->options;
    bool even = o->batch % ((size_t)run->sync->nranks * o->accumulate) == 0;
    sync_register(run->sync, &run->model, o->accumulate, !even, o->precision);
}

/* Memory for taking a step back. */
static void open_stage(struct run *run)
{
    size_t count = run->model.count;
    run->before.values = device_alloc(run->device, count, sizeof(float));
    run->before.first = device_alloc(run->device, count, sizeof(float));
    if (run->optimizer.second)
        run->before.second = device_alloc(run->device, count, sizeof(float));
}

static void open_run(struct run *run, const struct options *options, struct device *device,
                     struct sync *sync)
{
    *run = (struct run){.options = options, .sync = sync, .device = device};
    load(run);
    plan(run);
    size_t memory = largest_part(run);
    run->order = device_alloc(device, run->data.count, sizeof *run->order);
    run->labels = device_alloc(device, memory * run->data.nlabels, sizeof *run->labels);
    run->scores = device_alloc(device, WINDOW + 1, sizeof *run->scores);
    model_create(&run->model, device, options->model, memory, options->seed);
    optimizer_create(&run->optimizer, options->optimizer, options->momentum, options->weight_decay,
                     &run->model);
    run->scaler = options->scaler;
    if (options->shrink)
        open_stage(run);
    run_register(run);
    state_resume(run);
    if (sync->rank == 0)
        run->log =
            run->done ? report_log_reopen(options->log, run->done) : report_log_open(options->log);
    progress_begin(&run->progress, sync->rank == 0 ? run->steps : 0);
}

static void close_run(struct run *run)
{
    progress_end(&run->progress);
    report_log_close(run->log, run->options->log);
    optimizer_destroy(&run->optimizer, &run->model);
    model_destroy(&run->model);
    void *blocks[] = {run->scores,        run->labels,       run->order,        run->normaliser,
                      run->before.values, run->before.first, run->before.second};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        run->device->ops->free(run->device, blocks[i]);
    device_drop(run->device, &run->test);
    device_drop(run->device, &run->data);
}

static void begin_epoch(struct run *run, uint64_t epoch)
{
    run->order_stands = true;
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
static void micro_step(struct run *run, size_t first, size_t k, struct score *score)
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
    if (run->done + 1 == run->options->poison && last_rank)
        scale = INFINITY;
    model_backward(model, count, run->labels, scale, score, sync_ready, run->sync);
}

/* All micro-steps of a step. Seconds of waiting for communication go to EXPOSED_OUT. */
static wring_result make_gradients(struct run *run, double *exposed_out)
{
    const struct options *o = run->options;
    struct score *score = &run->scores[run->in_window];
    size_t batch = run->done % run->steps_per_epoch;
    wring_result result = {0};
    *exposed_out = 0;
    for (size_t k = 0; k < o->accumulate && !run->sync->failed; k++) {
        micro_step(run, batch * o->batch, k, score);
        device_wait(run->device); /* the gradients are on their way; this tells the times apart */
        double waiting = now_s();
        result = sync_finish(run->sync, k + 1 == o->accumulate);
        *exposed_out += now_s() - waiting;
    }
    return result;
}

/* Change the parameters by the gradients, unless these are not finite on some rank: such a step is
 * skipped, or ends the run on all ranks. */
static void apply(struct run *run, const wring_result *result, struct step_record *record)
{
    double unscale = 1 / run->scaler.scale;
    if (!scaler_update(&run->scaler, result->nonfinite))
        run_stop(run,
                 "training diverged: a gradient of step %zu holds NaN or Inf; lower --lr, lengthen "
                 "--warmup, or set --loss-scale dynamic",
                 run->done + 1);
    if (result->nonfinite)
        return;
    if (run->options->clip > 0) {
        record->norm = unscale * sync_norm(run->sync);
        if (record->norm > run->options->clip)
            unscale *= run->options->clip / record->norm;
    }
    optimizer_step(&run->optimizer, &run->model, record->lr, (float)unscale);
}

static void train_step(struct run *run)
{
    const struct options *o = run->options;
    struct step_record *record = &run->window[run->in_window];
    double started = now_s(), exposed;
    if (run->done % run->steps_per_epoch == 0 || !run->order_stands)
        begin_epoch(run, run->done / run->steps_per_epoch);
    recover_prepare(run);
    wring_result result = make_gradients(run, &exposed);
    if (run->sync->failed)
        return;
    double lr = o->lr * schedule_factor(o->schedule, run->done, run->steps, run->warmup);
    size_t parts = (size_t)run->sync->rank * o->accumulate;
    size_t samples = part_start(run, parts + o->accumulate) - part_start(run, parts);
    *record = (struct step_record){lr, run->scaler.scale, NAN, result.wire_nbytes, samples};
    apply(run, &result, record);
    run->in_window++;
    run->done++;
    run->wire_nbytes += result.wire_nbytes;
    run->dense_nbytes += result.dense_nbytes;
    run->exposed_s += exposed;
    run->compute_s += now_s() - started - exposed;
    if (o->shrink)
        sync_meet(run->sync);
}

/* A multiple of EVERY steps, or the last one, and not the one after which it was done LAST. */
static bool due(const struct run *run, size_t every, size_t last)
{
    if (every == 0)
        every = run->steps_per_epoch;
    return (run->done % every == 0 || run->done == run->steps) && run->done != last;
}

/* What comes between two steps. */
static void between(struct run *run)
{
    const struct options *o = run->options;
    bool test = due(run, o->eval_every, run->evaluated);
    bool save = o->checkpoint && due(run, o->checkpoint_every, run->saved);
    bool tally = run->in_window == WINDOW || (run->in_window > 0 && (test || save));
    run->round = (struct round){0};
    if (!tally && !test && !save)
        return;
    if (tally)
        tally_window(run);
    if (test && !run->sync->failed)
        tally_test(run);
    if (save && !run->sync->failed)
        state_save(run);
    run->round.saved = save;
    if (o->shrink)
        sync_meet(run->sync);
    if (!run->sync->failed)
        tally_round(run);
}

void train(const struct options *options, struct device *device, struct sync *sync,
           struct summary *summary)
{
    struct run run;
    open_run(&run, options, device, sync);
    if (options->shrink)
        sync_survive(sync);
    run.saved = run.done;
    if (run.done < run.steps) /* else its accuracy is all that is left to tell */
        run.evaluated = run.done;
    do {
        if (sync->failed)
            recover(&run);
        if (!sync->failed)
            between(&run); /* what was not ended, or all that a run does that has no step to do */
        while (run.done < run.steps && !sync->failed) {
            train_step(&run);
            if (!sync->failed)
                between(&run);
            tally_progress(&run);
        }
        if (!sync->failed)
            tally_summary(&run, summary);
    } while (sync->failed);
    close_run(&run);
}
