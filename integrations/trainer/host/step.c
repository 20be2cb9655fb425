/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the optimizers, element by element in a fixed order, so that replicas with equal
 * gradients stay equal bit for bit. */
#include "host.h"

#include <math.h>

void host_sgd(struct device *device, struct sgd_step step, size_t count, float *value,
              const float *grad, float *velocity)
{
    (void)device;
    for (size_t i = 0; i < count; i++) {
        float g = step.factor * grad[i] + step.decay * value[i];
        velocity[i] = step.momentum * velocity[i] + g;
        value[i] -= step.lr * velocity[i];
    }
}

void host_rmsprop(struct device *device, struct rmsprop_step step, size_t count, float *value,
                  const float *grad, float *velocity, float *second)
{
    (void)device;
    for (size_t i = 0; i < count; i++) {
        float g = step.factor * grad[i] + step.decay * value[i];
        second[i] = step.beta * second[i] + (1 - step.beta) * g * g;
        velocity[i] = step.momentum * velocity[i] + g / (sqrtf(second[i]) + step.epsilon);
        value[i] -= step.lr * velocity[i];
    }
}

void host_adam(struct device *device, struct adam_step step, size_t count, float *value,
               const float *grad, float *first, float *second)
{
    (void)device;
    for (size_t i = 0; i < count; i++) {
        float g = step.factor * grad[i];
        first[i] = step.beta1 * first[i] + (1 - step.beta1) * g;
        second[i] = step.beta2 * second[i] + (1 - step.beta2) * g * g;
        value[i] -= step.shrink * value[i];
        value[i] -= step.rate * first[i] / (sqrtf(step.scale * second[i]) + step.epsilon);
    }
}
