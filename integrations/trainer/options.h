/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of wring-train. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include "optimizer.h"
#include "scaler.h"

#include <stdbool.h>

struct options {
    int model;        /* index into model_names */
    int device;       /* index into device_names */
    const char *data; /* folder of the four IDX files, or a text; NULL: the default */

    enum optimizer_kind optimizer;
    enum schedule_kind schedule;
    double lr, momentum, weight_decay;
    size_t batch, accumulate; /* samples per step over all ranks; micro-steps */
    size_t steps, epochs;     /* STEPS 0: EPOCHS counts */
    long warmup;              /* steps; -1: what is usual */
    double clip;              /* 0: gradients of any norm */
    enum precision precision; /* of gradients, as they travel */
    struct scaler scaler;
    const char *checkpoint;  /* folder; NULL: none */
    size_t checkpoint_every; /* steps; 0: once per epoch */
    bool resume;
    bool shrink; /* lost ranks do not end the run */

    size_t poison; /* the step (from 1) in which the last rank's gradients are infinite; 0: none */
    uint64_t seed;

    const char *codec, *algorithm; /* NULL: the settings WRING_CODEC and WRING_ALGORITHM */
    int spawn; /* processes to start on this machine; 0: a launcher did, or alone */

    const char *log; /* NULL: none */
    bool json;
    size_t eval_every; /* steps; 0: once per epoch */
};

/* Fill OPTIONS from the command line; prints and exits for --help, and on an error. */
void options_parse(struct options *options, int argc, char **argv);

#endif
