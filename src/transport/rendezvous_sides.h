/* SPDX-License-Identifier: Apache-2.0 */
/* What the two sides of a rendezvous share: rank 0's (rendezvous_root.c), the other ranks'
 * (rendezvous_rank.c), and the calls in front of both (rendezvous.c), where the format is drawn. */
#ifndef WRI_TRANSPORT_RENDEZVOUS_SIDES_H
#define WRI_TRANSPORT_RENDEZVOUS_SIDES_H

#include <wring/plugin.h>

#include "base/memory.h"
#include "transport/auth.h"
#include "transport/rendezvous.h"
#include "transport/socket.h"

#define WRI_RENDEZVOUS_MAGIC 0x5A5644524E525701u
#define WRI_RENDEZVOUS_VERSION 3
#define HEADER_NBYTES 40
#define LENGTH_NBYTES 4
#define BACKOFF_FIRST_MS 10

/* In the answer's header, in place of a rank. */
enum answer {
    ANSWER_TABLE,
    ANSWER_VERSION,
    ANSWER_NRANKS,
    ANSWER_RANGE,
    ANSWER_TAKEN,
    ANSWER_INCOMPLETE, /* rank 0's time is up */
    ANSWER_COUNT
};

struct header {
    uint64_t magic;
    uint32_t version, nranks;
    uint64_t job;
    uint32_t rank, nbytes;
    uint64_t nonce;
};
_Static_assert(sizeof(struct header) == HEADER_NBYTES, "no padding");

/* A connection and the one transfer that is under way on it. */
struct connection {
    int fd;
    int rank; /* rank 0's side: who it is, -1 while its hello is incomplete */
    struct wri_auth auth;
    bool known; /* it has proven that it belongs to the job */
    bool head_done;
    size_t done; /* bytes of the transfer so far */
    union {
        struct header head;
        unsigned char bytes[HEADER_NBYTES];
    };
    unsigned char *body; /* what follows the header that came in, head.nbytes long */
};

struct wri_rendezvous {
    int rank, nranks;
    uint64_t job, nonce;
    int64_t begin_ns, deadline_ns;
    char host[WRI_CONFIG_TEXT_MAX];
    int port;
    struct wri_secret secret;
    bool complete;
    unsigned char *table; /* the answer: header and entries */
    size_t table_nbytes;
    size_t *entry;     /* offset in the table of each rank's entry */
    char trouble[256]; /* why the last try failed, or whom rank 0 refused last */

    /* rank 0 */
    int listen_fd;
    struct connection *connections;
    struct pollfd *polls; /* the connections', then the listening socket's */
    size_t nconnections, capacity;
    unsigned char **blobs; /* by rank: 4 length, blob; NULL until it has joined */
    int njoined, nrefused;

    /* other ranks */
    struct connection link;
    bool said_hello;
    struct addrinfo *addresses, *address;
    int64_t retry_ns;
    int backoff_ms;
    unsigned char *hello;
    size_t hello_nbytes;
};

/* The connection of FD, whose other side has yet to prove that it belongs to the job. */
void wri_rendezvous_connection_open(struct connection *connection, int fd,
                                    const struct wri_secret *secret, bool listens);
void wri_rendezvous_connection_close(struct connection *connection);

void wri_rendezvous_header_write(unsigned char *at, const struct wri_rendezvous *r, uint32_t rank,
                                 size_t nbytes, uint64_t nonce);
void wri_rendezvous_header_decode(struct header *header);

/* An entry of the table: 4 length, blob. */
uint32_t wri_rendezvous_length_at(const unsigned char *entry);

/* Find the entries of the table, which came from outside. */
wring_status wri_rendezvous_index_table(struct wri_rendezvous *r);

/* Who has joined: a bit for each rank, lowest first. */
static inline size_t wri_rendezvous_joined_nbytes(int nranks)
{
    return wri_div_up((size_t)nranks, 8);
}

/* "1, 3-7": the ranks whose bit in JOINED is not set. */
void wri_rendezvous_list_missing(const unsigned char *joined, int nranks, char *text,
                                 size_t nbytes);

/* Rank 0's time is up: tell those who have joined. */
void wri_rendezvous_root_give_up(struct wri_rendezvous *r, const unsigned char *joined);

/* Each side's start, and one step: wait for a socket, at most WAIT_MS, and do what can be done. */
wring_status wri_rendezvous_root_prepare(struct wri_rendezvous *r, const void *blob, size_t nbytes);
wring_status wri_rendezvous_root_step(struct wri_rendezvous *r, int wait_ms);
wring_status wri_rendezvous_rank_prepare(struct wri_rendezvous *r, const void *blob, size_t nbytes);
wring_status wri_rendezvous_rank_step(struct wri_rendezvous *r, int wait_ms);

#endif
