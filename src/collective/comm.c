/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a communicator: ranks exchange their transport addresses by whatever way the caller
 * offers and open each other; a first and a last barrier stand around what they do. */
#include "collective/comm.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/collective.h"
#include "collective/exec.h"
#include "collective/join.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define PART_NS 2000000000 /* how long a rank that leaves waits for the others */
#define WHY_NS 1000000000  /* and one that lost another, to hear what happened to it */

void wri_comm_poison(wring_comm *comm, wring_status status)
{
    bool first = wri_alarm_raise(&comm->alarm, status, wring_error_message());
    if (first && comm->control != NULL && !comm->leaving)
        wri_control_report(comm->control);
}

void wri_comm_abort(wring_comm *comm)
{
    wring_context *context = comm->context;
    wri_comm_poison(comm, wri_fail(WRING_E_ABORTED, "wring_comm_abort was called"));
    if (context->transport->wake != NULL)
        context->transport->wake(context->link);
}

wring_status wri_comm_check(wring_comm *comm)
{
    wring_status status = wri_alarm_status(&comm->alarm);
    if (status != WRING_OK)
        WRI_FAIL(status, "the communicator has failed: %s", comm->alarm.message);
    return WRING_OK;
}

wring_status wri_comm_open(wring_context *context, int rank, int nranks,
                           const wring_comm_options *options, wring_comm **comm_out)
{
    const struct wri_config *config = &context->config;
    const char *algorithm = options->algorithm ? options->algorithm : config->algorithm;
    wring_comm *comm;
    WRI_TRY(wri_alloc(1, sizeof(*comm), (void **)&comm));
    comm->context = context;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->refs = 1;
    wring_status status =
        wri_codec_create(options->codec ? options->codec : config->codec, &comm->codec);
    if (status == WRING_OK && strcmp(algorithm, "auto") != 0) {
        comm->algorithm = wri_collective_find(algorithm);
        if (comm->algorithm == NULL)
            status = wri_fail(WRING_E_CONFIG, "unknown algorithm '%s'; wring-info lists them",
                              algorithm);
    }
    if (status == WRING_OK)
        status = wri_alloc((size_t)nranks, sizeof(void *), (void **)&comm->peer);
    pthread_mutex_lock(&context->lock);
    if (status == WRING_OK)
        status = wri_context_ordered(context)
                     ? wri_lane_open(comm)
                     : context->transport->endpoint_open(context->link, &comm->endpoint);
    pthread_mutex_unlock(&context->lock);
    if (status != WRING_OK) {
        wri_comm_destroy(comm);
        return status;
    }
    *comm_out = comm;
    return WRING_OK;
}

wring_status wri_comm_introduce(wring_comm *comm, struct wri_card *card_out)
{
    wring_context *context = comm->context;
    size_t nbytes = sizeof(card_out->address);
    wring_status status = WRING_OK;
    pthread_mutex_lock(&context->lock);
    if (!wri_context_ordered(context))
        status = context->transport->endpoint_address(comm->endpoint, card_out->address, &nbytes);
    else if (comm->rank == 0)
        status = context->transport->group_id(context->link, card_out->address, &nbytes);
    else
        nbytes = 0;
    pthread_mutex_unlock(&context->lock);
    card_out->address_nbytes = status == WRING_OK ? (uint32_t)nbytes : 0;
    return status;
}

/* Open all peers from their cards. */
static wring_status connect_all(wring_comm *comm, const struct wri_card *card)
{
    wring_context *context = comm->context;
    wring_status status = WRING_OK;
    pthread_mutex_lock(&context->lock);
    for (int q = 0; status == WRING_OK && q < comm->nranks; q++) {
        if (q == comm->rank)
            continue;
        status = context->transport->peer_open(comm->endpoint, card[q].address,
                                               card[q].address_nbytes, &comm->peer[q]);
        if (status != WRING_OK)
            status = wri_fail_context(status, "cannot open rank %d", q);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

/* Join the group that rank 0 named, or wrap the caller's own; wait until all are there. */
static wring_status join_group(wring_comm *comm, const struct wri_card *first, void *external)
{
    static const struct timespec nap = {0, 1000000};
    wring_context *context = comm->context;
    const struct wring_transport_ops *transport = context->transport;
    int64_t end = wri_clock_ns() + context->config.join_timeout_ms * NS_PER_MS;
    pthread_mutex_lock(&context->lock);
    int was = wri_context_enter(context);
    wring_status status = transport->group_open(
        context->link, comm->rank, comm->nranks, first ? first->address : NULL,
        first ? first->address_nbytes : 0, external, &comm->endpoint);
    wri_context_leave(context, was);
    pthread_mutex_unlock(&context->lock);
    if (status == WRING_OK)
        status = transport->group_status(comm->endpoint);
    for (; status == WRING_AGAIN; status = transport->group_status(comm->endpoint)) {
        WRI_TRY(wri_comm_check(comm));
        if (wri_clock_ns() > end)
            WRI_FAIL(WRING_E_TIMEOUT, "not all ranks joined within %lld ms",
                     (long long)context->config.join_timeout_ms);
        nanosleep(&nap, NULL);
    }
    /* Who it is and why is what the control path says, if there is one yet, but maybe later. */
    end = wri_clock_ns() + WHY_NS;
    while (status == WRING_E_PEER_LOST && first != NULL && wri_clock_ns() < end) {
        WRI_TRY(wri_comm_check(comm));
        nanosleep(&nap, NULL);
    }
    return status;
}

static void set_nonce(wring_comm *comm, uint64_t nonce)
{
    comm->nonce = nonce;
    comm->epoch = (uint32_t)wri_hash(&nonce, sizeof(nonce), 0);
}

wring_status wri_comm_open_control(wring_comm *comm, const char *host, struct wri_card *card)
{
    wring_context *context = comm->context;
    wring_status status = WRING_OK;
    pthread_mutex_lock(&context->lock);
    if (context->monitor == NULL)
        status = wri_monitor_open(context, &context->monitor);
    pthread_mutex_unlock(&context->lock);
    if (status == WRING_OK)
        status = wri_control_open(context, comm->rank, comm->nranks, host, &comm->alarm, card,
                                  &comm->control);
    return status;
}

/* The own card; of a communicator of several ranks with its control path, not yet started. */
static wring_status make_card(wring_comm *comm, const struct wri_way *way, struct wri_card *card)
{
    char host[WRI_CARD_HOST_MAX];
    WRI_TRY(wri_card_init(card));
    if (comm->nranks == 1)
        return WRING_OK;
    WRI_TRY(wri_way_host(comm->context, way, host));
    return wri_comm_open_control(comm, host, card);
}

/* All cards are here. */
static wring_status read_cards(wring_comm *comm, const struct wri_card *cards, uint64_t nonce)
{
    for (int q = 0; q < comm->nranks; q++)
        comm->local_nranks += cards[q].host == cards[comm->rank].host;
    wri_context_set_local_ranks(comm->context, comm->local_nranks);
    set_nonce(comm, nonce);
    return comm->control ? wri_control_start(comm->control, cards, nonce) : WRING_OK;
}

static wring_status start_barrier(wring_comm *comm, wring_request **request_out)
{
    const wring_call call = {.size = sizeof(call), .kind = WRING_BARRIER};
    const struct wri_plan plan = {
        .codec = comm->codec, .piece_count = 1, .algorithm = wri_collective_find("direct")};
    pthread_mutex_lock(&comm->context->lock);
    wring_status status = wri_request_start(comm, &call, &plan, NULL, request_out);
    pthread_mutex_unlock(&comm->context->lock);
    return status;
}

/* The first operation: moves connection set-up out of the first step, shows unreachable peers. */
static wring_status meet(wring_comm *comm)
{
    wring_request *request;
    WRI_TRY(start_barrier(comm, &request));
    WRI_TRY(wri_request_wait(request, NULL));
    comm->met = true;
    return WRING_OK;
}

/* A group that exists already: the cards travel on it. */
static wring_status join_external(wring_context *context, const wring_comm_options *options,
                                  const struct wri_way *way, wring_comm **comm_out)
{
    struct wri_card own = {0}, *cards;
    WRI_TRY(wri_comm_open(context, way->rank, way->nranks, options, comm_out));
    wring_comm *comm = *comm_out;
    WRI_TRY(make_card(comm, way, &own));
    WRI_TRY(join_group(comm, NULL, options->external));
    WRI_TRY(wri_alloc((size_t)comm->nranks, sizeof(*cards), (void **)&cards));
    pthread_mutex_lock(&comm->context->lock);
    int was = wri_context_enter(comm->context);
    wring_status status = wri_stream_gather(comm, &own, cards, sizeof(*cards));
    wri_context_leave(comm->context, was);
    pthread_mutex_unlock(&comm->context->lock);
    if (status == WRING_OK)
        status = read_cards(comm, cards, cards[0].nonce);
    if (status == WRING_OK)
        status = meet(comm);
    wri_free(cards);
    return status;
}

wring_status wri_comm_connect(wring_comm *comm, const struct wri_card *cards, uint64_t nonce)
{
    WRI_TRY(read_cards(comm, cards, nonce));
    if (wri_context_ordered(comm->context))
        WRI_TRY(join_group(comm, cards, NULL));
    else
        WRI_TRY(connect_all(comm, cards));
    return meet(comm);
}

/* Open what this rank alone can, and say in a card how others reach it. */
static wring_status prepare(wring_context *context, const wring_comm_options *options,
                            const struct wri_way *way, struct wri_card *own, wring_comm **comm_out)
{
    WRI_TRY(wri_comm_open(context, way->rank, way->nranks, options, comm_out));
    WRI_TRY(make_card(*comm_out, way, own));
    return wri_comm_introduce(*comm_out, own);
}

/* Exchange cards with the others and open them. A rank that cannot join takes part in the exchange
 * all the same: the others would wait for it until their time is up. */
static wring_status join(wring_context *context, const wring_comm_options *options,
                         const struct wri_way *way, wring_comm **comm_out)
{
    struct wri_card own = {0}, *cards;
    uint64_t nonce;
    wring_status prepared = prepare(context, options, way, &own, comm_out);
    if (prepared != WRING_OK)
        wri_card_refuse(&own, prepared);
    WRI_TRY(wri_alloc((size_t)way->nranks, sizeof(*cards), (void **)&cards));
    wring_status status = wri_join(context, way, &own, cards, &nonce);
    if (prepared != WRING_OK)
        status = wri_fail(prepared, "%.*s", (int)own.address_nbytes, (const char *)own.address);
    if (status == WRING_OK)
        status = wri_comm_connect(*comm_out, cards, nonce);
    wri_free(cards);
    return status;
}

static bool is_active(const wring_comm *comm)
{
    const wring_request *request = comm->context->active;
    while (request != NULL && request->comm != comm)
        request = wri_request_next(request);
    return request != NULL;
}

static bool is_idle(wring_comm *comm)
{
    pthread_mutex_lock(&comm->context->lock);
    bool active = is_active(comm);
    pthread_mutex_unlock(&comm->context->lock);
    return !active;
}

/* The last operation, if all is well: who gets through knows that everyone has received what it
 * sent. A process that simply left might take shared memory with it that still holds a message.
 * True if all ranks are here. */
static bool part(wring_comm *comm)
{
    wring_context *context = comm->context;
    wring_request *request;
    int idle = 0;
    if (!comm->met || wri_alarm_status(&comm->alarm) != WRING_OK || !is_idle(comm) ||
        start_barrier(comm, &request) != WRING_OK)
        return false;
    int64_t end = wri_clock_ns() + PART_NS;
    pthread_mutex_lock(&context->lock);
    context->waiters++;
    while (!request->done && wri_clock_ns() < end)
        wri_context_drive(context, &idle);
    context->waiters--;
    if (!request->done)
        wri_exec_abort(request, wri_fail(WRING_E_TIMEOUT, "the others do not leave"));
    pthread_mutex_unlock(&context->lock);
    return wri_request_wait(request, NULL) == WRING_OK;
}

static wring_status find_way(wring_context *context, const wring_comm_options *options,
                             struct wri_way *way_out)
{
    if (options->external == NULL)
        return wri_way_find(context, options, way_out);
    if (context->transport->group_external == NULL)
        WRI_FAIL(WRING_E_ARGUMENT, "transport %s takes no communicator of the caller's: external",
                 context->transport->name);
    return context->transport->group_external(context->link, options->external, &way_out->rank,
                                              &way_out->nranks);
}

wring_status wri_comm_create(wring_context *context, const wring_comm_options *options,
                             wring_comm **comm_out)
{
    struct wri_way way = {.listen_fd = -1};
    wring_comm *comm = NULL;
    WRI_TRY(find_way(context, options, &way));
    wring_status status = options->external ? join_external(context, options, &way, &comm)
                                            : join(context, options, &way, &comm);
    if (status != WRING_OK) {
        if (comm != NULL)
            wri_comm_poison(comm, status); /* so that the others need not wait for this rank */
        wri_comm_destroy(comm);
        return wri_fail_context(status, "rank %d of %d cannot join", way.rank, way.nranks);
    }
    *comm_out = comm;
    return WRING_OK;
}

wring_status wri_comm_create_local(wring_context *context, int nranks,
                                   const wring_comm_options *options, wring_comm **comms_out)
{
    static const wring_comm_options defaults = WRING_COMM_OPTIONS_INIT;
    if (!(context->transport->caps & WRING_TRANSPORT_IN_PROCESS))
        WRI_FAIL(WRING_E_UNSUPPORTED, "transport %s does not hold several ranks in one process",
                 context->transport->name);
    struct wri_card *card;
    wring_comm **comm = NULL;
    WRI_TRY(wri_alloc((size_t)nranks, sizeof(*card), (void **)&card));
    wring_status status = wri_alloc((size_t)nranks, sizeof(*comm), (void **)&comm);
    for (int q = 0; status == WRING_OK && q < nranks; q++) {
        status = wri_comm_open(context, q, nranks, options ? options : &defaults, &comm[q]);
        if (status == WRING_OK)
            status = wri_comm_introduce(comm[q], &card[q]);
    }
    if (status == WRING_OK)
        status = wri_card_init(&card[0]);
    for (int q = 0; status == WRING_OK && q < nranks; q++) {
        comm[q]->local_nranks = nranks;
        set_nonce(comm[q], card[0].nonce);
        status = connect_all(comm[q], card);
    }
    for (int q = 0; q < nranks && comm != NULL; q++) {
        if (status == WRING_OK)
            comms_out[q] = comm[q];
        else
            wri_comm_destroy(comm[q]);
    }
    wri_free(comm);
    wri_free(card);
    return status;
}

static void abort_requests(wring_comm *comm)
{
    wring_request *next;
    int idle = 0;
    for (wring_request *request = comm->context->active; request; request = next) {
        next = wri_request_next(request);
        if (request->comm == comm)
            wri_exec_abort(request, wri_fail(WRING_E_ABORTED, "the communicator was destroyed"));
    }
    while (is_active(comm))
        wri_context_drive(comm->context, &idle);
}

static void close_endpoint(wring_comm *comm)
{
    const struct wring_transport_ops *transport = comm->context->transport;
    if (comm->endpoint == NULL)
        return;
    int was = wri_context_enter(comm->context);
    if (wri_context_ordered(comm->context) && !comm->met)
        transport->group_abort(comm->endpoint); /* nobody knows who is there */
    transport->endpoint_close(comm->endpoint);
    wri_context_leave(comm->context, was);
    comm->endpoint = NULL;
}

void wri_comm_release(wring_comm *comm)
{
    if (--comm->refs > 0)
        return;
    if (!wri_lane_is_quiet(comm)) {
        wri_log(WRING_LOG_WARN,
                "rank %d: its device is held up by another stream; what a call that "
                "was given up may still use is left there",
                comm->rank);
        comm->context->stuck = true;
        return;
    }
    for (int kind = 0; kind < WRI_MEMORY_KINDS; kind++)
        wri_buffers_close(comm, (enum wri_memory)kind, &comm->spare[kind]);
    wri_lane_close(comm);
    wri_free(comm);
}

void wri_comm_destroy(wring_comm *comm)
{
    if (comm == NULL)
        return;
    wring_context *context = comm->context;
    comm->leaving = true;
    wri_control_close(comm->control, part(comm) || !comm->met); /* some may not have come yet */
    comm->control = NULL;
    pthread_mutex_lock(&context->lock);
    abort_requests(comm);
    for (int q = 0; comm->peer != NULL && q < comm->nranks; q++)
        if (comm->peer[q] != NULL)
            context->transport->peer_close(comm->peer[q]);
    close_endpoint(comm);
    wri_free(comm->peer);
    wri_codec_destroy(comm->codec);
    comm->peer = NULL;
    comm->codec = NULL;
    wri_comm_release(comm);
    pthread_mutex_unlock(&context->lock);
}
