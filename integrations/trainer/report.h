/* SPDX-License-Identifier: Apache-2.0 */
/* What a run tells: a log of JSON lines while it goes on, a summary at its end. */
#ifndef TRAINER_REPORT_H
#define TRAINER_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Losses are means over samples, bytes are those of one rank, seconds those of rank 0. */
struct summary {
    int ranks;
    const char *model, *device, *codec, *algorithm;
    size_t parameters, steps;
    double train_loss;    /* mean of the last steps, 100 at most */
    bool text;            /* the model learns text: its test loss is told, else its accuracy */
    double test_accuracy; /* 0..1 */
    double test_loss;     /* per byte, in nats */
    double seconds;       /* of training; loading and evaluation do not count */
    double seconds_compute, seconds_exposed_comm;
    double dense_bytes_per_step, wire_bytes_per_step;
    uint64_t digest;
    bool replicas_equal;
    double loss_scale; /* after the last step */
    size_t steps_skipped;
    bool unsaved; /* the last checkpoint could not be written; not printed */
};

/* One line of JSON, or four lines for people, on standard output. */
void report_summary(const struct summary *summary, bool json);

/* Open the log; a NULL PATH gives NULL, to which all log calls are silent. Dies if it cannot. */
FILE *report_log_open(const char *path);

/* The same, to go on after the first STEPS steps that an earlier process wrote: lines of later
 * steps are taken out. */
FILE *report_log_reopen(const char *path, size_t steps);
void report_log_close(FILE *log, const char *path);

/* A step: its loss, and how it went. */
struct step_record {
    double lr, loss_scale;
    double norm; /* of the gradient, before it was clipped; NaN where nothing is clipped */
    uint64_t wire_nbytes;
    size_t samples; /* of this rank */
};
void report_log_step(FILE *log, size_t step, double loss, const struct step_record *record);
void report_log_evaluation(FILE *log, size_t step, double accuracy, double loss);

#endif
