/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that meet in one thread, since nothing in a rendezvous blocks; and those who knock at
 * their door. */
#ifndef GROUP_H
#define GROUP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "transport/rendezvous.h"
#include "transport/socket.h"

#include <wring/plugin.h>

#define FORGED_NBYTES 40
#define FORGED_VERSION 3
#define GROUP_MAX 20
#define JOB 0x1234567890ABCDEFu
#define SECRET "the secret of this job"
#define TIMEOUT_MS 20000

struct group {
    int nranks, port;
    uint64_t job;
    const char *host, *secret;
    struct wri_rendezvous *rank[GROUP_MAX];
    wring_status status[GROUP_MAX];
};

static inline size_t blob_nbytes(int rank)
{
    return rank == 1 ? 0 : rank == 2 ? WRING_ADDRESS_MAX : (size_t)rank * 37 + 5;
}

static inline void fill_blob(unsigned char *blob, int rank)
{
    for (size_t i = 0; i < blob_nbytes(rank); i++)
        blob[i] = (unsigned char)((size_t)rank * 101 + i * 7);
}

static inline struct wri_secret secret_of(const char *text)
{
    struct wri_config config = {0};
    struct wri_secret secret;
    snprintf(config.secret, sizeof config.secret, "%s", text);
    assert_int_equal(wri_secret_load(&config, &secret), WRING_OK);
    return secret;
}

/* RANK joins; the listening socket FD is for rank 0, or -1. */
static inline wring_status join_as(struct group *group, int fd, int rank, int nranks,
                                   int timeout_ms)
{
    unsigned char blob[WRING_ADDRESS_MAX];
    struct wri_rendezvous_options options = {.host = group->host,
                                             .port = group->port,
                                             .listen_fd = fd,
                                             .job = group->job,
                                             .rank = rank,
                                             .nranks = nranks,
                                             .secret = secret_of(group->secret),
                                             .timeout_ms = timeout_ms};
    fill_blob(blob, rank);
    group->status[rank] = WRING_AGAIN;
    return wri_rendezvous_open(&options, blob, blob_nbytes(rank), &group->rank[rank]);
}

/* A port of its own on HOST, and a socket that listens there. */
static inline struct group group_new(const char *host, int nranks, int *fd_out)
{
    struct group group = {.nranks = nranks, .job = JOB, .host = host, .secret = SECRET};
    assert_int_equal(wri_socket_listen(host, &group.port, fd_out), WRING_OK);
    assert_true(group.port > 0);
    return group;
}

/* The ranks from FIRST to LAST have begun. */
static inline struct group group_open(const char *host, int nranks, int first, int last)
{
    int fd = -1;
    struct group group = group_new(host, nranks, &fd);
    for (int rank = last; rank >= first; rank--)
        assert_int_equal(join_as(&group, rank == 0 ? fd : -1, rank, nranks, TIMEOUT_MS), WRING_OK);
    if (first > 0)
        close(fd);
    return group;
}

static inline void group_close(struct group *group)
{
    for (int rank = 0; rank < GROUP_MAX; rank++)
        wri_rendezvous_close(group->rank[rank]);
}

/* Poll all ranks once; true while some rank is unfinished. */
static inline bool step(struct group *group)
{
    bool again = false;
    for (int rank = 0; rank < group->nranks; rank++)
        if (group->rank[rank] && group->status[rank] == WRING_AGAIN) {
            group->status[rank] = wri_rendezvous_poll(group->rank[rank], rank == 0);
            again |= group->status[rank] == WRING_AGAIN;
        }
    return again;
}

static inline void complete(struct group *group)
{
    unsigned char expected[WRING_ADDRESS_MAX];
    size_t nbytes;
    while (step(group))
        continue;
    for (int rank = 0; rank < group->nranks; rank++) {
        if (group->status[rank] != WRING_OK)
            fail_msg("rank %d: %s", rank, wring_error_message());
        assert_true(wri_rendezvous_nonce(group->rank[rank]) ==
                    wri_rendezvous_nonce(group->rank[0]));
        for (int other = 0; other < group->nranks; other++) {
            const void *blob = wri_rendezvous_blob(group->rank[rank], other, &nbytes);
            fill_blob(expected, other);
            assert_int_equal(nbytes, blob_nbytes(other));
            assert_memory_equal(blob, expected, nbytes);
        }
    }
}

/* ---- who knocks ------------------------------------------------------------------------------ */

/* A connection to 127.0.0.HOST. */
static inline int knock_at(int port, unsigned host)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(0x7F000000 | host)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    (void)connect(fd, (struct sockaddr *)&address, sizeof address);
    return fd;
}

static inline int knock(int port)
{
    return knock_at(port, 1);
}

/* A connection of one who knows the secret. */
static inline int knock_and_prove(struct group *group)
{
    struct wri_secret secret = secret_of(group->secret);
    struct wri_auth auth;
    int fd = knock(group->port);
    wring_status status = WRING_AGAIN;
    wri_auth_init(&auth, &secret, false);
    while (status == WRING_AGAIN) {
        step(group);
        status = wri_auth_advance(&auth, fd);
    }
    assert_int_equal(status, WRING_OK);
    return fd;
}

static inline void put(unsigned char *at, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

/* The header as drawn in rendezvous.c. */
static inline void forge(unsigned char header[FORGED_NBYTES], uint32_t version, uint32_t nranks,
                         uint64_t job, uint32_t rank, uint32_t nbytes)
{
    memset(header, 0, FORGED_NBYTES);
    put(header, 0x5A5644524E525701u, 8);
    put(header + 8, version, 4);
    put(header + 12, nranks, 4);
    put(header + 16, job, 8);
    put(header + 24, rank, 4);
    put(header + 28, nbytes, 4);
}

#endif
