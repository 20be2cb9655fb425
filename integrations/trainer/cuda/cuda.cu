/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as a device: memory, one stream on which everything happens in order, cuBLAS, and the table
 * of what the files beside this one compute. */
#include "cuda.cuh"

#include <stdio.h>
#include <stdlib.h>

void cuda_note(struct cuda_device *device, cudaError_t error)
{
    if (error != cudaSuccess && !device->error[0])
        snprintf(device->error, sizeof device->error, "%s (%s)", cudaGetErrorString(error),
                 cudaGetErrorName(error));
}

static void note_blas(struct cuda_device *device, cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS && !device->error[0])
        snprintf(device->error, sizeof device->error, "cuBLAS: %s", cublasGetStatusString(status));
}

/* ---- open and close -------------------------------------------------------------------------- */

static const char *missing(void)
{
    int driver = 0, count = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return "this machine has no NVIDIA driver";
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        return cudaGetErrorString(error);
    return count > 0 ? NULL : "this machine has no GPU";
}

static void cuda_close(struct device *base)
{
    struct cuda_device *device = cuda_of(base);
    if (device->blas)
        cublasDestroy(device->blas);
    if (device->stream)
        cudaStreamDestroy(device->stream);
    free(device);
}

static void open_streams(struct cuda_device *device, int local_rank)
{
    int count = 1;
    struct cudaDeviceProp properties = {};
    cuda_note(device, cudaGetDeviceCount(&count));
    cuda_note(device, cudaSetDevice(local_rank % count));
    cuda_note(device, cudaGetDeviceProperties(&properties, local_rank % count));
    device->blocks_max = BLOCKS_PER_SM * (unsigned)properties.multiProcessorCount;
    cuda_note(device, cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    note_blas(device, cublasCreate(&device->blas));
    if (device->error[0])
        return;
    /* float32 as it is written down: no TF32, no split sums whose order might vary. */
    note_blas(device, cublasSetMathMode(device->blas, CUBLAS_PEDANTIC_MATH));
    note_blas(device, cublasSetStream(device->blas, device->stream));
}

static const char *cuda_open(int local_rank, struct device **device_out)
{
    static char why[sizeof((struct cuda_device *)0)->error];
    struct cuda_device *device = (struct cuda_device *)calloc(1, sizeof *device);
    if (!device)
        return "out of memory";
    open_streams(device, local_rank);
    if (device->error[0]) {
        snprintf(why, sizeof why, "%s", device->error);
        cuda_close(&device->base);
        return why;
    }
    device->base.ops = &trainer_device_cuda;
    device->base.stream = device->stream;
    *device_out = &device->base;
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *cuda_alloc(struct device *base, size_t nbytes)
{
    struct cuda_device *device = cuda_of(base);
    void *block = NULL;
    if (cudaMalloc(&block, nbytes ? nbytes : 1) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    cuda_note(device, cudaMemsetAsync(block, 0, nbytes, device->stream));
    return block;
}

static void cuda_free(struct device *base, void *block)
{
    cuda_note(cuda_of(base), cudaFree(block));
}

static void cuda_copy(struct device *base, void *dst, const void *src, size_t nbytes)
{
    struct cuda_device *device = cuda_of(base);
    cuda_note(device, cudaMemcpyAsync(dst, src, nbytes, cudaMemcpyDefault, device->stream));
    cuda_note(device, cudaStreamSynchronize(device->stream));
}

static const char *cuda_wait(struct device *base)
{
    struct cuda_device *device = cuda_of(base);
    cuda_note(device, cudaStreamSynchronize(device->stream));
    return device->error[0] ? device->error : NULL;
}

/* ---- products -------------------------------------------------------------------------------- */

/* cuBLAS counts column by column. So it sees every matrix transposed, and C' is B' . A'. */
void cuda_product(struct device *base, size_t count, size_t m, size_t n, size_t k, struct factor a,
                  struct factor b, float beta, float *c, size_t c_stride)
{
    struct cuda_device *device = cuda_of(base);
    const float one = 1;
    note_blas(device, cublasSgemmStridedBatched(
                          device->blas, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                          a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n, (int)m, (int)k, &one,
                          b.at, (int)(b.transposed ? k : n), (long long)b.stride, a.at,
                          (int)(a.transposed ? m : k), (long long)a.stride, &beta, c, (int)n,
                          (long long)c_stride, (int)count));
}

/* ---- table ----------------------------------------------------------------------------------- */

extern const struct device_ops trainer_device_cuda = {
    sizeof(struct device_ops),
    "cuda",
    missing,
    cuda_open,
    cuda_close,
    cuda_alloc,
    cuda_free,
    cuda_copy,
    cuda_copy,
    cuda_wait,
    cuda_gather,
    {&cuda_dense, &cuda_conv, &cuda_pool, &cuda_elu}, /* in the order of enum layer_kind */
    nullptr,                                          /* what only gpt has is the host's */
    cuda_softmax,
    cuda_sgd,
    cuda_rmsprop,
    cuda_adam,
    nullptr,
    nullptr, /* gradients of 16 bits are the host's, too */
};
