/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0's side of a rendezvous. It decides whom to believe: a connection counts for nothing until
 * the other side has proven that it knows the job's secret, and its whole hello was read and fits
 * the job. So strangers, garbage and half-open connections cost one slot of a bounded list and no
 * more. Whoever fits the job but not the group is told why.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sodium.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "transport/rendezvous_sides.h"

#define STRANGERS_MAX                                                                              \
    64 /* connections that have not said a whole hello, beside one for each rank */
#define REFUSALS_LOGGED 8

/* ---- the table ------------------------------------------------------------------------------- */

static wring_status keep_blob(struct wri_rendezvous *r, int rank, const void *blob, size_t nbytes)
{
    uint32_t length = htole32((uint32_t)nbytes);
    WRI_TRY(wri_alloc(LENGTH_NBYTES + nbytes, 1, (void **)&r->blobs[rank]));
    memcpy(r->blobs[rank], &length, sizeof length);
    if (nbytes)
        memcpy(r->blobs[rank] + LENGTH_NBYTES, blob, nbytes);
    r->njoined++;
    return WRING_OK;
}

static wring_status build_table(struct wri_rendezvous *r)
{
    size_t at = HEADER_NBYTES;
    r->table_nbytes = HEADER_NBYTES;
    for (int rank = 0; rank < r->nranks; rank++)
        r->table_nbytes += LENGTH_NBYTES + wri_rendezvous_length_at(r->blobs[rank]);
    WRI_TRY(wri_alloc(r->table_nbytes, 1, (void **)&r->table));
    randombytes_buf(&r->nonce, sizeof r->nonce);
    wri_rendezvous_header_write(r->table, r, ANSWER_TABLE, r->table_nbytes - HEADER_NBYTES,
                                r->nonce);
    for (int rank = 0; rank < r->nranks; rank++) {
        size_t nbytes = LENGTH_NBYTES + wri_rendezvous_length_at(r->blobs[rank]);
        memcpy(r->table + at, r->blobs[rank], nbytes);
        at += nbytes;
    }
    return wri_rendezvous_index_table(r);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void drop(struct wri_rendezvous *r, size_t index)
{
    struct connection *connection = &r->connections[index];
    int rank = connection->rank;
    wri_rendezvous_connection_close(connection);
    if (rank >= 0 && !r->table) { /* it may come again */
        wri_free(r->blobs[rank]);
        r->blobs[rank] = NULL;
        r->njoined--;
    }
    memmove(connection, connection + 1, (r->nconnections - index - 1) * sizeof *connection);
    r->nconnections--;
}

/* The oldest connection that may go: a stranger before one that belongs to the job and has yet to
 * say who it is. There is one, because the list is longer than the group. */
static size_t most_dispensable(const struct wri_rendezvous *r)
{
    size_t oldest = r->nconnections;
    for (size_t i = r->nconnections; i-- > 0;)
        if (r->connections[i].rank < 0 &&
            (oldest == r->nconnections || !r->connections[i].known || r->connections[oldest].known))
            oldest = i;
    return oldest;
}

/* Take those who knock. Honest ranks say hello at once, and come again if they had to make room. */
static void accept_some(struct wri_rendezvous *r)
{
    for (int taken = 0; taken < STRANGERS_MAX; taken++) {
        int fd = wri_socket_accept(r->listen_fd);
        if (fd < 0)
            return;
        if (r->nconnections == r->capacity)
            drop(r, most_dispensable(r));
        wri_rendezvous_connection_open(&r->connections[r->nconnections++], fd, &r->secret, true);
    }
}

/* Those that are refused are many only under attack: the first are logged, the last is kept for the
 * time-out's message. */
static void note_refusal(struct wri_rendezvous *r, const char *why)
{
    snprintf(r->trouble, sizeof r->trouble, "%s", why);
    r->nrefused++;
    if (r->nrefused <= REFUSALS_LOGGED)
        wri_log(WRING_LOG_WARN, "refused at port %d: %s%s", r->port, why,
                r->nrefused == REFUSALS_LOGGED ? "; further refusals are not logged" : "");
}

static enum answer judge(const struct wri_rendezvous *r, const struct header *head)
{
    if (head->version != WRI_RENDEZVOUS_VERSION)
        return ANSWER_VERSION;
    if (head->nranks != (uint32_t)r->nranks)
        return ANSWER_NRANKS;
    if (head->rank == 0 || head->rank >= head->nranks)
        return ANSWER_RANGE;
    return r->blobs[head->rank] ? ANSWER_TAKEN : ANSWER_TABLE;
}

/* Where RANK joined from; "" if it has not. */
static const char *holder(const struct wri_rendezvous *r, uint32_t rank,
                          char name[WRI_SOCKET_NAME_MAX])
{
    for (size_t i = 0; i < r->nconnections; i++)
        if (r->connections[i].rank >= 0 && (uint32_t)r->connections[i].rank == rank)
            return wri_socket_peer(r->connections[i].fd, name);
    return "";
}

/* Who is refused and why, for the log and the time-out's message. */
static void describe(const struct wri_rendezvous *r, const struct connection *connection,
                     char *text, size_t nbytes)
{
    char own[WRI_SOCKET_NAME_MAX], other[WRI_SOCKET_NAME_MAX];
    const struct header *head = &connection->head;
    const char *from = holder(r, head->rank, other);
    snprintf(text, nbytes,
             "the process at %s says that it is rank %u of %u; the group has %d ranks%s%s",
             wri_socket_peer(connection->fd, own), head->rank, head->nranks, r->nranks,
             from[0] ? ", and that one has joined from " : "", from);
}

void wri_rendezvous_root_give_up(struct wri_rendezvous *r, const unsigned char *joined)
{
    size_t nbytes = wri_rendezvous_joined_nbytes(r->nranks);
    for (size_t i = 0; i < r->nconnections && !r->table; i++) {
        unsigned char head[HEADER_NBYTES];
        struct connection *connection = &r->connections[i];
        size_t sent = 0;
        if (connection->rank < 0)
            continue;
        wri_rendezvous_header_write(head, r, ANSWER_INCOMPLETE, nbytes, 0);
        if (wri_socket_send(connection->fd, head, sizeof head, &sent) == WRING_OK)
            (void)wri_socket_send(connection->fd, joined, nbytes, &sent);
    }
}

/* A whole hello is here. WRING_E_MISMATCH: refused, and told so as well as the socket takes it. */
static wring_status join(struct wri_rendezvous *r, struct connection *connection)
{
    char text[256];
    unsigned char refusal[HEADER_NBYTES];
    enum answer answer = judge(r, &connection->head);
    if (answer == ANSWER_TABLE) {
        WRI_TRY(
            keep_blob(r, (int)connection->head.rank, connection->body, connection->head.nbytes));
        connection->rank = (int)connection->head.rank;
        return WRING_OK;
    }
    describe(r, connection, text, sizeof text);
    note_refusal(r, text);
    wri_rendezvous_header_write(refusal, r, answer, 0, 0);
    (void)wri_socket_send(connection->fd, refusal, sizeof refusal, &connection->done);
    return WRING_E_MISMATCH;
}

/* Read on in what the other side has to prove and to say. Any status but OK and AGAIN drops the
 * connection. */
static wring_status hear(struct wri_rendezvous *r, struct connection *connection)
{
    if (!connection->known) {
        wring_status status = wri_auth_advance(&connection->auth, connection->fd);
        if (status == WRING_E_MISMATCH)
            note_refusal(r, wring_error_message());
        WRI_TRY(status);
        connection->known = true;
    }
    if (!connection->head_done) {
        WRI_TRY(
            wri_socket_recv(connection->fd, connection->bytes, HEADER_NBYTES, &connection->done));
        wri_rendezvous_header_decode(&connection->head);
        if (connection->head.magic != WRI_RENDEZVOUS_MAGIC || connection->head.job != r->job ||
            connection->head.nbytes > WRING_ADDRESS_MAX)
            return WRING_E_MISMATCH;
        WRI_TRY(wri_alloc(connection->head.nbytes, 1, (void **)&connection->body));
        connection->head_done = true;
    }
    WRI_TRY(wri_socket_recv(connection->fd, connection->body, connection->head.nbytes,
                            &connection->done));
    return join(r, connection);
}

/* A joined rank has nothing to say before it got the table: readable means that it left. */
static wring_status serve(struct wri_rendezvous *r, struct connection *connection)
{
    char byte;
    if (connection->rank < 0)
        return hear(r, connection);
    if (r->table)
        return wri_socket_send(connection->fd, r->table, r->table_nbytes, &connection->done) ==
                       WRING_AGAIN
                   ? WRING_AGAIN
                   : WRING_E_STATE; /* sent, or gone: done with it either way */
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
    return r->table != NULL && r->nconnections == 0;
}

/* ---- both calls ------------------------------------------------------------------------------ */

static short events_of(const struct wri_rendezvous *r, const struct connection *connection)
{
    bool sends =
        connection->known ? connection->rank >= 0 && r->table : wri_auth_sends(&connection->auth);
    return sends ? POLLOUT : POLLIN;
}

static wring_status wait_for_sockets(struct wri_rendezvous *r, int wait_ms)
{
    for (size_t i = 0; i < r->nconnections; i++)
        r->polls[i] =
            (struct pollfd){.fd = r->connections[i].fd, .events = events_of(r, &r->connections[i])};
    r->polls[r->nconnections] = (struct pollfd){.fd = r->listen_fd, .events = POLLIN};
    if (poll(r->polls, r->nconnections + 1, wait_ms) < 0 && errno != EINTR)
        WRI_FAIL(WRING_E_SYSTEM, "poll: %s", strerror(errno));
    return WRING_OK;
}

wring_status wri_rendezvous_root_step(struct wri_rendezvous *r, int wait_ms)
{
    if (r->nranks == 1)
        return WRING_OK;
    WRI_TRY(wait_for_sockets(r, wait_ms));
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

static wring_status reserve(struct wri_rendezvous *r)
{
    r->capacity = (size_t)r->nranks + STRANGERS_MAX;
    WRI_TRY(wri_alloc(r->capacity, sizeof *r->connections, (void **)&r->connections));
    WRI_TRY(wri_alloc(r->capacity + 1, sizeof *r->polls, (void **)&r->polls));
    return wri_alloc((size_t)r->nranks, sizeof *r->blobs, (void **)&r->blobs);
}

static wring_status start_listening(struct wri_rendezvous *r)
{
    WRI_TRY(wri_secret_permits_host(&r->secret, r->host));
    if (r->listen_fd < 0) {
        wring_status status = wri_socket_listen(r->host, &r->port, &r->listen_fd);
        return status == WRING_OK
                   ? WRING_OK
                   : wri_fail_context(status, "rank 0 cannot wait for the others; is another job, "
                                              "or another rank 0, at that port?");
    }
    fcntl(r->listen_fd, F_SETFL, fcntl(r->listen_fd, F_GETFL) | O_NONBLOCK);
    fcntl(r->listen_fd, F_SETFD, FD_CLOEXEC);
    return WRING_OK;
}

wring_status wri_rendezvous_root_prepare(struct wri_rendezvous *r, const void *blob, size_t nbytes)
{
    WRI_TRY(reserve(r));
    WRI_TRY(keep_blob(r, 0, blob, nbytes));
    return r->nranks == 1 ? build_table(r) : start_listening(r);
}
