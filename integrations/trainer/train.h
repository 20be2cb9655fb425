/* SPDX-License-Identifier: Apache-2.0 */
/* The training run. */
#ifndef TRAINER_TRAIN_H
#define TRAINER_TRAIN_H

#include "options.h"
#include "report.h"
#include "sync.h"

/* Load the data, train, evaluate, compare the replicas. Every rank calls; SUMMARY is the same on
 * all but for the seconds. Its texts for model, codec and algorithm are left to the caller. */
void train(const struct options *options, struct sync *sync, struct summary *summary);

#endif
