/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks find each other: one allgather of small blobs over TCP through rank 0.
 *
 * Every other rank connects to rank 0; both prove that they know the job's secret (auth.c), then
 * the rank says hello: a header and its blob. When all have, rank 0 answers each with the table of
 * all blobs. Nothing is read from a connection before the proof.
 *
 *      header   8 magic, 4 version, 4 ranks, 8 job, 4 rank or answer, 4 bytes that follow, 8 nonce
 *      hello    header, blob
 *      answer   header, then for each rank in order: 4 length, blob
 *               or, when rank 0's time is up: header, then a bit for each rank that has joined
 *
 * All numbers are little-endian.
 */
#include "transport/rendezvous.h"

#include <endian.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/spans.h"
#include "base/status.h"
#include "transport/rendezvous_sides.h"

#define GRACE_MS 1000 /* for rank 0, whose time ends a little later, to say who is missing */

/* ---- the format ------------------------------------------------------------------------------ */

void wri_rendezvous_header_write(unsigned char *at, const struct wri_rendezvous *r, uint32_t rank,
                                 size_t nbytes, uint64_t nonce)
{
    struct header header = {htole64(WRI_RENDEZVOUS_MAGIC),
                            htole32(WRI_RENDEZVOUS_VERSION),
                            htole32((uint32_t)r->nranks),
                            htole64(r->job),
                            htole32(rank),
                            htole32((uint32_t)nbytes),
                            htole64(nonce)};
    memcpy(at, &header, sizeof header);
}

void wri_rendezvous_header_decode(struct header *header)
{
    *header =
        (struct header){le64toh(header->magic), le32toh(header->version), le32toh(header->nranks),
                        le64toh(header->job),   le32toh(header->rank),    le32toh(header->nbytes),
                        le64toh(header->nonce)};
}

uint32_t wri_rendezvous_length_at(const unsigned char *entry)
{
    uint32_t length;
    memcpy(&length, entry, sizeof length);
    return le32toh(length);
}

wring_status wri_rendezvous_index_table(struct wri_rendezvous *r)
{
    size_t at = HEADER_NBYTES;
    WRI_TRY(wri_alloc((size_t)r->nranks, sizeof *r->entry, (void **)&r->entry));
    for (int rank = 0; rank < r->nranks; rank++) {
        size_t left = r->table_nbytes - at;
        if (left < LENGTH_NBYTES || wri_rendezvous_length_at(r->table + at) > WRING_ADDRESS_MAX ||
            wri_rendezvous_length_at(r->table + at) > left - LENGTH_NBYTES)
            WRI_FAIL(WRING_E_CORRUPT, "rank 0 sent a malformed table of addresses");
        r->entry[rank] = at;
        at += LENGTH_NBYTES + wri_rendezvous_length_at(r->table + at);
    }
    if (at != r->table_nbytes)
        WRI_FAIL(WRING_E_CORRUPT, "rank 0 sent a table of addresses that is too long");
    return WRING_OK;
}

/* ---- connections ----------------------------------------------------------------------------- */

void wri_rendezvous_connection_open(struct connection *connection, int fd,
                                    const struct wri_secret *secret, bool listens)
{
    *connection = (struct connection){.fd = fd, .rank = -1};
    wri_auth_init(&connection->auth, secret, listens);
}

void wri_rendezvous_connection_close(struct connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    wri_free(connection->body);
    *connection = (struct connection){.fd = -1, .rank = -1};
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool is_missing(const void *joined, int rank)
{
    return !(((const unsigned char *)joined)[rank / 8] >> rank % 8 & 1);
}

void wri_rendezvous_list_missing(const unsigned char *joined, int nranks, char *text, size_t nbytes)
{
    wri_spans(nranks, is_missing, joined, text, nbytes);
}

static wring_status give_up(struct wri_rendezvous *r, char *missing, size_t nbytes)
{
    unsigned char *joined;
    WRI_TRY(wri_alloc(wri_rendezvous_joined_nbytes(r->nranks), 1, (void **)&joined));
    for (int rank = 0; rank < r->nranks; rank++)
        joined[rank / 8] |= (unsigned char)((r->blobs[rank] != NULL) << rank % 8);
    wri_rendezvous_list_missing(joined, r->nranks, missing, nbytes);
    wri_rendezvous_root_give_up(r, joined);
    wri_free(joined);
    return WRING_OK;
}

static wring_status time_out(struct wri_rendezvous *r)
{
    char missing[512];
    long long ms = (r->deadline_ns - r->begin_ns) / NS_PER_MS;
    if (r->rank != 0)
        WRI_FAIL(WRING_E_TIMEOUT,
                 "rank %d: the group of %d ranks was not complete after %lld ms; rank "
                 "0 was sought at %s port %d: %s",
                 r->rank, r->nranks, ms, r->host, r->port,
                 r->said_hello ? "it was reached, and waits for others" : r->trouble);
    WRI_TRY(give_up(r, missing, sizeof missing));
    WRI_FAIL(WRING_E_TIMEOUT,
             "rank 0: %d of %d ranks had joined at %s port %d after %lld ms; missing "
             "ranks: %s%s%s",
             r->njoined, r->nranks, r->host, r->port, ms,
             missing[0] ? missing : "none, but one did not take its answer",
             r->nrefused ? "; refused last: " : "", r->trouble);
}

static wring_status check_options(const struct wri_rendezvous_options *options, size_t nbytes)
{
    if (options->nranks < 1 || options->rank < 0 || options->rank >= options->nranks)
        WRI_FAIL(WRING_E_ARGUMENT, "rank %d of %d ranks is out of range", options->rank,
                 options->nranks);
    if (nbytes > WRING_ADDRESS_MAX)
        WRI_FAIL(WRING_E_ARGUMENT, "%zu bytes are more than a rank may contribute", nbytes);
    return WRING_OK;
}

wring_status wri_rendezvous_open(const struct wri_rendezvous_options *options, const void *blob,
                                 size_t nbytes, struct wri_rendezvous **rendezvous_out)
{
    struct wri_rendezvous *r = NULL;
    wring_status status = check_options(options, nbytes);
    if (status == WRING_OK)
        status = wri_alloc(1, sizeof *r, (void **)&r);
    if (status != WRING_OK) {
        if (options->listen_fd >= 0)
            close(options->listen_fd);
        return status;
    }
    r->rank = options->rank;
    r->nranks = options->nranks;
    r->job = options->job;
    r->secret = options->secret;
    r->begin_ns = wri_clock_ns();
    r->deadline_ns = r->begin_ns + options->timeout_ms * NS_PER_MS;
    r->port = options->port;
    r->listen_fd = options->listen_fd;
    r->link.fd = -1;
    snprintf(r->host, sizeof r->host, "%s", options->host);
    status = r->rank == 0 ? wri_rendezvous_root_prepare(r, blob, nbytes)
                          : wri_rendezvous_rank_prepare(r, blob, nbytes);
    if (status != WRING_OK) {
        wri_rendezvous_close(r);
        return status;
    }
    *rendezvous_out = r;
    return WRING_OK;
}

wring_status wri_rendezvous_poll(struct wri_rendezvous *r, int wait_ms)
{
    int64_t end_ns = r->deadline_ns + (r->said_hello ? GRACE_MS * NS_PER_MS : 0);
    int64_t left_ms = (end_ns - wri_clock_ns()) / NS_PER_MS + 1;
    if (r->complete)
        return WRING_OK;
    if (left_ms <= 0)
        return time_out(r);
    int sleep_ms = left_ms < wait_ms ? (int)left_ms : wait_ms;
    wring_status status = r->rank == 0 ? wri_rendezvous_root_step(r, sleep_ms)
                                       : wri_rendezvous_rank_step(r, sleep_ms);
    r->complete = status == WRING_OK;
    return status;
}

const void *wri_rendezvous_blob(const struct wri_rendezvous *r, int rank, size_t *nbytes)
{
    const unsigned char *entry = r->table + r->entry[rank];
    *nbytes = wri_rendezvous_length_at(entry);
    return entry + LENGTH_NBYTES;
}

uint64_t wri_rendezvous_nonce(const struct wri_rendezvous *r)
{
    return r->nonce;
}

void wri_rendezvous_close(struct wri_rendezvous *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->nconnections; i++)
        wri_rendezvous_connection_close(&r->connections[i]);
    for (int rank = 0; r->blobs && rank < r->nranks; rank++)
        wri_free(r->blobs[rank]);
    if (r->listen_fd >= 0)
        close(r->listen_fd);
    if (r->addresses)
        freeaddrinfo(r->addresses);
    wri_rendezvous_connection_close(&r->link);
    wri_free(r->blobs);
    wri_free(r->connections);
    wri_free(r->polls);
    wri_free(r->hello);
    wri_free(r->entry);
    wri_free(r->table);
    wri_free(r);
}
