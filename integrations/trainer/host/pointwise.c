/* SPDX-License-Identifier: Apache-2.0 */
/* The layers without parameters: average over 2 x 2, and the exponential linear unit (Clevert et
 * al., 2016). Both have a continuous derivative, unlike the more usual maximum and rectifier:
 * there, a sum that was rounded otherwise can send the gradient of a sample another way, and runs
 * that should agree to 1e-7 part by 1e-3 within 50 steps. Comparing 1 rank with N would prove
 * little. */
#include "host.h"

#include <math.h>

static void pool_forward(struct device *device, const struct layer *layer, size_t batch,
                         const float *x, float *y)
{
    (void)device;
    size_t width = layer->in.width, half = layer->out.width;
    size_t rows = batch * layer->out.channels * layer->out.height;
    for (size_t row = 0; row < rows; row++) {
        const float *top = x + row * 2 * width, *bottom = top + width;
        for (size_t j = 0; j < half; j++)
            y[row * half + j] =
                0.25f * ((top[2 * j] + top[2 * j + 1]) + (bottom[2 * j] + bottom[2 * j + 1]));
    }
}

static void pool_backward(struct device *device, const struct layer *layer, size_t batch,
                          const float *x, const float *y, const float *dy, float *dx)
{
    (void)device;
    (void)x;
    (void)y;
    size_t width = layer->in.width, half = layer->out.width;
    size_t rows = batch * layer->out.channels * layer->out.height;
    for (size_t row = 0; row < rows; row++) {
        float *top = dx + row * 2 * width, *bottom = top + width;
        for (size_t j = 0; j < half; j++)
            top[2 * j] = top[2 * j + 1] = bottom[2 * j] = bottom[2 * j + 1] =
                0.25f * dy[row * half + j];
    }
}

static void elu_forward(struct device *device, const struct layer *layer, size_t batch,
                        const float *x, float *y)
{
    (void)device;
    size_t n = batch * shape_count(layer->in);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? expf(x[i]) - 1 : x[i];
}

static void elu_backward(struct device *device, const struct layer *layer, size_t batch,
                         const float *x, const float *y, const float *dy, float *dx)
{
    (void)device;
    (void)x;
    size_t n = batch * shape_count(layer->in);
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * (y[i] < 0 ? y[i] + 1 : 1);
}

const struct layer_ops host_pool = {NULL, pool_forward, pool_backward};
const struct layer_ops host_elu = {NULL, elu_forward, elu_backward};
