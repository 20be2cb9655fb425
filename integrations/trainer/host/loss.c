/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax with cross-entropy: the largest logit is subtracted first, so that exp() cannot overflow.
 */
#include "host.h"

#include <math.h>

static size_t largest(const float *z, size_t n)
{
    size_t best = 0;
    for (size_t j = 1; j < n; j++)
        best = z[j] > z[best] ? j : best;
    return best;
}

/* -log softmax(z)[label]; DZ (may be NULL) = SCALE * (softmax(z) - onehot(label)). */
static double sample_loss(const float *z, size_t n, size_t label, float max, float scale, float *dz)
{
    float sum = 0;
    for (size_t j = 0; j < n; j++)
        sum += expf(z[j] - max);
    for (size_t j = 0; dz && j < n; j++)
        dz[j] = scale * (expf(z[j] - max) / sum - (j == label ? 1.0f : 0.0f));
    return log((double)sum) - (double)(z[label] - max);
}

void host_softmax(struct device *device, size_t batch, size_t classes, const float *logits,
                  const uint8_t *labels, float scale, float *dlogits, struct score *score)
{
    (void)device;
    double loss = 0;
    for (size_t i = 0; i < batch; i++) {
        const float *z = logits + i * classes;
        size_t best = largest(z, classes);
        loss += sample_loss(z, classes, labels[i], z[best], scale,
                            dlogits ? dlogits + i * classes : NULL);
        score->correct += best == labels[i];
    }
    score->loss += loss;
}
