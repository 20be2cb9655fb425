/* SPDX-License-Identifier: Apache-2.0 */
/* A layer: a function of a batch and its derivative. All arrays are float32, row by row:
 *
 *     x   batch x in      in  = channels x height x width (a vector is n x 1 x 1; a sequence of
 *                               vectors, one for each position, is positions x 1 x features)
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

/* What a parameter begins as. */
enum start {
    START_ZERO,
    START_ONE,
    START_HE, /* uniform, variance 2 / shape[1], the values that feed an output (He et al., 2015) */
    START_THIN, /* uniform, a third of 1 / shape[1]: as START_HE, for what is normalised anyway */
};

/* A tensor that is learned. A parameter of count 0 is absent. */
struct parameter {
    char name[32]; /* "conv2.weight" */
    int ndim;
    size_t shape[2]; /* weight: out x in; bias: out */
    size_t count;
    enum start start;
    float *value, *grad;
};

enum layer_kind {
    LAYER_DENSE, /* y = x W' + b; the input is taken as a vector */
    LAYER_CONV,  /* 3 x 3, stride 1, zero padding: same height and width */
    LAYER_POOL,  /* average of 2 x 2, stride 2 */
    LAYER_ELU,   /* y = x, for x < 0 exp(x) - 1 */

    /* Of sequences. */
    LAYER_EMBED,     /* x: whole numbers, positions x 1 x 1; y: for each its row of the weight */
    LAYER_POSITION,  /* y = x + the weight, which has a row for each position */
    LAYER_NORM,      /* at each position mean 0 and variance 1, then times weight, plus bias */
    LAYER_LINEAR,    /* dense at each position */
    LAYER_ATTENTION, /* x: query, key, value of each position; sees itself and what came before */
    LAYER_GELU,      /* y = x times the share of a normal distribution below x, by tanh */
    LAYER_KINDS
};
#define LAYER_TAPS 9 /* weights of a convolution, per channel in and out */

struct layer {
    enum layer_kind kind;
    struct shape in, out;
    struct parameter weight, bias;
    size_t heads;   /* of attention */
    float *scratch; /* as much as the device asked for */
};

extern const char *const layer_names[LAYER_KINDS];

/* Size of the output and of the parameters of a layer of KIND for an input of IN. WIDTH is the
 * number of channels or features wanted, for LAYER_EMBED at each position; for attention the number
 * of heads. */
void layer_plan(struct layer *layer, enum layer_kind kind, struct shape in, size_t width);

#endif
