/* SPDX-License-Identifier: Apache-2.0 */
/* What else knocks while a group meets: scanners, garbage, forged and replayed joins, ranks of
 * other jobs. None of them joins, the job completes, and they cost next to nothing. */
#include "group.h"

#include <errno.h>
#include <sys/resource.h>

#define FORGED (getenv("WRING_TEST_SMALL") ? 500 : 10000)
#define STRANGERS 1000
#define SPOKEN (WRI_AUTH_GREETING_NBYTES + WRI_AUTH_PROOF_NBYTES)

static char logged[16][512];
static int nlogged;

static void keep_log(void *arg, wring_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    if (nlogged < 16)
        snprintf(logged[nlogged], sizeof logged[0], "%s", line);
    nlogged++;
}

static size_t resident_nbytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The others join, and all is well. */
static void complete_with(struct group *group, int first)
{
    for (int rank = first; rank < group->nranks; rank++)
        assert_int_equal(join_as(group, -1, rank, group->nranks, TIMEOUT_MS), WRING_OK);
    complete(group);
    group_close(group);
}

/* ---- one of each kind ------------------------------------------------------------------------ */

/* Messages of all kinds, whole, cut off, or hung up after, with and without the proof before. */
static void garbage_does_not_disturb(void **state)
{
    struct group group = group_open("127.0.0.1", 4, 0, 0);
    unsigned char messages[10][FORGED_NBYTES + 8];
    int fds[300], n = 0;
    (void)state;
    memset(messages, 'x', sizeof messages);
    forge(messages[1], FORGED_VERSION, 4, JOB + 1, 2, 8);       /* another job */
    forge(messages[2], FORGED_VERSION + 1, 4, JOB, 2, 8);       /* another version */
    forge(messages[3], FORGED_VERSION, 5, JOB, 2, 8);           /* another size */
    forge(messages[4], FORGED_VERSION, 4, JOB, 0, 8);           /* rank 0 itself */
    forge(messages[5], FORGED_VERSION, 4, JOB, 4, 8);           /* past the end */
    forge(messages[6], FORGED_VERSION, 4, JOB, 0xFFFFFFFFu, 8); /* negative */
    forge(messages[7], FORGED_VERSION, 4, JOB, 2, 0xFFFFFFFFu); /* huge blob */
    forge(messages[8], FORGED_VERSION, 4, JOB, 2, WRING_ADDRESS_MAX + 1);
    forge(messages[9], FORGED_VERSION, 4, JOB, 2, 1000); /* a blob that never ends */
    for (int round = 0; round < 6; round++)
        for (int i = 0; i < 10; i++) {
            fds[n] = round < 3 ? knock_and_prove(&group) : knock(group.port);
            step(&group);
            size_t nbytes =
                round % 3 == 1 ? (size_t)i * 4 : FORGED_NBYTES + 8; /* cut off, or whole */
            assert_int_equal(send(fds[n], messages[i], nbytes, MSG_NOSIGNAL), nbytes);
            if (round % 3 == 2)
                close(fds[n]);
            else
                n++;
            step(&group);
        }
    while (n < 300) { /* half-open, far more than are kept */
        fds[n++] = knock(group.port);
        step(&group);
    }
    complete_with(&group, 1);
    while (n > 0)
        close(fds[--n]);
}

/* The process's limit allows it to hold so many ends of connections. */
static void allow_descriptors(int count)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < (rlim_t)count)
        limit.rlim_cur = (rlim_t)count < limit.rlim_max ? (rlim_t)count : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < (rlim_t)count)
        skip();
}

/* They come all the time, before, between and after the ranks, and never hang up. */
static void a_thousand_strangers_that_hang(void **state)
{
    static int fds[STRANGERS];
    struct group group;
    int first = 1;
    (void)state;
    allow_descriptors(STRANGERS + 400);
    group = group_open("127.0.0.1", 5, 0, 0);
    step(&group);
    size_t before = resident_nbytes();
    for (int n = 0; n < STRANGERS; n++) {
        fds[n] = knock(group.port);
        if (n % 3 == 1)
            (void)send(fds[n], "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL);
        if (n % 250 == 249)
            assert_int_equal(join_as(&group, -1, first++, 5, TIMEOUT_MS), WRING_OK);
        if (n < STRANGERS - 1)
            step(&group);
    }
    assert_true(resident_nbytes() < before + (1 << 20));
    complete_with(&group, 5);
    for (int n = 0; n < STRANGERS; n++)
        close(fds[n]);
}

static bool hung_up(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) == 0;
}

/* Those who have proven themselves and say no more make room in the order they came, after all
 * who have not. */
static void the_oldest_makes_room(void **state)
{
    enum { KEPT = 66 }; /* 2 ranks and 64 others */
    struct group group = group_open("127.0.0.1", 2, 0, 0);
    int known[KEPT], strangers[2];
    (void)state;
    for (int n = 0; n < KEPT - 2; n++)
        known[n] = knock_and_prove(&group);
    strangers[0] = knock(group.port);
    step(&group);
    known[KEPT - 2] = knock_and_prove(&group);
    strangers[1] = knock(group.port); /* for one of these each */
    step(&group);
    assert_true(hung_up(strangers[0]) && !hung_up(strangers[1]));
    known[KEPT - 1] = knock_and_prove(&group);
    assert_true(hung_up(strangers[1]) && !hung_up(known[0]));
    close(strangers[0]);
    strangers[0] = knock(group.port);
    step(&group);
    assert_true(hung_up(known[0]) && !hung_up(known[1]));
    complete_with(&group, 1);
    for (int n = 0; n < KEPT; n++)
        close(known[n]);
    for (int n = 0; n < 2; n++)
        close(strangers[n]);
}

/* More knock at once than are let in at once. */
static void a_crowd_is_let_in_by_parts(void **state)
{
    struct group group = group_open("127.0.0.1", 2, 0, 0);
    int fds[100];
    (void)state;
    for (int n = 0; n < 100; n++)
        fds[n] = knock(group.port);
    complete_with(&group, 1);
    for (int n = 0; n < 100; n++)
        close(fds[n]);
}

/* A hello that comes in parts, of a rank that is there already: both places are named. */
static void a_number_given_twice_is_told_by_places(void **state)
{
    struct group group = group_open("127.0.0.1", 4, 0, 1);
    unsigned char hello[FORGED_NBYTES + 8] = {0};
    (void)state;
    assert_int_equal(join_as(&group, -1, 2, 4, TIMEOUT_MS), WRING_OK);
    wring_log_set(keep_log, NULL);
    nlogged = 0;
    for (int i = 0; i < 20; i++)
        step(&group);
    for (uint32_t rank = 1; rank < 3; rank++) {
        int fd = knock_and_prove(&group);
        forge(hello, FORGED_VERSION, 4, JOB, rank, 8);
        assert_int_equal(send(fd, hello, FORGED_NBYTES + 3, MSG_NOSIGNAL), FORGED_NBYTES + 3);
        for (int i = 0; i < 5; i++)
            step(&group);
        assert_int_equal(send(fd, hello, 5, MSG_NOSIGNAL), 5);
        while (nlogged < (int)rank)
            step(&group);
        assert_non_null(strstr(logged[rank - 1], "that one has joined from 127.0.0.1:"));
        close(fd);
    }
    wring_log_set(NULL, NULL);
    complete_with(&group, 3);
}

/* ---- forged joins ---------------------------------------------------------------------------- */

/* What a rank says before its hello, as someone on the wire hears it. The rank's proof is not kept
 * by who checks it, but can be made again from what he knows. */
static void overhear_a_join(unsigned char spoken[SPOKEN])
{
    int listener = -1, fd, ends[2];
    struct group group = group_new("127.0.0.1", 2, &listener);
    struct wri_secret secret = secret_of(group.secret);
    struct wri_auth auth;
    assert_int_equal(join_as(&group, -1, 1, 2, TIMEOUT_MS), WRING_OK);
    do
        step(&group);
    while ((fd = wri_socket_accept(listener)) < 0);
    wri_auth_init(&auth, &secret, true);
    while (wri_auth_advance(&auth, fd) == WRING_AGAIN)
        step(&group);
    auth.listens = false;
    auth.turn = 2;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    assert_int_equal(wri_auth_advance(&auth, ends[0]), WRING_AGAIN);
    memcpy(spoken, auth.greeting[0], WRI_AUTH_GREETING_NBYTES);
    assert_int_equal(recv(ends[1], spoken + WRI_AUTH_GREETING_NBYTES, WRI_AUTH_PROOF_NBYTES, 0),
                     WRI_AUTH_PROOF_NBYTES);
    close(ends[0]);
    close(ends[1]);
    close(fd);
    close(listener);
    group_close(&group);
}

/* One try to join without the secret: a replay, a greeting of one's own with a guessed proof, or
 * garbage, with a good hello behind it. */
static void forge_a_join(struct group *group, const unsigned char *heard, int kind)
{
    unsigned char message[SPOKEN + FORGED_NBYTES], answer[256];
    int fd = knock(group->port);
    memcpy(message, heard, SPOKEN);
    if (kind > 0)
        message[16 + kind % 32]++; /* a nonce, or a proof, that was not heard */
    if (kind % 4 == 3)
        message[kind % 16]++; /* magic, version, or whether a secret is known */
    forge(message + SPOKEN, FORGED_VERSION, (uint32_t)group->nranks, JOB, 2, 0);
    assert_int_equal(send(fd, message, sizeof message, MSG_NOSIGNAL), sizeof message);
    int turns = 0;
    for (ssize_t got = 1; got > 0 || (got < 0 && errno == EAGAIN);) {
        assert_true(turns++ < 100000); /* else it was not dropped */
        group->status[0] = wri_rendezvous_poll(group->rank[0], 0);
        got = recv(fd, answer, sizeof answer, 0);
    }
    close(fd);
}

static void forged_joins_join_nothing(void **state)
{
    unsigned char heard[SPOKEN];
    struct group group;
    size_t before = 0;
    (void)state;
    overhear_a_join(heard);
    group = group_open("127.0.0.1", 3, 0, 1);
    wring_log_set(keep_log, NULL);
    nlogged = 0;
    for (int n = 0; n < FORGED; n++) {
        if (n == 100)
            before = resident_nbytes();
        forge_a_join(&group, heard, n);
    }
    assert_true(resident_nbytes() < before + (1 << 20));
    assert_int_equal(nlogged, 8); /* the log is not flooded either */
    assert_non_null(strstr(logged[0], "another job secret"));
    assert_non_null(strstr(logged[7], "not logged"));
    wring_log_set(NULL, NULL);
    assert_int_equal(group.status[0], WRING_AGAIN);
    assert_int_equal(group.status[1], WRING_AGAIN);
    complete_with(&group, 2);
}

/* ---- ranks that do not fit ------------------------------------------------------------------- */

/* A rank with another secret, or none, is told at once, and rank 0 says so when time is up. */
static void another_secret_is_told_at_once(void **state)
{
    static const char *const secrets[][2] = {
        {SECRET, "the secret of others"}, {SECRET, ""}, {"", SECRET}};
    static const char *const says[] = {"another job secret", "has a job secret, this one has none",
                                       "has a job secret, the one at"};
    (void)state;
    wring_log_set(keep_log, NULL);
    for (int i = 0; i < 3; i++) {
        int fd = -1;
        struct group group = group_new("127.0.0.1", 2, &fd);
        group.secret = secrets[i][0];
        assert_int_equal(join_as(&group, fd, 0, 2, 300), WRING_OK);
        group.secret = secrets[i][1];
        assert_int_equal(join_as(&group, -1, 1, 2, TIMEOUT_MS), WRING_OK);
        while (group.status[1] == WRING_AGAIN)
            step(&group);
        assert_int_equal(group.status[1], WRING_E_MISMATCH);
        assert_non_null(strstr(wring_error_message(), says[i]));
        while (step(&group))
            continue;
        assert_int_equal(group.status[0], WRING_E_TIMEOUT);
        assert_non_null(strstr(wring_error_message(), "missing ranks: 1; refused last: "));
        assert_non_null(strstr(wring_error_message(), "secret"));
        group_close(&group);
    }
    wring_log_set(NULL, NULL);
}

/* The second rank 0 is told at once; a rank of the second job waits for its own in vain. */
static void two_jobs_do_not_share_a_port(void **state)
{
    struct group one = group_open("127.0.0.1", 3, 0, 1), two = one;
    (void)state;
    two.job = JOB + 1;
    memset(two.rank, 0, sizeof two.rank);
    assert_int_equal(join_as(&two, -1, 0, 2, TIMEOUT_MS), WRING_E_SYSTEM);
    assert_non_null(strstr(wring_error_message(), "another job"));
    assert_int_equal(join_as(&two, -1, 1, 2, 300), WRING_OK);
    while (two.status[1] == WRING_AGAIN) {
        step(&two);
        step(&one);
    }
    assert_int_equal(two.status[1], WRING_E_TIMEOUT);
    assert_non_null(strstr(wring_error_message(), "may belong to another job"));
    assert_int_equal(one.status[0], WRING_AGAIN);
    complete_with(&one, 2);
    group_close(&two);
}

/* Every job's ranks start while the one before is still meeting or just done. */
static void a_hundred_jobs_in_a_row_on_one_port(void **state)
{
    int fd = -1;
    struct group group = group_new("127.0.0.1", 3, &fd);
    (void)state;
    close(fd);
    for (int job = 0; job < 100; job++) {
        struct group next = group;
        next.job = group.job + 1;
        assert_int_equal(join_as(&group, -1, 0, 3, TIMEOUT_MS), WRING_OK);
        for (int rank = 1; rank < 3; rank++) {
            if (!group.rank[rank])
                assert_int_equal(join_as(&group, -1, rank, 3, TIMEOUT_MS), WRING_OK);
            assert_int_equal(join_as(&next, -1, rank, 3, TIMEOUT_MS), WRING_OK);
        }
        while (step(&group))
            step(&next);
        complete(&group);
        group_close(&group);
        group = next;
    }
    group_close(&group);
}

/* ---- where it listens ------------------------------------------------------------------------ */

static bool refused(int port, unsigned host)
{
    char byte;
    int fd = knock_at(port, host);
    usleep(1000);
    bool yes = recv(fd, &byte, 1, 0) < 0 && errno == ECONNREFUSED;
    close(fd);
    return yes;
}

/* Nothing but the given address, and that only until all are there. */
static void only_the_given_address_listens(void **state)
{
    struct group group = group_open("127.0.0.1", 3, 0, 0);
    int port = group.port;
    (void)state;
    assert_false(refused(port, 1));
    assert_true(refused(port, 2));
    complete_with(&group, 1);
    assert_true(refused(port, 1));
}

/* Without a secret, rank 0 does not listen where other machines can knock, and no rank asks there
 * either. 192.0.2.1 is nobody's. */
static void other_machines_want_a_secret(void **state)
{
    (void)state;
    for (int insecure = 0; insecure < 2; insecure++)
        for (int rank = 0; rank < 2; rank++) {
            struct wri_rendezvous *r = NULL;
            struct wri_rendezvous_options options = {.host = "192.0.2.1",
                                                     .port = 9,
                                                     .listen_fd = -1,
                                                     .rank = rank,
                                                     .nranks = 2,
                                                     .secret.insecure = insecure,
                                                     .timeout_ms = 50};
            wring_status status = wri_rendezvous_open(&options, "", 0, &r);
            while (status == WRING_OK || status == WRING_AGAIN)
                status = wri_rendezvous_poll(r, 5);
            if (insecure)
                assert_int_equal(status, rank == 0 ? WRING_E_SYSTEM : WRING_E_TIMEOUT);
            else
                assert_int_equal(status, WRING_E_CONFIG);
            assert_true(insecure == !strstr(wring_error_message(), "WRING_SECRET_FILE"));
            wri_rendezvous_close(r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_does_not_disturb),
        cmocka_unit_test(a_thousand_strangers_that_hang),
        cmocka_unit_test(the_oldest_makes_room),
        cmocka_unit_test(a_crowd_is_let_in_by_parts),
        cmocka_unit_test(a_number_given_twice_is_told_by_places),
        cmocka_unit_test(forged_joins_join_nothing),
        cmocka_unit_test(another_secret_is_told_at_once),
        cmocka_unit_test(two_jobs_do_not_share_a_port),
        cmocka_unit_test(a_hundred_jobs_in_a_row_on_one_port),
        cmocka_unit_test(only_the_given_address_listens),
        cmocka_unit_test(other_machines_want_a_secret),
    };
    return cmocka_run_group_tests_name("strangers", tests, NULL, NULL);
}
