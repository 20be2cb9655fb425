/* SPDX-License-Identifier: Apache-2.0 */
/* What a training run has in memory. */
#ifndef TRAINER_RUN_H
#define TRAINER_RUN_H

#include "optimizer.h"
#include "options.h"
#include "progress.h"
#include "report.h"
#include "scaler.h"
#include "sync.h"

#define WINDOW 50     /* steps whose losses are summed over ranks in one go */
#define LAST 100      /* steps that the reported training loss is the mean of */
#define EVALUATED 100 /* test samples evaluated at a time */

/* What a step changes: without it, the step was never done. */
struct stage {
    float *values, *first, *second; /* as the model's and the optimizer's; SECOND NULL: has none */
    size_t optimizer_steps;
    struct scaler scaler;
};

/* What comes between two steps: it counts once all ranks have ended it, and again from its start
 * if one was lost before. */
struct round {
    bool tallied, tested, saved;
};

struct run {
    const struct options *options;
    struct sync *sync;
    struct device *device;
    struct model model;
    struct optimizer optimizer;
    struct scaler scaler;

    size_t steps, steps_per_epoch, warmup;
    size_t begun, done; /* steps done before this process began, and by now */

    /* In the device's memory. */
    struct dataset data, test;
    float *normaliser;
    uint32_t *order;      /* of the samples in the current epoch */
    uint8_t *labels;      /* of the current micro-batch */
    struct score *scores; /* of the steps in the window, and one of the evaluation */
    struct stage before;  /* the last step, where it may have to be taken back */

    uint64_t data_digest;
    bool order_stands; /* ORDER is that of the epoch that is under way */

    struct step_record window[WINDOW]; /* steps not yet in the log: their losses are of one rank */
    size_t in_window;
    double last_loss[LAST]; /* of the steps that are, ring-wise */
    double accuracy, test_loss;

    double compute_s, exposed_s;
    uint64_t wire_nbytes, dense_nbytes;
    FILE *log; /* rank 0 */
    struct progress progress;
    size_t evaluated, saved; /* the step after which that was done last */
    struct round round;      /* that is under way */
    uint64_t nrounds;        /* that have counted */
    bool unsaved;            /* the last checkpoint could not be written */
};

/* End all ranks, which all found the same; one of them says WHY, a format for NUMBER. */
_Noreturn void run_stop(const struct run *run, const char *why, size_t number);

/* Tell wring's new communicator of the gradients. */
void run_register(struct run *run);

/* ---- tally.c: what a run tells --------------------------------------------------------------- */

/* Scores of COUNT steps from FIRST, WINDOW being that of the evaluation, begin again at 0. */
void tally_clear(struct run *run, size_t first, size_t count);

/* Losses of the steps of the window, summed over ranks, into the log: before a checkpoint, after
 * which nobody could write them any more. */
void tally_window(struct run *run);

/* Test accuracy and loss, the same. */
void tally_test(struct run *run);

/* All ranks have ended the round: begin a new window if that was in it. */
void tally_round(struct run *run);

void tally_progress(struct run *run);
void tally_summary(struct run *run, struct summary *summary);

/* ---- state.c: what a run is made of, as a checkpoint ----------------------------------------- */

/* All ranks call. What cannot be written is told, and the run goes on. */
void state_save(struct run *run);

/* Go on where the checkpoint ends, if --resume asks for it and there is one. Dies if there is one
 * that this run must not overwrite or cannot go on from. */
void state_resume(struct run *run);

/* ---- recover.c: losing ranks ----------------------------------------------------------------- */

/* Before a step that may have to be taken back. */
void recover_prepare(struct run *run);

/* After sync->failed: go on with the ranks that are left, from the last step that all of them have
 * done. */
void recover(struct run *run);

#endif
