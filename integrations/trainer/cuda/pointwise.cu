/* SPDX-License-Identifier: Apache-2.0 */
/* What has no sums over many elements: pool, elu, the input. An output element is one thread's. */
#include "cuda.cuh"

__global__ void pool(size_t count, unsigned half, const float *x, float *y)
{
    for (EACH(i, count)) {
        const float *top = x + i / half * 4 * half + i % half * 2, *bottom = top + 2 * half;
        y[i] = 0.25f * ((top[0] + top[1]) + (bottom[0] + bottom[1]));
    }
}

static void pool_forward(struct device *device, const struct layer *layer, size_t batch,
                         const float *x, float *y)
{
    size_t count = batch * shape_count(layer->out);
    cuda_launch_each(device, count, pool, count, layer->out.width, x, y);
}

__global__ void unpool(size_t count, unsigned half, const float *dy, float *dx)
{
    for (EACH(i, count)) {
        float *top = dx + i / half * 4 * half + i % half * 2, *bottom = top + 2 * half;
        top[0] = top[1] = bottom[0] = bottom[1] = 0.25f * dy[i];
    }
}

static void pool_backward(struct device *device, const struct layer *layer, size_t batch,
                          const float *, const float *, const float *dy, float *dx)
{
    size_t count = batch * shape_count(layer->out);
    cuda_launch_each(device, count, unpool, count, layer->out.width, dy, dx);
}

__global__ void elu(size_t count, const float *x, float *y)
{
    for (EACH(i, count))
        y[i] = x[i] < 0 ? expf(x[i]) - 1 : x[i];
}

static void elu_forward(struct device *device, const struct layer *layer, size_t batch,
                        const float *x, float *y)
{
    size_t count = batch * shape_count(layer->in);
    cuda_launch_each(device, count, elu, count, x, y);
}

__global__ void elu_slope(size_t count, const float *y, const float *dy, float *dx)
{
    for (EACH(i, count))
        dx[i] = dy[i] * (y[i] < 0 ? y[i] + 1 : 1);
}

static void elu_backward(struct device *device, const struct layer *layer, size_t batch,
                         const float *, const float *y, const float *dy, float *dx)
{
    size_t count = batch * shape_count(layer->in);
    cuda_launch_each(device, count, elu_slope, count, y, dy, dx);
}

extern const struct layer_ops cuda_pool = {NULL, pool_forward, pool_backward};
extern const struct layer_ops cuda_elu = {NULL, elu_forward, elu_backward};

__global__ void gather(size_t count, struct dataset data, const float *table, const uint32_t *index,
                       size_t first, float *input, uint8_t *labels)
{
    for (EACH(i, count * data.ninputs)) {
        size_t row = i / data.ninputs, column = i % data.ninputs;
        size_t sample = index ? index[first + row] : first + row;
        input[i] = table[data.inputs[sample * data.ninputs + column]];
        if (column < data.nlabels)
            labels[row * data.nlabels + column] = data.labels[sample * data.nlabels + column];
    }
}

void cuda_gather(struct device *device, const struct dataset *data, const float *table,
                 const uint32_t *index, size_t first, size_t count, float *input, uint8_t *labels)
{
    cuda_launch_each(device, count * data->ninputs, gather, count, *data, table, index, first,
                     input, labels);
}
