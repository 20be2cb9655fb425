/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a control path with its monitor's thread: where a rank listens, which cards it believes,
 * whom it misses, what becomes of strangers, and how long it stays when it leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "collective/control_state.h"
#include "refuse.h"
#include "says.h"
#include "transport/socket.h"

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))
#define FAR "203.0.113.7" /* no machine's address */

enum { MOST = 200 };

static const struct wring_transport_ops silent; /* nobody sleeps in it */
static wring_context context = {.transport = &silent};
static struct wri_alarm raised[MOST]; /* of this process's ranks */
static struct wri_card cards[MOST];

static void open_monitor(bool insecure)
{
    memset(raised, 0, sizeof(raised));
    memset(cards, 0, sizeof(cards));
    context.config = (struct wri_config){.heartbeat_timeout_ms = 30000,
                                         .join_timeout_ms = 20,
                                         .timeout_ms = 10000,
                                         .insecure = insecure};
    require(wri_monitor_open(&context, &context.monitor));
}

static void close_monitor(void)
{
    wri_monitor_close(context.monitor);
    context.monitor = NULL;
}

static wring_status open_rank(int rank, int nranks, const char *host, struct wri_control **out)
{
    return wri_control_open(&context, rank, nranks, host, &raised[rank], &cards[rank], out);
}

static void locked(void)
{
    pthread_mutex_lock(&context.monitor->lock);
}

static void unlocked(void)
{
    pthread_mutex_unlock(&context.monitor->lock);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void a_monitor_that_cannot_start(void **state)
{
    static const struct {
        const char *call, *secret_file;
        wring_status expected;
    } rows[] = {
        {"epoll_create1", "", WRING_E_SYSTEM},       {"epoll_ctl", "", WRING_E_SYSTEM},
        {"pthread_create", "", WRING_E_SYSTEM},      {"", "", WRING_E_MEMORY},
        {"", "/nonexistent/secret", WRING_E_CONFIG},
    };
    (void)state;
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct wri_monitor *monitor = NULL;
        context.config = (struct wri_config){.heartbeat_timeout_ms = 30000};
        strcpy(context.config.secret_file, rows[i].secret_file);
        refuse(rows[i].call, 0, 1, EMFILE);
        wri_alloc_fail_at(rows[i].expected == WRING_E_MEMORY);
        assert_int_equal(wri_monitor_open(&context, &monitor), rows[i].expected);
        wri_alloc_fail_at(0);
        assert_true(was_refused() || rows[i].expected != WRING_E_SYSTEM);
        assert_null(monitor);
    }
}

static void where_a_rank_listens(void **state)
{
    static const struct {
        const char *host;
        bool insecure, elsewhere; /* listens for other hosts too */
        int refused;              /* the n-th to listen */
        uint64_t failing;         /* allocation */
        wring_status expected;
    } rows[] = {
        {"127.0.0.1", false, false, 0, 0, WRING_OK},
        {"::1", true, false, 0, 0, WRING_OK},
        {FAR, false, false, 0, 0, WRING_OK},
        {"0.0.0.0", true, true, 0, 0, WRING_OK},
        {FAR, true, true, 0, 0, WRING_E_SYSTEM}, /* no address of this machine */
        {"127.0.0.1", false, false, 1, 0, WRING_E_SYSTEM},
        {"0.0.0.0", true, false, 2, 0, WRING_E_SYSTEM},
        {"127.0.0.1", false, false, 0, 1, WRING_E_MEMORY},
        {"127.0.0.1", false, false, 0, 2, WRING_E_MEMORY},
    };
    (void)state;
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct wri_control *control = NULL;
        open_monitor(rows[i].insecure);
        refuse("listen", rows[i].refused - 1, rows[i].refused > 0, EADDRINUSE);
        wri_alloc_fail_at(rows[i].failing);
        if (open_rank(0, 2, rows[i].host, &control) != rows[i].expected)
            fail_msg("row %zu: %s", i, wring_error_message());
        wri_alloc_fail_at(0);
        assert_int_equal(was_refused(), rows[i].refused > 0);
        assert_int_equal(control != NULL, rows[i].expected == WRING_OK);
        if (control != NULL) {
            assert_string_equal(cards[0].control_host, rows[i].host);
            assert_true(cards[0].control_local_port > 0);
            assert_int_equal(cards[0].control_port > 0, rows[i].elsewhere);
        }
        wri_control_close(control, false);
        close_monitor();
    }
}

/* Rank 0 reads the card of rank 1; that of rank 2 is alike. */
static void cards_are_not_believed(void **state)
{
    static char endless[WRI_CARD_HOST_MAX + 1];
    static const struct {
        const char *own, *host;
        bool insecure, local;
        uint32_t port; /* on loopback, if they are on one host */
        wring_status expected;
        const char *words;
    } rows[] = {
        {"127.0.0.1", "", false, true, 0, WRING_E_CORRUPT, "rank 1 says that it is reached at"},
        {"127.0.0.1", "", false, true, 65536, WRING_E_CORRUPT, "port 65536"},
        {"127.0.0.1", "", false, true, ~0u, WRING_E_CORRUPT, "port -1"},
        {FAR, FAR, false, false, 5, WRING_E_CONFIG, "WRING_SECRET"},
        {"127.0.0.1", FAR, false, false, 5, WRING_E_CONFIG, "WRING_INTERFACE"},
        {"0.0.0.0", "::1", true, false, 5, WRING_E_CONFIG, "rank 1 listens on loopback only"},
        {"0.0.0.0", FAR, true, false, 0, WRING_E_CONFIG, "rank 1 is reached from its own"},
        {"0.0.0.0", "ten.one", true, false, 5, WRING_E_CORRUPT, "reached at ten.one port 5"},
        {"0.0.0.0", endless, true, false, 5, WRING_E_CORRUPT, "reached at xxx"},
        {"0.0.0.0", FAR, true, false, 65536, WRING_E_CORRUPT, FAR " port 65536"},
        {"0.0.0.0", FAR, true, false, 5, WRING_E_TIMEOUT, "ranks 1-2 did not connect to 0.0.0.0:"},
        {"0.0.0.0", "fe80::1", true, false, 5, WRING_E_TIMEOUT, "ranks 1-2 did not connect"},
        {"0.0.0.0", "", true, true, 5, WRING_E_TIMEOUT, "ranks 1-2 did not connect to 127.0.0.1:"},
    };
    (void)state;
    memset(endless, 'x', sizeof(endless) - 1);
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct wri_control *control;
        open_monitor(rows[i].insecure);
        require(open_rank(0, 3, rows[i].own, &control));
        memcpy(cards[1].control_host, rows[i].host, strlen(rows[i].host));
        cards[1].host = !rows[i].local;
        cards[1].control_port = cards[1].control_local_port = rows[i].port;
        cards[2] = cards[1];
        if (wri_control_start(control, cards, 0) != rows[i].expected)
            fail_msg("row %zu: %s", i, wring_error_message());
        assert_says(rows[i].words);
        wri_control_close(control, false);
        close_monitor();
    }
}

static void a_socket_that_cannot_be_watched(void **state)
{
    struct wri_control *control;
    (void)state;
    open_monitor(false);
    require(open_rank(0, 2, "127.0.0.1", &control));
    cards[1] = cards[0];
    refuse("epoll_ctl", 0, 1, ENOSPC);
    assert_int_equal(wri_control_start(control, cards, 0), WRING_E_SYSTEM);
    assert_true(was_refused());
    assert_says("cannot watch the listening socket");
    wri_control_close(control, false);
    close_monitor();
}

/* ---- joining --------------------------------------------------------------------------------- */

struct start {
    struct wri_control *control;
    wring_status status;
};

static void *start_rank(void *arg)
{
    struct start *start = arg;
    start->status = wri_control_start(start->control, cards, 0);
    return NULL;
}

/* Ranks 0 and 1 of NRANKS, in this process. */
static wring_status start_two(int nranks, struct wri_control *control[2])
{
    struct start second;
    pthread_t thread;
    context.config.join_timeout_ms = nranks > 2 ? 300 : 10000;
    for (int q = 0; q < 2; q++)
        require(open_rank(q, nranks, "127.0.0.1", &control[q]));
    for (int q = 2; q < nranks; q++)
        cards[q] = cards[1];
    second.control = control[1];
    assert_int_equal(pthread_create(&thread, NULL, start_rank, &second), 0);
    wring_status status = wri_control_start(control[0], cards, 0);
    char message[512];
    snprintf(message, sizeof(message), "%s", wring_error_message());
    pthread_join(thread, NULL);
    require(second.status);
    return status == WRING_OK ? status : wri_fail(status, "%s", message);
}

static void who_does_not_join_is_named(void **state)
{
    struct wri_control *control[2];
    int fd, port = 0;
    (void)state;
    open_monitor(false); /* rank 0 alone */
    require(open_rank(0, 3, "127.0.0.1", control));
    cards[1] = cards[2] = cards[0];
    assert_int_equal(wri_control_start(control[0], cards, 0), WRING_E_TIMEOUT);
    assert_says("control path: ranks 1-2 did not connect to 127.0.0.1:");
    wri_control_close(control[0], false);
    require(open_rank(0, MOST, "127.0.0.1", control)); /* as if every second one had come */
    for (int q = 1; q < MOST; q++) {
        struct wri_link **link = &control[0]->member[q].link;
        cards[q] = cards[0];
        if (q % 2 || q == 4)
            continue;
        require(wri_alloc(1, sizeof(**link), (void **)link));
        (*link)->fd = -1;
        (*link)->heard_ns = wri_clock_ns();
    }
    assert_int_equal(wri_control_start(control[0], cards, 0), WRING_E_TIMEOUT);
    assert_says("ranks 1, 3-5, 7, ");
    assert_says(" did not connect to 127.0.0.1:");
    wri_control_close(control[0], false);
    close_monitor();
    open_monitor(false); /* rank 1 alone: rank 0 lets nobody in */
    require(wri_socket_listen("127.0.0.1", &port, &fd));
    require(open_rank(1, 3, "127.0.0.1", control));
    cards[0] = cards[2] = cards[1];
    cards[0].control_local_port = (uint32_t)port;
    assert_int_equal(wri_control_start(control[0], cards, 0), WRING_E_TIMEOUT);
    assert_says("control path: rank 0 does not answer at 127.0.0.1:");
    wri_control_close(control[0], false);
    close(fd);
    close_monitor();
    open_monitor(false); /* ranks 0 and 1 of 3 */
    assert_int_equal(start_two(3, control), WRING_E_TIMEOUT);
    assert_says("control path: ranks 2 did not connect");
    wri_control_close(control[1], false);
    wri_control_close(control[0], false);
    close_monitor();
}

static void a_failure_ends_joining(void **state)
{
    struct wri_control *control;
    (void)state;
    open_monitor(false);
    require(open_rank(0, 2, "127.0.0.1", &control));
    cards[1] = cards[0];
    context.config.join_timeout_ms = 3600000;
    wri_alarm_raise(&raised[0], WRING_E_MEMORY, "words");
    assert_int_equal(wri_control_start(control, cards, 0), WRING_E_MEMORY);
    assert_says("words");
    wri_control_close(control, false);
    close_monitor();
}

/* ---- strangers ------------------------------------------------------------------------------- */

static int connect_to(int rank)
{
    struct addrinfo *addresses;
    require(wri_socket_resolve("127.0.0.1", (int)cards[rank].control_local_port, &addresses));
    int fd = wri_socket_connect(addresses);
    freeaddrinfo(addresses);
    assert_true(fd >= 0);
    return fd;
}

static int strangers(void)
{
    int n = 0;
    locked();
    for (size_t i = 0; i < WRI_STRANGERS_MAX; i++)
        n += context.monitor->stranger[i] != NULL;
    unlocked();
    return n;
}

static void await_strangers(int n)
{
    int64_t end = wri_clock_ns() + 10000 * NS_PER_MS;
    while (strangers() != n && wri_clock_ns() < end)
        usleep(1000);
    assert_int_equal(strangers(), n);
}

static void assert_closed(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    char byte;
    ssize_t got;
    do
        assert_int_equal(poll(&one, 1, 10000), 1);
    while ((got = recv(fd, &byte, 1, 0)) > 0);
    assert_true(got == 0 || errno == ECONNRESET);
    close(fd);
}

/* Proves that it belongs to the job, and then says a message with what a hello of rank 1 holds. */
static void say(int fd, enum wri_message_type type, unsigned char nonce)
{
    struct wri_message head = {
        .magic = 0x6c727463u, .type = (uint16_t)type, .nbytes = 9, .rank = 1};
    unsigned char bytes[sizeof(head) + 9] = {0};
    struct pollfd one = {.fd = fd};
    struct wri_auth auth;
    wri_auth_init(&auth, &context.monitor->secret, false);
    while (wri_auth_advance(&auth, fd) == WRING_AGAIN) {
        one.events = wri_auth_sends(&auth) ? POLLOUT : POLLIN;
        assert_int_equal(poll(&one, 1, 10000), 1);
    }
    memcpy(bytes, &head, sizeof(head));
    bytes[sizeof(head)] = nonce;
    assert_int_equal(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
}

static void strangers_come_and_go(void **state)
{
    struct wri_control *control[2];
    (void)state;
    open_monitor(false);
    require(start_two(2, control));
    for (int i = 0; i < 2; i++) { /* no room for it, and then there is */
        locked();
        if (i == 0)
            wri_alloc_fail_at(1);
        else
            refuse("epoll_ctl", 0, 1, ENOSPC);
        unlocked();
        assert_closed(connect_to(0));
        assert_true(i == 0 || was_refused());
    }
    int fd = connect_to(0);
    await_strangers(1);
    say(fd, WRI_MESSAGE_BEAT, 0);
    assert_closed(fd);
    fd = connect_to(0);
    say(fd, WRI_MESSAGE_HELLO, 1); /* of another communicator */
    assert_closed(fd);
    int old = connect_to(0);
    await_strangers(1);
    locked();
    for (size_t i = 0; i < WRI_STRANGERS_MAX; i++)
        if (context.monitor->stranger[i] != NULL)
            context.monitor->stranger[i]->opened_ns -= 6000 * NS_PER_MS;
    unlocked();
    fd = connect_to(1);
    assert_closed(old); /* it said nothing for too long */
    await_strangers(1);
    wri_control_close(control[0], false); /* not its stranger */
    await_strangers(1);
    wri_control_close(control[1], false);
    await_strangers(0);
    assert_closed(fd);
    assert_int_equal(wri_alarm_status(&raised[0]), WRING_OK);
    assert_int_equal(wri_alarm_status(&raised[1]), WRING_OK);
    close_monitor();
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Rank 1 stays: rank 0 leaves after 2 s; at once if rank 1 has been lost, or cut it off. */
static void who_leaves_waits_for_a_while(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct wri_control *control[2];
        open_monitor(false);
        require(start_two(2, control));
        assert_int_equal(wri_control_left(control[0]), -1);
        locked();
        if (how == 1)
            wri_control_lose(control[0], 1, "in this test");
        if (how == 2)
            wri_control_cut_off(control[0], "in this test");
        unlocked();
        int64_t begin_ns = wri_clock_ns();
        wri_control_close(control[0], true);
        if (how == 0)
            assert_true(wri_clock_ns() - begin_ns >= 2000 * NS_PER_MS);
        else
            assert_true(wri_clock_ns() - begin_ns < 2000 * NS_PER_MS);
        wri_control_close(control[1], false);
        close_monitor();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_monitor_that_cannot_start),
        cmocka_unit_test(where_a_rank_listens),
        cmocka_unit_test(cards_are_not_believed),
        cmocka_unit_test(a_socket_that_cannot_be_watched),
        cmocka_unit_test(who_does_not_join_is_named),
        cmocka_unit_test(a_failure_ends_joining),
        cmocka_unit_test(strangers_come_and_go),
        cmocka_unit_test(who_leaves_waits_for_a_while),
    };
    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
