/* SPDX-License-Identifier: Apache-2.0 */
/* SGD with momentum (as PyTorch: v = m v + g, w -= lr v), RMSprop (Hinton, 2012; as PyTorch) and
 * Adam (Kingma and Ba, 2015) with decoupled weight decay (Loshchilov and Hutter, 2019), as numbers
 * for the device's loops. */
#include "optimizer.h"

#include <math.h>

#define BETA1 0.9
#define BETA2 0.999
#define BETA_RMSPROP 0.99f
#define EPSILON 1e-8f

const char *const optimizer_names[] = {"sgd", "adam", "rmsprop", NULL};
const char *const schedule_names[] = {"constant", "step", "cosine", NULL};

void optimizer_create(struct optimizer *optimizer, enum optimizer_kind kind, double momentum,
                      double weight_decay, const struct model *model)
{
    *optimizer = (struct optimizer){
        .kind = kind, .momentum = (float)momentum, .weight_decay = (float)weight_decay};
    optimizer->first = device_alloc(model->device, model->count, sizeof(float));
    if (kind != OPTIMIZER_SGD)
        optimizer->second = device_alloc(model->device, model->count, sizeof(float));
}

void optimizer_destroy(struct optimizer *optimizer, const struct model *model)
{
    model->device->ops->free(model->device, optimizer->first);
    model->device->ops->free(model->device, optimizer->second);
}

static struct adam_step adam_step(const struct optimizer *optimizer, float factor, float lr,
                                  float decay)
{
    double steps = (double)optimizer->steps;
    return (struct adam_step){.factor = factor,
                              .beta1 = (float)BETA1,
                              .beta2 = (float)BETA2,
                              .epsilon = EPSILON,
                              .rate = (float)(lr / (1 - pow(BETA1, steps))),
                              .scale = (float)(1 / (1 - pow(BETA2, steps))),
                              .shrink = lr * decay};
}

static void step_parameter(const struct optimizer *o, struct model *model,
                           const struct parameter *p, float lr, float factor)
{
    struct device *device = model->device;
    size_t offset = (size_t)(p->value - model->values);
    float decay = p->ndim > 1 ? o->weight_decay : 0;
    float *first = o->first + offset, *second = o->second ? o->second + offset : NULL;
    switch (o->kind) {
    case OPTIMIZER_ADAM:
        device->ops->adam(device, adam_step(o, factor, lr, decay), p->count, p->value, p->grad,
                          first, second);
        return;
    case OPTIMIZER_RMSPROP:
        device->ops->rmsprop(
            device, (struct rmsprop_step){factor, lr, o->momentum, decay, BETA_RMSPROP, EPSILON},
            p->count, p->value, p->grad, first, second);
        return;
    default:
        device->ops->sgd(device, (struct sgd_step){factor, lr, o->momentum, decay}, p->count,
                         p->value, p->grad, first);
    }
}

void optimizer_step(struct optimizer *optimizer, struct model *model, double lr, float factor)
{
    optimizer->steps++;
    for (int i = 0; i < model->nparameters; i++)
        step_parameter(optimizer, model, model->parameters[i], (float)lr, factor);
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
