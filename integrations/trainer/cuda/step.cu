/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the optimizers, as in host/step.c. */
#include "cuda.cuh"

__global__ void sgd(struct sgd_step step, size_t count, float *value, const float *grad,
                    float *velocity)
{
    for (EACH(i, count)) {
        float g = step.factor * grad[i] + step.decay * value[i];
        velocity[i] = step.momentum * velocity[i] + g;
        value[i] -= step.lr * velocity[i];
    }
}

void cuda_sgd(struct device *device, struct sgd_step step, size_t count, float *value,
              const float *grad, float *velocity)
{
    cuda_launch_each(device, count, sgd, step, count, value, grad, velocity);
}

__global__ void rmsprop(struct rmsprop_step step, size_t count, float *value, const float *grad,
                        float *velocity, float *second)
{
    for (EACH(i, count)) {
        float g = step.factor * grad[i] + step.decay * value[i];
        second[i] = step.beta * second[i] + (1 - step.beta) * g * g;
        velocity[i] = step.momentum * velocity[i] + g / (sqrtf(second[i]) + step.epsilon);
        value[i] -= step.lr * velocity[i];
    }
}

void cuda_rmsprop(struct device *device, struct rmsprop_step step, size_t count, float *value,
                  const float *grad, float *velocity, float *second)
{
    cuda_launch_each(device, count, rmsprop, step, count, value, grad, velocity, second);
}

__global__ void adam(struct adam_step step, size_t count, float *value, const float *grad,
                     float *first, float *second)
{
    for (EACH(i, count)) {
        float g = step.factor * grad[i];
        first[i] = step.beta1 * first[i] + (1 - step.beta1) * g;
        second[i] = step.beta2 * second[i] + (1 - step.beta2) * g * g;
        value[i] -= step.shrink * value[i];
        value[i] -= step.rate * first[i] / (sqrtf(step.scale * second[i]) + step.epsilon);
    }
}

void cuda_adam(struct device *device, struct adam_step step, size_t count, float *value,
               const float *grad, float *first, float *second)
{
    cuda_launch_each(device, count, adam, step, count, value, grad, first, second);
}
