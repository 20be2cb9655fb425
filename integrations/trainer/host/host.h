/* SPDX-License-Identifier: Apache-2.0 */
/* The host as a device: its functions, file by file. Everything is done inside the call. */
#ifndef TRAINER_HOST_H
#define TRAINER_HOST_H

#include "device.h"

extern const struct layer_ops host_dense, host_conv, host_pool, host_elu;

void host_softmax(struct device *device, size_t batch, size_t classes, const float *logits,
                  const uint8_t *labels, float *dlogits, struct score *score);
void host_gather(struct device *device, const struct dataset *data, const float *table,
                 const uint32_t *index, size_t first, size_t count, float *input, uint8_t *labels);
void host_sgd(struct device *device, struct sgd_step step, size_t count, float *value,
              const float *grad, float *velocity);
void host_adam(struct device *device, struct adam_step step, size_t count, float *value,
               const float *grad, float *first, float *second);

#endif
