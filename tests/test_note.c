/* SPDX-License-Identifier: Apache-2.0 */
/* Notes of calls, of one rank whose links this test holds the other ends of: what the root
 * compares, whom it asks, and what a rank that follows tells it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "one_control.h"

static const struct wring_transport_ops ordered = {.caps = WRING_TRANSPORT_STREAM_ORDERED};

static struct wri_frame frame_of(uint64_t operation, uint64_t count)
{
    return (struct wri_frame){.magic = WRI_FRAME_MAGIC,
                              .version = WRI_FRAME_VERSION,
                              .header_nbytes = WRI_FRAME_NBYTES,
                              .dtype = WRING_FLOAT32,
                              .count = count,
                              .operation = operation};
}

/* This rank starts the call. */
static void starts(uint64_t operation, uint64_t count, bool now)
{
    struct wri_frame frame = frame_of(operation, count);
    wri_control_note(control, &frame, now);
}

static void says_note(int rank, uint64_t operation, uint64_t digest)
{
    struct wri_note note = {operation, digest};
    struct wri_message head = {.type = WRI_MESSAGE_NOTES, .rank = (uint32_t)rank, .nbytes = 16};
    says_message(rank, head, &note);
}

static void says_make(int rank, uint64_t count)
{
    struct wri_frame frame = frame_of(0, count);
    struct wri_message head = {
        .type = WRI_MESSAGE_MAKE, .rank = (uint32_t)rank, .nbytes = sizeof(frame)};
    says_message(rank, head, &frame);
}

static void asks(uint64_t operation)
{
    says_message(0, (struct wri_message){.type = WRI_MESSAGE_ASK, .number = operation}, NULL);
}

static void assert_asked(int rank, uint64_t operation)
{
    struct wri_message head = said_to(rank, text);
    assert_int_equal(head.type, WRI_MESSAGE_ASK);
    assert_int_equal(head.number, operation);
}

/* The notes that the root is told now, each of 16 bytes in `text`. */
static size_t noted(void)
{
    wri_control_tick(control, wri_clock_ns() + 1000 * NS_PER_MS);
    struct wri_message head = said_to(0, text);
    if (head.type == 0)
        return 0;
    assert_int_equal(head.type, WRI_MESSAGE_NOTES);
    return head.nbytes / sizeof(struct wri_note);
}

static struct wri_note note_at(size_t i)
{
    struct wri_note note;
    memcpy(&note, text + i * sizeof(note), sizeof(note));
    return note;
}

static void open_notes(int rank, const struct wring_transport_ops *transport)
{
    context.transport = transport;
    open_control(rank);
    control->beat_ns = INT64_MAX;
    monitor.silence_ns = 30000 * NS_PER_MS;
}

/* As a rank that follows works it out. */
static uint64_t digest_of_count(uint64_t count)
{
    open_notes(1, &silent);
    starts(0, count, true);
    assert_said(0, WRI_MESSAGE_MAKE, 1, "");
    assert_int_equal(noted(), 1);
    close_control();
    return note_at(0).digest;
}

/* ---- the root -------------------------------------------------------------------------------- */

static void a_root_compares(void **state)
{
    uint64_t of_10 = digest_of_count(10), of_20 = digest_of_count(20);
    (void)state;
    assert_true(of_10 != of_20 && of_10 && of_20);
    for (int own = 0; own < 2; own++) { /* this rank's call is one of them, or told by rank 1 */
        open_notes(0, &ordered);
        if (own) {
            starts(5, 10, true);
        } else {
            says_make(1, 10);
            says_note(1, 5, of_10);
        }
        says_note(1, 5, of_10);
        says_note(2, 5, of_10);
        says_note(2, 6, of_20);
        assert_alarm(WRING_OK, "");
        assert_said(1, 0, 0, ""); /* an ordered transport's ranks note every call: nobody asks */
        says_note(2, 5, of_20);
        assert_alarm(WRING_E_MISMATCH, own ? "on rank 0, but call" : "on rank 1, but call");
        assert_alarm(WRING_E_MISMATCH, "operation 5 is ");
        assert_alarm(WRING_E_MISMATCH, "of 10 ");
        assert_alarm(WRING_E_MISMATCH, "on rank 2");
        assert_said(1, WRI_MESSAGE_FAILED, 0, "operation 5");
        assert_said(2, WRI_MESSAGE_FAILED, 0, "operation 5");
        close_control();
    }
}

static void ranks_too_far_apart_are_not_compared(void **state)
{
    (void)state;
    open_notes(0, &ordered);
    says_note(1, 5, 1);
    says_note(1, 5 + WRI_NOTES_OPEN, 1);
    says_note(2, 5, 2);
    assert_alarm(WRING_OK, "");
    says_note(2, 5 + WRI_NOTES_OPEN, 2);
    assert_alarm(WRING_E_MISMATCH, "operation 4101");
    close_control();
}

/* Where ranks note only the calls that they are stuck in, the first note has the others asked. */
static void a_root_asks_the_others(void **state)
{
    (void)state;
    for (int started = 0; started < 3; started++) {
        open_notes(0, &silent);
        wri_monitor_drop(&monitor, &control->member[1].link);
        if (started == 1)
            starts(5, 10, false);
        if (started == 2)
            starts(5 + WRI_NOTES_KEPT, 10, false); /* does not know the older one any more */
        says_note(2, 5, 1);
        assert_asked(2, 5);
        if (started == 2)
            assert_said(2, 0, 0, "");
        if (started == 0) {
            assert_alarm(WRING_OK, "");
            starts(5, 10, false);
        }
        if (started < 2)
            assert_alarm(WRING_E_MISMATCH, "operation 5 is call 0000000000000001 on rank 2, but ");
        else
            assert_alarm(WRING_OK, "");
        close_control();
    }
}

/* ---- a rank that follows --------------------------------------------------------------------- */

static void a_follower_notes(void **state)
{
    (void)state;
    open_notes(1, &silent);
    starts(1, 10, false);
    starts(2, 10, false);
    starts(3, 20, false);
    assert_int_equal(noted(), 0);
    asks(2);
    assert_said(0, WRI_MESSAGE_MAKE, 1, "");
    asks(1);
    assert_true(wri_control_tick(control, control->notes_ns - 1)); /* not yet */
    assert_int_equal(noted(), 2);
    assert_int_equal(note_at(0).operation, 2);
    assert_int_equal(note_at(1).operation, 1);
    asks(4); /* it has not started that one, and notes it as soon as it does */
    asks(3);
    assert_said(0, WRI_MESSAGE_MAKE, 1, "");
    starts(4, 20, false);
    starts(5, 20, false);
    assert_int_equal(noted(), 2);
    assert_int_equal(note_at(0).operation, 3);
    assert_int_equal(note_at(1).operation, 4);
    for (uint64_t i = 0; i < WRI_NOTES_MAX + 1; i++)
        starts(100 + i, 20, true);
    struct wri_message head = said_to(0, text); /* as many as fit, at once */
    assert_int_equal(head.type, WRI_MESSAGE_NOTES);
    assert_int_equal(head.nbytes, WRI_NOTES_MAX * sizeof(struct wri_note));
    assert_int_equal(note_at(WRI_NOTES_MAX - 1).operation, 100 + WRI_NOTES_MAX - 1);
    assert_int_equal(noted(), 1);
    close_control();
}

static void without_a_root_nobody_is_told(void **state)
{
    (void)state;
    open_notes(1, &silent);
    control->state = WRI_CONTROL_SEEKING;
    control->retry_ns = INT64_MAX;
    starts(1, 10, true);
    wri_control_tick(control, wri_clock_ns() + 1000 * NS_PER_MS);
    assert_said(0, 0, 0, "");
    control->state = WRI_CONTROL_FOLLOWING; /* the next root is told what the call is */
    starts(2, 10, true);
    assert_said(0, WRI_MESSAGE_MAKE, 1, "");
    assert_int_equal(noted(), 1);
    assert_int_equal(note_at(0).operation, 2);
    starts(3, 10, true);
    control->state = WRI_CONTROL_LEADING; /* a note that is due later is looked at again */
    control->member[0].state = control->member[2].state = WRI_MEMBER_LOST;
    assert_true(wri_control_tick(control, control->notes_ns - 1));
    assert_false(wri_control_tick(control, control->notes_ns));
    assert_said(0, 0, 0, "");
    close_control();
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What is not noted is not compared; later calls are. */
static void without_memory_nothing_is_noted(void **state)
{
    (void)state;
    open_notes(1, &silent);
    wri_alloc_fail_at(1);
    starts(1, 10, true);
    assert_int_equal(noted(), 0);
    starts(2, 10, true);
    assert_said(0, WRI_MESSAGE_MAKE, 1, "");
    close_control();
    for (uint64_t n = 1; n <= 2; n++)
        for (int own = 0; own < 2; own++) {
            open_notes(0, &ordered);
            wri_alloc_fail_at(n);
            if (own)
                starts(5, 10, true);
            else
                says_note(1, 5, 1);
            says_note(2, 5, 2);
            assert_alarm(WRING_OK, "");
            says_note(1, 5, 1);
            assert_alarm(WRING_E_MISMATCH, "on rank 2, but call 0000000000000001 on rank 1");
            close_control();
        }
    wri_alloc_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_compares),
        cmocka_unit_test(ranks_too_far_apart_are_not_compared),
        cmocka_unit_test(a_root_asks_the_others),
        cmocka_unit_test(a_follower_notes),
        cmocka_unit_test(without_a_root_nobody_is_told),
        cmocka_unit_test(without_memory_nothing_is_noted),
    };
    return cmocka_run_group_tests_name("note", tests, NULL, NULL);
}
