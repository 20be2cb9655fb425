/* SPDX-License-Identifier: Apache-2.0 */
/* Dense at each position: the rows of all samples form one matrix, which host_dense knows. */
#include "host.h"

/* LAYER as a dense one whose samples are its positions. */
static struct layer at_position(const struct layer *layer)
{
    struct layer dense = *layer;
    dense.in = (struct shape){layer->in.width, 1, 1};
    dense.out = (struct shape){layer->out.width, 1, 1};
    return dense;
}

static void forward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                    float *y)
{
    struct layer dense = at_position(layer);
    host_dense.forward(device, &dense, batch * layer->in.channels, x, y);
}

static void backward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                     const float *y, const float *dy, float *dx)
{
    struct layer dense = at_position(layer);
    host_dense.backward(device, &dense, batch * layer->in.channels, x, y, dy, dx);
}

const struct layer_ops host_linear = {NULL, forward, backward};
