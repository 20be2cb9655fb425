/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which calls are one group, whether a call is valid, and in what order a group's jobs go
 * to their streams: by communicator name, the same on all ranks. */
#include "mocknccl.h"

#include <algorithm>

struct group {
    int depth = 0;
    ncclResult_t error = ncclSuccess; /* the first of its calls */
    std::vector<call> calls;
    std::vector<comm_ref> inits;
};

static thread_local group current;

/* ---- the end of a group ---------------------------------------------------------------------- */

static void run(void *arg)
{
    std::unique_ptr<job> own((job *)arg);
    job_run(*own);
}

static void start(job *job)
{
    comm_ref comm = job->comm;
    int device = 0;
    {
        std::lock_guard<std::mutex> lock(comm->lock);
        comm->enqueued++;
        if (!comm->blocking)
            comm->polls_left = setting("MOCKNCCL_POLLS", 3);
    }
    cudaGetDevice(&device);
    cudaSetDevice(comm->device);
    cudaError_t error = cudaLaunchHostFunc(job->stream, run, job);
    cudaSetDevice(device);
    if (error == cudaSuccess)
        return;
    comm_fail(*comm, ncclUnhandledCudaError, true, cudaGetErrorString(error));
    std::lock_guard<std::mutex> lock(comm->lock);
    comm->enqueued--;
    delete job;
}

/* One byte of the first message that is received. */
static void spoil(const std::vector<job *> &jobs)
{
    for (job *job : jobs) {
        for (const transfer &t : job->transfers) {
            if (!t.sends && t.wanted.nbytes > 0) {
                job->corrupt = t.data + t.wanted.nbytes / 2;
                return;
            }
        }
    }
}

static ncclResult_t launch(const std::vector<call> &calls)
{
    std::vector<job *> jobs;
    bool corrupt = false;
    uint64_t delay_us = 0;
    ncclResult_t fault = injected_group(corrupt, delay_us);
    for (const call &call : calls) {
        auto same = [&](const job *job) {
            return job->comm == call.comm && job->stream == call.stream;
        };
        auto found = std::find_if(jobs.begin(), jobs.end(), same);
        if (found == jobs.end()) {
            jobs.push_back(new job{
                call.comm, call.stream, {}, {}, {}, fault != ncclSuccess, delay_us, nullptr});
            found = jobs.end() - 1;
        }
        job_add(**found, call);
    }
    if (corrupt)
        spoil(jobs);
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const job *a, const job *b) { return a->comm->name < b->comm->name; });
    ncclResult_t result = ncclSuccess;
    for (job *job : jobs) {
        comm_ref comm = job->comm;
        start(job);
        if (fault != ncclSuccess)
            comm_fail(*comm, fault, false, "injected: an error of the communicator");
        if (!comm->blocking)
            result = ncclInProgress;
    }
    return result;
}

static ncclResult_t group_end()
{
    if (current.depth == 0)
        return last_error(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--current.depth > 0)
        return ncclSuccess;
    group ended;
    std::swap(ended, current);
    ncclResult_t result = ended.error;
    for (const comm_ref &comm : ended.inits) {
        ncclResult_t joined = comm_joined(comm);
        result = result != ncclSuccess ? result : joined;
    }
    if (ended.calls.empty() || (result != ncclSuccess && result != ncclInProgress))
        return result;
    return launch(ended.calls);
}

bool group_takes(const comm_ref &comm)
{
    if (current.depth > 0)
        current.inits.push_back(comm);
    return current.depth > 0;
}

ncclResult_t pncclGroupStart(void)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    current.depth++;
    return ncclSuccess;
}

ncclResult_t pncclGroupEnd(void)
{
    ncclResult_t fault = injected(__func__ + 1);
    if (fault != ncclSuccess && current.depth > 0)
        current.error = fault;
    return group_end();
}

/* ---- calls ----------------------------------------------------------------------------------- */

static ncclResult_t check_buffer(const void *data, size_t count)
{
    cudaPointerAttributes attributes;
    if (count == 0)
        return ncclSuccess;
    if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess)
        return last_error(ncclUnhandledCudaError, "the device is in error");
    if (attributes.type == cudaMemoryTypeUnregistered)
        return last_error(ncclInvalidArgument, "a buffer that a device cannot reach");
    return ncclSuccess;
}

static ncclResult_t check(const call &call)
{
    if (!call.comm)
        return last_error(ncclInvalidArgument, "not a communicator");
    ncclResult_t result = comm_ready(*call.comm);
    if (result != ncclSuccess)
        return result;
    if (call.peer < 0 || call.peer >= call.comm->nranks)
        return last_error(ncclInvalidArgument, "no such rank");
    if (type_size(call.type) == 0)
        return last_error(ncclInvalidArgument, "no such data type");
    if (call.kind == CALL_ALLREDUCE && !reduce_known(call.type, call.op))
        return last_error(ncclInvalidArgument, "a reduction that the mock does not know");
    bool root = call.kind != CALL_BROADCAST || call.peer == call.comm->rank;
    if ((call.kind != CALL_POINT || call.in) && root)
        result = check_buffer(call.in, call.count);
    if (result == ncclSuccess && (call.kind != CALL_POINT || call.out))
        result = check_buffer(call.out, call.count);
    int device = call.comm->device;
    bool named =
        call.stream && call.stream != cudaStreamLegacy && call.stream != cudaStreamPerThread;
    if (named && cudaStreamGetDevice(call.stream, &device) != cudaSuccess)
        return last_error(ncclUnhandledCudaError, "no such stream");
    if (device != call.comm->device)
        return last_error(ncclUnhandledCudaError, "the stream is another device's");
    return result;
}

static ncclResult_t enter(const char *name, const call &call)
{
    ncclResult_t result = injected(name);
    if (result == ncclSuccess)
        result = check(call);
    if (result == ncclSuccess) {
        current.depth++;
        current.calls.push_back(call);
        return group_end();
    }
    if (current.depth > 0 && current.error == ncclSuccess)
        current.error = result;
    return result;
}

/* Of no data there may be no address, but a call must show which side it is. */
static char nothing;

ncclResult_t pncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, cudaStream_t stream)
{
    const void *in = data ? data : &nothing;
    return enter(__func__ + 1,
                 {comm_find(comm), stream, CALL_POINT, in, nullptr, count, type, ncclSum, peer});
}

ncclResult_t pncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream)
{
    void *out = data ? data : &nothing;
    return enter(__func__ + 1,
                 {comm_find(comm), stream, CALL_POINT, nullptr, out, count, type, ncclSum, peer});
}

ncclResult_t pncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                            ncclComm_t comm, cudaStream_t stream)
{
    return enter(__func__ + 1,
                 {comm_find(comm), stream, CALL_ALLGATHER, in, out, count, type, ncclSum, 0});
}

ncclResult_t pncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return enter(__func__ + 1,
                 {comm_find(comm), stream, CALL_ALLREDUCE, in, out, count, type, op, 0});
}

ncclResult_t pncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                            ncclComm_t comm, cudaStream_t stream)
{
    return enter(__func__ + 1,
                 {comm_find(comm), stream, CALL_BROADCAST, in, out, count, type, ncclSum, root});
}

MOCK_WEAK(ncclGroupStart);
MOCK_WEAK(ncclGroupEnd);
MOCK_WEAK(ncclSend);
MOCK_WEAK(ncclRecv);
MOCK_WEAK(ncclAllGather);
MOCK_WEAK(ncclAllReduce);
MOCK_WEAK(ncclBroadcast);
