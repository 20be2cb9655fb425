/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks find each other: one allgather of small blobs over TCP through rank 0.
 *
 * Every other rank connects to rank 0 and says hello: a header and its blob. When all have, rank 0
 * answers each with the table of all blobs. It decides whom to believe: a connection counts for
 * nothing until its whole hello was read and fits the job, so strangers, garbage and half-open
 * connections cost one slot of a bounded list and no more. Whoever fits the job but not the group
 * is told why. A rank that cannot connect, or is cut off, tries again until the deadline.
 *
 *      header   8 magic, 4 version, 4 ranks, 8 job, 4 rank or answer, 4 bytes that follow, 8 nonce
 *      hello    header, blob
 *      answer   header, then for each rank in order: 4 length, blob
 *
 * All numbers are little-endian.
 */
#include "transport/rendezvous.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <wring/plugin.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "transport/socket.h"

#define MAGIC 0x5A5644524E525701u
#define VERSION 1
#define HEADER_NBYTES 40
#define LENGTH_NBYTES 4
#define STRANGERS_MAX                                                                              \
    64 /* connections that have not said a whole hello, beside one for each rank */
#define BACKOFF_FIRST_MS 10
#define BACKOFF_LAST_MS 500
#define NS_PER_MS 1000000LL

/* In the answer's header, in place of a rank. */
enum answer { ANSWER_TABLE, ANSWER_VERSION, ANSWER_NRANKS, ANSWER_RANK, ANSWER_COUNT };

static const char *const refusals[ANSWER_COUNT] = {
    [ANSWER_VERSION] = "it runs another version of wring",
    [ANSWER_NRANKS] = "it expects another number of ranks",
    [ANSWER_RANK] = "that rank is out of range or has joined already",
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
    bool complete;
    unsigned char *table; /* the answer: header and entries */
    size_t table_nbytes;
    size_t *entry; /* offset in the table of each rank's entry */

    /* rank 0 */
    int listen_fd;
    struct connection *connections;
    struct pollfd *polls; /* the connections', then the listening socket's */
    size_t nconnections, capacity;
    unsigned char **blobs; /* by rank: 4 length, blob; NULL until it has joined */
    int njoined;

    /* other ranks */
    struct connection link;
    bool connected;
    struct addrinfo *addresses, *address;
    int64_t retry_ns;
    int backoff_ms;
    unsigned char *hello;
    size_t hello_nbytes;
    char trouble[128]; /* why the last try failed */
};

static void header_write(unsigned char *at, const struct wri_rendezvous *r, uint32_t rank,
                         size_t nbytes, uint64_t nonce)
{
    struct header header = {htole64(MAGIC),  htole32(VERSION), htole32((uint32_t)r->nranks),
                            htole64(r->job), htole32(rank),    htole32((uint32_t)nbytes),
                            htole64(nonce)};
    memcpy(at, &header, sizeof header);
}

static void header_decode(struct header *header)
{
    *header =
        (struct header){le64toh(header->magic), le32toh(header->version), le32toh(header->nranks),
                        le64toh(header->job),   le32toh(header->rank),    le32toh(header->nbytes),
                        le64toh(header->nonce)};
}

static uint32_t length_at(const unsigned char *entry)
{
    uint32_t length;
    memcpy(&length, entry, sizeof length);
    return le32toh(length);
}

static void entry_write(unsigned char *entry, const void *blob, size_t nbytes)
{
    uint32_t length = htole32((uint32_t)nbytes);
    memcpy(entry, &length, sizeof length);
    if (nbytes)
        memcpy(entry + LENGTH_NBYTES, blob, nbytes);
}

static void connection_close(struct connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    wri_free(connection->body);
    *connection = (struct connection){.fd = -1, .rank = -1};
}

static wring_status receive(struct connection *connection, void *to, size_t nbytes)
{
    return wri_socket_recv(connection->fd, to, nbytes, &connection->done);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Find the entries of a table that came from outside. */
static wring_status index_table(struct wri_rendezvous *r)
{
    size_t at = HEADER_NBYTES;
    WRI_TRY(wri_alloc((size_t)r->nranks, sizeof *r->entry, (void **)&r->entry));
    for (int rank = 0; rank < r->nranks; rank++) {
        size_t left = r->table_nbytes - at;
        if (left < LENGTH_NBYTES || length_at(r->table + at) > WRING_ADDRESS_MAX ||
            length_at(r->table + at) > left - LENGTH_NBYTES)
            WRI_FAIL(WRING_E_CORRUPT, "rank 0 sent a malformed table of addresses");
        r->entry[rank] = at;
        at += LENGTH_NBYTES + length_at(r->table + at);
    }
    if (at != r->table_nbytes)
        WRI_FAIL(WRING_E_CORRUPT, "rank 0 sent a table of addresses that is too long");
    return WRING_OK;
}

static wring_status build_table(struct wri_rendezvous *r)
{
    size_t at = HEADER_NBYTES;
    r->table_nbytes = HEADER_NBYTES;
    for (int rank = 0; rank < r->nranks; rank++)
        r->table_nbytes += LENGTH_NBYTES + length_at(r->blobs[rank]);
    WRI_TRY(wri_alloc(r->table_nbytes, 1, (void **)&r->table));
    if (getrandom(&r->nonce, sizeof r->nonce, 0) != (ssize_t)sizeof r->nonce)
        WRI_FAIL(WRING_E_SYSTEM, "no random numbers: %s", strerror(errno));
    header_write(r->table, r, ANSWER_TABLE, r->table_nbytes - HEADER_NBYTES, r->nonce);
    for (int rank = 0; rank < r->nranks; rank++) {
        size_t nbytes = LENGTH_NBYTES + length_at(r->blobs[rank]);
        memcpy(r->table + at, r->blobs[rank], nbytes);
        at += nbytes;
    }
    return index_table(r);
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static wring_status keep_blob(struct wri_rendezvous *r, int rank, const void *blob, size_t nbytes)
{
    WRI_TRY(wri_alloc(LENGTH_NBYTES + nbytes, 1, (void **)&r->blobs[rank]));
    entry_write(r->blobs[rank], blob, nbytes);
    r->njoined++;
    return WRING_OK;
}

static wring_status reserve(struct wri_rendezvous *r)
{
    r->capacity = (size_t)r->nranks + STRANGERS_MAX;
    WRI_TRY(wri_alloc(r->capacity, sizeof *r->connections, (void **)&r->connections));
    WRI_TRY(wri_alloc(r->capacity + 1, sizeof *r->polls, (void **)&r->polls));
    return wri_alloc((size_t)r->nranks, sizeof *r->blobs, (void **)&r->blobs);
}

static void drop(struct wri_rendezvous *r, size_t index)
{
    struct connection *connection = &r->connections[index];
    int rank = connection->rank;
    connection_close(connection);
    if (rank >= 0 && !r->table) { /* it may come again */
        wri_free(r->blobs[rank]);
        r->blobs[rank] = NULL;
        r->njoined--;
    }
    memmove(connection, connection + 1, (r->nconnections - index - 1) * sizeof *connection);
    r->nconnections--;
}

/* Take those who knock. In a full list the oldest stranger makes room: honest ranks say hello at
 * once and come again if they are dropped. */
static void accept_some(struct wri_rendezvous *r)
{
    for (int taken = 0; taken < STRANGERS_MAX; taken++) {
        int fd = wri_socket_accept(r->listen_fd);
        if (fd < 0)
            return;
        for (size_t i = 0; i < r->nconnections && r->nconnections == r->capacity; i++)
            if (r->connections[i].rank < 0)
                drop(r, i);
        r->connections[r->nconnections++] = (struct connection){.fd = fd, .rank = -1};
    }
}

static enum answer judge(const struct wri_rendezvous *r, const struct header *head)
{
    if (head->version != VERSION)
        return ANSWER_VERSION;
    if (head->nranks != (uint32_t)r->nranks)
        return ANSWER_NRANKS;
    if (head->rank == 0 || head->rank >= head->nranks || r->blobs[head->rank])
        return ANSWER_RANK;
    return ANSWER_TABLE;
}

/* A whole hello is here. WRING_E_MISMATCH: refused, and told so as well as the socket takes it. */
static wring_status join(struct wri_rendezvous *r, struct connection *connection)
{
    unsigned char refusal[HEADER_NBYTES];
    enum answer answer = judge(r, &connection->head);
    if (answer == ANSWER_TABLE) {
        WRI_TRY(
            keep_blob(r, (int)connection->head.rank, connection->body, connection->head.nbytes));
        connection->rank = (int)connection->head.rank;
        return WRING_OK;
    }
    wri_log(WRING_LOG_WARN, "refused a process that says it is rank %u of %u",
            connection->head.rank, connection->head.nranks);
    header_write(refusal, r, answer, 0, 0);
    (void)wri_socket_send(connection->fd, refusal, sizeof refusal, &connection->done);
    return WRING_E_MISMATCH;
}

/* Read on in a hello. Any status but OK and AGAIN drops the connection. */
static wring_status hear(struct wri_rendezvous *r, struct connection *connection)
{
    if (!connection->head_done) {
        WRI_TRY(receive(connection, connection->bytes, HEADER_NBYTES));
        header_decode(&connection->head);
        if (connection->head.magic != MAGIC || connection->head.job != r->job ||
            connection->head.nbytes > WRING_ADDRESS_MAX)
            return WRING_E_MISMATCH;
        WRI_TRY(wri_alloc(connection->head.nbytes, 1, (void **)&connection->body));
        connection->head_done = true;
    }
    WRI_TRY(receive(connection, connection->body, connection->head.nbytes));
    return join(r, connection);
}

/* A joined rank has nothing to say before it got the table: readable means that it left. */
static wring_status serve(struct wri_rendezvous *r, struct connection *connection)
{
    if (connection->rank < 0)
        return hear(r, connection);
    if (r->table)
        return wri_socket_send(connection->fd, r->table, r->table_nbytes, &connection->done) ==
                       WRING_AGAIN
                   ? WRING_AGAIN
                   : WRING_E_STATE; /* sent, or gone: done with it either way */
    char byte;
    return recv(connection->fd, &byte, 1, 0) < 0 && errno == EAGAIN ? WRING_AGAIN : WRING_E_SYSTEM;
}

/* All are known: whoever knocks from now on means the next group at this port and has to come
 * again. */
static void stop_listening(struct wri_rendezvous *r)
{
    for (size_t i = r->nconnections; i-- > 0;)
        if (r->connections[i].rank < 0)
            drop(r, i);
    close(r->listen_fd);
    r->listen_fd = -1;
}

static bool everyone_served(const struct wri_rendezvous *r)
{
    for (size_t i = 0; i < r->nconnections; i++)
        if (r->connections[i].rank >= 0)
            return false;
    return r->table != NULL;
}

static wring_status root_step(struct wri_rendezvous *r, int wait_ms)
{
    for (size_t i = 0; i < r->nconnections; i++)
        r->polls[i] =
            (struct pollfd){.fd = r->connections[i].fd,
                            .events = r->table && r->connections[i].rank >= 0 ? POLLOUT : POLLIN};
    r->polls[r->nconnections] = (struct pollfd){.fd = r->listen_fd, .events = POLLIN};
    if (poll(r->polls, r->nconnections + 1, wait_ms) < 0 && errno != EINTR)
        WRI_FAIL(WRING_E_SYSTEM, "poll: %s", strerror(errno));
    bool knocks = r->polls[r->nconnections].revents != 0;
    for (size_t i = r->nconnections; i-- > 0;)
        if (r->polls[i].revents) {
            wring_status status = serve(r, &r->connections[i]);
            if (status != WRING_OK && status != WRING_AGAIN)
                drop(r, i);
        }
    if (knocks)
        accept_some(r);
    if (!r->table && r->njoined == r->nranks) {
        WRI_TRY(build_table(r));
        stop_listening(r);
    }
    return everyone_served(r) ? WRING_OK : WRING_AGAIN;
}

/* ---- other ranks ----------------------------------------------------------------------------- */

/* Give this try up: the host's next address, or all of them again after a pause. */
static wring_status try_later(struct wri_rendezvous *r, const char *trouble)
{
    snprintf(r->trouble, sizeof r->trouble, "%s", trouble);
    connection_close(&r->link);
    r->connected = false;
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
        r->address = r->addresses;
    }
    r->link.fd = wri_socket_connect(r->address);
    return r->link.fd < 0 ? try_later(r, strerror(errno)) : WRING_AGAIN;
}

/* The header of the answer is here: what follows is read only if it can be the table. */
static wring_status answer_check(struct wri_rendezvous *r)
{
    struct header *head = &r->link.head;
    header_decode(head);
    if (head->magic != MAGIC || head->job != r->job)
        return try_later(r, "the listener is no rank 0 of this job");
    if (head->rank > ANSWER_TABLE && head->rank < ANSWER_COUNT)
        WRI_FAIL(WRING_E_MISMATCH, "rank 0 at %s port %d refused rank %d of %d: %s", r->host,
                 r->port, r->rank, r->nranks, refusals[head->rank]);
    if (head->rank != ANSWER_TABLE || head->version != VERSION ||
        head->nranks != (uint32_t)r->nranks ||
        head->nbytes > (uint64_t)r->nranks * (LENGTH_NBYTES + WRING_ADDRESS_MAX))
        WRI_FAIL(WRING_E_CORRUPT, "rank 0 at %s port %d sent a malformed answer", r->host, r->port);
    r->nonce = head->nonce;
    r->table_nbytes = HEADER_NBYTES + head->nbytes;
    r->link.head_done = true;
    wri_free(r->table);
    r->table = NULL;
    return wri_alloc(r->table_nbytes, 1, (void **)&r->table);
}

/* Say hello, then hear the answer, as far as the socket goes now. */
static wring_status converse(struct wri_rendezvous *r)
{
    wring_status status = WRING_OK;
    if (!r->connected)
        status = wri_socket_send(r->link.fd, r->hello, r->hello_nbytes, &r->link.done);
    if (status == WRING_OK) {
        r->connected = true;
        if (!r->link.head_done) {
            status = receive(&r->link, r->link.bytes, HEADER_NBYTES);
            if (status == WRING_OK)
                status = answer_check(r);
        }
        if (r->link.head_done && status == WRING_OK)
            status = receive(&r->link, r->table + HEADER_NBYTES, r->table_nbytes - HEADER_NBYTES);
    }
    if (status == WRING_E_SYSTEM)
        return try_later(r, reason(errno));
    return status == WRING_OK ? index_table(r) : status;
}

static wring_status other_step(struct wri_rendezvous *r, int wait_ms)
{
    if (r->link.fd < 0) {
        int64_t pause_ms = (r->retry_ns - wri_clock_ns() + NS_PER_MS - 1) / NS_PER_MS;
        if (pause_ms > 0)
            poll(NULL, 0, pause_ms < wait_ms ? (int)pause_ms : wait_ms);
        return wri_clock_ns() < r->retry_ns ? WRING_AGAIN : start_connecting(r);
    }
    struct pollfd event = {.fd = r->link.fd, .events = r->connected ? POLLIN : POLLOUT};
    if (poll(&event, 1, wait_ms) <= 0)
        return WRING_AGAIN;
    return converse(r);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* "1, 3-7": the ranks that have not joined. */
static void list_missing(const struct wri_rendezvous *r, char *text, size_t nbytes)
{
    size_t used = 0;
    for (int rank = 0; rank < r->nranks && used < nbytes; rank++) {
        int last = rank;
        if (r->blobs[rank])
            continue;
        while (last + 1 < r->nranks && !r->blobs[last + 1])
            last++;
        used += (size_t)snprintf(text + used, nbytes - used, last > rank ? "%s%d-%d" : "%s%d",
                                 used ? ", " : "", rank, last);
        rank = last;
    }
}

static wring_status time_out(const struct wri_rendezvous *r)
{
    char missing[512] = "";
    long long ms = (r->deadline_ns - r->begin_ns) / NS_PER_MS;
    if (r->rank != 0)
        WRI_FAIL(WRING_E_TIMEOUT,
                 "rank %d: the group of %d ranks was not complete after %lld ms; rank "
                 "0 was sought at %s port %d: %s",
                 r->rank, r->nranks, ms, r->host, r->port,
                 r->connected ? "it was reached, and waits for others" : r->trouble);
    list_missing(r, missing, sizeof missing);
    WRI_FAIL(WRING_E_TIMEOUT,
             "rank 0: %d of %d ranks had joined at %s port %d after %lld ms; missing "
             "ranks: %s",
             r->njoined, r->nranks, r->host, r->port, ms,
             missing[0] ? missing : "none, but one did not take its answer");
}

static wring_status prepare_root(struct wri_rendezvous *r, const void *blob, size_t nbytes)
{
    WRI_TRY(reserve(r));
    WRI_TRY(keep_blob(r, 0, blob, nbytes));
    if (r->nranks == 1)
        return build_table(r);
    if (r->listen_fd < 0)
        return wri_socket_listen(r->host, &r->port, &r->listen_fd);
    fcntl(r->listen_fd, F_SETFL, fcntl(r->listen_fd, F_GETFL) | O_NONBLOCK);
    fcntl(r->listen_fd, F_SETFD, FD_CLOEXEC);
    return WRING_OK;
}

static wring_status prepare_other(struct wri_rendezvous *r, const void *blob, size_t nbytes)
{
    r->hello_nbytes = HEADER_NBYTES + nbytes;
    WRI_TRY(wri_alloc(r->hello_nbytes, 1, (void **)&r->hello));
    header_write(r->hello, r, (uint32_t)r->rank, nbytes, 0);
    if (nbytes)
        memcpy(r->hello + HEADER_NBYTES, blob, nbytes);
    return WRING_OK;
}

static wring_status check_arguments(int rank, int nranks, size_t nbytes)
{
    if (nranks < 1 || rank < 0 || rank >= nranks)
        WRI_FAIL(WRING_E_ARGUMENT, "rank %d of %d ranks is out of range", rank, nranks);
    if (nbytes > WRING_ADDRESS_MAX)
        WRI_FAIL(WRING_E_ARGUMENT, "%zu bytes are more than a rank may contribute", nbytes);
    return WRING_OK;
}

wring_status wri_rendezvous_open(const char *host, int port, int listen_fd, uint64_t job, int rank,
                                 int nranks, const void *blob, size_t nbytes, int timeout_ms,
                                 struct wri_rendezvous **rendezvous_out)
{
    struct wri_rendezvous *r = NULL;
    wring_status status = check_arguments(rank, nranks, nbytes);
    if (status == WRING_OK)
        status = wri_alloc(1, sizeof *r, (void **)&r);
    if (status != WRING_OK) {
        if (listen_fd >= 0)
            close(listen_fd);
        return status;
    }
    r->rank = rank;
    r->nranks = nranks;
    r->job = job;
    r->begin_ns = wri_clock_ns();
    r->deadline_ns = r->begin_ns + timeout_ms * NS_PER_MS;
    r->port = port;
    r->listen_fd = listen_fd;
    r->link.fd = -1;
    r->backoff_ms = BACKOFF_FIRST_MS;
    snprintf(r->host, sizeof r->host, "%s", host);
    status = rank == 0 ? prepare_root(r, blob, nbytes) : prepare_other(r, blob, nbytes);
    if (status != WRING_OK) {
        wri_rendezvous_close(r);
        return status;
    }
    *rendezvous_out = r;
    return WRING_OK;
}

wring_status wri_rendezvous_poll(struct wri_rendezvous *r, int wait_ms)
{
    int64_t left_ms = (r->deadline_ns - wri_clock_ns()) / NS_PER_MS + 1;
    if (r->complete)
        return WRING_OK;
    if (left_ms <= 0)
        return time_out(r);
    int sleep_ms = left_ms < wait_ms ? (int)left_ms : wait_ms;
    wring_status status = r->nranks == 1 ? WRING_OK
                          : r->rank == 0 ? root_step(r, sleep_ms)
                                         : other_step(r, sleep_ms);
    r->complete = status == WRING_OK;
    return status;
}

const void *wri_rendezvous_blob(const struct wri_rendezvous *r, int rank, size_t *nbytes)
{
    const unsigned char *entry = r->table + r->entry[rank];
    *nbytes = length_at(entry);
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
        connection_close(&r->connections[i]);
    for (int rank = 0; r->blobs && rank < r->nranks; rank++)
        wri_free(r->blobs[rank]);
    if (r->listen_fd >= 0)
        close(r->listen_fd);
    if (r->addresses)
        freeaddrinfo(r->addresses);
    connection_close(&r->link);
    wri_free(r->blobs);
    wri_free(r->connections);
    wri_free(r->polls);
    wri_free(r->hello);
    wri_free(r->entry);
    wri_free(r->table);
    wri_free(r);
}
