/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NCCL's interface that the mock answers, with the values and layouts of the real one,
 * so that programs built against either header run with either library. What the mock means by each
 * call: mocknccl.h. */
#ifndef MOCKNCCL_NCCL_H
#define MOCKNCCL_NCCL_H

#include <cuda_runtime.h>
#include <limits.h>
#include <stddef.h>

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ncclComm *ncclComm_t;

typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclNumResults = 8
} ncclResult_t;

typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        sizeof(ncclConfig_t), NCCL_CONFIG_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT,         \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
            NCCL_CONFIG_UNDEF_INT                                                                  \
    }

/* Each function under both of its names. */
#define NCCL_FUNCTION(type, name, ...)                                                             \
    type name(__VA_ARGS__);                                                                        \
    type p##name(__VA_ARGS__)

NCCL_FUNCTION(ncclResult_t, ncclGetVersion, int *version);
NCCL_FUNCTION(ncclResult_t, ncclGetUniqueId, ncclUniqueId *id);
NCCL_FUNCTION(ncclResult_t, ncclCommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId id,
              int rank);
NCCL_FUNCTION(ncclResult_t, ncclCommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId id,
              int rank, ncclConfig_t *config);
NCCL_FUNCTION(ncclResult_t, ncclCommFinalize, ncclComm_t comm);
NCCL_FUNCTION(ncclResult_t, ncclCommDestroy, ncclComm_t comm);
NCCL_FUNCTION(ncclResult_t, ncclCommAbort, ncclComm_t comm);
NCCL_FUNCTION(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t *error);
NCCL_FUNCTION(const char *, ncclGetErrorString, ncclResult_t result);
NCCL_FUNCTION(const char *, ncclGetLastError, ncclComm_t comm);
NCCL_FUNCTION(ncclResult_t, ncclCommCount, const ncclComm_t comm, int *count);
NCCL_FUNCTION(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int *rank);
NCCL_FUNCTION(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int *device);

NCCL_FUNCTION(ncclResult_t, ncclSend, const void *data, size_t count, ncclDataType_t type, int peer,
              ncclComm_t comm, cudaStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclRecv, void *data, size_t count, ncclDataType_t type, int peer,
              ncclComm_t comm, cudaStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclAllGather, const void *in, void *out, size_t count,
              ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclAllReduce, const void *in, void *out, size_t count,
              ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclBroadcast, const void *in, void *out, size_t count,
              ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream);
NCCL_FUNCTION(ncclResult_t, ncclGroupStart, void);
NCCL_FUNCTION(ncclResult_t, ncclGroupEnd, void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
