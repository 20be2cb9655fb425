/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers of the control path, of one rank whose links this test holds the other ends of: what
 * makes no sense is refused, a new root asks who has a result, and no call waits for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "one_control.h"

#define KIND WRI_GATHER_AGREE

static bool hears(struct wri_link *link, int type, uint32_t rank, uint32_t value, uint64_t number,
                  const char *text)
{
    link->head = (struct wri_message){.type = (uint16_t)type,
                                      .rank = rank,
                                      .value = value,
                                      .number = number,
                                      .nbytes = (uint16_t)strlen(text)};
    memcpy(link->block, text, strlen(text));
    return wri_gather_heard(control, link);
}

/* RANK is told the result of gather NUMBER: N entries, and "abc"[q] of each rank that has a bit. */
static void assert_told(int rank, uint64_t number, unsigned ranks)
{
    struct wri_message head;
    uint32_t n = 0;
    for (uint32_t q = 0; q < N; q++)
        if (ranks >> q & 1) {
            head = said_to(rank, text);
            assert_int_equal(head.type, WRI_MESSAGE_ENTRY);
            assert_int_equal(head.rank, q);
            assert_int_equal(head.number, number);
            assert_int_equal(head.nbytes, 1);
            assert_int_equal(text[0], "abc"[q]);
            n++;
        }
    head = said_to(rank, text);
    assert_int_equal(head.type, WRI_MESSAGE_GATHERED);
    assert_int_equal(head.value, n);
    assert_int_equal(head.number, number);
}

/* ---- the root -------------------------------------------------------------------------------- */

static void a_root_tells_all(void **state)
{
    (void)state;
    open_control(0);
    begin("a");
    assert_true(hears(control->member[1].link, WRI_MESSAGE_BLOCK, 1, 0, 0, "x"));
    assert_true(hears(control->member[1].link, WRI_MESSAGE_BLOCK, 1, 0, 0, "b")); /* comes again */
    assert_int_equal(said_to(1, text).type, 0);
    assert_true(hears(control->member[2].link, WRI_MESSAGE_BLOCK, 2, 0, 1, "c")); /* is ahead */
    assert_int_equal(control->gathers, 0);
    assert_true(hears(control->member[2].link, WRI_MESSAGE_BLOCK, 2, 0, 0, "c"));
    assert_int_equal(control->gathers, 1);
    assert_false(control->pending);
    assert_told(1, 0, 7);
    assert_told(2, 0, 7);
    assert_true(hears(control->member[2].link, WRI_MESSAGE_BLOCK, 2, 0, 0, "c")); /* missed it */
    assert_told(2, 0, 7);
    assert_true(hears(control->member[2].link, WRI_MESSAGE_BLOCK, 2, 0, 2, "c")); /* is ahead */
    assert_int_equal(control->gathers, 1);
    close_control();
}

/* Rank 2 left when it had said what it has, rank 1 before. */
static void who_left_is_not_waited_for(void **state)
{
    (void)state;
    open_control(0);
    begin("a");
    control->member[1].state = WRI_MEMBER_GONE;
    assert_true(hears(control->member[2].link, WRI_MESSAGE_BLOCK, 2, 0, 0, "c"));
    assert_told(2, 0, 5);
    control->member[1].state = WRI_MEMBER_ALIVE;
    begin("a");
    assert_true(hears(control->member[2].link, WRI_MESSAGE_BLOCK, 2, 0, 1, "c"));
    wri_monitor_drop(&monitor, &control->member[2].link);
    assert_true(hears(control->member[1].link, WRI_MESSAGE_BLOCK, 1, 0, 1, "b"));
    assert_true(control->pending); /* rank 2 may come again */
    control->member[2].state = WRI_MEMBER_LOST;
    wri_gather_progress(control);
    assert_false(control->pending);
    assert_told(1, 1, 3);
    close_control();
}

/* A rank that follows this new root has the result of the gather that the old root died in. */
static void a_new_root_asks_who_has_the_result(void **state)
{
    (void)state;
    open_control(0);
    begin("a");
    control->member[2].gathers = 1;
    assert_true(hears(control->member[1].link, WRI_MESSAGE_BLOCK, 1, 0, 0, "b"));
    assert_true(hears(control->member[1].link, WRI_MESSAGE_BLOCK, 1, 0, 0, "b"));
    assert_int_equal(control->asked, 2);
    assert_true(hears(control->member[2].link, WRI_MESSAGE_BLOCK, 2, 0, 1, "d")); /* goes on */
    struct wri_message head = said_to(2, text);
    assert_int_equal(head.type, WRI_MESSAGE_WANT);
    assert_int_equal(head.number, 0);
    for (uint32_t q = 0; q < N; q++) {
        const char block[2] = {"abc"[q], '\0'};
        assert_false(hears(control->member[1].link, WRI_MESSAGE_ENTRY, q, 0, 0, block));
        assert_true(hears(control->member[2].link, WRI_MESSAGE_ENTRY, q, 0, 0, block));
    }
    assert_false(hears(control->member[2].link, WRI_MESSAGE_ENTRY, 1, 0, 0, "b")); /* too many */
    assert_false(hears(control->member[2].link, WRI_MESSAGE_GATHERED, 2, 2, 0, ""));
    assert_true(hears(control->member[2].link, WRI_MESSAGE_GATHERED, 2, 3, 0, ""));
    assert_told(1, 0, 7);
    assert_int_equal(said_to(2, text).type, 0);
    assert_int_equal(control->asked, -1);
    assert_int_equal(*control->member[2].block, 'd'); /* for the next one */
    close_control();
}

/* ---- a rank that follows --------------------------------------------------------------------- */

static void a_follower_tells_and_hears(void **state)
{
    (void)state;
    open_control(1);
    wri_gather_resume(control); /* nothing to tell yet */
    assert_int_equal(said_to(0, text).type, 0);
    begin("b");
    wri_gather_resume(control);
    assert_int_equal(said_to(0, text).type, WRI_MESSAGE_BLOCK);
    assert_true(text[0] == 'b');
    for (uint32_t q = 0; q < N; q++)
        assert_true(hears(control->up, WRI_MESSAGE_ENTRY, q, 0, 0, (char[]){"abc"[q], 0}));
    assert_true(hears(control->up, WRI_MESSAGE_GATHERED, 0, 3, 0, ""));
    assert_int_equal(control->gathers, 1);
    assert_false(hears(control->up, WRI_MESSAGE_WANT, 0, 0, 1, ""));
    assert_true(hears(control->up, WRI_MESSAGE_WANT, 0, 0, 0, "")); /* a new root's */
    assert_told(0, 0, 7);
    close_control();
}

/* ---- what makes no sense --------------------------------------------------------------------- */

static void what_makes_no_sense_is_refused(void **state)
{
    static char huge[WRI_LINK_BLOCK_MAX + 2];
    static const struct {
        int rank, type; /* 0: the root hears it, of rank 2 */
        uint32_t from;
        uint64_t number;
        const char *text;
    } rows[] = {
        {1, WRI_MESSAGE_BLOCK, 0, 5, "x"},   {1, WRI_MESSAGE_ENTRY, N, 5, "x"},
        {1, WRI_MESSAGE_ENTRY, ~0u, 5, "x"}, {1, WRI_MESSAGE_ENTRY, 2, 4, "x"},
        {1, WRI_MESSAGE_ENTRY, 2, 6, "x"},   {1, WRI_MESSAGE_GATHERED, 0, 4, ""},
        {1, WRI_MESSAGE_WANT, 0, 5, ""},     {1, WRI_MESSAGE_BEAT, 0, 5, ""},
        {0, WRI_MESSAGE_BLOCK, 2, 3, "x"},   {0, WRI_MESSAGE_BLOCK, 2, 7, "x"},
        {0, WRI_MESSAGE_ENTRY, 2, 5, "x"},   {0, WRI_MESSAGE_GATHERED, 2, 5, ""},
        {0, WRI_MESSAGE_WANT, 2, 4, ""},     {0, WRI_MESSAGE_BLOCK, 2, 5, huge},
        {1, WRI_MESSAGE_ENTRY, 2, 5, huge},
    };
    (void)state;
    memset(huge, 'x', sizeof(huge) - 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int pending = 0; pending < 2; pending++) {
            open_control(rows[i].rank);
            control->gathers = 5;
            control->pending = pending;
            struct wri_link *link = rows[i].rank ? control->up : control->member[2].link;
            link->head = (struct wri_message){.type = (uint16_t)rows[i].type,
                                              .rank = rows[i].from,
                                              .number = rows[i].number,
                                              .nbytes = (uint16_t)strlen(rows[i].text)};
            if (wri_gather_heard(control, link))
                fail_msg("row %zu, pending %d: accepted", i, pending);
            assert_int_equal(control->gathers, 5);
            assert_null(control->result);
            close_control();
        }
}

/* ---- the call -------------------------------------------------------------------------------- */

static int row; /* what the root does */

/* Once this rank waits: results of no entry, one too short to say what it is for, one of this call,
 * one of another; then it is cut off. */
static void *act_as_root(void *arg)
{
    static const size_t nbytes[] = {0, 3, 9, 9};
    struct {
        uint64_t kind;
        char text;
    } block = {row == 3 ? WRI_GATHER_SHRINK : KIND, 'b'};
    (void)arg;
    pthread_mutex_lock(&monitor.lock);
    while (!control->pending) {
        pthread_mutex_unlock(&monitor.lock);
        usleep(1000);
        pthread_mutex_lock(&monitor.lock);
    }
    struct wri_link *up = control->up;
    if (row == 4) {
        wri_control_cut_off(control, "no reason");
    } else {
        up->head = (struct wri_message){
            .type = WRI_MESSAGE_ENTRY, .rank = 1, .nbytes = (uint16_t)nbytes[row]};
        memcpy(up->block, &block, nbytes[row]);
        assert_true(row == 0 || wri_gather_heard(control, up));
        if (row == 3) { /* and one of no bytes after it */
            up->head.nbytes = 0;
            assert_true(wri_gather_heard(control, up));
        }
        assert_true(hears(up, WRI_MESSAGE_GATHERED, 0, (uint32_t)(row == 3 ? 2 : row > 0), 0, ""));
    }
    pthread_mutex_unlock(&monitor.lock);
    return NULL;
}

static void a_result_is_for_this_call(void **state)
{
    static const wring_status expected[] = {WRING_OK, WRING_E_MISMATCH, WRING_OK, WRING_E_MISMATCH,
                                            WRING_E_PEER_LOST};
    (void)state;
    for (row = 0; row < 5; row++) {
        struct wri_gathered *gathered = NULL;
        pthread_t root;
        open_control(1);
        context.config.timeout_ms = 60000;
        assert_int_equal(pthread_create(&root, NULL, act_as_root, NULL), 0);
        wring_status status = wri_control_gather(control, KIND, "b", 1, &gathered);
        pthread_join(root, NULL);
        assert_int_equal(status, expected[row]);
        assert_int_equal(gathered != NULL, status == WRING_OK);
        if (gathered != NULL)
            assert_int_equal(gathered->n, row > 0);
        if (row == 2)
            assert_true(gathered->entry[0].nbytes == 1 && gathered->entry[0].rank == 1 &&
                        *(const char *)gathered->entry[0].block == 'b');
        if (row == 4) /* and it stays so */
            assert_int_equal(wri_control_gather(control, KIND, "b", 1, &gathered),
                             WRING_E_PEER_LOST);
        wri_free(gathered);
        close_control();
    }
}

static void nobody_is_waited_for_for_ever(void **state)
{
    struct wri_gathered *gathered;
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        open_control(rank);
        assert_int_equal(wri_control_gather(control, KIND, "x", 1, &gathered), WRING_E_TIMEOUT);
        assert_int_equal(control->state, WRI_CONTROL_CUT_OFF);
        assert_non_null(strstr(alarm_raised.message, "too long"));
        assert_null(control->up);
        close_control();
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void allocations_that_fail_are_said(void **state)
{
    struct wri_gathered *gathered;
    (void)state;
    open_control(0);
    begin("a");
    wri_alloc_fail_at(1); /* another's block */
    assert_false(hears(control->member[1].link, WRI_MESSAGE_BLOCK, 1, 0, 0, "b"));
    assert_true(hears(control->member[1].link, WRI_MESSAGE_BLOCK, 1, 0, 0, "b"));
    wri_alloc_fail_at(2); /* the result */
    assert_true(hears(control->member[2].link, WRI_MESSAGE_BLOCK, 2, 0, 0, "c"));
    wri_alloc_fail_at(0);
    assert_int_equal(control->state, WRI_CONTROL_CUT_OFF);
    assert_non_null(strstr(control->cut_off, "no memory"));
    close_control();
    open_control(1);
    begin("b");
    wri_alloc_fail_at(1);
    assert_false(hears(control->up, WRI_MESSAGE_ENTRY, 1, 0, 0, "b"));
    wri_alloc_fail_at(1);
    assert_int_equal(wri_control_gather(control, KIND, "x", 1, &gathered), WRING_E_MEMORY);
    wri_alloc_fail_at(0);
    close_control();
    for (uint64_t n = 1; n < 4; n++) { /* a gather of one: its block, the result, the copy */
        open_control(0);
        control->member[1].state = control->member[2].state = WRI_MEMBER_GONE;
        wri_alloc_fail_at(n);
        wring_status status = wri_control_gather(control, KIND, "x", 1, &gathered);
        wri_alloc_fail_at(0);
        assert_int_equal(status, n == 2 ? WRING_E_PEER_LOST : WRING_E_MEMORY);
        close_control();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_tells_all),
        cmocka_unit_test(who_left_is_not_waited_for),
        cmocka_unit_test(a_new_root_asks_who_has_the_result),
        cmocka_unit_test(a_follower_tells_and_hears),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(a_result_is_for_this_call),
        cmocka_unit_test(nobody_is_waited_for_for_ever),
        cmocka_unit_test(allocations_that_fail_are_said),
    };
    return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}
