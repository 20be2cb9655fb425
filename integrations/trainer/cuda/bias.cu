/* SPDX-License-Identifier: Apache-2.0 */
/* The bias of dense and conv: a value per channel, the same in all pixels of all images. Sums are
 * formed in an order that only the sizes decide. */
#include "cuda.cuh"

__global__ void fill_bias(size_t count, unsigned channels, unsigned pixels, const float *bias,
                          float *y)
{
    for (EACH(i, count))
        y[i] = bias[i / pixels % channels];
}

void cuda_bias(struct device *device, const struct layer *layer, size_t batch, float *y)
{
    struct shape out = layer->out;
    cuda_launch_each(device, batch * shape_count(out), fill_bias, batch * shape_count(out),
                     out.channels, out.height * out.width, layer->bias.value, y);
}

/* One pixel per image: a thread takes a channel. */
__global__ void sum_columns(size_t batch, unsigned channels, const float *dy, float *grad)
{
    for (EACH(c, channels)) {
        float sum = 0;
        for (size_t i = 0; i < batch; i++)
            sum += dy[i * channels + c];
        grad[c] = sum;
    }
}

/* Many pixels: a block takes a channel, its threads every BLOCK-th pixel. */
__global__ void sum_planes(size_t batch, unsigned channels, unsigned pixels, const float *dy,
                           float *grad)
{
    WRI_SHARED(float, part, BLOCK);
    const float *plane = dy + (size_t)blockIdx.x * pixels;
    float sum = 0;
    for (size_t i = 0; i < batch; i++, plane += (size_t)channels * pixels)
        for (unsigned p = threadIdx.x; p < pixels; p += BLOCK)
            sum += plane[p];
    part[threadIdx.x] = sum;
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        grad[blockIdx.x] = part[0];
}

void cuda_bias_gradient(struct device *device, const struct layer *layer, size_t batch,
                        const float *dy)
{
    size_t channels = layer->out.channels, pixels = layer->out.height * layer->out.width;
    if (pixels == 1)
        cuda_launch(device, (channels + BLOCK - 1) / BLOCK, sum_columns, batch, channels, dy,
                    layer->bias.grad);
    else
        cuda_launch(device, channels, sum_planes, batch, channels, pixels, dy, layer->bias.grad);
}
