/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation (Ba et al., 2016) of a position's features x[0..n):
 *
 *     z  = (x - mean) / s       s = sqrt(variance + EPSILON)
 *     y  = w z + b
 *     dw += dy z,  db += dy
 *     dx = (w dy - mean(w dy) - z mean(w dy z)) / s
 *
 * Backward finds mean and s again, which is cheaper than to keep them. */
#include "host.h"

#include <math.h>
#include <string.h>

#define EPSILON 1e-5f

struct moments {
    float mean, inverse; /* of s */
};

static struct moments moments_of(const float *x, size_t n)
{
    float mean = host_sum(x, n) / (float)n;
    float squares[HOST_LANES] = {0}, total = 0;
    for (size_t j = 0; j < n; j++)
        squares[j % HOST_LANES] += (x[j] - mean) * (x[j] - mean);
    for (size_t j = 0; j < HOST_LANES; j++)
        total += squares[j];
    return (struct moments){mean, 1 / sqrtf(total / (float)n + EPSILON)};
}

static void forward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                    float *y)
{
    (void)device;
    size_t n = layer->in.width, rows = batch * layer->in.channels;
    const float *w = layer->weight.value, *b = layer->bias.value;
    for (size_t i = 0; i < rows; i++, x += n, y += n) {
        struct moments m = moments_of(x, n);
        for (size_t j = 0; j < n; j++)
            y[j] = w[j] * ((x[j] - m.mean) * m.inverse) + b[j];
    }
}

/* One position: adds to the gradients, sets DX. */
static void row_backward(const struct layer *layer, size_t n, const float *x, const float *dy,
                         float *dx)
{
    const float *w = layer->weight.value;
    struct moments m = moments_of(x, n);
    float along[HOST_LANES] = {0}, across[HOST_LANES] = {0}, mean = 0, slope = 0;
    for (size_t j = 0; j < n; j++) {
        float z = (x[j] - m.mean) * m.inverse;
        layer->weight.grad[j] += dy[j] * z;
        layer->bias.grad[j] += dy[j];
        along[j % HOST_LANES] += w[j] * dy[j];
        across[j % HOST_LANES] += w[j] * dy[j] * z;
    }
    for (size_t j = 0; j < HOST_LANES; j++) {
        mean += along[j] / (float)n;
        slope += across[j] / (float)n;
    }
    for (size_t j = 0; dx && j < n; j++)
        dx[j] = (w[j] * dy[j] - mean - (x[j] - m.mean) * m.inverse * slope) * m.inverse;
}

static void backward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                     const float *y, const float *dy, float *dx)
{
    (void)device;
    (void)y;
    size_t n = layer->in.width, rows = batch * layer->in.channels;
    memset(layer->weight.grad, 0, n * sizeof *dy);
    memset(layer->bias.grad, 0, n * sizeof *dy);
    for (size_t i = 0; i < rows; i++)
        row_backward(layer, n, x + i * n, dy + i * n, dx ? dx + i * n : NULL);
}

const struct layer_ops host_norm = {NULL, forward, backward};
