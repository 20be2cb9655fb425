/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of wring-train. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include "optimizer.h"

#include <stdbool.h>

struct options {
    int model;        /* index into model_names */
    int device;       /* index into device_names */
    const char *data; /* folder of the four IDX files, or a text; NULL: the default */

    enum optimizer_kind optimizer;
    enum schedule_kind schedule;
    double lr, momentum, weight_decay;
    size_t batch, accumulate; /* samples per step over all ranks; micro-steps per step */
    size_t steps, epochs;     /* STEPS 0: EPOCHS counts */
    long warmup;              /* steps; -1: a twentieth of the run */
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
