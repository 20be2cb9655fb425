/* SPDX-License-Identifier: Apache-2.0 */
/* A layer: a function of a batch and its derivative. All arrays are float32, row by row:
 *
 *     x   batch x in      in  = channels x height x width (a vector is n x 1 x 1)
 *     y   batch x out
 *     dx, dy              derivative of the loss by x and y
 *
 * Layers keep no state between calls but their parameters; what backward needs is given to it.
 * Here is what they look like. What they compute is the device's: device.h. */
#ifndef TRAINER_LAYER_H
#define TRAINER_LAYER_H

#include <stddef.h>

struct shape {
    size_t channels, height, width;
};

static inline size_t shape_count(struct shape s)
{
    return s.channels * s.height * s.width;
}

/* A tensor that is learned. A parameter of count 0 is absent. */
struct parameter {
    char name[32]; /* "conv2.weight" */
    int ndim;
    size_t shape[2]; /* weight: out x in; bias: out */
    size_t count;
    float *value, *grad;
};

enum layer_kind {
    LAYER_DENSE, /* y = x W' + b; the input is taken as a vector */
    LAYER_CONV,  /* 3 x 3, stride 1, zero padding: same height and width */
    LAYER_POOL,  /* average of 2 x 2, stride 2 */
    LAYER_ELU,   /* y = x, for x < 0 exp(x) - 1 */
    LAYER_KINDS
};
#define LAYER_TAPS 9 /* weights of a convolution, per channel in and out */

struct layer {
    enum layer_kind kind;
    struct shape in, out;
    struct parameter weight, bias;
    float *scratch; /* as much as the device asked for */
};

extern const char *const layer_names[LAYER_KINDS];

/* Size of the output and of the parameters of a layer of KIND for an input of IN. WIDTH is the
 * number of channels or features wanted. */
void layer_plan(struct layer *layer, enum layer_kind kind, struct shape in, size_t width);

#endif
