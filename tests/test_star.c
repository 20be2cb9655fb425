/* SPDX-License-Identifier: Apache-2.0 */
/* The star of one rank, whose links this test holds the other ends of: what makes no sense ends a
 * link, failures and goodbyes go where they must, and whoever is silent or away for too long is
 * lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "one_control.h"
#include "refuse.h"
#include "transport/socket.h"

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))
#define SECOND (1000 * NS_PER_MS)

static void ready(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&one, 1, 10000), 1);
}

/* RANK says it, and it is heard. */
static void says(int rank, int type, uint32_t from, uint32_t value, const char *block,
                 size_t nbytes)
{
    says_message(
        rank,
        (struct wri_message){
            .type = (uint16_t)type, .rank = from, .value = value, .nbytes = (uint16_t)nbytes},
        block);
}

/* ---- what makes no sense --------------------------------------------------------------------- */

static void what_makes_no_sense_ends_the_link(void **state)
{
    enum { MUCH = WRI_MESSAGE_MAX - 32 };
    static const char block[WRI_LINK_BLOCK_MAX + 1];
    static const struct {
        int rank, type; /* 0: the root hears it, of rank 2; 1: rank 1 hears it, of the root */
        uint32_t from, value;
        size_t nbytes;
    } rows[] = {
        {0, 0, 2, 0, 0},
        {0, WRI_MESSAGE_TYPES, 2, 0, 0},
        {0, WRI_MESSAGE_BEAT, 2, 0, sizeof(block)},
        {0, WRI_MESSAGE_HELLO, 2, 0, 9},
        {0, WRI_MESSAGE_WELCOME, 2, 0, 0},
        {0, WRI_MESSAGE_REFUSED, 2, 1, 0},
        {0, WRI_MESSAGE_FAILED, N, WRING_E_TIMEOUT, 1},
        {0, WRI_MESSAGE_FAILED, 2, WRING_E_TIMEOUT, MUCH},
        {0, WRI_MESSAGE_FAILED, 2, WRING_OK, 1},
        {0, WRI_MESSAGE_FAILED, 2, WRING_AGAIN, 1},
        {0, WRI_MESSAGE_FAILED, 2, WRING_E_INTERNAL + 1, 1},
        {0, WRI_MESSAGE_FAILED, 2, ~0u, 1},
        {0, WRI_MESSAGE_LOST, 1, 0, 1},
        {0, WRI_MESSAGE_GOODBYE, N, 0, 0},
        {0, WRI_MESSAGE_GOODBYE, 0, 0, 0},
        {0, WRI_MESSAGE_GOODBYE, 1, 0, 0},
        {0, WRI_MESSAGE_FAREWELL, 2, 0, 0},
        {0, WRI_MESSAGE_ASK, 2, 0, 0},
        {0, WRI_MESSAGE_NOTES, 2, 0, 15},
        {0, WRI_MESSAGE_MAKE, 2, 0, 127},
        {1, WRI_MESSAGE_WELCOME, 0, 0, 0},
        {1, WRI_MESSAGE_FAILED, ~0u, WRING_E_TIMEOUT, 1},
        {1, WRI_MESSAGE_LOST, N, 0, 1},
        {1, WRI_MESSAGE_LOST, 0, 0, 1},
        {1, WRI_MESSAGE_LOST, 2, 0, MUCH},
        {1, WRI_MESSAGE_GOODBYE, N, 0, 0},
        {1, WRI_MESSAGE_GOODBYE, 1, 0, 0},
        {1, WRI_MESSAGE_NOTES, 0, 0, 16},
        {1, WRI_MESSAGE_MAKE, 0, 0, 128},
        {1, WRI_MESSAGE_BLOCK, 0, 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < ROWS(rows); i++) {
        int peer = rows[i].rank ? 0 : 2;
        open_control(rows[i].rank);
        says(peer, rows[i].type, rows[i].from, rows[i].value, block, rows[i].nbytes);
        if (control->member[peer].state != WRI_MEMBER_LOST || control->farewell)
            fail_msg("row %zu: accepted", i);
        assert_null(rows[i].rank ? control->up : control->member[peer].link);
        assert_alarm(WRING_E_PEER_LOST, "Protocol error");
        assert_int_equal(control->state, WRI_CONTROL_LEADING);
        close_control();
    }
}

/* One link may say so much in a turn; the others come first then. */
static void nobody_speaks_for_ever(void **state)
{
    const struct wri_message head = {.magic = CONTROL_MAGIC, .type = WRI_MESSAGE_BEAT, .rank = 1};
    (void)state;
    open_control(0);
    for (int i = 0; i < 64; i++)
        assert_int_equal(send(other[1], &head, sizeof(head), 0), sizeof(head));
    says(1, WRI_MESSAGE_FAILED, 1, WRING_E_TIMEOUT, "words", 5);
    assert_alarm(WRING_OK, "");
    wri_control_heard(control, control->member[1].link);
    assert_alarm(WRING_E_TIMEOUT, "rank 1: words");
    close_control();
}

/* ---- failures -------------------------------------------------------------------------------- */

static void a_failure_goes_to_all(void **state)
{
    (void)state;
    open_control(0);
    says(1, WRI_MESSAGE_FAILED, 1, WRING_E_TIMEOUT, "words", 5);
    assert_alarm(WRING_E_TIMEOUT, "rank 1: words");
    assert_said(1, 0, 0, "");
    assert_said(2, WRI_MESSAGE_FAILED, 1, "words");
    says(2, WRI_MESSAGE_FAILED, 2, WRING_E_MEMORY, "other words", 11); /* the second: not told */
    assert_alarm(WRING_E_TIMEOUT, "rank 1: words");
    assert_said(1, 0, 0, "");
    close_control();
    open_control(1);
    says(0, WRI_MESSAGE_FAILED, 2, WRING_E_TIMEOUT, "words", 5);
    assert_alarm(WRING_E_TIMEOUT, "rank 2: words");
    assert_said(0, 0, 0, "");
    close_control();
    open_control(1);
    says(0, WRI_MESSAGE_LOST, 2, 0, "gone", 4);
    assert_alarm(WRING_E_PEER_LOST, "gone");
    assert_int_equal(control->member[2].state, WRI_MEMBER_LOST);
    says(0, WRI_MESSAGE_LOST, 1, 0, "late", 4);
    assert_int_equal(control->state, WRI_CONTROL_CUT_OFF);
    assert_text_says(control->cut_off, "rank 1 was cut off from the others: late");
    assert_false(wri_control_tick(control, wri_clock_ns()));
    close_control();
}

static void what_fails_here_is_told(void **state)
{
    (void)state;
    for (int leaving = 0; leaving < 2; leaving++) {
        open_control(0);
        wri_monitor_drop(&monitor, &control->member[1].link);
        wri_alarm_raise(&alarm_raised, WRING_E_MEMORY, "words");
        control->leaving = leaving;
        wri_control_report(control);
        assert_said(2, leaving ? 0 : WRI_MESSAGE_FAILED, 0, "words");
        wri_control_fail(control, WRING_E_MISMATCH, "a second one");
        assert_said(2, 0, 0, "");
        close_control();
    }
}

/* ---- goodbyes -------------------------------------------------------------------------------- */

static void who_leaves_is_not_lost(void **state)
{
    (void)state;
    open_control(0);
    says(2, WRI_MESSAGE_GOODBYE, 2, 0, NULL, 0);
    says(2, WRI_MESSAGE_GOODBYE, 2, 0, NULL, 0);
    assert_said(1, WRI_MESSAGE_GOODBYE, 2, "");
    assert_said(1, 0, 0, "");
    assert_int_equal(wri_control_left(control), 2);
    control->leaving = true;
    says(1, WRI_MESSAGE_GOODBYE, 1, 0, NULL, 0);
    assert_true(control->farewell);
    assert_said(1, WRI_MESSAGE_FAREWELL, 0, "");
    close(other[2]);
    other[2] = -1;
    wri_control_heard(control, control->member[2].link);
    assert_alarm(WRING_OK, "");
    assert_int_equal(control->member[2].state, WRI_MEMBER_GONE);
    close_control();
}

/* A root that said goodbye leads until it closes, or falls silent. */
static void a_root_that_left_is_left(void **state)
{
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        open_control(1);
        monitor.silence_ns = 30 * SECOND;
        says(0, WRI_MESSAGE_GOODBYE, 0, 0, NULL, 0);
        assert_int_equal(wri_control_left(control), 0);
        assert_int_equal(control->state, WRI_CONTROL_FOLLOWING);
        if (closes) {
            close(other[0]);
            other[0] = -1;
            wri_control_heard(control, control->up);
        } else {
            wri_control_tick(control, wri_clock_ns() + 40 * SECOND);
        }
        assert_int_equal(control->state, WRI_CONTROL_LEADING);
        assert_alarm(WRING_OK, "");
        close_control();
    }
}

static void a_farewell_ends_the_wait(void **state)
{
    (void)state;
    open_control(1);
    assert_int_equal(wri_control_left(control), -1);
    says(0, WRI_MESSAGE_FAREWELL, 0, 0, NULL, 0);
    monitor.controls = control;
    int64_t begin_ns = wri_clock_ns();
    wri_control_close(control, true);
    assert_true(wri_clock_ns() - begin_ns < SECOND);
    assert_null(monitor.controls);
    assert_said(0, WRI_MESSAGE_GOODBYE, 1, "");
    control = NULL;
    close_control();
}

/* ---- hello ----------------------------------------------------------------------------------- */

static uint64_t failing; /* allocation; 0: none */

static bool hello(int rank, size_t nbytes, uint64_t nonce, uint32_t from, uint32_t probes,
                  uint64_t gathers, unsigned char lost)
{
    struct wri_link *link = link_to(rank, WRI_LINK_STRANGER);
    link->head = (struct wri_message){.type = WRI_MESSAGE_HELLO,
                                      .rank = from,
                                      .value = probes,
                                      .number = gathers,
                                      .nbytes = (uint16_t)nbytes};
    memcpy(link->block, &nonce, sizeof(nonce));
    link->block[sizeof(nonce)] = lost;
    wri_alloc_fail_at(failing);
    bool taken = wri_control_hello(control, link);
    wri_alloc_fail_at(0);
    if (!taken)
        wri_monitor_drop(&monitor, &link);
    return taken;
}

static void who_says_hello_is_answered(void **state)
{
    static const struct {
        int rank; /* that hears it, of rank 2 */
        size_t nbytes;
        uint64_t nonce;
        uint32_t from, probes;
        enum wri_member_state member;
        int answer, given_up; /* 0: none */
    } rows[] = {
        {0, 8, 5, 2, 0, WRI_MEMBER_ALIVE, 0, 0},
        {0, 10, 5, 2, 0, WRI_MEMBER_ALIVE, 0, 0},
        {0, 9, 6, 2, 0, WRI_MEMBER_ALIVE, 0, 0},
        {0, 9, 5, N, 0, WRI_MEMBER_ALIVE, 0, 0},
        {0, 9, 5, ~0u, 0, WRI_MEMBER_ALIVE, 0, 0},
        {0, 9, 5, 0, 0, WRI_MEMBER_ALIVE, 0, 0},
        {0, 9, 5, 2, 0, WRI_MEMBER_LOST, WRI_MESSAGE_REFUSED, 1},
        {0, 9, 5, 2, 1, WRI_MEMBER_ALIVE, WRI_MESSAGE_REFUSED, 1}, /* there are two roots */
        {1, 9, 5, 2, 1, WRI_MEMBER_ALIVE, WRI_MESSAGE_REFUSED, 0},
        {1, 9, 5, 2, 0, WRI_MEMBER_ALIVE, WRI_MESSAGE_REFUSED, 0},
        {1, 9, 5, 2, 0, WRI_MEMBER_LOST, WRI_MESSAGE_REFUSED, 1},
        {0, 9, 5, 2, 0, WRI_MEMBER_ALIVE, WRI_MESSAGE_WELCOME, 0},
        {0, 9, 5, 2, 0, WRI_MEMBER_GONE, WRI_MESSAGE_WELCOME, 0},
    };
    (void)state;
    for (size_t i = 0; i < ROWS(rows); i++) {
        open_control(rows[i].rank);
        control->nonce = 5;
        control->member[2].state = rows[i].member;
        if (other[2] >= 0)
            close(other[2]);
        bool taken = hello(2, rows[i].nbytes, rows[i].nonce, rows[i].from, rows[i].probes, 7, 0);
        if (taken != (rows[i].answer == WRI_MESSAGE_WELCOME))
            fail_msg("row %zu: %s", i, taken ? "taken" : "not taken");
        struct wri_message head = said_to(2, text);
        assert_int_equal(head.type, rows[i].answer);
        assert_int_equal(head.value, rows[i].given_up);
        assert_int_equal(control->member[2].gathers, taken ? 7 : 0);
        close_control();
    }
}

/* Rank 2 comes again, while it is asked whether it is there and for what it has. */
static void who_comes_again_is_told_what_happened(void **state)
{
    (void)state;
    open_control(0);
    close(other[2]);
    control->member[2].probe = link_to(2, WRI_LINK_PROBE);
    close(other[2]);
    control->asked = 2;
    wri_alarm_raise(&alarm_raised, WRING_E_MEMORY, "words");
    assert_true(hello(2, 9, 0, 2, 0, 0, 0xff)); /* it has lost all; those that may be lost are */
    assert_null(control->member[2].probe);
    assert_int_equal(control->asked, -1);
    assert_int_equal(control->member[1].state, WRI_MEMBER_LOST);
    assert_int_equal(control->member[2].state, WRI_MEMBER_ALIVE);
    assert_said(2, WRI_MESSAGE_WELCOME, 0, "");
    assert_said(2, WRI_MESSAGE_FAILED, 0, "words");
    assert_said(2, WRI_MESSAGE_LOST, 1, "rank 2 has lost it");
    close_control();
}

/* ---- finding a root -------------------------------------------------------------------------- */

static void answers_to_a_hello(void **state)
{
    static const struct {
        int rank, type, value; /* rank 1 seeks rank 0, or rank 0 asks for rank 2; 0: closes */
        enum wri_control_state then;
    } rows[] = {
        {1, WRI_MESSAGE_WELCOME, 0, WRI_CONTROL_FOLLOWING},
        {1, WRI_MESSAGE_REFUSED, 0, WRI_CONTROL_SEEKING},
        {1, WRI_MESSAGE_REFUSED, 1, WRI_CONTROL_CUT_OFF},
        {1, WRI_MESSAGE_BEAT, 0, WRI_CONTROL_SEEKING},
        {1, 0, 0, WRI_CONTROL_SEEKING},
        {0, WRI_MESSAGE_WELCOME, 0, WRI_CONTROL_LEADING},
        {0, WRI_MESSAGE_REFUSED, 0, WRI_CONTROL_LEADING},
        {0, WRI_MESSAGE_REFUSED, 1, WRI_CONTROL_CUT_OFF},
        {0, 0, 0, WRI_CONTROL_LEADING},
    };
    (void)state;
    for (size_t i = 0; i < ROWS(rows); i++) {
        int peer = rows[i].rank ? 0 : 2;
        open_control(rows[i].rank);
        if (rows[i].rank == 0) {
            wri_monitor_drop(&monitor, &control->member[2].link);
            close(other[2]);
            control->member[2].probe = link_to(2, WRI_LINK_PROBE);
        } else {
            control->state = WRI_CONTROL_SEEKING;
        }
        if (rows[i].type == 0) {
            close(other[peer]);
            other[peer] = -1;
            wri_control_heard(control, link_with(peer));
        } else {
            says(peer, rows[i].type, (uint32_t)peer, (uint32_t)rows[i].value, NULL, 0);
        }
        if (control->state != rows[i].then || control->member[peer].state != WRI_MEMBER_ALIVE)
            fail_msg("row %zu: state %d", i, control->state);
        assert_int_equal(control->up != NULL, rows[i].then == WRI_CONTROL_FOLLOWING);
        assert_null(control->member[2].probe);
        assert_alarm(rows[i].then == WRI_CONTROL_CUT_OFF ? WRING_E_PEER_LOST : WRING_OK,
                     "they have given it up");
        close_control();
    }
}

static void a_new_root_is_told_what_it_must_know(void **state)
{
    (void)state;
    open_control(1);
    control->state = WRI_CONTROL_SEEKING;
    wri_alarm_raise(&alarm_raised, WRING_E_MEMORY, "words");
    control->failed_here = control->leaving = true;
    begin("b");
    says(0, WRI_MESSAGE_WELCOME, 0, 0, NULL, 0);
    assert_said(0, WRI_MESSAGE_FAILED, 1, "words");
    assert_said(0, WRI_MESSAGE_BLOCK, 1, "b");
    assert_said(0, WRI_MESSAGE_GOODBYE, 1, "");
    close_control();
}

/* Accept what PEER's link connects with, after those connections that were given up. */
static void let_in(int listen_fd, int peer)
{
    struct wri_auth auth;
    struct wri_link *link = link_with(peer);
    wring_status status;
    do {
        if (other[peer] >= 0)
            close(other[peer]);
        ready(listen_fd);
        other[peer] = wri_socket_accept(listen_fd);
        wri_auth_init(&auth, &monitor.secret, true);
        do {
            wri_control_heard(control, link);
            status = wri_auth_advance(&auth, other[peer]);
        } while (status == WRING_AGAIN);
    } while (status != WRING_OK);
    for (; !link->known; usleep(100))
        wri_control_heard(control, link);
    ready(other[peer]);
}

/* Rank 1 connects to rank 0, or rank 0 asks whether rank 2 is there, at a port where this test is,
 * after CALL was refused with ERROR. */
static void a_connection_that_fails(void **state)
{
    static const struct {
        const char *call;
        int error;
        bool dead;
    } rows[] = {
        {"connect", ECONNREFUSED, true},
        {"connect", EHOSTUNREACH, true},
        {"connect", ENETUNREACH, true},
        {"connect", ETIMEDOUT, true},
        {"connect", ENOBUFS, false},
        {"socket", EMFILE, false},
        {"getaddrinfo", ECONNREFUSED, false},
        {"epoll_ctl", ENOMEM, false},
        {"", 0, false},
    };
    int fd, port = 0;
    (void)state;
    require(wri_socket_listen("127.0.0.1", &port, &fd));
    for (size_t i = 0; i < 2 * ROWS(rows); i++) {
        int rank = i % 2, peer = rank ? 0 : 2;
        open_control(rank);
        monitor.silence_ns = 30 * SECOND;
        struct wri_member *member = &control->member[peer];
        close(other[peer]);
        wri_monitor_drop(&monitor, &member->link);
        strcpy(member->host, "127.0.0.1");
        member->port = port;
        control->beat_ns = INT64_MAX;
        wri_control_seek(control); /* rank 0 finds that it leads */
        int64_t now = wri_clock_ns() + SECOND;
        if (rows[i / 2].error)
            refuse(rows[i / 2].call, 0, 1, rows[i / 2].error);
        else
            wri_alloc_fail_at(1);
        assert_true(wri_control_tick(control, now));
        assert_true(was_refused() || !rows[i / 2].error);
        assert_null(rank ? control->up : member->probe);
        if (member->state != (rows[i / 2].dead ? WRI_MEMBER_LOST : WRI_MEMBER_ALIVE))
            fail_msg("row %zu, rank %d: state %d", i / 2, rank, member->state);
        assert_alarm(rows[i / 2].dead ? WRING_E_PEER_LOST : WRING_OK, strerror(rows[i / 2].error));
        wri_control_tick(control, now + NS_PER_MS); /* not yet */
        assert_null(rank ? control->up : member->probe);
        wri_control_tick(control, now + SECOND);
        assert_int_equal((rank ? control->up : member->probe) != NULL, !rows[i / 2].dead);
        other[peer] = -1;
        if (!rows[i / 2].dead) {
            let_in(fd, peer);
            assert_said(peer, WRI_MESSAGE_HELLO, (uint32_t)rank, "");
        }
        close_control();
    }
    close(fd);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void who_is_silent_or_away_for_too_long_is_lost(void **state)
{
    static const struct {
        int rank, peer;
        bool follows, links, formed, forgiven, lost;
        const char *words;
    } rows[] = {
        {1, 0, true, true, true, false, true, "lost rank 0 (): silent for 4"},
        {1, 0, true, true, true, true, false, ""},
        {1, 0, false, true, true, false, true, "it does not answer"},
        {1, 0, false, false, true, false, false, "rank 1 was cut off from the others: no other"},
        {1, 0, false, true, false, false, false, ""},
        {0, 2, false, true, true, false, true, "lost rank 2 (): silent for 4"},
        {0, 2, false, true, true, true, false, ""},
        {0, 2, false, false, true, false, true, "it does not come"},
        {0, 2, false, false, false, false, false, ""},
    };
    (void)state;
    for (size_t i = 0; i < ROWS(rows); i++) {
        open_control(rows[i].rank);
        int64_t later = wri_clock_ns() + 40 * SECOND;
        struct wri_member *member = &control->member[rows[i].peer];
        monitor.silence_ns = 30 * SECOND;
        monitor.beat_ns = SECOND;
        control->formed = rows[i].formed;
        if (!rows[i].follows && rows[i].rank)
            control->state = WRI_CONTROL_SEEKING;
        if (rows[i].rank == 0) { /* of the others only rank 2 */
            control->member[1].state = WRI_MEMBER_GONE;
            member->probe_ns = INT64_MAX;
        } else {
            control->retry_ns = INT64_MAX;
        }
        control->since_ns = member->since_ns = later - 40 * SECOND;
        if (!rows[i].links)
            wri_monitor_drop(&monitor, rows[i].rank ? &control->up : &member->link);
        if (rows[i].forgiven)
            wri_control_forgive(control, later);
        wri_control_tick(control, later);
        if ((member->state == WRI_MEMBER_LOST) != rows[i].lost)
            fail_msg("row %zu: state %d", i, member->state);
        assert_alarm(rows[i].words[0] ? WRING_E_PEER_LOST : WRING_OK, rows[i].words);
        if (rows[i].links && !rows[i].lost && rows[i].formed)
            assert_said(rows[i].peer, WRI_MESSAGE_BEAT, (uint32_t)rows[i].rank, "");
        close_control();
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A root that loses a rank, and so could end a gather, has no memory for that: it is cut off, and
 * looks at no link any more. WHO: silent rank 1 is noticed, or told by rank 3 that comes again. */
static void a_root_without_memory_is_cut_off(void **state)
{
    (void)state;
    for (int told = 0; told < 2; told++) {
        bool cut_off = false;
        for (uint64_t n = 1; n < 10; n++) {
            open_control_of(4, 0);
            monitor.silence_ns = 30 * SECOND;
            begin("a");
            says(2, WRI_MESSAGE_BLOCK, 2, 0, "c", 1);
            says(3, WRI_MESSAGE_BLOCK, 3, 0, "d", 1);
            if (told) {
                wri_monitor_drop(&monitor, &control->member[3].link);
                close(other[3]);
            }
            control->member[2].link->heard_ns = wri_clock_ns() + 40 * SECOND;
            failing = told ? n : 0;
            wri_alloc_fail_at(told ? 0 : n);
            if (told)
                hello(3, 9, 0, 3, 0, 0, 1 << 1);
            else
                wri_control_tick(control, wri_clock_ns() + 40 * SECOND);
            wri_alloc_fail_at(0);
            assert_int_equal(control->member[1].state, WRI_MEMBER_LOST);
            if (control->state == WRI_CONTROL_CUT_OFF) {
                cut_off = true;
                assert_text_says(control->cut_off, "no memory to lead them");
                assert_null(control->member[2].link);
            }
            close_control();
        }
        assert_true(cut_off);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_makes_no_sense_ends_the_link),
        cmocka_unit_test(nobody_speaks_for_ever),
        cmocka_unit_test(a_failure_goes_to_all),
        cmocka_unit_test(what_fails_here_is_told),
        cmocka_unit_test(who_leaves_is_not_lost),
        cmocka_unit_test(a_root_that_left_is_left),
        cmocka_unit_test(a_farewell_ends_the_wait),
        cmocka_unit_test(who_says_hello_is_answered),
        cmocka_unit_test(who_comes_again_is_told_what_happened),
        cmocka_unit_test(answers_to_a_hello),
        cmocka_unit_test(a_new_root_is_told_what_it_must_know),
        cmocka_unit_test(a_connection_that_fails),
        cmocka_unit_test(who_is_silent_or_away_for_too_long_is_lost),
        cmocka_unit_test(a_root_without_memory_is_cut_off),
    };
    return cmocka_run_group_tests_name("star", tests, NULL, NULL);
}
