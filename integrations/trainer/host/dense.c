/* SPDX-License-Identifier: Apache-2.0 */
/* Fully connected layer: three matrix products over the whole batch.
 *
 *     y  [batch x out] = x [batch x in] . W' + b       W is out x in
 *     dW [out x in]    = dy' . x
 *     db [out]         = column sums of dy
 *     dx [batch x in]  = dy . W
 */
#include "host.h"

#include <cblas.h>
#include <string.h>

static void forward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                    float *y)
{
    (void)device;
    int n = (int)batch, in = (int)shape_count(layer->in), out = (int)layer->out.channels;
    for (size_t i = 0; i < batch; i++)
        memcpy(y + i * layer->out.channels, layer->bias.value, layer->bias.count * sizeof *y);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, out, in, 1, x, in, layer->weight.value,
                in, 1, y, out);
}

static void backward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                     const float *y, const float *dy, float *dx)
{
    (void)device;
    (void)y;
    int n = (int)batch, in = (int)shape_count(layer->in), out = (int)layer->out.channels;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, n, 1, dy, out, x, in, 0,
                layer->weight.grad, in);
    memset(layer->bias.grad, 0, layer->bias.count * sizeof *dy);
    for (size_t i = 0; i < batch; i++)
        for (size_t j = 0; j < layer->bias.count; j++)
            layer->bias.grad[j] += dy[i * layer->bias.count + j];
    if (dx)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, in, out, 1, dy, out,
                    layer->weight.value, in, 0, dx, in);
}

const struct layer_ops host_dense = {NULL, forward, backward};
