/* SPDX-License-Identifier: Apache-2.0 */
/* The host as a device: its functions, file by file. Everything is done inside the call. */
#ifndef TRAINER_HOST_H
#define TRAINER_HOST_H

#include "device.h"

extern const struct layer_ops host_dense, host_conv, host_pool, host_elu, host_embed, host_position,
    host_norm, host_linear, host_attention, host_gelu;

void host_add(struct device *device, size_t count, const float *x, float *y);

#define HOST_LANES 8 /* partial sums, which the compiler can keep in one vector register */

/* The sum of X[0..n), in an order that N decides. */
static inline float host_sum(const float *x, size_t n)
{
    float part[HOST_LANES] = {0}, total = 0;
    size_t i = 0;
    for (; i + HOST_LANES <= n; i += HOST_LANES)
        for (size_t j = 0; j < HOST_LANES; j++)
            part[j] += x[i + j];
    for (size_t j = 0; j < HOST_LANES; j++)
        total += part[j];
    for (; i < n; i++)
        total += x[i];
    return total;
}

/* exp(x) to 2e-7 relative, for x <= 0: a polynomial for the fraction of x / log(2), the whole part
 * added to the exponent. Without a branch, so that loops over it become vector code. */
static inline float host_exp(float x)
{
    x = x > -87 ? x : -87;
    float scaled = x * 1.44269504f, whole = (scaled + 0x1.8p23f) - 0x1.8p23f;
    float f = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * f + 1.0f / 720;
    p = p * f + 1.0f / 120;
    p = p * f + 1.0f / 24;
    p = p * f + 1.0f / 6;
    p = p * f + 0.5f;
    p = p * f + 1;
    p = p * f + 1;
    union {
        int32_t bits;
        float value;
    } power = {((int32_t)whole + 127) * (1 << 23)};
    return p * power.value;
}

void host_softmax(struct device *device, size_t batch, size_t classes, const float *logits,
                  const uint8_t *labels, float scale, float *dlogits, struct score *score);
void host_gather(struct device *device, const struct dataset *data, const float *table,
                 const uint32_t *index, size_t first, size_t count, float *input, uint8_t *labels);
void host_sgd(struct device *device, struct sgd_step step, size_t count, float *value,
              const float *grad, float *velocity);
void host_rmsprop(struct device *device, struct rmsprop_step step, size_t count, float *value,
                  const float *grad, float *velocity, float *second);
void host_narrow(struct device *device, enum precision precision, size_t count, const float *x,
                 uint16_t *y);
void host_widen(struct device *device, enum precision precision, size_t count, const uint16_t *x,
                float *y);
void host_adam(struct device *device, struct adam_step step, size_t count, float *value,
               const float *grad, float *first, float *second);

#endif
