/* SPDX-License-Identifier: Apache-2.0 */
/* The Gaussian error linear unit in its usual approximation (Hendrycks and Gimpel, 2016):
 *
 *     y = x (1 + tanh u) / 2 = x s(2 u),    u = sqrt(2 / pi) (x + 0.044715 x^3)
 *
 * with the logistic function s, of which only the side without overflow is computed. */
#include "host.h"

#include <math.h>

#define SCALE 0.79788456f
#define CUBE 0.044715f

/* s(2 u). */
static inline float share(float x)
{
    float twice = 2 * SCALE * (x + CUBE * x * x * x);
    float e = host_exp(-fabsf(twice));
    float below = e / (1 + e);
    return twice < 0 ? below : 1 - below;
}

static void forward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                    float *y)
{
    (void)device;
    size_t n = batch * shape_count(layer->in);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * share(x[i]);
}

static void backward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                     const float *y, const float *dy, float *dx)
{
    (void)device;
    (void)y;
    size_t n = batch * shape_count(layer->in);
    for (size_t i = 0; i < n; i++) {
        float s = share(x[i]), slope = 2 * SCALE * (1 + 3 * CUBE * x[i] * x[i]);
        dx[i] = dy[i] * (s + x[i] * s * (1 - s) * slope);
    }
}

const struct layer_ops host_gelu = {NULL, forward, backward};
