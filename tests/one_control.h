/* SPDX-License-Identifier: Apache-2.0 */
/* The control path of one rank, whose links the test holds the other ends of. No monitor's thread
 * runs: what came in and that time has passed is said to it by the test. Include after cmocka.h. */
#ifndef TESTS_ONE_CONTROL_H
#define TESTS_ONE_CONTROL_H

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "collective/context.h"
#include "collective/control_state.h"
#include "says.h"

#define CONTROL_MAGIC 0x6c727463u

enum { N = 3, MOST = 4 };

static const struct wring_transport_ops silent; /* nobody sleeps in it */
static wring_context context = {.transport = &silent};
static struct wri_monitor monitor;
static struct wri_control *control;
static struct wri_alarm alarm_raised;
static int other[MOST];                   /* the other ends of the links, by rank */
static char text[WRI_LINK_BLOCK_MAX + 2]; /* of the last message to one of them */

static inline struct wri_link *link_to(int rank, enum wri_link_role role)
{
    struct wri_link *link;
    int ends[2];
    assert_int_equal(wri_alloc(1, sizeof(*link), (void **)&link), WRING_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    assert_int_equal(
        wri_link_open(link, role, control, rank, ends[0], monitor.poll_fd, &monitor.secret),
        WRING_OK);
    link->known = true;
    other[rank] = ends[1];
    return link;
}

/* Rank RANK of NRANKS: of rank 0 all others are led, others follow it. */
static inline void open_control_of(int nranks, int rank)
{
    pthread_condattr_t attributes;
    memset(&monitor, 0, sizeof(monitor));
    memset(&alarm_raised, 0, sizeof(alarm_raised));
    context.config.timeout_ms = 50;
    monitor.context = &context;
    monitor.wake.fd = -1;
    monitor.poll_fd = epoll_create1(0);
    pthread_mutex_init(&monitor.lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&monitor.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    assert_int_equal(wri_alloc(1, sizeof(*control), (void **)&control), WRING_OK);
    assert_int_equal(wri_alloc(MOST, sizeof(*control->member), (void **)&control->member),
                     WRING_OK);
    control->monitor = &monitor;
    control->alarm = &alarm_raised;
    control->rank = rank;
    control->nranks = nranks;
    control->asked = control->listener.fd = control->local_fd = -1;
    memset(other, -1, sizeof(other));
    if (rank == 0) {
        control->state = WRI_CONTROL_LEADING;
        for (int q = 1; q < nranks; q++)
            control->member[q].link = link_to(q, WRI_LINK_DOWN);
    } else {
        control->state = WRI_CONTROL_FOLLOWING;
        control->up = link_to(0, WRI_LINK_UP);
    }
}

static inline void open_control(int rank)
{
    open_control_of(N, rank);
}

static inline void close_control(void)
{
    wri_control_close(control, false);
    pthread_cond_destroy(&monitor.changed);
    pthread_mutex_destroy(&monitor.lock);
    close(monitor.poll_fd);
    for (int q = 0; q < MOST; q++)
        if (other[q] >= 0)
            close(other[q]);
}

/* The next message to RANK; its type is 0 if there is none. */
static inline struct wri_message said_to(int rank, char *text)
{
    struct wri_message head = {0};
    if (recv(other[rank], &head, sizeof(head), 0) != sizeof(head))
        head.type = 0;
    else if (head.nbytes > 0)
        assert_int_equal(recv(other[rank], text, head.nbytes, 0), head.nbytes);
    return head;
}

/* What this rank has for the next gather, without waiting for it. */
static inline void begin(const char *block)
{
    wri_free(control->own);
    assert_int_equal(wri_strdup(block, (char **)&control->own), WRING_OK);
    control->own_nbytes = strlen(block);
    control->pending = true;
}

static inline struct wri_link *link_with(int rank)
{
    struct wri_member *member = &control->member[rank];
    return member->link ? member->link : member->probe ? member->probe : control->up;
}

/* RANK says it, as bytes, and the star hears it. */
static inline void says_message(int rank, struct wri_message head, const void *block)
{
    head.magic = CONTROL_MAGIC;
    assert_int_equal(send(other[rank], &head, sizeof(head), 0), sizeof(head));
    if (head.nbytes > 0)
        assert_int_equal(send(other[rank], block, head.nbytes, 0), head.nbytes);
    wri_control_heard(control, link_with(rank));
}

/* The next message to RANK, whose text is in `text`, is of TYPE (0: there is none). */
static inline void assert_said(int rank, int type, uint32_t about, const char *words)
{
    memset(text, 0, sizeof(text));
    struct wri_message head = said_to(rank, text);
    assert_int_equal(head.type, type);
    if (type == 0)
        return;
    assert_int_equal(head.rank, about);
    assert_text_says(text, words);
}

static inline void assert_alarm(wring_status status, const char *words)
{
    assert_int_equal(wri_alarm_status(&alarm_raised), status);
    if (status != WRING_OK)
        assert_text_says(alarm_raised.message, words);
}

#endif
