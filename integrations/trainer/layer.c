/* SPDX-License-Identifier: Apache-2.0 */
/* Which output and which parameters a layer has. */
#include "layer.h"

#include <assert.h>

const char *const layer_names[LAYER_KINDS] = {"dense", "conv", "pool", "elu"};

static void plan_parameters(struct layer *layer, size_t out, size_t in)
{
    layer->weight = (struct parameter){.ndim = 2, .shape = {out, in}, .count = out * in};
    layer->bias = (struct parameter){.ndim = 1, .shape = {out}, .count = out};
}

void layer_plan(struct layer *layer, enum layer_kind kind, struct shape in, size_t width)
{
    *layer = (struct layer){.kind = kind, .in = in};
    switch (kind) {
    case LAYER_DENSE:
        layer->out = (struct shape){width, 1, 1};
        plan_parameters(layer, width, shape_count(in));
        return;
    case LAYER_CONV:
        layer->out = (struct shape){width, in.height, in.width};
        plan_parameters(layer, width, LAYER_TAPS * in.channels);
        return;
    case LAYER_POOL:
        assert(in.height % 2 == 0 && in.width % 2 == 0);
        layer->out = (struct shape){in.channels, in.height / 2, in.width / 2};
        return;
    default:
        layer->out = in;
    }
}
