/* SPDX-License-Identifier: Apache-2.0 */
/* Which output and which parameters a layer has. */
#include "layer.h"

#include "data.h"

#include <assert.h>

const char *const layer_names[LAYER_KINDS] = {"dense",    "conv", "pool",   "elu",       "embed",
                                              "position", "norm", "linear", "attention", "gelu"};

static struct parameter matrix(size_t rows, size_t columns, enum start start)
{
    return (struct parameter){
        .ndim = 2, .shape = {rows, columns}, .count = rows * columns, .start = start};
}

static struct parameter vector(size_t count, enum start start)
{
    return (struct parameter){.ndim = 1, .shape = {count}, .count = count, .start = start};
}

/* The layers that have parameters. */
static void plan_parameters(struct layer *layer, size_t width)
{
    struct shape in = layer->in;
    switch (layer->kind) {
    case LAYER_DENSE:
        layer->weight = matrix(width, shape_count(in), START_HE);
        layer->bias = vector(width, START_ZERO);
        return;
    case LAYER_CONV:
        layer->weight = matrix(width, LAYER_TAPS * in.channels, START_HE);
        layer->bias = vector(width, START_ZERO);
        return;
    case LAYER_EMBED:
        layer->weight = matrix(TEXT_CLASSES, width, START_THIN);
        return;
    case LAYER_POSITION:
        layer->weight = matrix(in.channels, in.width, START_THIN);
        return;
    case LAYER_NORM:
        layer->weight = vector(in.width, START_ONE);
        layer->bias = vector(in.width, START_ZERO);
        return;
    case LAYER_LINEAR:
        layer->weight = matrix(width, in.width, START_THIN);
        layer->bias = vector(width, START_ZERO);
        return;
    default:
        return;
    }
}

static struct shape output(const struct layer *layer, size_t width)
{
    struct shape in = layer->in;
    switch (layer->kind) {
    case LAYER_DENSE:
        return (struct shape){width, 1, 1};
    case LAYER_CONV:
        return (struct shape){width, in.height, in.width};
    case LAYER_POOL:
        assert(in.height % 2 == 0 && in.width % 2 == 0);
        return (struct shape){in.channels, in.height / 2, in.width / 2};
    case LAYER_EMBED:
    case LAYER_LINEAR:
        return (struct shape){in.channels, 1, width};
    case LAYER_ATTENTION:
        assert(in.width % (3 * layer->heads) == 0);
        return (struct shape){in.channels, 1, in.width / 3};
    default:
        return in;
    }
}

void layer_plan(struct layer *layer, enum layer_kind kind, struct shape in, size_t width)
{
    *layer = (struct layer){.kind = kind, .in = in};
    if (kind == LAYER_ATTENTION)
        layer->heads = width;
    layer->out = output(layer, width);
    plan_parameters(layer, width);
}
