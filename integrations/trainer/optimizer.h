/* SPDX-License-Identifier: Apache-2.0 */
/* How a gradient changes the parameters, and how large the step is at which time. */
#ifndef TRAINER_OPTIMIZER_H
#define TRAINER_OPTIMIZER_H

#include "model.h"

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_RMSPROP, OPTIMIZERS };
extern const char *const optimizer_names[];

struct optimizer {
    enum optimizer_kind kind;
    float momentum, weight_decay;
    float *first, *second; /* moments, count values each; SGD has no second */
    size_t steps;
};

/* MOMENTUM is SGD's and RMSprop's; Adam's two are fixed at 0.9 and 0.999. */
void optimizer_create(struct optimizer *optimizer, enum optimizer_kind kind, double momentum,
                      double weight_decay, const struct model *model);
void optimizer_destroy(struct optimizer *optimizer, const struct model *model);

/* Change the model's values by FACTOR times its gradients. SGD and RMSprop: the decay is added to
 * the gradient. Adam: it is taken off the weights (AdamW). Biases do not decay. */
void optimizer_step(struct optimizer *optimizer, struct model *model, double lr, float factor);

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE };
extern const char *const schedule_names[];

/* Factor of the learning rate at STEP of TOTAL (from 0): rises in a line over the first WARMUP
 * steps, then stays, or falls tenfold after half and again after three quarters, or follows half a
 * cosine down to zero. */
double schedule_factor(enum schedule_kind kind, size_t step, size_t total, size_t warmup);

#endif
