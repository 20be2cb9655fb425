/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax with cross-entropy as in host/loss.c: a sample is one thread's. One block takes all, which
 * is quick enough for ten classes and adds the losses in an order that only the sizes decide. */
#include "cuda.cuh"

static __device__ unsigned largest(const float *z, unsigned n)
{
    unsigned best = 0;
    for (unsigned j = 1; j < n; j++)
        best = z[j] > z[best] ? j : best;
    return best;
}

/* -log softmax(z)[label]; DZ (may be NULL) = SCALE * (softmax(z) - onehot(label)). */
static __device__ double sample_loss(const float *z, unsigned n, unsigned label, float max,
                                     float scale, float *dz)
{
    float sum = 0;
    for (unsigned j = 0; j < n; j++)
        sum += expf(z[j] - max);
    for (unsigned j = 0; dz && j < n; j++)
        dz[j] = scale * (expf(z[j] - max) / sum - (j == label ? 1.0f : 0.0f));
    return log((double)sum) - (double)(z[label] - max);
}

__global__ void softmax(size_t batch, unsigned classes, const float *logits, const uint8_t *labels,
                        float scale, float *dlogits, struct score *score)
{
    WRI_SHARED(struct score, part, BLOCK);
    struct score own = {0, 0};
    for (EACH(i, batch)) {
        const float *z = logits + i * classes;
        unsigned best = largest(z, classes);
        own.loss += sample_loss(z, classes, labels[i], z[best], scale,
                                dlogits ? dlogits + i * classes : NULL);
        own.correct += best == labels[i];
    }
    part[threadIdx.x] = own;
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            part[threadIdx.x].loss += part[threadIdx.x + half].loss;
            part[threadIdx.x].correct += part[threadIdx.x + half].correct;
        }
    }
    if (threadIdx.x == 0) {
        score->loss += part[0].loss;
        score->correct += part[0].correct;
    }
}

void cuda_softmax(struct device *device, size_t batch, size_t classes, const float *logits,
                  const uint8_t *labels, float scale, float *dlogits, struct score *score)
{
    cuda_launch(device, 1, softmax, batch, classes, logits, labels, scale, dlogits, score);
}
