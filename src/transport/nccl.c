/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl: device memory by NVIDIA's NCCL, in the order of a stream. The library is opened at run time
 * and asked for its version; what is declared of it here is its stable binary interface, so that
 * building needs no header of it.
 *
 * A round of an algorithm is one group of sends and receives. Communicators are opened in NCCL's
 * nonblocking mode, so that joining can time out; its calls may then answer "in progress", which
 * the executor sits out before anything else goes on the stream, or order would be lost.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "transport/transport.h"

/* ---- NCCL's interface ------------------------------------------------------------------------ */

typedef struct ncclComm *nccl_comm;
typedef struct {
    char internal[128];
} nccl_id;
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_INT8 = 0 };

#define NCCL_OLDEST 21400   /* nonblocking communicators */
#define LEAVE_NS 2000000000 /* of patience with the others when a communicator ends */

/* The head of NCCL's ncclConfig_t; every version reads as much as `size` says. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
};
#define NCCL_CONFIG_MAGIC 0xcafebeefu

#define FUNCTIONS(X)                                                                               \
    X(int, GetVersion, (int *version))                                                             \
    X(int, GetUniqueId, (nccl_id * id))                                                            \
    X(int, CommInitRankConfig,                                                                     \
      (nccl_comm * comm, int nranks, nccl_id id, int rank, struct nccl_config *config))            \
    X(int, CommDestroy, (nccl_comm comm))                                                          \
    X(int, CommFinalize, (nccl_comm comm))                                                         \
    X(int, CommAbort, (nccl_comm comm))                                                            \
    X(int, CommGetAsyncError, (nccl_comm comm, int *error))                                        \
    X(int, CommCount, (nccl_comm comm, int *count))                                                \
    X(int, CommUserRank, (nccl_comm comm, int *rank))                                              \
    X(const char *, GetErrorString, (int error))                                                   \
    X(const char *, GetLastError, (nccl_comm comm))                                                \
    X(int, Send, (const void *data, size_t count, int type, int peer, nccl_comm, void *stream))    \
    X(int, Recv, (void *data, size_t count, int type, int peer, nccl_comm, void *stream))          \
    X(int, GroupStart, (void))                                                                     \
    X(int, GroupEnd, (void))

struct nccl {
#define MEMBER(type, name, arguments) type(*name) arguments;
    FUNCTIONS(MEMBER)
#undef MEMBER
    int version;
};

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define ROW(type, name, arguments) {"nccl" #name, offsetof(struct nccl, name)},
    FUNCTIONS(ROW)
#undef ROW
};

/* One per process, never closed: NCCL keeps threads. */
static struct nccl nccl;
static char loaded_from[256];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static wring_status load(const char *library)
{
    struct nccl found = {0};
    void *object = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        WRI_FAIL(WRING_E_MODULE,
                 "transport nccl: %s; install NCCL, or name its library in WRING_NCCL", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *function = dlsym(object, functions[i].name);
        if (!function)
            WRI_FAIL(
                WRING_E_MODULE,
                "transport nccl: %s has no %s: it is older than NCCL %d.%d, or another library",
                library, functions[i].name, NCCL_OLDEST / 10000, NCCL_OLDEST / 100 % 100);
        memcpy((char *)&found + functions[i].offset, &function, sizeof function);
    }
    if (found.GetVersion(&found.version) != NCCL_SUCCESS || found.version < NCCL_OLDEST)
        WRI_FAIL(WRING_E_MODULE, "transport nccl: %s is NCCL %d.%d.%d, at least %d.%d is needed",
                 library, found.version / 10000, found.version / 100 % 100, found.version % 100,
                 NCCL_OLDEST / 10000, NCCL_OLDEST / 100 % 100);
    nccl = found;
    snprintf(loaded_from, sizeof loaded_from, "%s", library);
    return WRING_OK;
}

/* ---- errors ---------------------------------------------------------------------------------- */

struct endpoint {
    nccl_comm comm;
    bool external, aborted;
};

static wring_status status_of(int result, nccl_comm comm, const char *doing)
{
    if (result == NCCL_SUCCESS)
        return WRING_OK;
    if (result == NCCL_IN_PROGRESS)
        return WRING_AGAIN;
    const char *more = nccl.GetLastError(comm);
    bool remote = result == 6;
    WRI_FAIL(remote ? WRING_E_PEER_LOST : WRING_E_SYSTEM, "NCCL, %s: %s%s%s", doing,
             nccl.GetErrorString(result), more && *more ? ": " : "", more ? more : "");
}

/* The state of everything that was asked of the communicator so far. */
static wring_status state_of(struct endpoint *endpoint, const char *doing)
{
    int state = NCCL_SUCCESS;
    if (endpoint->aborted)
        WRI_FAIL(WRING_E_ABORTED, "NCCL: the communicator was aborted");
    int result = nccl.CommGetAsyncError(endpoint->comm, &state);
    return status_of(result != NCCL_SUCCESS ? result : state, endpoint->comm, doing);
}

static wring_status leave(struct endpoint *endpoint)
{
    static const struct timespec nap = {0, 20000};
    static const char doing[] = "leaving";
    int64_t end = wri_clock_ns() + LEAVE_NS;
    wring_status status = status_of(nccl.CommFinalize(endpoint->comm), endpoint->comm, doing);
    while (status == WRING_AGAIN && wri_clock_ns() < end) {
        nanosleep(&nap, NULL);
        status = state_of(endpoint, doing);
    }
    return status;
}

/* ---- table ----------------------------------------------------------------------------------- */

static wring_status nccl_open(const struct wring_transport_open *options, void **self_out)
{
    wring_status status = WRING_OK;
    pthread_mutex_lock(&lock);
    if (!nccl.version)
        status = load(options->library);
    else if (strcmp(loaded_from, options->library) != 0)
        status = wri_fail(WRING_E_CONFIG, "transport nccl: %s is in use already, not %s",
                          loaded_from, options->library);
    pthread_mutex_unlock(&lock);
    *self_out = &nccl;
    return status;
}

static void nccl_close(void *self)
{
    (void)self;
}

static wring_status nccl_group_id(void *self, void *id, size_t *nbytes)
{
    (void)self;
    nccl_id made;
    WRI_TRY(status_of(nccl.GetUniqueId(&made), NULL, "naming a group"));
    memcpy(id, &made, sizeof made);
    *nbytes = sizeof made;
    return WRING_OK;
}

static wring_status nccl_group_open(void *self, int rank, int nranks, const void *id, size_t nbytes,
                                    void *external, void **endpoint_out)
{
    (void)self;
    nccl_id name;
    struct endpoint *endpoint;
    if (!external && nbytes != sizeof name)
        WRI_FAIL(WRING_E_CORRUPT, "transport nccl: rank 0 sent a group name of %zu bytes", nbytes);
    WRI_TRY(wri_alloc(1, sizeof *endpoint, (void **)&endpoint));
    endpoint->external = external != NULL;
    endpoint->comm = external;
    wring_status status = WRING_OK;
    if (!external) {
        struct nccl_config config = {sizeof config, NCCL_CONFIG_MAGIC, NCCL_OLDEST, 0};
        memcpy(&name, id, sizeof name);
        int result = nccl.CommInitRankConfig(&endpoint->comm, nranks, name, rank, &config);
        status = status_of(result, endpoint->comm, "joining");
    }
    if (status != WRING_OK && status != WRING_AGAIN) {
        wri_free(endpoint);
        return status;
    }
    *endpoint_out = endpoint;
    return WRING_OK;
}

static wring_status nccl_group_external(void *self, void *external, int *rank_out, int *nranks_out)
{
    (void)self;
    WRI_TRY(status_of(nccl.CommUserRank(external, rank_out), external, "asking for the rank"));
    return status_of(nccl.CommCount(external, nranks_out), external, "asking for the size");
}

static wring_status nccl_group_status(void *endpoint)
{
    return state_of(endpoint, "after a call");
}

static int enqueue(const struct wring_exchange *message, nccl_comm comm, void *stream)
{
    return message->sends
               ? nccl.Send(message->data, message->nbytes, NCCL_INT8, message->peer, comm, stream)
               : nccl.Recv(message->data, message->nbytes, NCCL_INT8, message->peer, comm, stream);
}

static wring_status nccl_exchange(void *endpoint_arg, const struct wring_exchange *messages,
                                  size_t n, void *stream)
{
    struct endpoint *endpoint = endpoint_arg;
    WRI_TRY(state_of(endpoint, "before a group"));
    WRI_TRY(status_of(nccl.GroupStart(), endpoint->comm, "opening a group"));
    int result = NCCL_SUCCESS;
    for (size_t i = 0; i < n && (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS); i++)
        result = enqueue(&messages[i], endpoint->comm, stream);
    int ended = nccl.GroupEnd();
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        return status_of(result, endpoint->comm, "a message");
    return status_of(ended, endpoint->comm, "a group");
}

static void nccl_group_abort(void *endpoint_arg)
{
    struct endpoint *endpoint = endpoint_arg;
    if (!endpoint->aborted && !endpoint->external)
        nccl.CommAbort(endpoint->comm);
    endpoint->aborted = true;
}

static void nccl_endpoint_close(void *endpoint_arg)
{
    struct endpoint *endpoint = endpoint_arg;
    if (endpoint && !endpoint->external && !endpoint->aborted) {
        if (leave(endpoint) == WRING_OK)
            nccl.CommDestroy(endpoint->comm);
        else
            nccl.CommAbort(endpoint->comm);
    }
    wri_free(endpoint);
}

const struct wring_transport_ops wri_transport_nccl = {
    .size = sizeof(struct wring_transport_ops),
    .name = "nccl",
    .summary = "device memory by NVIDIA NCCL, in the order of a stream",
    .caps = WRING_TRANSPORT_DEVICE | WRING_TRANSPORT_STREAM_ORDERED,
    .open = nccl_open,
    .close = nccl_close,
    .endpoint_close = nccl_endpoint_close,
    .group_id = nccl_group_id,
    .group_open = nccl_group_open,
    .group_external = nccl_group_external,
    .group_status = nccl_group_status,
    .exchange = nccl_exchange,
    .group_abort = nccl_group_abort,
};
