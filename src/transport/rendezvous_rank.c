/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other ranks' side of a rendezvous. It decides what ends the search for rank 0 and what only
 * delays it: nobody there, another job's listener, a lost connection are tried again until the
 * deadline; a listener that is ours and refuses, or that has another secret, is an error at once.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "transport/rendezvous_sides.h"

#define BACKOFF_LAST_MS 500

static const char *const refusals[ANSWER_COUNT] = {
    [ANSWER_VERSION] = "it runs another version of wring",
    [ANSWER_NRANKS] = "it expects another number of ranks; is another job at this port?",
    [ANSWER_RANGE] = "that rank is out of range",
    [ANSWER_TAKEN] = "that rank has joined already; were two processes given the same number, or "
                     "two jobs the same port?",
};

/* ---- trying again ---------------------------------------------------------------------------- */

/* Give this try up: the host's next address, or all of them again after a pause. */
static wring_status try_later(struct wri_rendezvous *r, const char *trouble)
{
    snprintf(r->trouble, sizeof r->trouble, "%s", trouble);
    wri_rendezvous_connection_close(&r->link);
    r->said_hello = false;
    if (r->address)
        r->address = r->address->ai_next;
    if (r->address)
        return WRING_AGAIN;
    if (r->addresses)
        freeaddrinfo(r->addresses);
    r->addresses = NULL;
    r->retry_ns = wri_clock_ns() + r->backoff_ms * NS_PER_MS;
    r->backoff_ms = r->backoff_ms * 2 < BACKOFF_LAST_MS ? r->backoff_ms * 2 : BACKOFF_LAST_MS;
    return WRING_AGAIN;
}

static const char *reason(int error)
{
    return error ? strerror(error)
                 : "the listener closed the connection; it may belong to another job";
}

static wring_status start_connecting(struct wri_rendezvous *r)
{
    if (!r->addresses) {
        if (wri_socket_resolve(r->host, r->port, &r->addresses) != WRING_OK)
            return try_later(r, wring_error_message());
        WRI_TRY(wri_secret_permits(&r->secret, r->host, r->addresses));
        r->address = r->addresses;
    }
    int fd = wri_socket_connect(r->address);
    if (fd < 0)
        return try_later(r, strerror(errno));
    wri_rendezvous_connection_open(&r->link, fd, &r->secret, false);
    return WRING_AGAIN;
}

/* ---- the conversation ------------------------------------------------------------------------ */

/* The header of the answer is here: what follows is read only if it can be the table. */
static wring_status check_answer(struct wri_rendezvous *r)
{
    struct header *head = &r->link.head;
    wri_rendezvous_header_decode(head);
    if (head->magic != WRI_RENDEZVOUS_MAGIC || head->job != r->job)
        return try_later(r, "the listener is no rank 0 of this job");
    if (head->rank == ANSWER_INCOMPLETE &&
        head->nbytes == wri_rendezvous_joined_nbytes(r->nranks)) {
        WRI_TRY(wri_alloc(head->nbytes, 1, (void **)&r->link.body));
        r->link.head_done = true;
        return WRING_OK;
    }
    if (head->rank > ANSWER_TABLE && head->rank < ANSWER_INCOMPLETE)
        WRI_FAIL(WRING_E_MISMATCH, "rank 0 at %s port %d refused rank %d of %d: %s", r->host,
                 r->port, r->rank, r->nranks, refusals[head->rank]);
    if (head->rank != ANSWER_TABLE || head->version != WRI_RENDEZVOUS_VERSION ||
        head->nranks != (uint32_t)r->nranks ||
        head->nbytes > (uint64_t)r->nranks * (LENGTH_NBYTES + WRING_ADDRESS_MAX))
        WRI_FAIL(WRING_E_CORRUPT, "rank 0 at %s port %d sent a malformed answer", r->host, r->port);
    r->nonce = head->nonce;
    r->table_nbytes = HEADER_NBYTES + head->nbytes;
    wri_free(r->table);
    r->table = NULL;
    WRI_TRY(wri_alloc(r->table_nbytes, 1, (void **)&r->table));
    r->link.head_done = true;
    return WRING_OK;
}

static wring_status hear_missing(struct wri_rendezvous *r)
{
    char missing[512];
    WRI_TRY(wri_socket_recv(r->link.fd, r->link.body, r->link.head.nbytes, &r->link.done));
    wri_rendezvous_list_missing(r->link.body, r->nranks, missing, sizeof missing);
    WRI_FAIL(WRING_E_TIMEOUT, "rank %d: rank 0 at %s port %d gave up; missing ranks: %s", r->rank,
             r->host, r->port, missing);
}

static wring_status hear_answer(struct wri_rendezvous *r)
{
    if (!r->link.head_done) {
        WRI_TRY(wri_socket_recv(r->link.fd, r->link.bytes, HEADER_NBYTES, &r->link.done));
        WRI_TRY(check_answer(r));
    }
    if (r->link.body)
        return hear_missing(r);
    WRI_TRY(wri_socket_recv(r->link.fd, r->table + HEADER_NBYTES, r->table_nbytes - HEADER_NBYTES,
                            &r->link.done));
    return wri_rendezvous_index_table(r);
}

/* Prove who we are, say hello, then hear the answer, as far as the socket goes now.
 * WRING_E_SYSTEM: cut off, errno says why. */
static wring_status converse(struct wri_rendezvous *r)
{
    if (!r->link.known) {
        WRI_TRY(wri_auth_advance(&r->link.auth, r->link.fd));
        r->link.known = true;
    }
    if (!r->said_hello) {
        WRI_TRY(wri_socket_send(r->link.fd, r->hello, r->hello_nbytes, &r->link.done));
        r->said_hello = true;
    }
    return hear_answer(r);
}

static wring_status pause_or_connect(struct wri_rendezvous *r, int wait_ms)
{
    int64_t pause_ms = (r->retry_ns - wri_clock_ns() + NS_PER_MS - 1) / NS_PER_MS;
    if (pause_ms > 0)
        poll(NULL, 0, pause_ms < wait_ms ? (int)pause_ms : wait_ms);
    return wri_clock_ns() < r->retry_ns ? WRING_AGAIN : start_connecting(r);
}

wring_status wri_rendezvous_rank_step(struct wri_rendezvous *r, int wait_ms)
{
    if (r->link.fd < 0)
        return pause_or_connect(r, wait_ms);
    bool sends = r->link.known ? !r->said_hello : wri_auth_sends(&r->link.auth);
    struct pollfd event = {.fd = r->link.fd, .events = sends ? POLLOUT : POLLIN};
    if (poll(&event, 1, wait_ms) <= 0)
        return WRING_AGAIN;
    wring_status status = converse(r);
    if (status == WRING_E_SYSTEM)
        return try_later(r, reason(errno));
    if (status == WRING_E_CORRUPT && !r->link.known)
        return try_later(r, wring_error_message());
    return status;
}

wring_status wri_rendezvous_rank_prepare(struct wri_rendezvous *r, const void *blob, size_t nbytes)
{
    r->backoff_ms = BACKOFF_FIRST_MS;
    r->hello_nbytes = HEADER_NBYTES + nbytes;
    WRI_TRY(wri_alloc(r->hello_nbytes, 1, (void **)&r->hello));
    wri_rendezvous_header_write(r->hello, r, (uint32_t)r->rank, nbytes, 0);
    if (nbytes)
        memcpy(r->hello + HEADER_NBYTES, blob, nbytes);
    return WRING_OK;
}
