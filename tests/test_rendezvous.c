/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous: groups complete, who is missing is named, and what does not fit is refused. */
#include "group.h"

#include <errno.h>
#include <fcntl.h>

#include "base/clock.h"
#include "base/memory.h"
#include "refuse.h"
#include "transport/rendezvous_sides.h"

static void groups_complete(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "localhost"};
    uint64_t nonce = 0;
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int nranks = 1; nranks <= GROUP_MAX; nranks += nranks < 4 ? 1 : 8) {
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
    assert_int_equal(join_as(&group, -1, 0, 3, TIMEOUT_MS), WRING_OK);
    complete(&group);
    assert_int_equal(wri_rendezvous_poll(group.rank[1], 0), WRING_OK); /* and stays so */
    group_close(&group);
}

/* A host has several addresses, and rank 0 listens at one of them. */
static void every_address_of_the_host_is_tried(void **state)
{
    struct group group = group_open("127.0.0.1", 2, 0, 0);
    (void)state;
    resolve_first_to("127.0.0.2");
    assert_int_equal(join_as(&group, -1, 1, 2, TIMEOUT_MS), WRING_OK);
    complete(&group);
    resolve_first_to(NULL);
    group_close(&group);
}

static void disagreement_is_told_to_the_one_refused(void **state)
{
    struct group group = group_open("127.0.0.1", 3, 0, 1), other = {.nranks = 5,
                                                                    .port = group.port,
                                                                    .job = JOB,
                                                                    .host = "127.0.0.1",
                                                                    .secret = SECRET};
    (void)state;
    for (int i = 0; i < 20; i++)
        step(&group);
    for (int nranks = 3; nranks <= 5; nranks += 2) { /* rank 1 twice; another number of ranks */
        assert_int_equal(join_as(&other, -1, 1, nranks, TIMEOUT_MS), WRING_OK);
        while (step(&other))
            step(&group);
        assert_int_equal(other.status[1], WRING_E_MISMATCH);
        assert_non_null(
            strstr(wring_error_message(), nranks == 3 ? "joined already" : "number of ranks"));
        wri_rendezvous_close(other.rank[1]);
        other.rank[1] = NULL;
    }
    assert_int_equal(join_as(&group, -1, 2, 3, TIMEOUT_MS), WRING_OK);
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
        assert_int_equal(join_as(&group, -1, rank, 3, TIMEOUT_MS), WRING_OK);
    complete(&group);
    group_close(&group);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void assert_missing_are_named(struct wri_rendezvous *r)
{
    while (wri_rendezvous_poll(r, 1) == WRING_AGAIN)
        continue;
    assert_non_null(strstr(wring_error_message(), "missing ranks: 1, 3, 5-8"));
}

/* More than fit into a message are cut off, and not written past its end. */
static void a_list_of_missing_ranks_has_an_end(void **state)
{
    unsigned char joined[128];
    char text[512];
    (void)state;
    memset(joined, 0x55, sizeof joined);
    for (size_t nbytes = 1; nbytes < sizeof text; nbytes++) {
        memset(text, '!', sizeof text);
        wri_rendezvous_list_missing(joined, 1024, text, nbytes);
        assert_int_equal(strlen(text), nbytes - 1);
        assert_true(text[nbytes] == '!');
        assert_int_equal(strncmp(text, "1, 3, 5", wri_min(nbytes - 1, 7)), 0);
    }
}

/* On all that are there, though the time of some ends before rank 0's. */
static void missing_ranks_are_named(void **state)
{
    int fd = -1;
    struct group group = group_new("127.0.0.1", 9, &fd);
    (void)state;
    for (int rank = 0; rank < 5; rank += 2)
        assert_int_equal(join_as(&group, rank == 0 ? fd : -1, rank, 9, 200 - 20 * rank), WRING_OK);
    int stranger = knock(group.port); /* who is told nothing */
    while (group.status[0] == WRING_AGAIN)
        step(&group);
    assert_true(group.rank[0]->nconnections == 3);
    for (int rank = 0; rank < 5; rank += 2)
        assert_missing_are_named(group.rank[rank]);
    char byte;
    assert_true(recv(stranger, &byte, 1, 0) < 0);
    close(stranger);
    group_close(&group);
}

static void a_listener_that_is_not_there_is_named(void **state)
{
    struct group group = group_open("127.0.0.1", 2, 1, 0); /* only the port, closed again */
    (void)state;
    assert_int_equal(join_as(&group, -1, 1, 2, 150), WRING_OK);
    int64_t begin = wri_clock_ns();
    while (step(&group))
        (void)wri_rendezvous_poll(group.rank[1], 20); /* longer than the first pauses */
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
    struct wri_rendezvous_options options = {
        .host = "127.0.0.1", .port = port, .listen_fd = -1, .timeout_ms = 100};
    for (size_t i = 0; i < 4; i++) {
        options.rank = bad[i][0];
        options.nranks = bad[i][1];
        assert_int_equal(wri_rendezvous_open(&options, "", 0, &r), WRING_E_ARGUMENT);
    }
    options.nranks = 1;
    assert_int_equal(wri_rendezvous_open(&options, "", WRING_ADDRESS_MAX + 1, &r),
                     WRING_E_ARGUMENT);
    options.listen_fd = dup(taken); /* which is handed over for better or worse */
    assert_int_equal(wri_rendezvous_open(&options, "", WRING_ADDRESS_MAX + 1, &r),
                     WRING_E_ARGUMENT);
    assert_int_equal(fcntl(options.listen_fd, F_GETFD), -1);
    options.listen_fd = -1;
    options.rank = 0;
    options.nranks = 2;
    assert_int_equal(wri_rendezvous_open(&options, "", 0, &r), WRING_E_SYSTEM);
    assert_non_null(strstr(wring_error_message(), "another rank 0"));
    assert_null(r);
    close(taken);
}

/* What is no host now may be one later. */
static void a_host_without_address_is_named(void **state)
{
    struct group group = {.nranks = 2, .port = 9, .host = "no.such.host.invalid", .secret = SECRET};
    (void)state;
    assert_int_equal(join_as(&group, -1, 1, 2, 100), WRING_OK);
    while (step(&group))
        continue;
    assert_int_equal(group.status[1], WRING_E_TIMEOUT);
    assert_non_null(strstr(wring_error_message(), "no address for host 'no.such.host.invalid'"));
    group_close(&group);
}

/* A false rank 0, which knows the secret, answers with COUNT bytes of ANSWER and hangs up, or with
 * none and waits; returns how rank 1 ends. */
static wring_status answer_with(const unsigned char *answer, size_t count)
{
    int listener = -1, fd = -1;
    struct group group = group_new("127.0.0.1", 2, &listener);
    struct wri_secret secret = secret_of(group.secret);
    struct wri_auth auth;
    bool answered = false;
    assert_int_equal(join_as(&group, -1, 1, 2, 100), WRING_OK);
    while (step(&group)) {
        int next = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (next >= 0) {
            if (fd >= 0)
                close(fd);
            fd = next;
            answered = false;
            wri_auth_init(&auth, &secret, true);
        }
        if (fd < 0 || answered || wri_auth_advance(&auth, fd) != WRING_OK)
            continue;
        assert_int_equal(send(fd, answer, count, MSG_NOSIGNAL), count);
        if (count > 0)
            shutdown(fd, SHUT_WR);
        answered = true;
    }
    close(fd);
    close(listener);
    wring_status status = group.status[1];
    group_close(&group);
    return status;
}

static void malformed_answers_are_refused(void **state)
{
    unsigned char answer[FORGED_NBYTES + 16];
    (void)state;
    for (uint32_t body = 0; body <= 16; body++) {
        forge(answer, FORGED_VERSION, 2, JOB, 0, body);
        memset(answer + FORGED_NBYTES, 0, 16);
        put(answer + FORGED_NBYTES, 4, 4); /* rank 0: 4 bytes; rank 1: none */
        wring_status expected = body == 12 ? WRING_OK : WRING_E_CORRUPT;
        assert_int_equal(answer_with(answer, FORGED_NBYTES + body), expected);
    }
    put(answer + FORGED_NBYTES, 0xFFFFFFFFu, 4);
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_CORRUPT);
    forge(answer, FORGED_VERSION, 2, JOB, 0, 0xFFFFFFFFu);
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_CORRUPT);
    forge(answer, FORGED_VERSION, 2, JOB, 77, 12);
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_CORRUPT);
    forge(answer, FORGED_VERSION, 2, JOB + 1, 0, 12); /* not ours: tried again until the deadline */
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_TIMEOUT);
    assert_non_null(strstr(wring_error_message(), "no rank 0 of this job"));
    assert_int_equal(answer_with(answer, 17), WRING_E_TIMEOUT);
    forge(answer, FORGED_VERSION, 2, JOB, 0, 12);
    assert_int_equal(answer_with(answer, FORGED_NBYTES + 5), WRING_E_TIMEOUT); /* cut off */
    answer[3]++;                                                               /* the magic */
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_TIMEOUT);
    forge(answer, FORGED_VERSION + 1, 2, JOB, 0, 12);
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_CORRUPT);
    forge(answer, FORGED_VERSION, 3, JOB, 0, 12);
    assert_int_equal(answer_with(answer, sizeof answer), WRING_E_CORRUPT);
    for (uint32_t body = 0; body < 3; body++) { /* time is up, and a bit for each rank */
        forge(answer, FORGED_VERSION, 2, JOB, ANSWER_INCOMPLETE, body);
        assert_int_equal(answer_with(answer, FORGED_NBYTES + body),
                         body == 1 ? WRING_E_TIMEOUT : WRING_E_CORRUPT);
    }
}

static void a_rank_0_that_never_answers_is_named(void **state)
{
    (void)state;
    assert_int_equal(answer_with(NULL, 0), WRING_E_TIMEOUT);
    assert_non_null(strstr(wring_error_message(), "it was reached, and waits for others"));
}

/* Another program listens where rank 0 is sought: it may go away until the time is up. */
static void another_program_may_listen_there(void **state)
{
    int listener = -1, fd = -1;
    struct group group = group_new("127.0.0.1", 2, &listener);
    (void)state;
    assert_int_equal(join_as(&group, -1, 1, 2, 200), WRING_OK);
    while (step(&group))
        if ((fd = wri_socket_accept(listener)) >= 0) {
            static const char page[] =
                "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
            assert_int_equal(send(fd, page, sizeof page, MSG_NOSIGNAL), sizeof page);
            close(fd);
        }
    assert_int_equal(group.status[1], WRING_E_TIMEOUT);
    assert_non_null(strstr(wring_error_message(), "is no rank of wring"));
    close(listener);
    group_close(&group);
}

/* All have joined, and one does not take the table. */
static void a_rank_that_takes_no_answer_is_told_from_missing(void **state)
{
    int fd = -1;
    struct group group = group_new("127.0.0.1", 2, &fd);
    (void)state;
    assert_int_equal(join_as(&group, fd, 0, 2, 100), WRING_OK);
    assert_int_equal(join_as(&group, -1, 1, 2, TIMEOUT_MS), WRING_OK);
    while (group.rank[0]->njoined < 2)
        step(&group);
    refuse("send", 0, 1000000, EAGAIN);
    while (group.status[0] == WRING_AGAIN)
        group.status[0] = wri_rendezvous_poll(group.rank[0], 1);
    assert_true(was_refused());
    assert_int_equal(group.status[0], WRING_E_TIMEOUT);
    assert_non_null(strstr(wring_error_message(), "none, but one did not take its answer"));
    group_close(&group);
}

/* ---- a system that refuses ------------------------------------------------------------------- */

/* Ranks 0 to LAST of 3 meet; rank 1 leaves on the way and comes again. How rank 0 ended. */
static wring_status meet(struct group *group, int fd, int last, int timeout_ms)
{
    wring_status status = join_as(group, fd, 0, 3, timeout_ms);
    for (int turn = 0; turn < 8 && status == WRING_OK; turn++) {
        if (turn == 4) {
            wri_rendezvous_close(group->rank[1]);
            group->rank[1] = NULL;
        }
        if (turn % 4 == 0)
            (void)join_as(group, -1, 1, 3, TIMEOUT_MS);
        step(group);
    }
    if (last == 2 && status == WRING_OK)
        (void)join_as(group, -1, 2, 3, TIMEOUT_MS);
    while (status == WRING_OK && group->status[0] == WRING_AGAIN)
        step(group);
    return status == WRING_OK ? group->status[0] : status;
}

/* Whichever call is refused once, ranks come again, and rank 0 goes on. */
static void a_refused_call_is_survived(void **state)
{
    static const struct {
        const char *call;
        int error;
    } rows[] = {{"socket", EMFILE}, {"connect", ENETUNREACH}, {"send", ECONNRESET},
                {"send", EAGAIN},   {"recv", ECONNRESET},     {"recv", EAGAIN},
                {"poll", EINTR},    {"poll", ENOMEM}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int last = 1; last <= 2; last++)
            for (int n = 0, reached = 1; reached && n < 60; n++) {
                int fd = -1;
                struct group group = group_new("127.0.0.1", 3, &fd);
                refuse(rows[i].call, n, 1, rows[i].error);
                wring_status status = meet(&group, fd, last, last == 2 ? TIMEOUT_MS : 25);
                reached = was_refused();
                if (status != (last == 2 ? WRING_OK : WRING_E_TIMEOUT) &&
                    (status != WRING_E_SYSTEM || rows[i].error != ENOMEM))
                    fail_msg("%s %d, ranks to %d: %s", rows[i].call, n, last,
                             wring_error_message());
                group_close(&group);
            }
}

/* Whichever allocation fails, who needed it says so, or is dropped. */
static void an_allocation_that_fails_is_survived(void **state)
{
    (void)state;
    for (int last = 1; last <= 2; last++)
        for (uint64_t n = 1, met = n; met >= n; n++) {
            int fd = -1;
            struct group group = group_new("127.0.0.1", 3, &fd);
            uint64_t before = wri_alloc_count();
            wri_alloc_fail_at(n);
            wring_status status = meet(&group, fd, last, 40);
            wri_alloc_fail_at(0);
            met = wri_alloc_count() - before + 1;
            if (status != WRING_OK && status != WRING_E_MEMORY && status != WRING_E_TIMEOUT)
                fail_msg("allocation %d, ranks to %d: %s", (int)n, last, wring_error_message());
            group_close(&group);
        }
}

/* Whichever allocation fails, rank 0 says so or drops one connection; nothing leaks. */
static void allocation_failures_are_survived(void **state)
{
    int failed = 0;
    (void)state;
    for (uint64_t n = 1; n < 12; n++) {
        struct wri_rendezvous_options options = {
            .host = "127.0.0.1", .listen_fd = -1, .nranks = 1, .timeout_ms = 1000};
        struct wri_rendezvous *r = NULL;
        wri_alloc_fail_at(n);
        wring_status status = wri_rendezvous_open(&options, "abc", 3, &r);
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
        cmocka_unit_test(disagreement_is_told_to_the_one_refused),
        cmocka_unit_test(a_rank_may_leave_and_come_again),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(a_listener_that_is_not_there_is_named),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(malformed_answers_are_refused),
        cmocka_unit_test(every_address_of_the_host_is_tried),
        cmocka_unit_test(a_list_of_missing_ranks_has_an_end),
        cmocka_unit_test(a_host_without_address_is_named),
        cmocka_unit_test(a_rank_0_that_never_answers_is_named),
        cmocka_unit_test(another_program_may_listen_there),
        cmocka_unit_test(a_rank_that_takes_no_answer_is_told_from_missing),
        cmocka_unit_test(a_refused_call_is_survived),
        cmocka_unit_test(an_allocation_that_fails_is_survived),
        cmocka_unit_test(allocation_failures_are_survived),
    };
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
