/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention with several heads (Vaswani et al., 2017). Of each head of each sample, with T
 * positions and n features:
 *
 *     S  [T x T] = Q . K' / sqrt(n)      rows end at the diagonal
 *     P          = softmax of each row
 *     y  [T x n] = P . V
 *
 *     dV = P' . dy,  dP = dy . V',  dS = P (dP - row sums of P dP) / sqrt(n)
 *     dQ = dS . K,   dK = dS' . Q
 *
 * Q, K and V stand beside each other in a row of x, heads within them, so that all factors are
 * parts of x as it is. P is made again in backward: one fits the cache, all would not. */
#include "host.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

static size_t scratch(const struct layer *layer, size_t batch)
{
    (void)batch;
    return 2 * layer->in.channels * layer->in.channels;
}

/* A head of a sample. */
struct head {
    int positions, features;
    int stride, out_stride; /* floats from a position's to the next one's, in x and in y */
    const float *q, *k, *v;
    size_t offset;     /* of Q in x; the same in dx */
    size_t out_offset; /* in y */
};

static struct head head_of(const struct layer *layer, const float *x, size_t sample, size_t number)
{
    size_t width = layer->out.width, features = width / layer->heads;
    struct head head = {.positions = (int)layer->in.channels,
                        .features = (int)features,
                        .stride = (int)layer->in.width,
                        .out_stride = (int)width,
                        .offset = sample * shape_count(layer->in) + number * features,
                        .out_offset = sample * shape_count(layer->out) + number * features};
    head.q = x + head.offset;
    head.k = head.q + width;
    head.v = head.k + width;
    return head;
}

/* Row ROW of S, up to the diagonal, becomes one of P; behind it are zeros. */
static void softmax_row(float *s, int row, int positions)
{
    float max = s[0];
    for (int j = 1; j <= row; j++)
        max = s[j] > max ? s[j] : max;
    for (int j = 0; j <= row; j++)
        s[j] = host_exp(s[j] - max);
    float inverse = 1 / host_sum(s, (size_t)row + 1);
    for (int j = 0; j <= row; j++)
        s[j] *= inverse;
    memset(s + row + 1, 0, (size_t)(positions - row - 1) * sizeof *s);
}

static void weights(const struct head *head, float *p)
{
    int n = head->positions;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, head->features,
                1 / sqrtf((float)head->features), head->q, head->stride, head->k, head->stride, 0,
                p, n);
    for (int row = 0; row < n; row++)
        softmax_row(p + row * n, row, n);
}

static void head_forward(const struct head *head, float *p, float *y)
{
    int n = head->positions;
    weights(head, p);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, head->features, n, 1, p, n, head->v,
                head->stride, 0, y + head->out_offset, head->out_stride);
}

/* DS from P and from DP, which it replaces. */
static void scores_backward(const struct head *head, const float *p, float *ds)
{
    size_t n = (size_t)head->positions;
    float scale = 1 / sqrtf((float)head->features);
    for (size_t row = 0; row < n; row++, p += n, ds += n) {
        float part[HOST_LANES] = {0}, sum = 0;
        for (size_t j = 0; j < n; j++)
            part[j % HOST_LANES] += p[j] * ds[j];
        for (size_t j = 0; j < HOST_LANES; j++)
            sum += part[j];
        for (size_t j = 0; j < n; j++)
            ds[j] = scale * p[j] * (ds[j] - sum);
    }
}

static void head_backward(const struct head *head, float *p, const float *dy, float *dx)
{
    int n = head->positions, features = head->features;
    float *ds = p + n * n, *dq = dx + head->offset, *dk = dq + (head->k - head->q);
    float *dv = dk + (head->k - head->q);
    dy += head->out_offset;
    weights(head, p);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, features, n, 1, p, n, dy,
                head->out_stride, 0, dv, head->stride);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, features, 1, dy, head->out_stride,
                head->v, head->stride, 0, ds, n);
    scores_backward(head, p, ds);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, features, n, 1, ds, n, head->k,
                head->stride, 0, dq, head->stride);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, features, n, 1, ds, n, head->q,
                head->stride, 0, dk, head->stride);
}

static void forward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                    float *y)
{
    (void)device;
    for (size_t i = 0; i < batch * layer->heads; i++) {
        struct head head = head_of(layer, x, i / layer->heads, i % layer->heads);
        head_forward(&head, layer->scratch, y);
    }
}

static void backward(struct device *device, const struct layer *layer, size_t batch, const float *x,
                     const float *y, const float *dy, float *dx)
{
    (void)device;
    (void)y;
    for (size_t i = 0; i < batch * layer->heads; i++) {
        struct head head = head_of(layer, x, i / layer->heads, i % layer->heads);
        head_backward(&head, layer->scratch, dy, dx);
    }
}

const struct layer_ops host_attention = {scratch, forward, backward};
