/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution, 3 x 3 with zero padding, as matrix products (Chellapilla et al., 2006). For one
 * image
 *
 *     col [9 in x pixels]    row (c, ky, kx) is channel c, shifted by (ky - 1, kx - 1)
 *     y   [out x pixels]   = W . col + b               W is out x 9 in
 *     dW                  += dy . col'
 *     dcol                 = W' . dy, and dx adds its rows, shifted back
 *
 * Image by image, because col then stays in the cache. It is made again in backward, which is
 * cheaper than to fetch it from memory. A shifted plane is one contiguous copy in which only the
 * column that wrapped around the image's edge must be set to zero. */
#include "host.h"

#include <cblas.h>
#include <string.h>

static size_t scratch(const struct layer *layer, size_t batch)
{
    (void)batch;
    return shape_count(layer->in) * LAYER_TAPS;
}

/* Where a plane shifted by tap 0..8 overlaps itself: destination pixels FIRST..LAST-1 take source
 * pixels FIRST+OFFSET.. ; COLUMN of the destination lies outside the image (-1: none does). */
struct shift {
    long first, last, offset, column;
};

static struct shift shift_of(struct shape s, size_t tap)
{
    long pixels = (long)(s.height * s.width), width = (long)s.width;
    long right = (long)(tap % 3) - 1, offset = ((long)(tap / 3) - 1) * width + right;
    struct shift shift = {.first = offset < 0 ? -offset : 0,
                          .last = pixels - (offset > 0 ? offset : 0),
                          .offset = offset,
                          .column = right < 0   ? 0
                                    : right > 0 ? width - 1
                                                : -1};
    if (shift.first >= shift.last) /* an image smaller than the shift */
        shift.first = shift.last = pixels;
    return shift;
}

static void zero_column(struct shape s, float *plane, long column)
{
    for (size_t row = 0; column >= 0 && row < s.height; row++)
        plane[row * s.width + (size_t)column] = 0;
}

static void image_to_columns(struct shape s, const float *image, float *col)
{
    size_t pixels = s.height * s.width;
    for (size_t row = 0; row < s.channels * LAYER_TAPS; row++) {
        const float *src = image + row / LAYER_TAPS * pixels;
        float *dst = col + row * pixels;
        struct shift shift = shift_of(s, row % LAYER_TAPS);
        memset(dst, 0, (size_t)shift.first * sizeof *dst);
        memcpy(dst + shift.first, src + shift.first + shift.offset,
               (size_t)(shift.last - shift.first) * sizeof *dst);
        memset(dst + shift.last, 0, (pixels - (size_t)shift.last) * sizeof *dst);
        zero_column(s, dst, shift.column);
    }
}

/* The transpose of image_to_columns(): sets IMAGE. Overwrites the wrapped columns of COL. */
static void columns_to_image(struct shape s, float *col, float *image)
{
    size_t pixels = s.height * s.width;
    memset(image, 0, shape_count(s) * sizeof *image);
    for (size_t row = 0; row < s.channels * LAYER_TAPS; row++) {
        float *dst = image + row / LAYER_TAPS * pixels;
        float *src = col + row * pixels;
        struct shift shift = shift_of(s, row % LAYER_TAPS);
        zero_column(s, src, shift.column);
        for (long i = shift.first; i < shift.last; i++)
            dst[i + shift.offset] += src[i];
    }
}

/* Y = the bias of each channel, in all its pixels. */
static void fill_bias(const struct layer *layer, float *y)
{
    size_t pixels = layer->out.height * layer->out.width;
    for (size_t c = 0; c < layer->bias.count; c++)
        for (size_t p = 0; p < pixels; p++)
            y[c * pixels + p] = layer->bias.value[c];
}

static void forward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                    float *y)
{
    (void)device;
    int pixels = (int)(layer->in.height * layer->in.width);
    int out = (int)layer->out.channels, k = (int)layer->weight.shape[1];
    for (size_t i = 0; i < batch; i++) {
        float *yi = y + i * shape_count(layer->out);
        image_to_columns(layer->in, x + i * shape_count(layer->in), layer->scratch);
        fill_bias(layer, yi);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, out, pixels, k, 1,
                    layer->weight.value, k, layer->scratch, pixels, 1, yi, pixels);
    }
}

static void add_bias_gradient(const struct layer *layer, const float *dy)
{
    size_t pixels = layer->out.height * layer->out.width;
    for (size_t c = 0; c < layer->bias.count; c++)
        layer->bias.grad[c] += host_sum(dy + c * pixels, pixels);
}

static void backward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                     const float *y, const float *dy, float *dx)
{
    (void)device;
    (void)y;
    int pixels = (int)(layer->in.height * layer->in.width);
    int out = (int)layer->out.channels, k = (int)layer->weight.shape[1];
    memset(layer->weight.grad, 0, layer->weight.count * sizeof *dy);
    memset(layer->bias.grad, 0, layer->bias.count * sizeof *dy);
    for (size_t i = 0; i < batch; i++) {
        const float *dyi = dy + i * shape_count(layer->out);
        image_to_columns(layer->in, x + i * shape_count(layer->in), layer->scratch);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, out, k, pixels, 1, dyi, pixels,
                    layer->scratch, pixels, 1, layer->weight.grad, k);
        add_bias_gradient(layer, dyi);
        if (!dx)
            continue;
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, k, pixels, out, 1, layer->weight.value,
                    k, dyi, pixels, 0, layer->scratch, pixels);
        columns_to_image(layer->in, layer->scratch, dx + i * shape_count(layer->in));
    }
}

const struct layer_ops host_conv = {scratch, forward, backward};
