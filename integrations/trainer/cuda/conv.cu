/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution as in host/conv.c, but for up to IMAGES_MAX images in one go: that bounds the scratch
 * memory and keeps indices in 32 bits. Each image has its own dW, and these are added in order, so
 * that two runs give the same bits.
 *
 *     scratch   col [images x 9 in x pixels], then dW [images x out x 9 in]
 */
#include "cuda.cuh"

#define IMAGES_MAX 128

static size_t columns(const struct layer *layer)
{
    return shape_count(layer->in) * LAYER_TAPS;
}

static size_t scratch(const struct layer *layer, size_t batch)
{
    size_t images = batch < IMAGES_MAX ? batch : IMAGES_MAX;
    return images * (columns(layer) + layer->weight.count);
}

/* IMAGE is channels x height x width; col row (c, ky, kx) is channel c, shifted by (ky-1, kx-1). */
__global__ void image_to_columns(unsigned count, unsigned height, unsigned width,
                                 const float *image, float *col)
{
    unsigned pixels = height * width;
    for (EACH(i, count)) {
        unsigned plane = (unsigned)i / pixels, pixel = (unsigned)i % pixels; /* of col */
        unsigned channel = plane / LAYER_TAPS, tap = plane % LAYER_TAPS;     /* over all images */
        unsigned row = pixel / width + tap / 3 - 1, column = pixel % width + tap % 3 - 1;
        bool inside = row < height && column < width; /* -1 wraps to something large */
        col[i] = inside ? image[(size_t)channel * pixels + row * width + column] : 0;
    }
}

/* The transpose: every pixel collects what it gave. */
__global__ void columns_to_image(unsigned count, unsigned height, unsigned width, const float *col,
                                 float *image)
{
    unsigned pixels = height * width;
    for (EACH(i, count)) {
        unsigned channel = (unsigned)i / pixels, pixel = (unsigned)i % pixels;
        const float *plane = col + (size_t)channel * LAYER_TAPS * pixels;
        float sum = 0;
        for (unsigned tap = 0; tap < LAYER_TAPS; tap++, plane += pixels) {
            unsigned row = pixel / width + 1 - tap / 3, column = pixel % width + 1 - tap % 3;
            if (row < height && column < width)
                sum += plane[row * width + column];
        }
        image[i] = sum;
    }
}

/* GRAD [count], zero at first or to be added to, plus the sum of IMAGES arrays like it. */
__global__ void add_images(unsigned count, unsigned images, bool first, const float *each,
                           float *grad)
{
    for (EACH(i, count)) {
        float sum = first ? 0 : grad[i];
        for (unsigned image = 0; image < images; image++)
            sum += each[(size_t)image * count + i];
        grad[i] = sum;
    }
}

static void to_columns(struct device *device, const struct layer *layer, size_t images,
                       const float *x)
{
    size_t count = images * columns(layer);
    cuda_launch_each(device, count, image_to_columns, count, layer->in.height, layer->in.width, x,
                     layer->scratch);
}

static void forward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                    float *y)
{
    size_t pixels = layer->in.height * layer->in.width, k = layer->weight.shape[1];
    size_t in = shape_count(layer->in), out = shape_count(layer->out);
    cuda_bias(device, layer, batch, y);
    for (size_t i = 0; i < batch; i += IMAGES_MAX) {
        size_t images = batch - i < IMAGES_MAX ? batch - i : IMAGES_MAX;
        to_columns(device, layer, images, x + i * in);
        cuda_product(device, images, layer->out.channels, pixels, k,
                     {layer->weight.value, false, 0}, {layer->scratch, false, columns(layer)}, 1,
                     y + i * out, out);
    }
}

/* Of the weights, by IMAGES images; FIRST ones set the gradient. */
static void weight_gradient(struct device *device, const struct layer *layer, size_t images,
                            bool first, const float *x, const float *dy)
{
    size_t pixels = layer->in.height * layer->in.width, k = layer->weight.shape[1];
    size_t count = layer->weight.count;
    float *each = layer->scratch + images * columns(layer);
    to_columns(device, layer, images, x);
    cuda_product(device, images, layer->out.channels, k, pixels,
                 {dy, false, shape_count(layer->out)}, {layer->scratch, true, columns(layer)}, 0,
                 each, count);
    cuda_launch_each(device, count, add_images, count, images, first, each, layer->weight.grad);
}

static void input_gradient(struct device *device, const struct layer *layer, size_t images,
                           const float *dy, float *dx)
{
    size_t pixels = layer->in.height * layer->in.width, k = layer->weight.shape[1];
    size_t count = images * shape_count(layer->in);
    cuda_product(device, images, k, pixels, layer->out.channels, {layer->weight.value, true, 0},
                 {dy, false, shape_count(layer->out)}, 0, layer->scratch, columns(layer));
    cuda_launch_each(device, count, columns_to_image, count, layer->in.height, layer->in.width,
                     layer->scratch, dx);
}

static void backward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                     const float *, const float *dy, float *dx)
{
    size_t in = shape_count(layer->in), out = shape_count(layer->out);
    cuda_bias_gradient(device, layer, batch, dy);
    for (size_t i = 0; i < batch; i += IMAGES_MAX) {
        size_t images = batch - i < IMAGES_MAX ? batch - i : IMAGES_MAX;
        weight_gradient(device, layer, images, i == 0, x + i * in, dy + i * out);
        if (dx)
            input_gradient(device, layer, images, dy + i * out, dx + i * in);
    }
}

extern const struct layer_ops cuda_conv = {scratch, forward, backward};
