/* SPDX-License-Identifier: Apache-2.0 */
/* Each call becomes an operation of the stream, done by the host's BLAS. */
#include "cublas_v2.h"

#include <cblas.h>

struct emu_blas {
    cudaStream_t stream;
};

struct product {
    CBLAS_TRANSPOSE trans_a, trans_b;
    int m, n, k, lda, ldb, ldc, count;
    long long stride_a, stride_b, stride_c;
    float alpha, beta;
    const float *a, *b;
    float *c;
};

static void run(void *arg)
{
    product *p = static_cast<product *>(arg);
    for (long long i = 0; i < p->count; i++)
        cblas_sgemm(CblasColMajor, p->trans_a, p->trans_b, p->m, p->n, p->k, p->alpha,
                    p->a + i * p->stride_a, p->lda, p->b + i * p->stride_b, p->ldb, p->beta,
                    p->c + i * p->stride_c, p->ldc);
    delete p;
}

static CBLAS_TRANSPOSE transpose(cublasOperation_t operation)
{
    return operation == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t trans_a,
                                         cublasOperation_t trans_b, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         long long stride_a, const float *b, int ldb,
                                         long long stride_b, const float *beta, float *c, int ldc,
                                         long long stride_c, int count)
{
    if (m < 0 || n < 0 || k < 0 || count < 0 || lda < (trans_a == CUBLAS_OP_T ? k : m) ||
        ldb < (trans_b == CUBLAS_OP_T ? n : k) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    product *p = new product{
        transpose(trans_a), transpose(trans_b), m,        n,      k,     lda, ldb, ldc, count,
        stride_a,           stride_b,           stride_c, *alpha, *beta, a,   b,   c};
    return cudaLaunchHostFunc(handle->stream, run, p) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                     : CUBLAS_STATUS_INVALID_VALUE;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "no error" : "invalid value";
}

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = new emu_blas{nullptr};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
