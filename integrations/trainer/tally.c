/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of single ranks become those of the run, for the log, the progress bar and the summary. */
#include "run.h"

#include <stdio.h>

static void fetch_scores(struct run *run, const struct score *from, struct score *scores_out,
                         size_t count)
{
    run->device->ops->get(run->device, scores_out, from, count * sizeof *from);
    device_wait(run->device);
}

void tally_clear(struct run *run, size_t first, size_t count)
{
    static const struct score zero[WINDOW + 1];
    run->device->ops->put(run->device, &run->scores[first], zero, count * sizeof *zero);
    device_wait(run->device);
}

/* Each loss is divided by the samples that it comes from: a rank that was lost took some along. */
void tally_window(struct run *run)
{
    struct score scores[WINDOW];
    double sums[2 * WINDOW];
    size_t n = run->in_window;
    fetch_scores(run, run->scores, scores, n);
    for (size_t i = 0; i < n; i++) {
        sums[i] = scores[i].loss;
        sums[n + i] = (double)run->window[i].samples;
    }
    sync_sum(run->sync, sums, 2 * n);
    if (run->sync->failed)
        return;
    run->round.tallied = true;
    size_t first = run->done - n;
    for (size_t i = 0; i < n; i++) {
        double loss = sums[i] / (sums[n + i] * (double)run->data.nlabels);
        run->last_loss[(first + i) % LAST] = loss;
        report_log_step(run->log, first + i + 1, loss, &run->window[i]);
    }
}

/* Each rank takes every nranks-th stretch of the test set. */
void tally_test(struct run *run)
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
    fetch_scores(run, score, &sum, 1);
    tally_clear(run, WINDOW, 1);
    double sums[2] = {(double)sum.correct, sum.loss};
    sync_sum(run->sync, sums, 2);
    if (run->sync->failed)
        return;
    double labels = (double)(run->test.count * run->test.nlabels);
    run->round.tested = true;
    run->accuracy = sums[0] / labels;
    run->test_loss = sums[1] / labels;
    report_log_evaluation(run->log, run->done, run->accuracy, run->test_loss);
}

void tally_round(struct run *run)
{
    if (run->round.tallied) {
        tally_clear(run, 0, run->in_window);
        run->in_window = 0;
    }
    if (run->round.tested)
        run->evaluated = run->done;
    if (run->round.saved)
        run->saved = run->done;
    run->nrounds++;
}

void tally_progress(struct run *run)
{
    char note[96];
    double loss = run->last_loss[(run->done + LAST - 1 - run->in_window) % LAST];
    if (model_data(run->options->model) == DATA_TEXT)
        snprintf(note, sizeof note, "loss %.3f, test loss %.3f", loss, run->test_loss);
    else
        snprintf(note, sizeof note, "loss %.3f, test accuracy %.2f %%", loss, 100 * run->accuracy);
    progress_update(&run->progress, run->done, run->accuracy > 0 ? note : "");
}

static double mean_last_loss(const struct run *run)
{
    size_t n = run->steps < LAST ? run->steps : LAST;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += run->last_loss[i];
    return sum / (double)n;
}

void tally_summary(struct run *run, struct summary *summary)
{
    double bytes[2] = {(double)run->wire_nbytes, (double)run->dense_nbytes};
    sync_sum(run->sync, bytes, 2);
    double share = (double)(run->steps - run->begun) * run->sync->nranks;
    share = share > 0 ? share : 1;
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
    summary->unsaved = run->unsaved;
    summary->loss_scale = run->scaler.scale;
    summary->steps_skipped = run->scaler.skipped;
    uint64_t scaled = (uint64_t)run->scaler.scale ^ (uint64_t)run->scaler.skipped << 48;
    summary->replicas_equal = sync_all_equal(run->sync, summary->digest ^ scaled);
}
