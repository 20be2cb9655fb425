/* SPDX-License-Identifier: Apache-2.0 */
/* The training run. */
#ifndef TRAINER_TRAIN_H
#define TRAINER_TRAIN_H

#include "options.h"
#include "report.h"
#include "sync.h"

/* Load the data, train, evaluate, compare the replicas. Every rank calls; SUMMARY is the same on
 * all but for the seconds. Its texts are left to the caller. */
void train(const struct options *options, struct device *device, struct sync *sync,
           struct summary *summary);

#endif
