/* SPDX-License-Identifier: Apache-2.0 */
/* A network: a list of layers, the memory for a micro-batch, and all parameters in one array. */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "device.h"

#define LAYERS_MAX 48

struct model {
    struct device *device; /* all arrays below are its */
    size_t nlayers, batch; /* BATCH: samples that the memory is for */
    struct layer layers[LAYERS_MAX];
    size_t nlabels, classes; /* labels of a sample, and the values that they take */

    /* To the output of layer i, the input of layer shortcut[i] is added (He et al., 2016); or of
     * none, if that is LAYERS_MAX. Shortcuts do not cross. */
    size_t shortcut[LAYERS_MAX];

    /* All parameters and their gradients, layer by layer, weight before bias. */
    float *values, *grads;
    size_t count;
    struct parameter *parameters[2 * LAYERS_MAX];
    int nparameters;

    /* activation[0] is the input, activation[i + 1] the output of layer i. The derivatives need
     * only three buffers, used in turn: by y, by x, and what waits for the start of a shortcut. */
    float *activation[LAYERS_MAX + 1];
    float *derivative[3];
};

/* Names of the models, NULL at the end; the index is what model_create() takes. */
extern const char *const model_names[];

/* What a model of KIND learns from. */
enum data_kind model_data(int kind);

/* Dies if OPS has not all that a model of KIND needs, naming it. */
void model_check(int kind, const struct device_ops *ops);

/* Allocate model number KIND on DEVICE for micro-batches of at most BATCH samples, weights drawn
 * from SEED. */
void model_create(struct model *model, struct device *device, int kind, size_t batch,
                  uint64_t seed);
void model_destroy(struct model *model);

/* Logits (count x nlabels x classes, inside the model) of the COUNT <= batch samples in
 * activation[0]. */
const float *model_forward(struct model *model, size_t count);

/* Told that the gradient of parameters[INDEX] is complete, or will be when the device has done what
 * was enqueued so far, while backward goes on below it. */
typedef void (*model_ready_fn)(void *arg, int index);

/* After model_forward(): the gradient of SCALE times the summed loss of the COUNT samples, last
 * layer first. READY is called for each parameter as soon as its gradient stands. The losses go to
 * SCORE. */
void model_backward(struct model *model, size_t count, const uint8_t *labels, float scale,
                    struct score *score, model_ready_fn ready, void *arg);

/* XXH3 of all parameters: equal on all ranks of a healthy run. */
uint64_t model_digest(const struct model *model);

#endif
