/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what state a communicator is in: joining, usable, in error, finalized, aborted; and who
 * may still hold it, for jobs on a stream may outlive the handle. */
#include "mocknccl.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <map>

struct table {
    std::mutex lock;
    std::map<ncclComm_t, comm_ref> comms;
    std::string last_error;
};

/* Never destroyed: streams of a process that exits may still run. */
static table &the()
{
    static table *one = new table;
    return *one;
}

static thread_local std::string own_error;

ncclComm::~ncclComm()
{
    if (joiner.joinable())
        joiner.join();
    if (shared)
        segment_close(shared);
}

comm_ref comm_find(ncclComm_t handle)
{
    std::lock_guard<std::mutex> lock(the().lock);
    auto found = the().comms.find(handle);
    return found == the().comms.end() ? nullptr : found->second;
}

static void forget(ncclComm_t handle)
{
    std::lock_guard<std::mutex> lock(the().lock);
    the().comms.erase(handle);
}

ncclResult_t last_error(ncclResult_t result, const std::string &text)
{
    std::lock_guard<std::mutex> lock(the().lock);
    the().last_error = own_error = text;
    return result;
}

static ncclResult_t no_comm()
{
    return last_error(ncclInvalidArgument, "not a communicator");
}

void comm_fail(ncclComm &comm, ncclResult_t error, bool ends, const std::string &text)
{
    last_error(error, text);
    std::lock_guard<std::mutex> lock(comm.lock);
    if (comm.error != ncclSuccess)
        return;
    snprintf(comm.text, sizeof(comm.text), "%s", text.c_str());
    comm.ended = ends;
    comm.error = error;
    if (comm.shared)
        seat_ring(comm.own());
}

/* What ncclCommGetAsyncError answers. POLLS: the answer counts as a poll. */
static ncclResult_t state_of(ncclComm &comm, bool polls)
{
    std::lock_guard<std::mutex> lock(comm.lock);
    if (comm.error != ncclSuccess)
        return (ncclResult_t)comm.error.load();
    bool waits = comm.joining || (comm.finalized && comm.enqueued > 0);
    if (comm.polls_left == 0)
        return waits ? ncclInProgress : ncclSuccess;
    comm.polls_left -= polls;
    return ncclInProgress;
}

ncclResult_t comm_ready(ncclComm &comm)
{
    ncclResult_t state = state_of(comm, false);
    if (state == ncclInProgress)
        return last_error(ncclInvalidArgument, "the communicator is in progress: poll first");
    if (state != ncclSuccess)
        return state;
    if (comm.finalized)
        return last_error(ncclInvalidUsage, "the communicator was finalized");
    return ncclSuccess;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void join(ncclComm *comm)
{
    ncclResult_t result = segment_join(*comm);
    if (result != ncclSuccess)
        comm_fail(*comm, result, true, own_error);
    std::lock_guard<std::mutex> lock(comm->lock);
    comm->joining = false;
    comm->changed.notify_all();
}

static void wait_joined(ncclComm &comm)
{
    std::unique_lock<std::mutex> lock(comm.lock);
    comm.changed.wait(lock, [&] { return !comm.joining; });
}

ncclResult_t comm_joined(const comm_ref &comm)
{
    if (!comm->blocking)
        return ncclInProgress;
    wait_joined(*comm);
    ncclResult_t result = (ncclResult_t)comm->error.load();
    if (result != ncclSuccess)
        forget(comm.get());
    return result;
}

static ncclResult_t init(ncclComm_t *handle, int nranks, const ncclUniqueId &id, int rank,
                         bool blocking)
{
    if (!handle || nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks)
        return last_error(ncclInvalidArgument, "rank or number of ranks out of range");
    if (strncmp(id.internal, "/mocknccl-", 10) != 0)
        return last_error(ncclInvalidArgument, "not a unique id");
    auto comm = std::make_shared<ncclComm>();
    if (cudaGetDevice(&comm->device) != cudaSuccess)
        return last_error(ncclUnhandledCudaError, "no device");
    comm->rank = rank;
    comm->nranks = nranks;
    comm->name = id.internal;
    comm->blocking = blocking;
    comm->polls_left = blocking ? 0 : setting("MOCKNCCL_POLLS", 3);
    {
        std::lock_guard<std::mutex> lock(the().lock);
        the().comms[comm.get()] = comm;
    }
    comm->joiner = std::thread(join, comm.get());
    *handle = comm.get();
    ncclResult_t result = group_takes(comm) ? ncclSuccess : comm_joined(comm);
    if (result != ncclSuccess && result != ncclInProgress)
        *handle = nullptr;
    return result;
}

ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    uint64_t random[2];
    if (!id)
        return last_error(ncclInvalidArgument, "no place for the id");
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return last_error(ncclSystemError, "no random numbers");
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/mocknccl-%016llx%016llx",
             (unsigned long long)random[0], (unsigned long long)random[1]);
    return ncclSuccess;
}

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    return init(comm, nranks, id, rank, true);
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                     ncclConfig_t *config)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    if (config && config->magic != NCCL_CONFIG_MAGIC)
        return last_error(ncclInvalidArgument, "a config without NCCL_CONFIG_INITIALIZER");
    bool known = config && config->size >= offsetof(ncclConfig_t, blocking) + sizeof(int);
    return init(comm, nranks, id, rank, !known || config->blocking != 0);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void drain(ncclComm &comm)
{
    std::unique_lock<std::mutex> lock(comm.lock);
    comm.changed.wait(lock, [&] { return comm.enqueued == 0; });
}

static void leave(ncclComm &comm, seat_state state)
{
    std::lock_guard<std::mutex> lock(comm.lock);
    if (!comm.shared)
        return;
    comm.own().state = state;
    for (int rank = 0; rank < comm.nranks; rank++)
        seat_ring(comm.shared->seats[rank]);
}

ncclResult_t pncclCommFinalize(ncclComm_t handle)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    comm_ref comm = comm_find(handle);
    if (!comm)
        return no_comm();
    ncclResult_t result = comm_ready(*comm);
    if (result != ncclSuccess)
        return result;
    {
        std::lock_guard<std::mutex> lock(comm->lock);
        comm->finalized = true;
        comm->polls_left = comm->blocking ? 0 : setting("MOCKNCCL_POLLS", 3);
    }
    if (!comm->blocking)
        return ncclInProgress;
    drain(*comm);
    return ncclSuccess;
}

ncclResult_t pncclCommDestroy(ncclComm_t handle)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    comm_ref comm = comm_find(handle);
    if (!comm)
        return no_comm();
    wait_joined(*comm);
    drain(*comm);
    leave(*comm, SEAT_LEFT);
    forget(handle);
    return ncclSuccess;
}

ncclResult_t pncclCommAbort(ncclComm_t handle)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    comm_ref comm = comm_find(handle);
    if (!comm)
        return no_comm();
    comm->aborted = true;
    leave(*comm, SEAT_ABORTED);
    wait_joined(*comm);
    leave(*comm, SEAT_ABORTED); /* it may have sat down meanwhile */
    {
        std::unique_lock<std::mutex> lock(comm->lock);
        comm->changed.wait(lock, [&] { return comm->running == 0; });
    }
    forget(handle);
    return ncclSuccess;
}

/* ---- questions ------------------------------------------------------------------------------- */

ncclResult_t pncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    comm_ref comm = comm_find(handle);
    if (!comm || !error)
        return no_comm();
    *error = state_of(*comm, true);
    return ncclSuccess;
}

const char *pncclGetLastError(ncclComm_t handle)
{
    static thread_local char copy[512];
    comm_ref comm = comm_find(handle);
    if (comm && comm->error != ncclSuccess) {
        std::lock_guard<std::mutex> lock(comm->lock);
        memcpy(copy, comm->text, sizeof(copy));
    } else {
        std::lock_guard<std::mutex> lock(the().lock);
        snprintf(copy, sizeof(copy), "%s", the().last_error.c_str());
    }
    return copy;
}

static ncclResult_t ask(ncclComm_t handle, int ncclComm::*what, int *answer)
{
    comm_ref comm = comm_find(handle);
    if (!comm || !answer)
        return no_comm();
    ncclResult_t result = comm_ready(*comm);
    if (result == ncclSuccess)
        *answer = (*comm).*what;
    return result;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    return ask(comm, &ncclComm::nranks, count);
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    return ask(comm, &ncclComm::rank, rank);
}

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    return ask(comm, &ncclComm::device, device);
}

ncclResult_t pncclGetVersion(int *version)
{
    if (ncclResult_t fault = injected(__func__ + 1))
        return fault;
    if (!version)
        return last_error(ncclInvalidArgument, "no place for the version");
    *version = (int)setting("MOCKNCCL_VERSION", NCCL_VERSION_CODE);
    return ncclSuccess;
}

const char *pncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "NCCL operation in progress",
    };
    return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

MOCK_WEAK(ncclGetUniqueId);
MOCK_WEAK(ncclCommInitRank);
MOCK_WEAK(ncclCommInitRankConfig);
MOCK_WEAK(ncclCommFinalize);
MOCK_WEAK(ncclCommDestroy);
MOCK_WEAK(ncclCommAbort);
MOCK_WEAK(ncclCommGetAsyncError);
MOCK_WEAK(ncclGetLastError);
MOCK_WEAK(ncclCommCount);
MOCK_WEAK(ncclCommUserRank);
MOCK_WEAK(ncclCommCuDevice);
MOCK_WEAK(ncclGetVersion);
MOCK_WEAK(ncclGetErrorString);
