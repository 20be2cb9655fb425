/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA files of the trainer share: the opened device, how kernels are started, and matrix
 * products. Every function here enqueues on the device's stream and keeps the first error. */
#ifndef TRAINER_CUDA_CUH
#define TRAINER_CUDA_CUH

extern "C" {
#include "device.h"
}

#include <cublas_v2.h>
#include <cuda_runtime.h>

#ifndef EMU_CUDA
#define WRI_SHARED(type, name, count) __shared__ type name[count]
#endif

#define BLOCK 128    /* threads of a block */
#define PER_THREAD 8 /* elements that a thread takes at least, where there are enough */
#define BLOCKS_PER_SM 16

struct cuda_device {
    struct device base;
    cudaStream_t stream;
    cublasHandle_t blas;
    unsigned blocks_max; /* more would only wait for each other */
    char error[256];     /* the first; empty: none */
};

static inline struct cuda_device *cuda_of(struct device *device)
{
    return reinterpret_cast<struct cuda_device *>(device);
}

/* Keep ERROR if it is the first. */
void cuda_note(struct cuda_device *device, cudaError_t error);

/* Start KERNEL with BLOCKS blocks of BLOCK threads. */
template <typename... Expected, typename... Given>
static void cuda_launch(struct device *device, size_t blocks, void (*kernel)(Expected...),
                        Given... given)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(BLOCK);
    config.stream = cuda_of(device)->stream;
    cuda_note(cuda_of(device), cudaLaunchKernelEx(&config, kernel, given...));
}

/* Start KERNEL so that its threads, which walk with EACH(), have a few of COUNT elements each. */
template <typename... Expected, typename... Given>
static void cuda_launch_each(struct device *device, size_t count, void (*kernel)(Expected...),
                             Given... given)
{
    size_t blocks = (count + BLOCK * PER_THREAD - 1) / (BLOCK * PER_THREAD);
    size_t most = cuda_of(device)->blocks_max;
    if (count > 0)
        cuda_launch(device, blocks < most ? blocks : most, kernel, given...);
}

/* for (EACH(i, count)): every number below COUNT in one thread of the grid. */
#define EACH(i, count)                                                                             \
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;                                      \
    i < (count);                                                                                   \
    i += (size_t)gridDim.x * blockDim.x

/* A factor of a product, row by row without gaps. */
struct factor {
    const float *at;
    bool transposed; /* in memory are the rows of the transpose */
    size_t stride;   /* from one product's to the next one's */
};

/* COUNT products C [m x n] = A [m x k] . B [k x n] + beta C. */
void cuda_product(struct device *device, size_t count, size_t m, size_t n, size_t k,
                  struct factor a, struct factor b, float beta, float *c, size_t c_stride);

/* Y [batch x out] = BIAS of each channel, in all its pixels; and the sums of DY by channel. */
void cuda_bias(struct device *device, const struct layer *layer, size_t batch, float *y);
void cuda_bias_gradient(struct device *device, const struct layer *layer, size_t batch,
                        const float *dy);

extern const struct layer_ops cuda_dense, cuda_conv, cuda_pool, cuda_elu;

void cuda_gather(struct device *device, const struct dataset *data, const float *table,
                 const uint32_t *index, size_t first, size_t count, float *input, uint8_t *labels);
void cuda_softmax(struct device *device, size_t batch, size_t classes, const float *logits,
                  const uint8_t *labels, float scale, float *dlogits, struct score *score);
void cuda_sgd(struct device *device, struct sgd_step step, size_t count, float *value,
              const float *grad, float *velocity);
void cuda_rmsprop(struct device *device, struct rmsprop_step step, size_t count, float *value,
                  const float *grad, float *velocity, float *second);
void cuda_adam(struct device *device, struct adam_step step, size_t count, float *value,
               const float *grad, float *first, float *second);

#endif
