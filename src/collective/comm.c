/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a communicator: ranks exchange their transport addresses by whatever way the caller
 * offers and open each other; a first and a last barrier stand around what they do. */
#include "collective/comm.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "codec/codec.h"
#include "collective/collective.h"
#include "collective/exec.h"
#include "collective/join.h"

#include <stdio.h>
#include <string.h>

#define PART_NS 2000000000 /* how long a rank that leaves waits for the others */

void wri_comm_poison(wring_comm *comm, wring_status status)
{
    if (comm->failed != WRING_OK)
        return;
    comm->failed = status;
    snprintf(comm->failure, sizeof(comm->failure), "%s", wring_error_message());
}

wring_status wri_comm_check(const wring_comm *comm)
{
    if (comm->failed == WRING_OK)
        return WRING_OK;
    WRI_FAIL(comm->failed, "the communicator failed before: %s", comm->failure);
}

/* A communicator without endpoint: the caller's defaults, parsed. */
static wring_status comm_open(wring_context *context, int rank, int nranks,
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
        status = context->transport->endpoint_open(context->link, &comm->endpoint);
    pthread_mutex_unlock(&context->lock);
    if (status != WRING_OK) {
        wri_comm_destroy(comm);
        return status;
    }
    *comm_out = comm;
    return WRING_OK;
}

static wring_status introduce(wring_comm *comm, struct wri_card *card_out)
{
    size_t nbytes = sizeof(card_out->address);
    pthread_mutex_lock(&comm->context->lock);
    wring_status status =
        comm->context->transport->endpoint_address(comm->endpoint, card_out->address, &nbytes);
    pthread_mutex_unlock(&comm->context->lock);
    card_out->address_nbytes = (uint32_t)nbytes;
    return status;
}

/* Open all peers from their cards. */
static wring_status connect_all(wring_comm *comm, const struct wri_card *card, uint64_t nonce)
{
    wring_context *context = comm->context;
    wring_status status = WRING_OK;
    comm->nonce = nonce;
    comm->epoch = (uint32_t)wri_hash(&nonce, sizeof(nonce), 0);
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

/* Exchange cards with the others and open them. */
static wring_status join(wring_comm *comm, const struct wri_way *way)
{
    struct wri_card own, *cards;
    uint64_t nonce;
    WRI_TRY(wri_card_init(&own));
    WRI_TRY(introduce(comm, &own));
    WRI_TRY(wri_alloc((size_t)comm->nranks, sizeof(*cards), (void **)&cards));
    wring_status status = wri_join(comm->context, way, &own, cards, &nonce);
    if (status == WRING_OK) {
        for (int q = 0; q < comm->nranks; q++)
            comm->local_nranks += cards[q].host == own.host;
        wri_context_set_local_ranks(comm->context, comm->local_nranks);
        status = connect_all(comm, cards, nonce);
    }
    wri_free(cards);
    return status;
}

static wring_status start_barrier(wring_comm *comm, wring_request **request_out)
{
    const wring_call call = {.size = sizeof(call), .kind = WRING_BARRIER};
    const struct wri_plan plan = {
        .codec = comm->codec, .piece_count = 1, .algorithm = wri_collective_find("direct")};
    pthread_mutex_lock(&comm->context->lock);
    wring_status status = wri_request_start(comm, &call, &plan, request_out);
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

static bool is_idle(wring_comm *comm)
{
    pthread_mutex_lock(&comm->context->lock);
    const wring_request *request = comm->context->active;
    while (request != NULL && request->comm != comm)
        request = wri_request_next(request);
    pthread_mutex_unlock(&comm->context->lock);
    return request == NULL;
}

/* The last operation, if all is well: who gets through knows that everyone has received what it
 * sent. A process that simply left might take shared memory with it that still holds a message. */
static void part(wring_comm *comm)
{
    wring_context *context = comm->context;
    wring_request *request;
    int idle = 0;
    if (!comm->met || comm->failed != WRING_OK || !is_idle(comm) ||
        start_barrier(comm, &request) != WRING_OK)
        return;
    int64_t end = wri_clock_ns() + PART_NS;
    pthread_mutex_lock(&context->lock);
    context->waiters++;
    while (!request->done && wri_clock_ns() < end)
        wri_context_drive(context, &idle);
    context->waiters--;
    if (!request->done)
        wri_exec_abort(request, wri_fail(WRING_E_TIMEOUT, "the others do not leave"));
    pthread_mutex_unlock(&context->lock);
    wri_request_wait(request, NULL);
}

wring_status wri_comm_create(wring_context *context, const wring_comm_options *options,
                             wring_comm **comm_out)
{
    struct wri_way way;
    wring_comm *comm;
    WRI_TRY(wri_way_find(context, options, &way));
    WRI_TRY(comm_open(context, way.rank, way.nranks, options, &comm));
    wring_status status = join(comm, &way);
    if (status == WRING_OK)
        status = meet(comm);
    if (status != WRING_OK) {
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
        status = comm_open(context, q, nranks, options ? options : &defaults, &comm[q]);
        if (status == WRING_OK)
            status = introduce(comm[q], &card[q]);
    }
    if (status == WRING_OK)
        status = wri_card_init(&card[0]);
    for (int q = 0; status == WRING_OK && q < nranks; q++) {
        comm[q]->local_nranks = nranks;
        status = connect_all(comm[q], card, card[0].nonce);
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
    for (wring_request *request = comm->context->active; request; request = next) {
        next = wri_request_next(request);
        if (request->comm == comm)
            wri_exec_abort(request, wri_fail(WRING_E_ABORTED, "the communicator was destroyed"));
    }
}

void wri_comm_release(wring_comm *comm)
{
    if (--comm->refs > 0)
        return;
    wri_arena_close(&comm->spare);
    wri_free(comm);
}

void wri_comm_destroy(wring_comm *comm)
{
    if (comm == NULL)
        return;
    wring_context *context = comm->context;
    part(comm);
    pthread_mutex_lock(&context->lock);
    abort_requests(comm);
    for (int q = 0; comm->peer != NULL && q < comm->nranks; q++)
        if (comm->peer[q] != NULL)
            context->transport->peer_close(comm->peer[q]);
    if (comm->endpoint != NULL)
        context->transport->endpoint_close(comm->endpoint);
    wri_free(comm->peer);
    wri_codec_destroy(comm->codec);
    comm->peer = NULL;
    comm->codec = NULL;
    wri_comm_release(comm);
    pthread_mutex_unlock(&context->lock);
}
