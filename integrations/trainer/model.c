/* SPDX-License-Identifier: Apache-2.0 */
/* What the networks look like, and the walk through their layers, forth and back. */
#include "model.h"

#include "data.h"
#include "program.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

struct layer_spec {
    const struct layer_ops *ops;
    size_t width; /* channels or features out */
};

static const struct layer_spec mlp[] = {
    {&layer_dense, 256}, {&layer_elu, 0},         {&layer_dense, 128},
    {&layer_elu, 0},     {&layer_dense, CLASSES}, {NULL, 0},
};

static const struct layer_spec cnn[] = {
    {&layer_conv, 16},       {&layer_elu, 0},  {&layer_pool, 0},    {&layer_conv, 32},
    {&layer_elu, 0},         {&layer_pool, 0}, {&layer_dense, 120}, {&layer_elu, 0},
    {&layer_dense, CLASSES}, {NULL, 0},
};

const char *const model_names[] = {"mlp", "cnn", NULL};
static const struct layer_spec *const specs[] = {mlp, cnn};

/* Enter a parameter of the layer that was planned last; CALLED is its number among its like. */
static void enter(struct model *model, struct layer *layer, struct parameter *parameter,
                  const char *part, size_t called)
{
    if (!parameter->count)
        return;
    snprintf(parameter->name, sizeof parameter->name, "%s%zu.%s", layer->ops->name, called, part);
    model->parameters[model->nparameters++] = parameter;
    model->count += parameter->count;
}

static size_t count_like(const struct model *model, const struct layer_ops *ops)
{
    size_t n = 0;
    for (size_t i = 0; i < model->nlayers; i++)
        n += model->layers[i].ops == ops;
    return n;
}

/* Append the layer SPEC and its memory; returns its output's size. */
static size_t append(struct model *model, const struct layer_spec *spec, struct shape in)
{
    struct layer *layer = &model->layers[model->nlayers++];
    size_t scratch;
    *layer = (struct layer){.ops = spec->ops, .in = in};
    spec->ops->plan(layer, spec->width, &scratch);
    layer->scratch = must_alloc(scratch, sizeof(float));
    size_t called = count_like(model, spec->ops);
    enter(model, layer, &layer->weight, "weight", called);
    enter(model, layer, &layer->bias, "bias", called);
    size_t count = shape_count(layer->out);
    model->activation[model->nlayers] = must_alloc(model->batch * count, sizeof(float));
    return count;
}

/* He et al., 2015, uniform: variance 2 / (values that feed an output). Without a logarithm, so that
 * every machine draws the same bits. */
static void initialise(struct parameter *weight, uint64_t seed, uint64_t stream)
{
    float limit = sqrtf(6.0f / (float)weight->shape[1]);
    for (size_t i = 0; i < weight->count; i++)
        weight->value[i] = limit * random_signed(random_bits(seed, stream, i));
}

static void place_parameters(struct model *model, uint64_t seed)
{
    model->values = must_alloc(model->count, sizeof(float));
    model->grads = must_alloc(model->count, sizeof(float));
    size_t used = 0;
    for (int i = 0; i < model->nparameters; i++) {
        struct parameter *parameter = model->parameters[i];
        parameter->value = model->values + used;
        parameter->grad = model->grads + used;
        used += parameter->count;
        if (parameter->ndim == 2) /* biases begin at zero */
            initialise(parameter, seed, UINT64_MAX - (uint64_t)i);
    }
}

void model_create(struct model *model, int kind, size_t batch, uint64_t seed)
{
    *model = (struct model){.batch = batch};
    struct shape shape = {1, IMAGE_SIDE, IMAGE_SIDE};
    model->activation[0] = must_alloc(batch * shape_count(shape), sizeof(float));
    size_t widest = 0;
    for (const struct layer_spec *spec = specs[kind]; spec->ops; spec++) {
        size_t count = append(model, spec, shape);
        shape = model->layers[model->nlayers - 1].out;
        widest = count > widest ? count : widest;
    }
    for (int i = 0; i < 2; i++)
        model->derivative[i] = must_alloc(batch * widest, sizeof(float));
    place_parameters(model, seed);
}

void model_destroy(struct model *model)
{
    for (size_t i = 0; i < model->nlayers; i++)
        free(model->layers[i].scratch);
    for (size_t i = 0; i <= model->nlayers; i++)
        free(model->activation[i]);
    free(model->derivative[0]);
    free(model->derivative[1]);
    free(model->values);
    free(model->grads);
}

const float *model_forward(struct model *model, size_t count)
{
    for (size_t i = 0; i < model->nlayers; i++) {
        const struct layer *layer = &model->layers[i];
        layer->ops->forward(layer, count, model->activation[i], model->activation[i + 1]);
    }
    return model->activation[model->nlayers];
}

double model_backward(struct model *model, size_t count, const uint8_t *labels,
                      model_ready_fn ready, void *arg)
{
    float *dy = model->derivative[0], *dx = model->derivative[1];
    double loss = softmax_loss(count, CLASSES, model->activation[model->nlayers], labels, dy, NULL);
    int index = model->nparameters;
    for (size_t i = model->nlayers; i-- > 0;) {
        const struct layer *layer = &model->layers[i];
        layer->ops->backward(layer, count, model->activation[i], model->activation[i + 1], dy,
                             i ? dx : NULL);
        for (size_t n = (layer->weight.count > 0) + (layer->bias.count > 0); n > 0; n--)
            ready(arg, --index);
        float *swap = dy;
        dy = dx;
        dx = swap;
    }
    return loss;
}

uint64_t model_digest(const struct model *model)
{
    return XXH3_64bits(model->values, model->count * sizeof(float));
}
