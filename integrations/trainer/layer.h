/* SPDX-License-Identifier: Apache-2.0 */
/* A layer: a function of a batch and its derivative. All arrays are float32, row by row:
 *
 *     x   batch x in      in  = channels x height x width (a vector is n x 1 x 1)
 *     y   batch x out
 *     dx, dy              derivative of the loss by x and y
 *
 * Layers keep no state between calls but their parameters; what backward needs is given to it. */
#ifndef TRAINER_LAYER_H
#define TRAINER_LAYER_H

#include <stddef.h>
#include <stdint.h>

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

struct layer {
    const struct layer_ops *ops;
    struct shape in, out;
    struct parameter weight, bias;
    float *scratch;
};

struct layer_ops {
    const char *name;

    /* Size of the output, of the parameters and, in floats, of the scratch memory for an input of
     * layer->in. WIDTH is the number of channels or features wanted. */
    void (*plan)(struct layer *layer, size_t width, size_t *scratch_out);

    void (*forward)(const struct layer *layer, size_t batch, const float *x, float *y);

    /* Set the gradients of the parameters and, unless DX is NULL, DX. */
    void (*backward)(const struct layer *layer, size_t batch, const float *x, const float *y,
                     const float *dy, float *dx);
};

extern const struct layer_ops layer_dense; /* y = x W' + b; the input is taken as a vector */
extern const struct layer_ops layer_conv; /* 3 x 3, stride 1, zero padding: same height and width */
extern const struct layer_ops layer_pool; /* average of 2 x 2, stride 2 */
extern const struct layer_ops layer_elu;  /* y = x, for x < 0 exp(x) - 1 */

/* Softmax and cross-entropy. LOGITS is batch x classes. Returns the sum over the batch of -log
 * p(label) and, unless DLOGITS is NULL, writes there the derivative of the *mean* over the batch.
 * Adds to *CORRECT_OUT, unless NULL, the number of samples whose largest logit is the label's. */
double softmax_loss(size_t batch, size_t classes, const float *logits, const uint8_t *labels,
                    float *dlogits, size_t *correct_out);

#endif
