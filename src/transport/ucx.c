/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport `ucx`: InfiniBand, RoCE, TCP and shared memory through UCX's tag-matching calls.
 *
 * It decides how UCX is set up so that a dead peer is always noticed, and when a peer counts as
 * lost. UCX reports a failed connection by a callback, but never ends a posted receive because of
 * it; so receives are kept in a list per peer and are cancelled here. A peer that closes politely
 * looks the same as one that died, and what it sent last may still lie unread in another queue: a
 * failed peer is declared lost only after a progress call that found nothing left to read.
 *
 * Every endpoint has a worker of its own. A process that is killed while it writes into the shared
 * queue of another's worker leaves a gap there that nobody can pass, so that worker receives
 * nothing any more, from anyone: it must not be one that other communicators need, or the next one.
 * Nothing of libwring is called but the host services. No memory is allocated per message once the
 * pool of requests has grown to the number in flight.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#include <wring/plugin.h>

#include "transport/rdma.h"

#define REQUESTS_PER_SLAB 64
#define REQUEST_ALIGN 64
#define NAME_NBYTES 64              /* of the name that opens an address: "host:pid" */
#define LOST_NS (100 * 1000000LL)   /* a failed peer is declared lost after this, even in traffic */
#define CLOSE_NS (2000 * 1000000LL) /* patience with peers that do not take what was sent last */

struct ucx;

struct request {
    TAILQ_ENTRY(request) link; /* in its peer's receives, or in the free list */
    struct ucx *ucx;
    struct peer *peer; /* holds a reference */
    uint64_t tag;
    size_t nbytes; /* capacity, then received bytes */
    ucs_status_t status;
    bool receives, done, abandoned;
};
TAILQ_HEAD(request_queue, request);

struct worker {
    TAILQ_ENTRY(worker) link; /* in ucx->workers */
    struct ucx *ucx;
    ucp_worker_h handle;
    ucp_address_t *address;
    size_t address_nbytes;
    int fd;
    int users; /* the endpoint, and peers that are not freed */
};
TAILQ_HEAD(worker_queue, worker);

struct peer {
    TAILQ_ENTRY(peer) link; /* in ucx->failing while failed and not yet lost, or in ucx->closing */
    struct ucx *ucx;
    struct worker *worker;
    ucp_ep_h ep;
    void *close_request; /* UCX's, while in ucx->closing: of the flush, then of the end */
    bool closing, flushed;
    bool used; /* something was sent */
    int references;
    int abandoned_sends;
    struct request_queue receives; /* unfinished */
    ucs_status_t error;            /* UCS_OK, or what UCX's callback said */
    int64_t failed_ns;
    bool lost;
    char name[NAME_NBYTES];
};
TAILQ_HEAD(peer_queue, peer);

struct slab {
    struct slab *next;
};

struct ucx {
    const struct wring_host_services *host;
    ucp_context_h context;
    size_t request_nbytes; /* bytes that UCX wants in front of a request */
    struct worker_queue workers;
    struct request_queue free;
    struct slab *slabs;
    struct peer_queue failing, closing;
    int epoll_fd, wake_fd; /* the workers' and the wake-up's; what a sleeper is woken by */
    char name[NAME_NBYTES];
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* UCX keeps its own part of a request in the bytes before it. */
static wring_status pool_grow(struct ucx *ucx)
{
    size_t front = (ucx->request_nbytes + REQUEST_ALIGN - 1) / REQUEST_ALIGN * REQUEST_ALIGN;
    size_t stride =
        (front + sizeof(struct request) + REQUEST_ALIGN - 1) / REQUEST_ALIGN * REQUEST_ALIGN;
    size_t nbytes = REQUEST_ALIGN + REQUESTS_PER_SLAB * stride;
    char *block = aligned_alloc(REQUEST_ALIGN, nbytes);
    if (!block)
        return ucx->host->fail(WRING_E_MEMORY, "ucx: no memory for requests");
    memset(block, 0, nbytes);
    struct slab *slab = (struct slab *)block;
    slab->next = ucx->slabs;
    ucx->slabs = slab;
    for (int i = 0; i < REQUESTS_PER_SLAB; i++) {
        char *start = block + REQUEST_ALIGN + (size_t)i * stride;
        TAILQ_INSERT_TAIL(&ucx->free, (struct request *)(start + front), link);
    }
    return WRING_OK;
}

static wring_status request_take(struct peer *peer, uint64_t tag, struct request **request_out)
{
    struct ucx *ucx = peer->ucx;
    if (TAILQ_EMPTY(&ucx->free)) {
        wring_status status = pool_grow(ucx);
        if (status != WRING_OK)
            return status;
    }
    struct request *request = TAILQ_FIRST(&ucx->free);
    TAILQ_REMOVE(&ucx->free, request, link);
    *request = (struct request){.ucx = ucx, .peer = peer, .tag = tag};
    peer->references++;
    *request_out = request;
    return WRING_OK;
}

static void peer_release(struct peer *peer)
{
    if (--peer->references > 0)
        return;
    peer->worker->users--;
    free(peer);
}

static void request_free(struct request *request)
{
    peer_release(request->peer);
    TAILQ_INSERT_HEAD(&request->ucx->free, request, link);
}

static void request_finish(struct request *request, ucs_status_t status)
{
    request->done = true;
    request->status = status;
    if (request->receives)
        TAILQ_REMOVE(&request->peer->receives, request, link);
    if (request->abandoned) {
        request->peer->abandoned_sends -= !request->receives;
        request_free(request);
    }
}

static void on_sent(void *handle, ucs_status_t status, void *user_data)
{
    (void)user_data;
    request_finish(handle, status);
}

static void on_received(void *handle, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *user_data)
{
    struct request *request = handle;
    (void)user_data;
    if (status == UCS_OK)
        request->nbytes = info->length;
    request_finish(request, status);
}

/* The status of a finished request, with its message. */
static wring_status request_result(const struct request *request)
{
    const struct wring_host_services *host = request->ucx->host;
    const struct peer *peer = request->peer;
    unsigned long long tag = request->tag;
    ucs_status_t status = request->status;
    if (status == UCS_OK)
        return WRING_OK;
    if (status == UCS_ERR_MESSAGE_TRUNCATED)
        return host->fail(
            WRING_E_MISMATCH,
            "ucx: the message of %s, tag 0x%llx, is longer than the %zu bytes expected", peer->name,
            tag, request->nbytes);
    if (status == UCS_ERR_NO_MEMORY)
        return host->fail(WRING_E_MEMORY, "ucx: no memory for a message, tag 0x%llx", tag);
    if (status == UCS_ERR_CANCELED && peer->error == UCS_OK)
        return host->fail(WRING_E_ABORTED, "ucx: message tag 0x%llx was given up", tag);
    return host->fail(WRING_E_PEER_LOST, "ucx: lost %s, tag 0x%llx: %s", peer->name, tag,
                      ucs_status_string(peer->error != UCS_OK ? peer->error : status));
}

/* ---- peers ----------------------------------------------------------------------------------- */

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct peer *peer = arg;
    (void)ep;
    if (peer->error != UCS_OK)
        return;
    peer->error = status;
    peer->failed_ns = now_ns();
    if (!peer->closing)
        TAILQ_INSERT_TAIL(&peer->ucx->failing, peer, link);
}

/* End all receives from the peer. A receive whose data is already arriving is not cancelled by UCX
 * but ended by it, well or ill. */
static void cancel_receives(struct peer *peer)
{
    struct request *request = TAILQ_FIRST(&peer->receives);
    while (request) {
        struct request *next = TAILQ_NEXT(request, link);
        ucp_request_cancel(peer->worker->handle, request);
        request = next;
    }
}

static void declare_lost(struct ucx *ucx, bool idle)
{
    struct peer *peer = TAILQ_FIRST(&ucx->failing);
    while (peer) {
        struct peer *next = TAILQ_NEXT(peer, link);
        if (idle || now_ns() - peer->failed_ns > LOST_NS) {
            TAILQ_REMOVE(&ucx->failing, peer, link);
            peer->lost = true;
            cancel_receives(peer);
        }
        peer = next;
    }
}

/* End the connection of a peer in ucx->closing, whatever is still under way on it. */
static void end_connection(struct peer *peer)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE};
    if (UCS_PTR_IS_PTR(peer->close_request))
        ucp_request_free(peer->close_request);
    peer->close_request = ucp_ep_close_nbx(peer->ep, &param);
    peer->flushed = true;
}

/* Take the next step of each connection on its way down. */
static void advance_closing(struct ucx *ucx)
{
    struct peer *peer = TAILQ_FIRST(&ucx->closing);
    while (peer) {
        struct peer *next = TAILQ_NEXT(peer, link);
        bool waits = UCS_PTR_IS_PTR(peer->close_request) &&
                     ucp_request_check_status(peer->close_request) == UCS_INPROGRESS;
        if (!waits && !peer->flushed) {
            end_connection(peer);
        } else if (!waits) {
            if (UCS_PTR_IS_PTR(peer->close_request))
                ucp_request_free(peer->close_request);
            TAILQ_REMOVE(&ucx->closing, peer, link);
            peer_release(peer);
        }
        peer = next;
    }
}

/* Messages that came and were never asked for, as after a failure: UCX would report each buffer
 * that they hold as lost. */
static void discard_unexpected(ucp_worker_h worker)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    ucp_tag_recv_info_t info;
    ucp_tag_message_h message;
    while ((message = ucp_tag_probe_nb(worker, 0, 0, 1, &info))) {
        void *request = ucp_tag_msg_recv_nbx(worker, NULL, 0, message, &plain);
        if (UCS_PTR_IS_PTR(request))
            ucp_request_free(request);
    }
}

static void close_worker(struct worker *worker)
{
    TAILQ_REMOVE(&worker->ucx->workers, worker, link);
    if (worker->address)
        ucp_worker_release_address(worker->handle, worker->address);
    if (worker->handle) { /* which takes its descriptor out of the sleepers' */
        discard_unexpected(worker->handle);
        ucp_worker_destroy(worker->handle);
    }
    free(worker);
}

static void close_unused(struct ucx *ucx)
{
    struct worker *worker = TAILQ_FIRST(&ucx->workers);
    while (worker) {
        struct worker *next = TAILQ_NEXT(worker, link);
        if (worker->users == 0)
            close_worker(worker);
        worker = next;
    }
}

static bool ucx_progress(void *self)
{
    struct ucx *ucx = self;
    bool moved = false;
    struct worker *worker;
    TAILQ_FOREACH(worker, &ucx->workers, link)
    moved |= ucp_worker_progress(worker->handle) != 0;
    if (!TAILQ_EMPTY(&ucx->failing)) {
        declare_lost(ucx, !moved);
        moved = true;
    }
    advance_closing(ucx);
    close_unused(ucx);
    return moved;
}

/* The connection goes down in the background, after a flush, so that what was sent last arrives.
 * Not so where that would wait for nothing or for ever: on one never used or failed, or for a send
 * that its owner gave up. */
static void ucx_peer_close(void *self)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    struct peer *peer = self;
    if (!peer)
        return;
    struct ucx *ucx = peer->ucx;
    cancel_receives(peer);
    if (peer->error != UCS_OK && !peer->lost)
        TAILQ_REMOVE(&ucx->failing, peer, link);
    peer->closing = true;
    TAILQ_INSERT_TAIL(&ucx->closing, peer, link);
    if (peer->used && peer->error == UCS_OK && peer->abandoned_sends == 0)
        peer->close_request = ucp_ep_flush_nbx(peer->ep, &plain);
    advance_closing(ucx);
}

/* An address is a NUL-padded name for messages, then UCX's worker address. */
static wring_status ucx_endpoint_address(void *self, void *address, size_t *nbytes)
{
    const struct worker *worker = self;
    const struct ucx *ucx = worker->ucx;
    size_t needed = NAME_NBYTES + worker->address_nbytes;
    if (*nbytes < needed)
        return ucx->host->fail(WRING_E_FULL,
                               "ucx: an address needs %zu bytes, there is room for %zu; "
                               "UCX_NET_DEVICES with fewer devices makes it shorter",
                               needed, *nbytes);
    memcpy(address, ucx->name, NAME_NBYTES);
    memcpy((char *)address + NAME_NBYTES, worker->address, worker->address_nbytes);
    *nbytes = needed;
    return WRING_OK;
}

/* Say over which transports and devices UCX reaches the peer. Read from what UCX prints for people,
 * as a call that tells came with UCX 1.14: "lane[0]:  2:rc_verbs/rxe0:1.0 md[1] ...". */
static void log_route(const struct ucx *ucx, const struct peer *peer)
{
    char route[256] = "";
    char *text = NULL;
    size_t nbytes = 0;
    FILE *stream = open_memstream(&text, &nbytes);
    if (!stream)
        return;
    ucp_ep_print_info(peer->ep, stream);
    fclose(stream);
    for (const char *lane = text; lane && (lane = strstr(lane, "lane[")); lane++) {
        char name[64];
        if (sscanf(lane, "lane[%*d]: %*d:%60[^ .\n]", name) == 1 && !strstr(route, name) &&
            strlen(route) + strlen(name) + 2 < sizeof route)
            sprintf(route + strlen(route), " %s", name);
    }
    free(text);
    ucx->host->log(WRING_LOG_INFO, "ucx: to %s over%s", peer->name, route);
}

static wring_status ucx_peer_open(void *self, const void *address, size_t nbytes, void **peer_out)
{
    struct worker *worker = self;
    struct ucx *ucx = worker->ucx;
    if (nbytes <= NAME_NBYTES || nbytes > WRING_ADDRESS_MAX)
        return ucx->host->fail(WRING_E_ARGUMENT, "ucx: %zu bytes are not an address", nbytes);
    struct peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return ucx->host->fail(WRING_E_MEMORY, "ucx: no memory for a peer");
    peer->ucx = ucx;
    peer->worker = worker;
    peer->references = 1;
    TAILQ_INIT(&peer->receives);
    memcpy(peer->name, address, NAME_NBYTES - 1);
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)((const char *)address + NAME_NBYTES),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = peer},
    };
    ucs_status_t status = ucp_ep_create(worker->handle, &params, &peer->ep);
    if (status != UCS_OK) {
        free(peer);
        return ucx->host->fail(WRING_E_PEER_LOST, "ucx: no way to %.*s: %s", NAME_NBYTES,
                               (const char *)address, ucs_status_string(status));
    }
    log_route(ucx, peer);
    worker->users++;
    *peer_out = peer;
    return WRING_OK;
}

static wring_status ucx_peer_status(void *self)
{
    const struct peer *peer = self;
    if (!peer->lost)
        return WRING_OK;
    return peer->ucx->host->fail(WRING_E_PEER_LOST, "ucx: lost %s: %s", peer->name,
                                 ucs_status_string(peer->error));
}

/* ---- messages -------------------------------------------------------------------------------- */

static wring_status ucx_send(void *self, uint64_t tag, const void *data, size_t nbytes,
                             void **request_out)
{
    struct peer *peer = self;
    struct request *request = NULL;
    wring_status status = request_take(peer, tag, &request);
    if (status != WRING_OK)
        return status;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .request = request,
        .cb.send = on_sent,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    peer->used = true;
    ucs_status_ptr_t started = ucp_tag_send_nbx(peer->ep, data, nbytes, tag, &param);
    if (UCS_PTR_IS_PTR(started)) {
        *request_out = request;
        return WRING_OK;
    }
    request->status = UCS_PTR_STATUS(started);
    status = request_result(request);
    request_free(request);
    if (status == WRING_OK)
        *request_out = NULL;
    return status;
}

/* A message of a lost peer may have come before the loss, so the receive is tried all the same. */
static wring_status ucx_recv(void *self, void *from, uint64_t tag, void *data, size_t capacity,
                             void **request_out)
{
    struct worker *worker = self;
    struct peer *peer = from;
    struct request *request = NULL;
    wring_status status = request_take(peer, tag, &request);
    if (status != WRING_OK)
        return status;
    request->receives = true;
    request->nbytes = capacity;
    TAILQ_INSERT_TAIL(&peer->receives, request, link);
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .request = request,
        .cb.recv = on_received,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    ucs_status_ptr_t started =
        ucp_tag_recv_nbx(worker->handle, data, capacity, tag, UINT64_MAX, &param);
    if (!UCS_PTR_IS_PTR(started))
        request_finish(request, UCS_PTR_STATUS(started));
    else if (peer->lost && !request->done)
        ucp_request_cancel(worker->handle, request);
    *request_out = request;
    return WRING_OK;
}

static wring_status ucx_test(void *self, void *handle, size_t *nbytes_out)
{
    struct request *request = handle;
    (void)self;
    if (!request->done)
        return WRING_AGAIN;
    wring_status status = request_result(request);
    if (status == WRING_OK)
        *nbytes_out = request->nbytes;
    request_free(request);
    return status;
}

/* UCX can take back an unmatched receive at once; anything else is left to end by itself. */
static void ucx_cancel(void *self, void *handle)
{
    struct request *request = handle;
    (void)self;
    if (request->done) {
        request_free(request);
        return;
    }
    request->abandoned = true;
    request->peer->abandoned_sends += !request->receives;
    if (request->receives)
        ucp_request_cancel(request->peer->worker->handle, request);
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static bool ucx_arm(void *self)
{
    struct ucx *ucx = self;
    struct worker *worker;
    TAILQ_FOREACH(worker, &ucx->workers, link)
    if (ucp_worker_arm(worker->handle) != UCS_OK)
        return false;
    return TAILQ_EMPTY(&ucx->failing);
}

static void ucx_wait(void *self, int timeout_ms)
{
    const struct ucx *ucx = self;
    struct epoll_event events[8];
    uint64_t count;
    int n = epoll_wait(ucx->epoll_fd, events, 8, timeout_ms);
    for (int i = 0; i < n; i++)
        if (events[i].data.fd == ucx->wake_fd && read(ucx->wake_fd, &count, sizeof count) < 0)
            return; /* another thread took the signal: awake all the same */
}

static void ucx_wake(void *self)
{
    const struct ucx *ucx = self;
    uint64_t one = 1;
    ssize_t written = write(ucx->wake_fd, &one, sizeof one);
    (void)written; /* can only fail when the counter is full, and then the sleeper is awake */
}

/* ---- open and close -------------------------------------------------------------------------- */

static const char *const any[] = {NULL};
static const char *const shared_memory[] = {"all", "sm", "shm", "mm", "posix", "sysv", NULL};
static const char *const tcp[] = {"all", "tcp", NULL};
static const char *const rdma[] = {"all", "ib", "rc", "ud", "dc", NULL}; /* all connect over ud */

/* False if the user left the transports called WORDS out: UCX warns about settings of such. */
static bool allowed(const char *const *words)
{
    const char *list = getenv("UCX_TLS") ? getenv("UCX_TLS") : getenv("WRING_UCX_TLS");
    bool named = false;
    if (!list || !words[0])
        return true;
    for (; *words; words++)
        named |= strstr(list, *words) != NULL;
    return list[0] == '^' ? !named : named;
}

/* Either way, with RDMA devices that may be used, without; without, and all ranks are on it. */
enum machine { ANY_MACHINE, WITH_RDMA, WITHOUT_RDMA, LOCAL_WITHOUT_RDMA };

/* Our defaults, each unless the user set one of the variables. Keys are those of UCX's tables. */
static const struct {
    const char *key, *value;
    const char *variables[2];
    const char *const *transports; /* that it concerns */
    enum machine machine;
} defaults[] = {
    /* Shared memory is left out in peer error mode unless it checks for dead peers too. */
    {"MM_ERROR_HANDLING",
     "y",
     {"UCX_POSIX_ERROR_HANDLING", "UCX_SYSV_ERROR_HANDLING"},
     shared_memory,
     ANY_MACHINE},
    {"KEEPALIVE_INTERVAL",
     "1s",
     {"UCX_KEEPALIVE_INTERVAL", "WRING_UCX_KEEPALIVE_INTERVAL"},
     any,
     ANY_MACHINE},
    /* Opening a peer must not wait for a host that does not answer. */
    {"CONN_NB", "y", {"UCX_TCP_CONN_NB", "UCX_TCP_CONN_NB"}, tcp, ANY_MACHINE},
    /* Over TCP a rendezvous saves no copy, costs round trips behind queued data (half of a 1 Gbit/s
     * link with one 256 KiB message in flight, 0.9 with eight; all of it without), and UCX 1.13
     * aborts when a connection is closed in the middle of one. */
    {"RNDV_THRESH", "inf", {"UCX_RNDV_THRESH", "WRING_UCX_RNDV_THRESH"}, any, WITHOUT_RDMA},
    /* UCX before 1.19 takes the IP version of a UD packet from a field that soft-RoCE leaves 0, and
     * drops every packet as sent to another address. RoCE devices check addresses themselves. */
    {"UD_ETH_DGID_CHECK",
     "n",
     {"UCX_UD_VERBS_ETH_DGID_CHECK", "UCX_UD_ETH_DGID_CHECK"},
     rdma,
     WITH_RDMA},
    /* UCX listens on every network interface that it may use. RDMA devices are such, too. */
    {"NET_DEVICES", "lo", {"UCX_NET_DEVICES", "WRING_UCX_NET_DEVICES"}, tcp, LOCAL_WITHOUT_RDMA},
};

static ucs_status_t read_config(const struct ucx *ucx, bool local, ucp_config_t **config_out)
{
    const bool has_rdma = wri_rdma_present() && allowed(rdma);
    const bool holds[] = {[ANY_MACHINE] = true,
                          [WITH_RDMA] = has_rdma,
                          [WITHOUT_RDMA] = !has_rdma,
                          [LOCAL_WITHOUT_RDMA] = local && !has_rdma};
    ucs_status_t status = ucp_config_read("WRING", NULL, config_out);
    if (status != UCS_OK)
        return status;
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        if (getenv(defaults[i].variables[0]) || getenv(defaults[i].variables[1]) ||
            !allowed(defaults[i].transports) || !holds[defaults[i].machine])
            continue;
        status = ucp_config_modify(*config_out, defaults[i].key, defaults[i].value);
        if (status != UCS_OK)
            ucx->host->log(WRING_LOG_WARN, "ucx: this version does not know %s=%s: %s",
                           defaults[i].key, defaults[i].value, ucs_status_string(status));
    }
    return UCS_OK;
}

static ucs_status_t open_context(struct ucx *ucx, bool local)
{
    ucp_config_t *config = NULL;
    ucs_status_t status = read_config(ucx, local, &config);
    if (status != UCS_OK)
        return status;
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .name = "wring"};
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE};
    status = ucp_init(&params, config, &ucx->context);
    ucp_config_release(config);
    if (status == UCS_OK)
        status = ucp_context_query(ucx->context, &attr);
    ucx->request_nbytes = attr.request_size;
    return status;
}

static bool watch(const struct ucx *ucx, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(ucx->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static ucs_status_t open_worker(struct worker *worker)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucp_worker_create(worker->ucx->context, &params, &worker->handle);
    if (status == UCS_OK)
        status = ucp_worker_get_address(worker->handle, &worker->address, &worker->address_nbytes);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(worker->handle, &worker->fd);
    if (status == UCS_OK && !watch(worker->ucx, worker->fd))
        status = UCS_ERR_IO_ERROR;
    return status;
}

/* Advance the connections that go down until there are none or the time is over. */
static void drain(struct ucx *ucx, int64_t patience_ns)
{
    int64_t end = now_ns() + patience_ns;
    while (!TAILQ_EMPTY(&ucx->closing) && now_ns() < end)
        if (!ucx_progress(ucx) && ucx_arm(ucx))
            ucx_wait(ucx, 10);
}

static void close_connections(struct ucx *ucx)
{
    struct peer *peer;
    drain(ucx, CLOSE_NS);
    TAILQ_FOREACH(peer, &ucx->closing, link)
    if (!peer->flushed) {
        ucx->host->log(WRING_LOG_WARN, "ucx: %s did not take what was sent to it last", peer->name);
        end_connection(peer);
    }
    drain(ucx, CLOSE_NS);
}

static void ucx_close(void *self)
{
    struct ucx *ucx = self;
    if (!ucx)
        return;
    close_connections(ucx);
    while (!TAILQ_EMPTY(&ucx->workers))
        close_worker(TAILQ_FIRST(&ucx->workers));
    if (ucx->context)
        ucp_cleanup(ucx->context);
    if (ucx->wake_fd >= 0)
        close(ucx->wake_fd);
    if (ucx->epoll_fd >= 0)
        close(ucx->epoll_fd);
    while (ucx->slabs) {
        struct slab *next = ucx->slabs->next;
        free(ucx->slabs);
        ucx->slabs = next;
    }
    free(ucx);
}

static wring_status ucx_open(const struct wring_transport_open *options, void **self_out)
{
    const struct wring_host_services *host = options->host;
    char hostname[NAME_NBYTES - 16] = "";
    struct ucx *ucx = calloc(1, sizeof *ucx);
    if (!ucx)
        return host->fail(WRING_E_MEMORY, "ucx: no memory");
    ucx->host = host;
    TAILQ_INIT(&ucx->free);
    TAILQ_INIT(&ucx->failing);
    TAILQ_INIT(&ucx->closing);
    TAILQ_INIT(&ucx->workers);
    gethostname(hostname, sizeof hostname - 1);
    snprintf(ucx->name, sizeof ucx->name, "%s:%d", hostname, (int)getpid());
    ucx->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ucx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    bool ready = ucx->wake_fd >= 0 && ucx->epoll_fd >= 0 && watch(ucx, ucx->wake_fd);
    ucs_status_t status = ready ? open_context(ucx, options->local) : UCS_ERR_IO_ERROR;
    if (status != UCS_OK) {
        ucx_close(ucx);
        return host->fail(WRING_E_SYSTEM, "ucx: cannot start UCX %s: %s", ucp_get_version_string(),
                          ucs_status_string(status));
    }
    *self_out = ucx;
    return WRING_OK;
}

static wring_status ucx_endpoint_open(void *self, void **endpoint_out)
{
    struct ucx *ucx = self;
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return ucx->host->fail(WRING_E_MEMORY, "ucx: no memory for an endpoint");
    worker->ucx = ucx;
    worker->users = 1;
    TAILQ_INSERT_TAIL(&ucx->workers, worker, link);
    ucs_status_t status = open_worker(worker);
    if (status != UCS_OK) {
        close_worker(worker);
        return ucx->host->fail(WRING_E_SYSTEM, "ucx: cannot start a worker: %s",
                               ucs_status_string(status));
    }
    *endpoint_out = worker;
    return WRING_OK;
}

/* It goes when the last of its connections is down. */
static void ucx_endpoint_close(void *self)
{
    struct worker *worker = self;
    if (worker)
        worker->users--;
}

const struct wring_transport_ops wri_transport_ucx = {
    .size = sizeof(struct wring_transport_ops),
    .name = "ucx",
    .summary = "InfiniBand, RoCE, TCP and shared memory through UCX",
    .caps = WRING_TRANSPORT_HOST | WRING_TRANSPORT_CHECKSUM,
    .open = ucx_open,
    .close = ucx_close,
    .endpoint_open = ucx_endpoint_open,
    .endpoint_address = ucx_endpoint_address,
    .endpoint_close = ucx_endpoint_close,
    .peer_open = ucx_peer_open,
    .peer_close = ucx_peer_close,
    .peer_status = ucx_peer_status,
    .send = ucx_send,
    .recv = ucx_recv,
    .test = ucx_test,
    .cancel = ucx_cancel,
    .progress = ucx_progress,
    .arm = ucx_arm,
    .wait = ucx_wait,
    .wake = ucx_wake,
};
