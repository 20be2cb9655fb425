/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport `self`: all ranks of a group inside one process, for tests and simulation.
 *
 * It decides when a message arrives. Sends and receives are matched in the order of their posting,
 * as on any transport, but a matched pair is delivered only in `progress`, one pair per call, drawn
 * at random from all matched pairs with the generator that was seeded at open. So one seed replays
 * one order, many seeds search for orders that break a caller, and a send is never done before its
 * receive was posted: callers that rely on buffering hang here first. A fault hook sees each
 * message just before it is delivered.
 */
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/memory.h"
#include "transport/transport.h"

#define REQUESTS_PER_SLAB 64

enum request_state { FREE, QUEUED, MATCHED, DONE };

/* One send or receive. A queued one waits at the receiving endpoint for its counterpart. */
struct request {
    TAILQ_ENTRY(request) link; /* in an endpoint's queue, or in the free list */
    enum request_state state;
    bool sends;
    int src, dst; /* endpoint indices */
    uint64_t tag;
    void *data;
    size_t nbytes;         /* message size, or capacity of a receive */
    size_t received;       /* receive: bytes delivered */
    struct request *match; /* MATCHED: the other side */
    size_t ready_index;    /* MATCHED send: place in hub->ready */
    wring_status status;   /* DONE */
    bool abandoned;        /* a send that was given up: goes out if it can, then frees itself */
};
TAILQ_HEAD(request_queue, request);

struct slab {
    struct slab *next;
    struct request request[REQUESTS_PER_SLAB];
};

struct hub;

struct endpoint {
    struct hub *hub;
    int index;
    struct request_queue sends, receives; /* towards this endpoint, unmatched, in posting order */
};

struct peer {
    struct endpoint *endpoint; /* the sending side */
    int index;                 /* the endpoint it leads to */
};

struct cut {
    int a, b;
};

/* An opened instance. Pointers to matched sends stand in `ready`, in no order. */
struct hub {
    const struct wring_host_services *host;
    uint64_t random;
    struct endpoint **endpoints; /* by index; NULL once closed; indices are never used again */
    size_t nendpoints, endpoints_capacity;
    struct request **ready;
    size_t nready, ready_capacity;
    struct request_queue free;
    struct slab *slabs;
    struct cut *cuts;
    size_t ncuts, cuts_capacity;
    wri_self_fault_fn fault;
    void *fault_arg;
    int event; /* eventfd that `wait` sleeps on */
    bool armed;
};

struct address {
    uint64_t hub; /* the instance, so that another one's addresses are refused */
    uint64_t index;
};

/* ---- small helpers --------------------------------------------------------------------------- */

/* Next output of splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t random_next(struct hub *hub)
{
    uint64_t z = hub->random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Room for one more element of NBYTES each in *ARRAY. */
static wring_status reserve(void *array, size_t count, size_t *capacity, size_t nbytes)
{
    void **old = array;
    void *grown = NULL;
    if (count < *capacity)
        return WRING_OK;
    size_t wanted = *capacity ? 2 * *capacity : 16;
    wring_status status = wri_alloc(wanted, nbytes, &grown);
    if (status != WRING_OK)
        return status;
    if (count)
        memcpy(grown, *old, count * nbytes);
    wri_free(*old);
    *old = grown;
    *capacity = wanted;
    return WRING_OK;
}

static void signal_event(const struct hub *hub)
{
    uint64_t one = 1;
    ssize_t written = write(hub->event, &one, sizeof one);
    (void)written; /* can only fail when the counter is full, and then the sleeper is awake */
}

static bool is_lost(const struct hub *hub, int a, int b)
{
    for (size_t i = 0; i < hub->ncuts; i++)
        if ((hub->cuts[i].a == a && hub->cuts[i].b == b) ||
            (hub->cuts[i].a == b && hub->cuts[i].b == a))
            return true;
    return !hub->endpoints[a] || !hub->endpoints[b];
}

/* ---- requests -------------------------------------------------------------------------------- */

static wring_status request_take(struct hub *hub, struct request **request_out)
{
    if (TAILQ_EMPTY(&hub->free)) {
        struct slab *slab = NULL;
        wring_status status = wri_alloc(1, sizeof *slab, (void **)&slab);
        if (status != WRING_OK)
            return status;
        slab->next = hub->slabs;
        hub->slabs = slab;
        for (int i = 0; i < REQUESTS_PER_SLAB; i++)
            TAILQ_INSERT_TAIL(&hub->free, &slab->request[i], link);
    }
    *request_out = TAILQ_FIRST(&hub->free);
    TAILQ_REMOVE(&hub->free, *request_out, link);
    return WRING_OK;
}

static void request_free(struct hub *hub, struct request *request)
{
    request->state = FREE;
    TAILQ_INSERT_HEAD(&hub->free, request, link);
}

static struct request_queue *queue_of(const struct hub *hub, const struct request *request)
{
    struct endpoint *endpoint = hub->endpoints[request->dst];
    return request->sends ? &endpoint->sends : &endpoint->receives;
}

/* Take a matched pair apart; both sides are then in no queue. */
static void unmatch(struct hub *hub, struct request *send)
{
    struct request *last = hub->ready[--hub->nready];
    hub->ready[send->ready_index] = last;
    last->ready_index = send->ready_index;
    send->match->match = NULL;
    send->match = NULL;
}

static void requeue(struct hub *hub, struct request *request)
{
    request->state = QUEUED;
    TAILQ_INSERT_HEAD(queue_of(hub, request), request, link);
}

static void finish(struct hub *hub, struct request *request, wring_status status)
{
    request->state = DONE;
    request->status = status;
    if (request->abandoned)
        request_free(hub, request);
}

/* Remove REQUEST from wherever it stands; a counterpart goes back to the head of its queue. */
static void withdraw(struct hub *hub, struct request *request)
{
    if (request->state == MATCHED) {
        struct request *other = request->match;
        unmatch(hub, request->sends ? request : other);
        requeue(hub, other);
    } else if (request->state == QUEUED) {
        TAILQ_REMOVE(queue_of(hub, request), request, link);
    }
}

/* End every unfinished request for which CONCERNS says so with STATUS. */
static void finish_all(struct hub *hub, bool (*concerns)(const struct request *, int a, int b),
                       int a, int b, wring_status status)
{
    for (struct slab *slab = hub->slabs; slab; slab = slab->next)
        for (int i = 0; i < REQUESTS_PER_SLAB; i++) {
            struct request *request = &slab->request[i];
            if ((request->state == QUEUED || request->state == MATCHED) &&
                concerns(request, a, b)) {
                withdraw(hub, request);
                finish(hub, request, status);
            }
        }
}

static bool concerns_pair(const struct request *request, int a, int b)
{
    return (request->src == a && request->dst == b) || (request->src == b && request->dst == a);
}

static bool concerns_one(const struct request *request, int a, int unused)
{
    (void)unused;
    return request->src == a || request->dst == a;
}

/* Match REQUEST with the first counterpart of its tag, or queue it. */
static wring_status match(struct hub *hub, struct request *request)
{
    struct endpoint *endpoint = hub->endpoints[request->dst];
    struct request_queue *others = request->sends ? &endpoint->receives : &endpoint->sends;
    struct request *other;
    wring_status status =
        reserve(&hub->ready, hub->nready, &hub->ready_capacity, sizeof *hub->ready);
    if (status != WRING_OK)
        return status;
    TAILQ_FOREACH(other, others, link)
    if (other->tag == request->tag)
        break;
    if (!other) {
        request->state = QUEUED;
        TAILQ_INSERT_TAIL(queue_of(hub, request), request, link);
        return WRING_OK;
    }
    TAILQ_REMOVE(others, other, link);
    struct request *send = request->sends ? request : other;
    request->state = other->state = MATCHED;
    request->match = other;
    other->match = request;
    send->ready_index = hub->nready;
    hub->ready[hub->nready++] = send;
    if (hub->armed)
        signal_event(hub);
    hub->armed = false;
    return WRING_OK;
}

static wring_status request_start(struct hub *hub, const struct request *wanted, void **request_out)
{
    struct request *request = NULL;
    wring_status status = request_take(hub, &request);
    if (status != WRING_OK)
        return status;
    *request = *wanted;
    if (is_lost(hub, request->src, request->dst)) {
        finish(hub, request, WRING_E_PEER_LOST);
    } else {
        status = match(hub, request);
        if (status != WRING_OK) {
            request_free(hub, request);
            return status;
        }
    }
    *request_out = request;
    return WRING_OK;
}

/* ---- the table's slots ----------------------------------------------------------------------- */

static void self_close(void *self)
{
    struct hub *hub = self;
    if (!hub)
        return;
    for (size_t i = 0; i < hub->nendpoints; i++)
        wri_free(hub->endpoints[i]);
    while (hub->slabs) {
        struct slab *next = hub->slabs->next;
        wri_free(hub->slabs);
        hub->slabs = next;
    }
    close(hub->event);
    wri_free(hub->endpoints);
    wri_free(hub->ready);
    wri_free(hub->cuts);
    wri_free(hub);
}

static wring_status self_open(const struct wring_transport_open *options, void **self_out)
{
    struct hub *hub = NULL;
    wring_status status = wri_alloc(1, sizeof *hub, (void **)&hub);
    if (status != WRING_OK)
        return status;
    hub->host = options->host;
    hub->random = options->seed;
    TAILQ_INIT(&hub->free);
    hub->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (hub->event < 0) {
        wri_free(hub);
        return options->host->fail(WRING_E_SYSTEM, "self: eventfd: %m");
    }
    *self_out = hub;
    return WRING_OK;
}

static wring_status self_endpoint_open(void *self, void **endpoint_out)
{
    struct hub *hub = self;
    struct endpoint *endpoint = NULL;
    wring_status status = reserve(&hub->endpoints, hub->nendpoints, &hub->endpoints_capacity,
                                  sizeof(struct endpoint *));
    if (status == WRING_OK)
        status = wri_alloc(1, sizeof *endpoint, (void **)&endpoint);
    if (status != WRING_OK)
        return status;
    endpoint->hub = hub;
    endpoint->index = (int)hub->nendpoints;
    TAILQ_INIT(&endpoint->sends);
    TAILQ_INIT(&endpoint->receives);
    hub->endpoints[hub->nendpoints++] = endpoint;
    *endpoint_out = endpoint;
    return WRING_OK;
}

static wring_status self_endpoint_address(void *self, void *address, size_t *nbytes)
{
    const struct endpoint *endpoint = self;
    struct address mine = {(uintptr_t)endpoint->hub, (uint64_t)endpoint->index};
    if (*nbytes < sizeof mine)
        return endpoint->hub->host->fail(WRING_E_FULL, "self: an address needs %zu bytes",
                                         sizeof mine);
    memcpy(address, &mine, sizeof mine);
    *nbytes = sizeof mine;
    return WRING_OK;
}

/* To the others the endpoint is lost from here on. */
static void self_endpoint_close(void *self)
{
    struct endpoint *endpoint = self;
    if (!endpoint)
        return;
    finish_all(endpoint->hub, concerns_one, endpoint->index, 0, WRING_E_PEER_LOST);
    endpoint->hub->endpoints[endpoint->index] = NULL;
    wri_free(endpoint);
}

static wring_status self_peer_open(void *self, const void *address, size_t nbytes, void **peer_out)
{
    struct endpoint *endpoint = self;
    struct hub *hub = endpoint->hub;
    struct address theirs = {0, 0};
    struct peer *peer = NULL;
    if (nbytes == sizeof theirs)
        memcpy(&theirs, address, sizeof theirs);
    if (theirs.hub != (uintptr_t)hub || theirs.index >= hub->nendpoints)
        return hub->host->fail(WRING_E_ARGUMENT,
                               "self: not an address of this context: ranks of transport self live "
                               "in one process and share one context");
    wring_status status = wri_alloc(1, sizeof *peer, (void **)&peer);
    if (status != WRING_OK)
        return status;
    peer->endpoint = endpoint;
    peer->index = (int)theirs.index;
    *peer_out = peer;
    return WRING_OK;
}

static void self_peer_close(void *self)
{
    wri_free(self);
}

static wring_status self_peer_status(void *self)
{
    const struct peer *peer = self;
    const struct hub *hub = peer->endpoint->hub;
    if (!is_lost(hub, peer->endpoint->index, peer->index))
        return WRING_OK;
    return hub->host->fail(WRING_E_PEER_LOST, "self: endpoint %d lost endpoint %d",
                           peer->endpoint->index, peer->index);
}

static wring_status self_send(void *self, uint64_t tag, const void *data, size_t nbytes,
                              void **request_out)
{
    const struct peer *peer = self;
    struct request wanted = {.sends = true,
                             .src = peer->endpoint->index,
                             .dst = peer->index,
                             .tag = tag,
                             .data = (void *)data,
                             .nbytes = nbytes};
    return request_start(peer->endpoint->hub, &wanted, request_out);
}

static wring_status self_recv(void *self, void *from, uint64_t tag, void *data, size_t capacity,
                              void **request_out)
{
    const struct endpoint *endpoint = self;
    const struct peer *peer = from;
    struct request wanted = {.sends = false,
                             .src = peer->index,
                             .dst = endpoint->index,
                             .tag = tag,
                             .data = data,
                             .nbytes = capacity};
    return request_start(endpoint->hub, &wanted, request_out);
}

static wring_status self_test(void *self, void *handle, size_t *nbytes_out)
{
    struct hub *hub = self;
    struct request *request = handle;
    if (request->state != DONE)
        return WRING_AGAIN;
    wring_status status = request->status;
    *nbytes_out = request->received;
    if (status == WRING_E_PEER_LOST)
        hub->host->fail(status, "self: endpoint %d lost endpoint %d, tag 0x%llx",
                        request->sends ? request->src : request->dst,
                        request->sends ? request->dst : request->src,
                        (unsigned long long)request->tag);
    if (status == WRING_E_MISMATCH)
        hub->host->fail(status,
                        "self: message of endpoint %d, tag 0x%llx, is longer than the %zu "
                        "bytes expected",
                        request->src, (unsigned long long)request->tag, request->nbytes);
    request_free(hub, request);
    return status;
}

static void self_cancel(void *self, void *handle)
{
    struct request *request = handle;
    if (request->sends && request->state != DONE) {
        request->abandoned = true;
        return;
    }
    withdraw(self, request);
    request_free(self, request);
}

/* What the hook decides about a message whose bytes stand in the receiver's buffer already, where
 * it may damage them; that buffer is ours until the receive is done. */
static enum wri_self_fault ask_fault(const struct hub *hub, const struct request *send,
                                     size_t nbytes)
{
    if (!hub->fault)
        return WRI_SELF_DELIVER;
    return hub->fault(hub->fault_arg, send->src, send->dst, send->tag, send->match->data, nbytes);
}

static void cut(struct hub *hub, int a, int b)
{
    if (reserve(&hub->cuts, hub->ncuts, &hub->cuts_capacity, sizeof *hub->cuts) == WRING_OK)
        hub->cuts[hub->ncuts++] = (struct cut){a, b};
    finish_all(hub, concerns_pair, a, b, WRING_E_PEER_LOST);
}

/* Returns false if the message was put back. */
static bool deliver(struct hub *hub, struct request *send)
{
    struct request *receive = send->match;
    size_t nbytes = wri_min(send->nbytes, receive->nbytes);
    if (nbytes)
        memcpy(receive->data, send->data, nbytes);
    enum wri_self_fault fault = ask_fault(hub, send, nbytes);
    if (fault == WRI_SELF_DELAY)
        return false;
    if (fault == WRI_SELF_CUT) {
        cut(hub, send->src, send->dst);
        return true;
    }
    wring_status status = send->nbytes > receive->nbytes ? WRING_E_MISMATCH : WRING_OK;
    unmatch(hub, send);
    finish(hub, send, WRING_OK);
    if (fault == WRI_SELF_DROP) {
        requeue(hub, receive);
        return true;
    }
    receive->received = nbytes;
    finish(hub, receive, status);
    return true;
}

/* A random number of messages in random order: from one at a time to all at once. */
static bool self_progress(void *self)
{
    struct hub *hub = self;
    if (hub->nready == 0)
        return false;
    bool moved = false;
    for (uint64_t n = 1 + random_next(hub) % hub->nready; n > 0 && hub->nready > 0; n--)
        moved |= deliver(hub, hub->ready[random_next(hub) % hub->nready]);
    return moved;
}

static bool self_arm(void *self)
{
    struct hub *hub = self;
    hub->armed = hub->nready == 0;
    return hub->armed;
}

static void self_wait(void *self, int timeout_ms)
{
    const struct hub *hub = self;
    struct pollfd event = {.fd = hub->event, .events = POLLIN};
    uint64_t count;
    if (poll(&event, 1, timeout_ms) == 1 && read(hub->event, &count, sizeof count) < 0)
        return; /* another thread took the signal: awake all the same */
}

static void self_wake(void *self)
{
    signal_event(self);
}

void wri_self_set_fault(void *self, wri_self_fault_fn fn, void *arg)
{
    struct hub *hub = self;
    hub->fault = fn;
    hub->fault_arg = arg;
}

const struct wring_transport_ops wri_transport_self = {
    .size = sizeof(struct wring_transport_ops),
    .name = "self",
    .summary = "all ranks in one process, messages delivered in a seeded order; for tests",
    .caps = WRING_TRANSPORT_HOST | WRING_TRANSPORT_IN_PROCESS,
    .open = self_open,
    .close = self_close,
    .endpoint_open = self_endpoint_open,
    .endpoint_address = self_endpoint_address,
    .endpoint_close = self_endpoint_close,
    .peer_open = self_peer_open,
    .peer_close = self_peer_close,
    .peer_status = self_peer_status,
    .send = self_send,
    .recv = self_recv,
    .test = self_test,
    .cancel = self_cancel,
    .progress = self_progress,
    .arm = self_arm,
    .wait = self_wait,
    .wake = self_wake,
};
