/* SPDX-License-Identifier: Apache-2.0 */
/* Fully connected layer: the three products of host/dense.c. */
#include "cuda.cuh"

static void forward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                    float *y)
{
    size_t in = shape_count(layer->in), out = layer->out.channels;
    cuda_bias(device, layer, batch, y);
    cuda_product(device, 1, batch, out, in, {x, false, 0}, {layer->weight.value, true, 0}, 1, y, 0);
}

static void backward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                     const float *, const float *dy, float *dx)
{
    size_t in = shape_count(layer->in), out = layer->out.channels;
    cuda_product(device, 1, out, in, batch, {dy, true, 0}, {x, false, 0}, 0, layer->weight.grad, 0);
    cuda_bias_gradient(device, layer, batch, dy);
    if (dx)
        cuda_product(device, 1, batch, in, out, {dy, false, 0}, {layer->weight.value, false, 0}, 0,
                     dx, 0);
}

extern const struct layer_ops cuda_dense = {NULL, forward, backward};
