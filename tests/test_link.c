/* SPDX-License-Identifier: Apache-2.0 */
/* Links of the control path: bytes that come in parts, or are no message, or do not go out, and
 * sides that do not prove themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "one_control.h"

static void what_is_no_message_ends_the_link(void **state)
{
    struct wri_message head = {.magic = ~CONTROL_MAGIC, .type = WRI_MESSAGE_BEAT};
    (void)state;
    open_control(0);
    assert_int_equal(send(other[2], &head, sizeof(head), 0), sizeof(head));
    wri_control_heard(control, control->member[2].link);
    assert_alarm(WRING_E_PEER_LOST, "lost rank 2");
    close(other[1]);
    other[1] = -1;
    wri_control_heard(control, control->member[1].link);
    assert_int_equal(control->member[1].state, WRI_MEMBER_LOST);
    close_control();
}

static void a_message_comes_in_parts(void **state)
{
    struct wri_message head = {.magic = CONTROL_MAGIC,
                               .type = WRI_MESSAGE_FAILED,
                               .nbytes = 5,
                               .rank = 2,
                               .value = WRING_E_TIMEOUT};
    char bytes[sizeof(head) + 5];
    (void)state;
    memcpy(bytes, &head, sizeof(head));
    memcpy(bytes + sizeof(head), "words", 5);
    open_control(0);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        assert_alarm(WRING_OK, "");
        assert_int_equal(send(other[2], bytes + i, 1, 0), 1);
        wri_control_heard(control, control->member[2].link);
    }
    assert_alarm(WRING_E_TIMEOUT, "rank 2: words");
    close_control();
}

/* A rank that takes nothing keeps nobody waiting; what is for it goes out when it takes again. */
static void what_does_not_go_now_goes_later(void **state)
{
    struct wri_message head;
    size_t said = 0, heard = 0;
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        open_control(0);
        struct wri_link *link = control->member[2].link;
        for (said = heard = 0; !link->waits || said % 20000; said++)
            wri_control_tell(link, WRI_MESSAGE_BEAT, 0, 0, said, NULL, 0);
        assert_true(link->queued > link->sent);
        for (; !closes && heard < said; heard++) {
            head = said_to(2, text);
            if (head.type == 0) { /* the rest of it after the next turn, and what comes then */
                assert_true(link->waits);
                wri_control_heard(control, link);
                if (link->sent > 0)
                    wri_control_tell(link, WRI_MESSAGE_BEAT, 0, 0, said++, NULL, 0);
                heard--;
                continue;
            }
            assert_int_equal(head.number, heard);
        }
        if (closes) {
            close(other[2]);
            other[2] = -1;
            wri_control_heard(control, link);
        }
        assert_int_equal(control->member[2].state, closes ? WRI_MEMBER_LOST : WRI_MEMBER_ALIVE);
        if (!closes)
            assert_false(link->waits);
        close_control();
    }
}

/* A peer that takes nothing at all is given up before its queue has used up the memory. */
static void a_queue_has_an_end(void **state)
{
    (void)state;
    open_control(0);
    struct wri_link *link = control->member[2].link;
    link->queued = link->capacity = (size_t)1 << 27; /* as if */
    wri_control_tell(link, WRI_MESSAGE_BEAT, 0, 0, 0, NULL, 0);
    assert_int_equal(link->error, ENOBUFS);
    link->queued = link->capacity = 0;
    wri_control_tell(link, WRI_MESSAGE_BEAT, 0, 0, 0, NULL, 0); /* nothing goes out any more */
    assert_int_equal(link->queued, 0);
    wri_control_heard(control, link);
    assert_alarm(WRING_E_PEER_LOST, "No buffer space");
    close_control();
}

/* A link on which the other side talks no sense before it has proven itself is given up as that,
 * whatever went wrong before. */
static void a_wrong_proof_is_said(void **state)
{
    static const char garbage[64] = "GET / HTTP/1.1";
    (void)state;
    open_control(1);
    wri_auth_init(&control->up->auth, &monitor.secret, true);
    control->up->known = false;
    assert_int_equal(send(other[0], garbage, sizeof(garbage), 0), sizeof(garbage));
    errno = ECONNREFUSED;
    wri_control_tell(control->up, WRI_MESSAGE_BEAT, 1, 0, 0, NULL, 0);
    assert_int_equal(control->up->error, EPROTO);
    close_control();
    for (int known = 0; known < 2; known++) {
        open_control(1);
        control->up->known = known;
        wri_auth_init(&control->up->auth, &monitor.secret, true);
        close(other[0]);
        other[0] = -1;
        wri_control_tell(control->up, WRI_MESSAGE_BEAT, 1, 0, 0, NULL, 0);
        assert_int_equal(control->up->error, EPIPE);
        close_control();
    }
}

static void another_secret_is_no_proof(void **state)
{
    static const struct wri_secret another = {.known = true, .key = {1}};
    struct wri_auth theirs;
    (void)state;
    open_control(1);
    monitor.secret.known = true;
    wri_auth_init(&control->up->auth, &monitor.secret, false);
    wri_auth_init(&theirs, &another, true);
    control->up->known = false;
    wri_control_tell(control->up, WRI_MESSAGE_BEAT, 1, 0, 0, NULL, 0);
    for (int i = 0; i < 10 && control->up != NULL; i++) {
        (void)wri_auth_advance(&theirs, other[0]);
        wri_control_heard(control, control->up);
    }
    assert_null(control->up);
    assert_alarm(WRING_E_PEER_LOST, "rotocol error");
    close_control();
}

/* It proves itself and closes before it has heard what waited for that. */
static void a_proof_is_not_a_promise(void **state)
{
    struct wri_auth theirs;
    wring_status status;
    (void)state;
    open_control(1);
    wri_auth_init(&control->up->auth, &monitor.secret, false);
    wri_auth_init(&theirs, &monitor.secret, true);
    control->up->known = false;
    wri_control_tell(control->up, WRI_MESSAGE_BEAT, 1, 0, 0, NULL, 0);
    while ((status = wri_auth_advance(&theirs, other[0])) == WRING_AGAIN)
        wri_control_heard(control, control->up);
    assert_int_equal(status, WRING_OK);
    close(other[0]);
    other[0] = -1;
    wri_control_heard(control, control->up);
    assert_alarm(WRING_E_PEER_LOST, "Broken pipe");
    close_control();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_message_ends_the_link),
        cmocka_unit_test(what_does_not_go_now_goes_later),
        cmocka_unit_test(a_queue_has_an_end),
        cmocka_unit_test(a_wrong_proof_is_said),
        cmocka_unit_test(another_secret_is_no_proof),
        cmocka_unit_test(a_message_comes_in_parts),
        cmocka_unit_test(a_proof_is_not_a_promise),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
