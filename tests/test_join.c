/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways to find each other, each with real processes over UCX: a caller's allgather, a unique
 * id, the environment. And what is said to those who cannot.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/join.h"
#include "refuse.h"
#include "says.h"
#include "transport/rendezvous.h"
#include "transport/socket.h"

#define LONG "a.name.of.thirty.six.characters.com."
#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

enum { N = 3 };

/* What the processes of a test share: a board to gather on, with a barrier by counting. */
static struct board {
    unsigned char cell[N][4096];
    _Atomic int arrived;
    wring_unique_id id;
    _Atomic int id_ready;
} * board;

static int board_open(void **state)
{
    (void)state;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return board == MAP_FAILED;
}

static int gather(void *arg, const void *send, void *recv, size_t nbytes)
{
    int rank = *(int *)arg;
    if (nbytes > sizeof(board->cell[0]))
        return 1;
    memcpy(board->cell[rank], send, nbytes);
    board->arrived++;
    while (board->arrived < N)
        usleep(1000);
    for (int q = 0; q < N; q++)
        memcpy((char *)recv + (size_t)q * nbytes, board->cell[q], nbytes);
    return 0;
}

static wring_status by_callback(wring_context *context, int rank, wring_comm **comm_out)
{
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    options.rank = rank;
    options.nranks = N;
    options.allgather = gather;
    options.allgather_arg = &rank;
    return wring_comm_create(context, &options, comm_out);
}

static wring_status by_unique_id(wring_context *context, int rank, wring_comm **comm_out)
{
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    if (rank == 0) {
        wring_status status = wring_unique_id_create(context, &board->id);
        if (status != WRING_OK)
            return status;
        board->id_ready = 1;
    }
    while (!board->id_ready)
        usleep(1000);
    options.rank = rank;
    options.nranks = N;
    options.id = &board->id;
    return wring_comm_create(context, &options, comm_out);
}

static wring_status by_environment(wring_context *context, int rank, wring_comm **comm_out)
{
    (void)rank;
    return wring_comm_create(context, NULL, comm_out);
}

typedef wring_status (*join_fn)(wring_context *, int, wring_comm **);

/* One rank's life: join, sum, leave. Exit status 0 if all went well. */
static int live(int rank, join_fn join)
{
    wring_context *context;
    wring_comm *comm;
    float buffer[5000];
    if (wring_context_create(NULL, &context) != WRING_OK || join(context, rank, &comm) != WRING_OK)
        return fprintf(stderr, "rank %d: %s\n", rank, wring_error_message()), 1;
    for (int i = 0; i < 5000; i++)
        buffer[i] = (float)(rank * 5000 + i);
    if (wring_allreduce(comm, buffer, buffer, 5000, WRING_FLOAT32, WRING_SUM) != WRING_OK)
        return fprintf(stderr, "rank %d: %s\n", rank, wring_error_message()), 2;
    for (int i = 0; i < 5000; i++)
        if (buffer[i] != (float)(N * (N - 1) / 2 * 5000 + N * i))
            return 3;
    if (wring_comm_rank(comm) != rank || wring_comm_size(comm) != N)
        return 4;
    wring_comm_destroy(comm);
    wring_context_destroy(context);
    return 0;
}

/* The same where rank 1 cannot join: all are told why, long before the time to join is up. */
static int fail_together(int rank, join_fn join)
{
    wring_context *context;
    wring_comm *comm;
    alarm(30);
    if (rank == 1)
        setenv("WRING_CODEC", "int9", 1);
    if (wring_context_create(NULL, &context) != WRING_OK)
        return 1;
    wring_status status = join(context, rank, &comm);
    wring_context_destroy(context);
    if (status != WRING_E_SPEC || strstr(wring_error_message(), "rank 1") == NULL ||
        strstr(wring_error_message(), "int9") == NULL)
        return fprintf(stderr, "rank %d: %s\n", rank, wring_error_message()), 2;
    return 0;
}

static void run_all(int (*act)(int rank, join_fn join), join_fn join)
{
    pid_t pid[N];
    board->arrived = board->id_ready = 0;
    for (int q = 0; q < N; q++) {
        pid[q] = fork();
        if (pid[q] == 0) {
            char text[16];
            snprintf(text, sizeof(text), "%d", q);
            setenv("WRING_RANK", text, 1);
            _exit(act(q, join));
        }
    }
    for (int q = 0; q < N; q++) {
        int status;
        waitpid(pid[q], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void callback(void **state)
{
    (void)state;
    run_all(live, by_callback);
}

static void unique_id(void **state)
{
    (void)state;
    run_all(live, by_unique_id);
}

static void environment(void **state)
{
    (void)state;
    char root[64];
    snprintf(root, sizeof(root), "127.0.0.1:%d", 20000 + getpid() % 10000);
    setenv("WRING_ROOT", root, 1);
    setenv("WRING_SIZE", "3", 1);
    run_all(live, by_environment);
    unsetenv("WRING_ROOT");
    unsetenv("WRING_SIZE");
}

static void who_cannot_join_tells_the_others(void **state)
{
    (void)state;
    setenv("WRING_JOIN_TIMEOUT", "60000", 1);
    run_all(fail_together, by_callback);
    run_all(fail_together, by_unique_id);
    unsetenv("WRING_JOIN_TIMEOUT");
}

/* Refusals need no second process. */
static void refusals(void **state)
{
    (void)state;
    wring_context *context;
    wring_comm *comm;
    wring_unique_id garbage;
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    setenv("WRING_JOIN_TIMEOUT", "300", 1);
    assert_int_equal(wring_context_create(NULL, &context), WRING_OK);

    assert_int_equal(wring_comm_create(context, NULL, &comm), WRING_E_CONFIG);
    assert_non_null(strstr(wring_error_message(), "WRING_RANK"));

    memset(&garbage, 0x5a, sizeof(garbage));
    options.nranks = 2;
    options.id = &garbage;
    assert_int_equal(wring_comm_create(context, &options, &comm), WRING_E_ARGUMENT);
    options.rank = 2;
    assert_int_equal(wring_comm_create(context, &options, &comm), WRING_E_ARGUMENT);

    wring_unique_id id;
    assert_int_equal(wring_unique_id_create(context, &id), WRING_OK);
    options.rank = 0;
    options.nranks = 3;
    options.id = &id;
    assert_int_equal(wring_comm_create(context, &options, &comm), WRING_E_TIMEOUT);
    assert_non_null(strstr(wring_error_message(), "1"));
    assert_non_null(strstr(wring_error_message(), "2"));

    options.codec = "int9";
    assert_int_equal(wring_comm_create(context, &options, &comm), WRING_E_ARGUMENT);
    wring_context_destroy(context);
    unsetenv("WRING_JOIN_TIMEOUT");

    wring_context_options no_such = WRING_CONTEXT_OPTIONS_INIT;
    no_such.transport = "pigeon";
    assert_int_equal(wring_context_create(&no_such, &context), WRING_E_MODULE);
    assert_non_null(strstr(wring_error_message(), "pigeon"));
}

/* ---- one side alone -------------------------------------------------------------------------- */

static wring_context alone; /* settings, and the socket of a unique id: the ways need no more */

static void open_alone(const char *root)
{
    alone.config = (struct wri_config){.join_timeout_ms = 10000};
    snprintf(alone.config.root, sizeof(alone.config.root), "%s", root);
    alone.listen_fd = -1;
}

static void close_alone(void)
{
    if (alone.listen_fd >= 0)
        close(alone.listen_fd);
}

static void a_unique_id_that_cannot_be_made(void **state)
{
    static const struct {
        const char *root, *secret, *secret_file, *refused;
        wring_status expected;
        const char *words;
    } rows[] = {
        {"", "", "", "getrandom", WRING_E_SYSTEM, "no random numbers"},
        {"", "sixteen characters", "file", "", WRING_E_CONFIG, "unset one"},
        {"203.0.113.7", "", "", "", WRING_E_CONFIG, "203.0.113.7, and the job has no secret"},
        {"203.0.113.7:5", "", "", "", WRING_E_CONFIG, "203.0.113.7, and the job has no secret"},
        {"203.0.113.7", "sixteen characters", "", "", WRING_E_SYSTEM, "cannot listen on 203.0"},
        {"127.0.0.1:5", "", "", "listen", WRING_E_SYSTEM, "cannot listen on 127.0.0.1"},
        {"[::1]:5", "", "", "socket", WRING_E_SYSTEM, "cannot listen on ::1"},
        {"::1", "", "", "", WRING_E_CONFIG, "expected [address]:port"},
        {LONG LONG LONG "x", "", "", "", WRING_E_CONFIG, "a host of up to 107 characters"},
    };
    wring_unique_id id;
    (void)state;
    for (size_t i = 0; i < ROWS(rows); i++) {
        open_alone(rows[i].root);
        strcpy(alone.config.secret, rows[i].secret);
        strcpy(alone.config.secret_file, rows[i].secret_file);
        refuse(rows[i].refused, 0, 1, EADDRINUSE);
        assert_int_equal(wri_unique_id_create(&alone, &id), rows[i].expected);
        assert_int_equal(was_refused(), rows[i].refused[0] != '\0');
        assert_says(rows[i].words);
        assert_int_equal(alone.listen_fd, -1);
    }
}

static wring_status way(int rank, int nranks, const wring_unique_id *id)
{
    wring_comm_options options = WRING_COMM_OPTIONS_INIT;
    struct wri_way found;
    options.rank = rank;
    options.nranks = nranks;
    options.id = id;
    wring_status status = wri_way_find(&alone, &options, &found);
    if (status == WRING_OK && found.listen_fd >= 0)
        close(found.listen_fd);
    return status;
}

/* Where its bytes hold the magic number, the job, the port and the host. */
static void a_unique_id_that_was_not_made_here(void **state)
{
    wring_unique_id first, id, bad;
    (void)state;
    open_alone("");
    require(wri_unique_id_create(&alone, &first));
    int fd = alone.listen_fd;
    require(wri_unique_id_create(&alone, &id)); /* the socket of the first is not kept */
    assert_true(alone.listen_fd == fd || fcntl(fd, F_GETFD) == -1);
    assert_int_equal(way(0, 2, &first), WRING_E_ARGUMENT);
    assert_says("must use the context that made");
    bad = id;
    memset((char *)&bad + 20, 'x', 108);
    assert_int_equal(way(1, 2, &bad), WRING_E_ARGUMENT);
    assert_says("not made by wring_unique_id_create");
    for (int port = -1; port <= 0; port++) {
        bad = id;
        memcpy((char *)&bad + 16, &port, sizeof(port));
        assert_int_equal(way(1, 2, &bad), WRING_E_ARGUMENT);
    }
    assert_int_equal(way(1, 2, &id), WRING_OK);
    assert_int_equal(way(0, 2, &id), WRING_OK);
    assert_int_equal(way(0, 2, &id), WRING_E_ARGUMENT); /* its socket was handed out */
    static const int numbers[][2] = {{0, 0}, {-1, 2}, {2, 2}, {0, -1}};
    for (size_t i = 0; i < ROWS(numbers); i++)
        assert_int_equal(way(numbers[i][0], numbers[i][1], &id), WRING_E_ARGUMENT);
    close_alone();
}

/* The caller names another rank or size than the launcher; a socket handed down is not kept. */
static void the_environment_says_otherwise(void **state)
{
    char text[16];
    int fd, port = 0;
    (void)state;
    for (int wrong = 0; wrong < 4; wrong++) { /* 3: as 2, without a socket */
        open_alone("127.0.0.1:0");
        require(wri_socket_listen("127.0.0.1", &port, &fd));
        snprintf(text, sizeof(text), "%d", fd);
        if (wrong < 3)
            setenv("WRING_LISTEN_FD", text, 1);
        snprintf(alone.config.root, sizeof(alone.config.root), "127.0.0.1:%d", port);
        port = 0;
        alone.config.rank = 0;
        alone.config.nranks = 2;
        wring_status status = way(wrong == 1, wrong >= 2 ? 3 : 2, NULL);
        assert_int_equal(status, wrong ? WRING_E_CONFIG : WRING_OK);
        if (wrong)
            assert_says(wrong == 1 ? "asked for rank 1 of 2, but" : "asked for rank 0 of 3, but");
        assert_int_equal(fcntl(fd, F_GETFD) == -1, wrong < 3);
        if (wrong == 3)
            close(fd);
    }
}

static void where_other_hosts_reach_a_rank(void **state)
{
    char host[WRI_CARD_HOST_MAX];
    struct wri_way root = {.host = "127.0.0.1", .port = 5};
    (void)state;
    open_alone("");
    require(wri_way_host(&alone, &root, host));
    assert_string_equal(host, "127.0.0.1");
    strcpy(alone.config.interface, "no such");
    assert_int_equal(wri_way_host(&alone, &root, host), WRING_E_CONFIG);
    root.host[0] = '\0';
    assert_int_equal(wri_way_host(&alone, &root, host), WRING_E_CONFIG);
}

/* Whether two ranks are on one host is known without the host's boot number too. */
static void a_card_of_this_host(void **state)
{
    struct wri_card card = {0}, other = {0};
    (void)state;
    require(wri_card_init(&card));
    require(wri_card_init(&other));
    assert_true(card.host == other.host && card.nonce != other.nonce);
    refuse("fopen", 0, 1, EACCES);
    require(wri_card_init(&other));
    assert_true(was_refused());
    assert_true(other.host != 0 && other.host != card.host);
    refuse("getrandom", 0, 1, EINTR);
    assert_int_equal(wri_card_init(&other), WRING_E_SYSTEM);
    assert_true(was_refused());
}

static int one_card(void *arg, const void *send, void *recv, size_t nbytes)
{
    memcpy(recv, send, nbytes);
    memcpy((char *)recv + nbytes, arg, nbytes);
    return 0;
}

static int no_cards(void *arg, const void *send, void *recv, size_t nbytes)
{
    (void)arg;
    (void)send;
    memset(recv, 0, nbytes);
    return 1;
}

/* Rank 1's card, as rank 0 gets it of a caller's allgather. */
static void a_card_that_makes_no_sense(void **state)
{
    static const struct {
        uint32_t status, nbytes;
        wring_status expected;
        const char *words;
    } rows[] = {
        {WRING_OK, 0, WRING_OK, ""},
        {WRING_OK, sizeof(((struct wri_card *)0)->address), WRING_OK, ""},
        {WRING_OK, sizeof(((struct wri_card *)0)->address) + 1, WRING_E_CORRUPT, "an address of"},
        {WRING_OK, ~0u, WRING_E_CORRUPT, "rank 1 sent an address of 4294967295 bytes"},
        {WRING_E_MEMORY, ~0u, WRING_E_CORRUPT, "an address of"},
        {WRING_AGAIN, 3, WRING_E_CORRUPT, "rank 1 sent a status of"},
        {WRING_E_INTERNAL + 1, 3, WRING_E_CORRUPT, "rank 1 sent a status of"},
        {~0u, 3, WRING_E_CORRUPT, "rank 1 sent a status of 4294967295"},
        {WRING_E_MEMORY, 3, WRING_E_MEMORY, "rank 1: xxx"},
    };
    static struct wri_card own, theirs, cards[2];
    struct wri_way by_callback = {.nranks = 2, .allgather = one_card, .allgather_arg = &theirs};
    uint64_t nonce;
    (void)state;
    for (size_t i = 0; i < ROWS(rows); i++) {
        memset(theirs.address, 'x', sizeof(theirs.address));
        theirs.status = rows[i].status;
        theirs.address_nbytes = rows[i].nbytes;
        assert_int_equal(wri_join(&alone, &by_callback, &own, cards, &nonce), rows[i].expected);
        if (rows[i].expected != WRING_OK)
            assert_says(rows[i].words);
    }
    by_callback.allgather = no_cards;
    assert_int_equal(wri_join(&alone, &by_callback, &own, cards, &nonce), WRING_E_SYSTEM);
    assert_says("the caller's allgather failed");
    by_callback.nranks = 1; /* nobody is asked */
    own.nonce = 7;
    assert_int_equal(wri_join(&alone, &by_callback, &own, cards, &nonce), WRING_OK);
    assert_int_equal(nonce, 7);
}

static void a_secret_that_cannot_be_read(void **state)
{
    static struct wri_card own, cards[2];
    struct wri_way rendezvous = {.nranks = 2, .host = "127.0.0.1", .listen_fd = -1};
    uint64_t nonce;
    (void)state;
    open_alone("");
    strcpy(alone.config.secret_file, "/nonexistent/secret");
    for (int has = 0; has < 2; has++) {
        if (has)
            require(wri_socket_listen("127.0.0.1", &rendezvous.port, &rendezvous.listen_fd));
        assert_int_equal(wri_join(&alone, &rendezvous, &own, cards, &nonce), WRING_E_CONFIG);
        assert_says("/nonexistent/secret");
        if (has)
            assert_int_equal(fcntl(rendezvous.listen_fd, F_GETFD), -1);
    }
}

/* Rank 1, whose card has another size. */
static void *join_with_less(void *arg)
{
    const struct wri_way *way = arg;
    struct wri_rendezvous_options options = {.host = way->host,
                                             .port = way->port,
                                             .listen_fd = -1,
                                             .rank = 1,
                                             .nranks = 2,
                                             .timeout_ms = 10000};
    struct wri_rendezvous *rendezvous;
    if (wri_rendezvous_open(&options, "less", 4, &rendezvous) != WRING_OK)
        return NULL;
    while (wri_rendezvous_poll(rendezvous, 20) == WRING_AGAIN)
        ;
    wri_rendezvous_close(rendezvous);
    return NULL;
}

static void another_version_is_told_apart(void **state)
{
    static struct wri_card own, cards[2];
    struct wri_way rendezvous = {.nranks = 2, .host = "127.0.0.1"};
    pthread_t thread;
    uint64_t nonce;
    (void)state;
    open_alone("");
    require(wri_socket_listen("127.0.0.1", &rendezvous.port, &rendezvous.listen_fd));
    assert_int_equal(pthread_create(&thread, NULL, join_with_less, &rendezvous), 0);
    wring_status status = wri_join(&alone, &rendezvous, &own, cards, &nonce);
    pthread_join(thread, NULL);
    assert_int_equal(status, WRING_E_MISMATCH);
    assert_says("rank 1 runs another version of wring");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callback),
        cmocka_unit_test(unique_id),
        cmocka_unit_test(environment),
        cmocka_unit_test(who_cannot_join_tells_the_others),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_unique_id_that_cannot_be_made),
        cmocka_unit_test(a_unique_id_that_was_not_made_here),
        cmocka_unit_test(the_environment_says_otherwise),
        cmocka_unit_test(where_other_hosts_reach_a_rank),
        cmocka_unit_test(a_card_of_this_host),
        cmocka_unit_test(a_card_that_makes_no_sense),
        cmocka_unit_test(a_secret_that_cannot_be_read),
        cmocka_unit_test(another_version_is_told_apart),
    };
    return cmocka_run_group_tests(tests, board_open, NULL);
}
