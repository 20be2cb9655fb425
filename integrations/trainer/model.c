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
    enum layer_kind kind; /* LAYER_KINDS: no more */
    size_t width;         /* channels or features out; heads */
    size_t back;          /* not 0: a shortcut from the input of the layer so many places before */
};

static const struct layer_spec mlp[] = {
    {LAYER_DENSE, 256, 0}, {LAYER_ELU, 0, 0},    {LAYER_DENSE, 128, 0},
    {LAYER_ELU, 0, 0},     {LAYER_DENSE, 10, 0}, {LAYER_KINDS, 0, 0},
};

static const struct layer_spec cnn[] = {
    {LAYER_CONV, 16, 0},  {LAYER_ELU, 0, 0},   {LAYER_POOL, 0, 0},    {LAYER_CONV, 32, 0},
    {LAYER_ELU, 0, 0},    {LAYER_POOL, 0, 0},  {LAYER_DENSE, 120, 0}, {LAYER_ELU, 0, 0},
    {LAYER_DENSE, 10, 0}, {LAYER_KINDS, 0, 0},
};

/* A transformer that reads one way (Radford et al., 2019), small enough to learn something in
 * minutes. */
#define WIDTH 128
#define HEADS 4
#define BLOCK                                                                                      \
    {LAYER_NORM, 0, 0}, {LAYER_LINEAR, 3 * WIDTH, 0}, {LAYER_ATTENTION, HEADS, 0},                 \
        {LAYER_LINEAR, WIDTH, 3}, {LAYER_NORM, 0, 0}, {LAYER_LINEAR, 4 * WIDTH, 0},                \
        {LAYER_GELU, 0, 0},                                                                        \
    {                                                                                              \
        LAYER_LINEAR, WIDTH, 3                                                                     \
    }
static const struct layer_spec gpt[] = {
    {LAYER_EMBED, WIDTH, 0},         {LAYER_POSITION, 0, 0}, BLOCK, BLOCK, {LAYER_NORM, 0, 0},
    {LAYER_LINEAR, TEXT_CLASSES, 0}, {LAYER_KINDS, 0, 0}};

const char *const model_names[] = {"mlp", "cnn", "gpt", NULL};
static const struct model_kind {
    enum data_kind data;
    const struct layer_spec *layers;
} kinds[] = {{DATA_IMAGES, mlp}, {DATA_IMAGES, cnn}, {DATA_TEXT, gpt}};

enum data_kind model_data(int kind)
{
    return kinds[kind].data;
}

void model_check(int kind, const struct device_ops *ops)
{
    for (const struct layer_spec *spec = kinds[kind].layers; spec->kind != LAYER_KINDS; spec++) {
        if (!ops->layer[spec->kind] || (spec->back && !ops->add))
            die("--device %s: has no layer '%s', which model %s needs; train it on the cpu",
                ops->name, layer_names[spec->kind], model_names[kind]);
    }
}

/* Enter a parameter of the layer that was planned last; CALLED is its number among its like. */
static void enter(struct model *model, struct layer *layer, struct parameter *parameter,
                  const char *part, size_t called)
{
    if (!parameter->count)
        return;
    snprintf(parameter->name, sizeof parameter->name, "%s%zu.%s", layer_names[layer->kind], called,
             part);
    model->parameters[model->nparameters++] = parameter;
    model->count += parameter->count;
}

static size_t count_like(const struct model *model, enum layer_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < model->nlayers; i++)
        n += model->layers[i].kind == kind;
    return n;
}

static float *floats(struct model *model, size_t count)
{
    return device_alloc(model->device, count, sizeof(float));
}

/* Append the layer SPEC and its memory; returns its output's size. */
static size_t append(struct model *model, const struct layer_spec *spec, struct shape in)
{
    struct layer *layer = &model->layers[model->nlayers++];
    layer_plan(layer, spec->kind, in, spec->width);
    model->shortcut[layer - model->layers] =
        spec->back ? (size_t)(layer - model->layers) - spec->back : LAYERS_MAX;
    const struct layer_ops *ops = model->device->ops->layer[spec->kind];
    if (ops->scratch)
        layer->scratch = floats(model, ops->scratch(layer, model->batch));
    size_t called = count_like(model, spec->kind);
    enter(model, layer, &layer->weight, "weight", called);
    enter(model, layer, &layer->bias, "bias", called);
    size_t count = shape_count(layer->out);
    model->activation[model->nlayers] = floats(model, model->batch * count);
    return count;
}

/* Without a logarithm, so that every machine draws the same bits. */
static void draw(float *value, const struct parameter *p, uint64_t seed, uint64_t stream)
{
    float limit = sqrtf((p->start == START_HE ? 6.0f : 1.0f) / (float)p->shape[1]);
    for (size_t i = 0; i < p->count; i++)
        value[i] = limit * random_signed(random_bits(seed, stream, i));
}

static void start(float *value, const struct parameter *p, uint64_t seed, uint64_t stream)
{
    if (p->start == START_HE || p->start == START_THIN)
        draw(value, p, seed, stream);
    for (size_t i = 0; p->start == START_ONE && i < p->count; i++)
        value[i] = 1;
}

static void place_parameters(struct model *model, uint64_t seed)
{
    float *values = must_alloc(model->count, sizeof(float));
    model->values = floats(model, model->count);
    model->grads = floats(model, model->count);
    size_t used = 0;
    for (int i = 0; i < model->nparameters; i++) {
        struct parameter *parameter = model->parameters[i];
        parameter->value = model->values + used;
        parameter->grad = model->grads + used;
        start(values + used, parameter, seed, UINT64_MAX - (uint64_t)i);
        used += parameter->count;
    }
    model->device->ops->put(model->device, model->values, values, model->count * sizeof(float));
    free(values);
}

void model_create(struct model *model, struct device *device, int kind, size_t batch, uint64_t seed)
{
    bool text = kinds[kind].data == DATA_TEXT;
    *model = (struct model){.device = device,
                            .batch = batch,
                            .nlabels = text ? TEXT_WINDOW : 1,
                            .classes = text ? TEXT_CLASSES : IMAGE_CLASSES};
    struct shape shape = {1, IMAGE_SIDE, IMAGE_SIDE};
    if (text)
        shape = (struct shape){TEXT_WINDOW, 1, 1};
    model->activation[0] = floats(model, batch * shape_count(shape));
    size_t widest = 0;
    for (const struct layer_spec *spec = kinds[kind].layers; spec->kind != LAYER_KINDS; spec++) {
        size_t count = append(model, spec, shape);
        shape = model->layers[model->nlayers - 1].out;
        widest = count > widest ? count : widest;
    }
    for (int i = 0; i < 3; i++)
        model->derivative[i] = floats(model, batch * widest);
    place_parameters(model, seed);
}

void model_destroy(struct model *model)
{
    struct device *device = model->device;
    for (size_t i = 0; i < model->nlayers; i++)
        device->ops->free(device, model->layers[i].scratch);
    for (size_t i = 0; i <= model->nlayers; i++)
        device->ops->free(device, model->activation[i]);
    for (int i = 0; i < 3; i++)
        device->ops->free(device, model->derivative[i]);
    device->ops->free(device, model->values);
    device->ops->free(device, model->grads);
}

const float *model_forward(struct model *model, size_t count)
{
    struct device *device = model->device;
    for (size_t i = 0; i < model->nlayers; i++) {
        const struct layer *layer = &model->layers[i];
        device->ops->layer[layer->kind]->forward(device, layer, count, model->activation[i],
                                                 model->activation[i + 1]);
        if (model->shortcut[i] < LAYERS_MAX)
            device->ops->add(device, count * shape_count(layer->out),
                             model->activation[model->shortcut[i]], model->activation[i + 1]);
    }
    return model->activation[model->nlayers];
}

/* A buffer of derivatives that is neither A nor B. */
static float *third(const struct model *model, const float *a, const float *b)
{
    int i = 0;
    while (model->derivative[i] == a || model->derivative[i] == b)
        i++;
    return model->derivative[i];
}

void model_backward(struct model *model, size_t count, const uint8_t *labels, float scale,
                    struct score *score, model_ready_fn ready, void *arg)
{
    struct device *device = model->device;
    float *dy = model->derivative[0], *around = NULL; /* AROUND: to be added at layer START */
    size_t start = LAYERS_MAX;
    int index = model->nparameters;
    device->ops->softmax(device, count * model->nlabels, model->classes,
                         model->activation[model->nlayers], labels, scale, dy, score);
    for (size_t i = model->nlayers; i-- > 0;) {
        const struct layer *layer = &model->layers[i];
        if (model->shortcut[i] < LAYERS_MAX) {
            around = dy;
            start = model->shortcut[i];
        }
        float *dx = third(model, dy, around);
        device->ops->layer[layer->kind]->backward(device, layer, count, model->activation[i],
                                                  model->activation[i + 1], dy, i ? dx : NULL);
        for (size_t n = (layer->weight.count > 0) + (layer->bias.count > 0); n > 0; n--)
            ready(arg, --index);
        if (start == i) {
            device->ops->add(device, count * shape_count(layer->in), around, dx);
            around = NULL;
            start = LAYERS_MAX;
        }
        dy = dx;
    }
}

uint64_t model_digest(const struct model *model)
{
    size_t nbytes = model->count * sizeof(float);
    void *values = must_alloc(1, nbytes);
    model->device->ops->get(model->device, values, model->values, nbytes);
    uint64_t digest = XXH3_64bits(values, nbytes);
    free(values);
    return digest;
}
