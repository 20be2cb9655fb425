/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous: groups complete whatever else knocks at the port, and who is missing is named.
 * Because nothing blocks, one thread plays all ranks and the strangers. */
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

#include "base/clock.h"
#include "base/memory.h"
#include "transport/rendezvous.h"
#include "transport/socket.h"

#include <wring/plugin.h>

#define RANKS_MAX 20
#define JOB 0x1234567890ABCDEFu
#define TIMEOUT_MS 20000
#define HEADER_NBYTES 40

struct group {
    int nranks, port;
    struct wri_rendezvous *rank[RANKS_MAX];
    wring_status status[RANKS_MAX];
};

static size_t blob_nbytes(int rank)
{
    return rank == 1 ? 0 : rank == 2 ? WRING_ADDRESS_MAX : (size_t)rank * 37 + 5;
}

static void fill_blob(unsigned char *blob, int rank)
{
    for (size_t i = 0; i < blob_nbytes(rank); i++)
        blob[i] = (unsigned char)((size_t)rank * 101 + i * 7);
}

static wring_status join_as(struct group *group, const char *host, int fd, int rank, int nranks,
                            int timeout_ms)
{
    unsigned char blob[WRING_ADDRESS_MAX];
    fill_blob(blob, rank);
    group->status[rank] = WRING_AGAIN;
    return wri_rendezvous_open(host, group->port, fd, JOB, rank, nranks, blob, blob_nbytes(rank),
                               timeout_ms, &group->rank[rank]);
}

static struct group group_open(const char *host, int nranks, int first, int last)
{
    struct group group = {.nranks = nranks};
    int fd = -1;
    assert_int_equal(wri_socket_listen(host, &group.port, &fd), WRING_OK);
    assert_true(group.port > 0);
    for (int rank = last; rank >= first; rank--)
        assert_int_equal(join_as(&group, host, rank == 0 ? fd : -1, rank, nranks, TIMEOUT_MS),
                         WRING_OK);
    if (first > 0)
        close(fd);
    return group;
}

static void group_close(struct group *group)
{
    for (int rank = 0; rank < RANKS_MAX; rank++)
        wri_rendezvous_close(group->rank[rank]);
}

/* Poll all ranks once; true while some rank is unfinished. */
static bool step(struct group *group)
{
    bool again = false;
    for (int rank = 0; rank < group->nranks; rank++)
        if (group->rank[rank] && group->status[rank] == WRING_AGAIN) {
            group->status[rank] = wri_rendezvous_poll(group->rank[rank], rank == 0);
            again |= group->status[rank] == WRING_AGAIN;
        }
    return again;
}

static void complete(struct group *group)
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

static void groups_complete(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "localhost"};
    uint64_t nonce = 0;
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int nranks = 1; nranks <= RANKS_MAX; nranks += nranks < 4 ? 1 : 8) {
            struct group group = group_open(hosts[i], nranks, 0, nranks - 1);
            complete(&group);
            assert_true(wri_rendezvous_nonce(group.rank[0]) != nonce);
            nonce = wri_rendezvous_nonce(group.rank[0]);
            group_close(&group);
        }
}

/* The others come first and find nobody, then rank 0 opens the port. */
static void rank_0_may_come_last(void **state)
{
    struct group group = group_open("127.0.0.1", 3, 1, 2);
    (void)state;
    for (int i = 0; i < 50; i++) {
        step(&group);
        usleep(1000);
    }
    assert_int_equal(join_as(&group, "127.0.0.1", -1, 0, 3, TIMEOUT_MS), WRING_OK);
    complete(&group);
    group_close(&group);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static int knock(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    (void)connect(fd, (struct sockaddr *)&address, sizeof address);
    return fd;
}

static void put(unsigned char *at, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

/* The header as written in rendezvous.c. */
static void forge(unsigned char header[HEADER_NBYTES], uint32_t version, uint32_t nranks,
                  uint64_t job, uint32_t rank, uint32_t nbytes)
{
    memset(header, 0, HEADER_NBYTES);
    put(header, 0x5A5644524E525701u, 8);
    put(header + 8, version, 4);
    put(header + 12, nranks, 4);
    put(header + 16, job, 8);
    put(header + 24, rank, 4);
    put(header + 28, nbytes, 4);
}

static void strangers_do_not_disturb(void **state)
{
    struct group group = group_open("127.0.0.1", 4, 0, 0);
    unsigned char messages[10][HEADER_NBYTES + 8];
    int fds[300], n = 0;
    (void)state;
    memset(messages, 'x', sizeof messages);
    forge(messages[1], 1, 4, JOB + 1, 2, 8);       /* another job */
    forge(messages[2], 2, 4, JOB, 2, 8);           /* another version */
    forge(messages[3], 1, 5, JOB, 2, 8);           /* another size */
    forge(messages[4], 1, 4, JOB, 0, 8);           /* rank 0 itself */
    forge(messages[5], 1, 4, JOB, 4, 8);           /* past the end */
    forge(messages[6], 1, 4, JOB, 0xFFFFFFFFu, 8); /* negative */
    forge(messages[7], 1, 4, JOB, 2, 0xFFFFFFFFu); /* huge blob */
    forge(messages[8], 1, 4, JOB, 2, WRING_ADDRESS_MAX + 1);
    forge(messages[9], 1, 4, JOB, 2, 1000); /* a blob that never ends */
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 10; i++) {
            fds[n] = knock(group.port);
            step(&group);
            size_t nbytes = round == 1 ? (size_t)i * 4 : HEADER_NBYTES + 8; /* whole, or cut off */
            assert_int_equal(send(fds[n], messages[i], nbytes, MSG_NOSIGNAL), nbytes);
            if (round == 2)
                close(fds[n]);
            else
                n++;
            step(&group);
        }
    while (n < 300) { /* half-open, far more than are kept */
        fds[n++] = knock(group.port);
        step(&group);
    }
    for (int rank = 1; rank < 4; rank++)
        assert_int_equal(join_as(&group, "127.0.0.1", -1, rank, 4, TIMEOUT_MS), WRING_OK);
    complete(&group);
    while (n > 0)
        close(fds[--n]);
    group_close(&group);
}

static void disagreement_is_told_to_the_one_refused(void **state)
{
    struct group group = group_open("127.0.0.1", 3, 0, 1),
                 other = {.nranks = 5, .port = group.port};
    (void)state;
    for (int i = 0; i < 20; i++)
        step(&group);
    for (int nranks = 3; nranks <= 5; nranks += 2) { /* rank 1 twice; another number of ranks */
        assert_int_equal(join_as(&other, "127.0.0.1", -1, 1, nranks, TIMEOUT_MS), WRING_OK);
        while (step(&other))
            step(&group);
        assert_int_equal(other.status[1], WRING_E_MISMATCH);
        assert_non_null(
            strstr(wring_error_message(), nranks == 3 ? "joined already" : "number of ranks"));
        wri_rendezvous_close(other.rank[1]);
        other.rank[1] = NULL;
    }
    assert_int_equal(join_as(&group, "127.0.0.1", -1, 2, 3, TIMEOUT_MS), WRING_OK);
    complete(&group);
    group_close(&group);
}

static void a_rank_may_leave_and_come_again(void **state)
{
    struct group group = group_open("127.0.0.1", 3, 0, 1);
    (void)state;
    for (int i = 0; i < 20; i++)
        step(&group);
    wri_rendezvous_close(group.rank[1]);
    group.rank[1] = NULL;
    for (int i = 0; i < 20; i++)
        step(&group);
    for (int rank = 1; rank < 3; rank++)
        assert_int_equal(join_as(&group, "127.0.0.1", -1, rank, 3, TIMEOUT_MS), WRING_OK);
    complete(&group);
    group_close(&group);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void missing_ranks_are_named(void **state)
{
    struct group group = {.nranks = 9};
    int fd = -1;
    (void)state;
    assert_int_equal(wri_socket_listen("127.0.0.1", &group.port, &fd), WRING_OK);
    for (int rank = 0; rank < 5; rank += 2)
        assert_int_equal(join_as(&group, "127.0.0.1", rank == 0 ? fd : -1, rank, 9, 200), WRING_OK);
    while (step(&group))
        continue;
    for (int rank = 4; rank >= 0; rank -= 2)
        assert_int_equal(wri_rendezvous_poll(group.rank[rank], 0), WRING_E_TIMEOUT);
    assert_non_null(strstr(wring_error_message(), "missing ranks: 1, 3, 5-8"));
    group_close(&group);
}

static void a_listener_that_is_not_there_is_named(void **state)
{
    struct group group = group_open("127.0.0.1", 2, 1, 0); /* only the port, closed again */
    (void)state;
    assert_int_equal(join_as(&group, "127.0.0.1", -1, 1, 2, 150), WRING_OK);
    int64_t begin = wri_clock_ns();
    while (step(&group))
        continue;
    assert_int_equal(group.status[1], WRING_E_TIMEOUT);
    assert_true(wri_clock_ns() - begin < 2000000000);
    assert_non_null(strstr(wring_error_message(), "Connection refused"));
    group_close(&group);
}

static void bad_arguments_are_refused(void **state)
{
    struct wri_rendezvous *r = NULL;
    int port = 0, taken = -1, fd = -1;
    (void)state;
    assert_int_equal(wri_socket_listen("no.such.host.invalid", &port, &fd), WRING_E_SYSTEM);
    assert_int_equal(wri_socket_listen("127.0.0.1", &port, &taken), WRING_OK);
    assert_int_equal(wri_socket_listen("127.0.0.1", &port, &fd), WRING_E_SYSTEM);
    assert_non_null(strstr(wring_error_message(), "in use"));
    assert_int_equal(fd, -1);
    static const int bad[][2] = {{0, 0}, {-1, 2}, {2, 2}, {0, -1}};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            wri_rendezvous_open("127.0.0.1", port, -1, 1, bad[i][0], bad[i][1], "", 0, 100, &r),
            WRING_E_ARGUMENT);
    assert_int_equal(
        wri_rendezvous_open("127.0.0.1", port, -1, 1, 0, 1, "", WRING_ADDRESS_MAX + 1, 100, &r),
        WRING_E_ARGUMENT);
    assert_null(r);
    close(taken);
}

/* A false rank 0 answers with COUNT bytes of ANSWER; returns how rank 1 ends. */
static wring_status answer_with(const unsigned char *answer, size_t count)
{
    struct group group = {.nranks = 2};
    int listener = -1, fd = -1;
    assert_int_equal(wri_socket_listen("127.0.0.1", &group.port, &listener), WRING_OK);
    assert_int_equal(join_as(&group, "127.0.0.1", -1, 1, 2, 100), WRING_OK);
    while (step(&group)) {
        int next = accept(listener, NULL, NULL);
        if (next < 0)
            continue;
        if (fd >= 0)
            close(fd);
        fd = next;
        assert_int_equal(send(fd, answer, count, MSG_NOSIGNAL), count);
        shutdown(fd, SHUT_WR);
    }
    close(fd);
    close(listener);
    wring_status status = group.status[1];
    group_close(&group);
    return status;
}

static void malformed_answers_are_refused(void **state)
{
    unsigned char answer[HEADER_NBYTES + 16];
    (void)state;
    for (uint32_t body = 0; body <= 16; body++) {
        forge(answer, 1, 2, JOB, 0, body);
        memset(answer + HEADER_NBYTES, 0, 16);
        put(answer + HEADER_NBYTES, 4, 4); /* rank 0: 4 bytes; rank 1: none */
        wring_status expected = body == 12 ? WRING_OK : WRING_E_CORRUPT;
        assert_int_equal(answer_with(answer, HEADER_NBYTES + body), expected);
    }
    put(answer + HEADER_NBYTES, 0xFFFFFFFFu, 4);
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_CORRUPT);
    forge(answer, 1, 2, JOB, 0, 0xFFFFFFFFu);
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_CORRUPT);
    forge(answer, 1, 2, JOB, 77, 12);
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_CORRUPT);
    forge(answer, 1, 2, JOB + 1, 0, 12); /* not ours: tried again until the deadline */
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_TIMEOUT);
    assert_int_equal(answer_with(answer, 17), WRING_E_TIMEOUT);
}

/* Whichever allocation fails, rank 0 says so or drops one connection; nothing leaks. */
static void allocation_failures_are_survived(void **state)
{
    int failed = 0;
    (void)state;
    for (uint64_t n = 1; n < 12; n++) {
        struct wri_rendezvous *r = NULL;
        wri_alloc_fail_at(n);
        wring_status status =
            wri_rendezvous_open("127.0.0.1", 0, -1, JOB, 0, 1, "abc", 3, 1000, &r);
        if (status == WRING_OK)
            status = wri_rendezvous_poll(r, 0);
        wri_alloc_fail_at(0);
        assert_true(status == WRING_OK || status == WRING_E_MEMORY);
        failed += status == WRING_E_MEMORY;
        wri_rendezvous_close(r);
    }
    assert_true(failed >= 4 && failed < 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_complete),
        cmocka_unit_test(rank_0_may_come_last),
        cmocka_unit_test(strangers_do_not_disturb),
        cmocka_unit_test(disagreement_is_told_to_the_one_refused),
        cmocka_unit_test(a_rank_may_leave_and_come_again),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(a_listener_that_is_not_there_is_named),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(malformed_answers_are_refused),
        cmocka_unit_test(allocation_failures_are_survived),
    };
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
