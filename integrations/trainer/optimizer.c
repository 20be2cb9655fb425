/* SPDX-License-Identifier: Apache-2.0 */
/* SGD with momentum (as PyTorch: v = m v + g, w -= lr v) and Adam (Kingma and Ba, 2015) with
 * decoupled weight decay (Loshchilov and Hutter, 2019). Everything is element by element in a fixed
 * order, so replicas with equal gradients stay equal bit for bit. */
#include "optimizer.h"

#include "program.h"

#include <math.h>
#include <stdlib.h>

#define BETA1 0.9
#define BETA2 0.999
#define EPSILON 1e-8f

const char *const optimizer_names[] = {"sgd", "adam", NULL};
const char *const schedule_names[] = {"constant", "step", "cosine", NULL};

void optimizer_create(struct optimizer *optimizer, enum optimizer_kind kind, double momentum,
                      double weight_decay, const struct model *model)
{
    *optimizer = (struct optimizer){
        .kind = kind, .momentum = (float)momentum, .weight_decay = (float)weight_decay};
    optimizer->first = must_alloc(model->count, sizeof(float));
    if (kind == OPTIMIZER_ADAM)
        optimizer->second = must_alloc(model->count, sizeof(float));
}

void optimizer_destroy(struct optimizer *optimizer)
{
    free(optimizer->first);
    free(optimizer->second);
}

static void sgd(const struct parameter *p, float *velocity, float lr, float momentum, float decay)
{
    for (size_t i = 0; i < p->count; i++) {
        velocity[i] = momentum * velocity[i] + (p->grad[i] + decay * p->value[i]);
        p->value[i] -= lr * velocity[i];
    }
}

static void adam(const struct parameter *p, float *first, float *second, float lr, float decay,
                 size_t steps)
{
    const float beta1 = (float)BETA1, beta2 = (float)BETA2;
    float rate = (float)(lr / (1 - pow(BETA1, (double)steps)));
    float scale = (float)(1 / (1 - pow(BETA2, (double)steps)));
    for (size_t i = 0; i < p->count; i++) {
        float g = p->grad[i];
        first[i] = beta1 * first[i] + (1 - beta1) * g;
        second[i] = beta2 * second[i] + (1 - beta2) * g * g;
        p->value[i] -= lr * decay * p->value[i];
        p->value[i] -= rate * first[i] / (sqrtf(scale * second[i]) + EPSILON);
    }
}

void optimizer_step(struct optimizer *optimizer, struct model *model, double lr)
{
    optimizer->steps++;
    for (int i = 0; i < model->nparameters; i++) {
        const struct parameter *p = model->parameters[i];
        size_t offset = (size_t)(p->value - model->values);
        float decay = p->ndim > 1 ? optimizer->weight_decay : 0;
        if (optimizer->kind == OPTIMIZER_SGD)
            sgd(p, optimizer->first + offset, (float)lr, optimizer->momentum, decay);
        else
            adam(p, optimizer->first + offset, optimizer->second + offset, (float)lr, decay,
                 optimizer->steps);
    }
}

double schedule_factor(enum schedule_kind kind, size_t step, size_t total, size_t warmup)
{
    if (step < warmup)
        return (double)(step + 1) / (double)warmup;
    double done = (double)(step - warmup) / (double)(total > warmup ? total - warmup : 1);
    switch (kind) {
    case SCHEDULE_CONSTANT:
        return 1;
    case SCHEDULE_STEP:
        return done < 0.5 ? 1 : done < 0.75 ? 0.1 : 0.01;
    case SCHEDULE_COSINE:
        return 0.5 * (1 + cos(acos(-1.0) * done));
    }
    return 1;
}
