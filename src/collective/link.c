/* SPDX-License-Identifier: Apache-2.0 */
/* Moving the control path's messages; see link.h. */
#include "collective/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "transport/socket.h"

#define MAGIC 0x6c727463u           /* "ctrl" */
#define QUEUE_MAX ((size_t)1 << 28) /* a peer that takes nothing is given up before that */

wring_status wri_link_open(struct wri_link *link, enum wri_link_role role,
                           struct wri_control *control, int rank, int fd, int poll_fd,
                           const struct wri_secret *secret)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    int one = 1;
    *link = (struct wri_link){.role = role,
                              .control = control,
                              .rank = rank,
                              .fd = fd,
                              .poll_fd = poll_fd,
                              .opened_ns = wri_clock_ns()};
    link->heard_ns = link->opened_ns;
    if (role >= WRI_LINK_STRANGER) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        wri_auth_init(&link->auth, secret, role == WRI_LINK_STRANGER);
    }
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
        return WRING_OK;
    close(fd);
    link->fd = -1;
    return WRING_E_SYSTEM;
}

void wri_link_close(struct wri_link *link)
{
    if (link->fd >= 0) { /* a forked child may keep it open, so that closing does not unwatch it */
        epoll_ctl(link->poll_fd, EPOLL_CTL_DEL, link->fd, NULL);
        close(link->fd);
    }
    wri_free(link->queue);
    link->queue = NULL;
    link->sent = link->queued = link->capacity = 0;
    link->fd = -1;
}

/* Whoever waits for the socket wakes up. */
static void break_off(struct wri_link *link, int error)
{
    link->error = error;
    shutdown(link->fd, SHUT_RDWR);
}

static void watch(struct wri_link *link, bool waits)
{
    struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = link};
    if (link->waits != waits)
        epoll_ctl(link->poll_fd, EPOLL_CTL_MOD, link->fd, &event);
    link->waits = waits;
}

/* Nothing is said or heard before both sides have proven that they belong to the job. */
static wring_status prove(struct wri_link *link)
{
    if (link->known)
        return WRING_OK;
    wring_status status = wri_auth_advance(&link->auth, link->fd);
    link->known = status == WRING_OK;
    if (status == WRING_AGAIN)
        watch(link, wri_auth_sends(&link->auth));
    return status;
}

wring_status wri_link_flush(struct wri_link *link)
{
    wring_status status = prove(link);
    if (!link->known)
        return status == WRING_AGAIN ? WRING_OK : status;
    if (link->queued)
        status = wri_socket_send(link->fd, link->queue, link->queued, &link->sent);
    if (status == WRING_OK)
        link->queued = link->sent = 0;
    watch(link, status == WRING_AGAIN);
    return status == WRING_AGAIN ? WRING_OK : status;
}

static wring_status make_room(struct wri_link *link, size_t nbytes)
{
    if (link->sent > 0) {
        memmove(link->queue, link->queue + link->sent, link->queued - link->sent);
        link->queued -= link->sent;
        link->sent = 0;
    }
    if (link->capacity - link->queued >= nbytes)
        return WRING_OK;
    size_t capacity = 2 * (link->queued + nbytes);
    unsigned char *larger;
    if (capacity > QUEUE_MAX || wri_alloc(capacity, 1, (void **)&larger) != WRING_OK)
        return WRING_E_MEMORY;
    if (link->queued > 0)
        memcpy(larger, link->queue, link->queued);
    wri_free(link->queue);
    link->queue = larger;
    link->capacity = capacity;
    return WRING_OK;
}

void wri_link_send(struct wri_link *link, struct wri_message head, const void *block)
{
    if (link->error != 0)
        return;
    head.magic = MAGIC;
    if (make_room(link, sizeof(head) + head.nbytes) != WRING_OK) {
        break_off(link, ENOBUFS);
        return;
    }
    memcpy(link->queue + link->queued, &head, sizeof(head));
    if (head.nbytes > 0)
        memcpy(link->queue + link->queued + sizeof(head), block, head.nbytes);
    link->queued += sizeof(head) + head.nbytes;
    wring_status status = wri_link_flush(link);
    if (status != WRING_OK)
        break_off(link, status != WRING_E_SYSTEM ? EPROTO : errno ? errno : EPIPE);
}

wring_status wri_link_receive(struct wri_link *link)
{
    wring_status status;
    if (link->error != 0) {
        errno = link->error;
        return WRING_E_SYSTEM;
    }
    if (!link->known) {
        WRI_TRY(prove(link));
        WRI_TRY(wri_link_flush(link)); /* what waited for the proof */
    }
    if (!link->head_done) {
        status = wri_socket_recv(link->fd, &link->head, sizeof(link->head), &link->done);
        if (status != WRING_OK)
            return status;
        if (link->head.magic != MAGIC || link->head.type == 0 ||
            link->head.type >= WRI_MESSAGE_TYPES || link->head.nbytes > sizeof(link->block))
            return WRING_E_CORRUPT;
        link->head_done = true;
    }
    status = wri_socket_recv(link->fd, link->block, link->head.nbytes, &link->done);
    if (status != WRING_OK)
        return status;
    link->head_done = false;
    link->heard_ns = wri_clock_ns();
    return WRING_OK;
}
