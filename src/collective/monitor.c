/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that serves the control paths of a context. It sleeps on all their sockets, hands what
 * comes in to the star that it belongs to, and keeps strangers few and short-lived. */
#include "collective/control_state.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "transport/socket.h"

#define EVENTS 64
#define STRANGER_NS (5000 * NS_PER_MS) /* patience with who says no hello */
#define TICK_NS (10 * NS_PER_MS)       /* while something is awaited */
#define BEAT_NS (1000 * NS_PER_MS)

void wri_monitor_drop(struct wri_monitor *monitor, struct wri_link **link)
{
    if (*link == NULL)
        return;
    wri_link_close(*link);
    wri_free(*link);
    *link = NULL;
    monitor->closings++;
}

bool wri_monitor_wait(struct wri_monitor *monitor, int64_t end_ns)
{
    struct timespec until = {end_ns / 1000000000, end_ns % 1000000000};
    return pthread_cond_timedwait(&monitor->changed, &monitor->lock, &until) == 0;
}

void wri_monitor_wake(struct wri_monitor *monitor)
{
    uint64_t one = 1;
    ssize_t written = write(monitor->wake.fd, &one, sizeof(one));
    (void)written; /* fails only when the counter is full, and then the thread is awake */
}

/* ---- strangers ------------------------------------------------------------------------------- */

static size_t stranger_place(struct wri_monitor *monitor)
{
    size_t oldest = 0;
    for (size_t i = 0; i < WRI_STRANGERS_MAX; i++) {
        if (monitor->stranger[i] == NULL)
            return i;
        if (monitor->stranger[i]->opened_ns < monitor->stranger[oldest]->opened_ns)
            oldest = i;
    }
    wri_monitor_drop(monitor, &monitor->stranger[oldest]);
    return oldest;
}

static void accept_some(struct wri_monitor *monitor, struct wri_control *control)
{
    for (int taken = 0; taken < WRI_STRANGERS_MAX; taken++) {
        struct wri_link *link;
        int fd = wri_socket_accept(control->listener.fd);
        if (fd < 0)
            return;
        if (wri_alloc(1, sizeof(*link), (void **)&link) != WRING_OK) {
            close(fd); /* an honest rank comes again */
            return;
        }
        if (wri_link_open(link, WRI_LINK_STRANGER, control, -1, fd, monitor->poll_fd,
                          &monitor->secret) == WRING_OK)
            monitor->stranger[stranger_place(monitor)] = link;
        else
            wri_free(link);
    }
}

static void hear_stranger(struct wri_monitor *monitor, struct wri_link *link)
{
    wring_status status = wri_link_receive(link);
    if (status == WRING_AGAIN)
        return;
    bool taken = status == WRING_OK && link->head.type == WRI_MESSAGE_HELLO &&
                 wri_control_hello(link->control, link);
    size_t i = 0;
    while (monitor->stranger[i] != link)
        i++;
    if (taken)
        monitor->stranger[i] = NULL;
    else
        wri_monitor_drop(monitor, &monitor->stranger[i]);
}

static void drop_old_strangers(struct wri_monitor *monitor, int64_t now)
{
    for (size_t i = 0; i < WRI_STRANGERS_MAX; i++)
        if (monitor->stranger[i] != NULL && now - monitor->stranger[i]->opened_ns > STRANGER_NS)
            wri_monitor_drop(monitor, &monitor->stranger[i]);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void handle(struct wri_monitor *monitor, struct wri_link *link)
{
    uint64_t count;
    switch (link->role) {
    case WRI_LINK_WAKE:
        (void)!read(link->fd, &count, sizeof(count));
        monitor->tick_ns = 0;
        break;
    case WRI_LINK_LISTENER:
        accept_some(monitor, link->control);
        break;
    case WRI_LINK_STRANGER:
        hear_stranger(monitor, link);
        break;
    default:
        wri_control_heard(link->control, link);
    }
}

/* Look at the time; returns the next time to do so. */
static int64_t tick(struct wri_monitor *monitor, int64_t now)
{
    bool soon = false;
    bool late = now - monitor->ticked_ns > 2 * monitor->beat_ns;
    monitor->ticked_ns = now;
    drop_old_strangers(monitor, now);
    for (struct wri_control *control = monitor->controls; control; control = control->next) {
        if (late)
            wri_control_forgive(control, now);
        soon |= wri_control_tick(control, now);
    }
    return now + (soon ? TICK_NS : monitor->beat_ns / 2);
}

static void *monitor_main(void *arg)
{
    struct wri_monitor *monitor = arg;
    struct epoll_event event[EVENTS];
    pthread_mutex_lock(&monitor->lock);
    while (!monitor->stop) {
        uint64_t closings = monitor->closings;
        int64_t sleep_ns = monitor->tick_ns - wri_clock_ns();
        pthread_mutex_unlock(&monitor->lock);
        int sleep_ms = sleep_ns > 0 ? (int)(sleep_ns / NS_PER_MS) + 1 : 0;
        int n = epoll_wait(monitor->poll_fd, event, EVENTS, sleep_ms);
        pthread_mutex_lock(&monitor->lock);
        for (int i = 0; i < n && monitor->closings == closings; i++)
            handle(monitor, event[i].data.ptr);
        int64_t now = wri_clock_ns();
        if (now >= monitor->tick_ns)
            monitor->tick_ns = tick(monitor, now);
    }
    pthread_mutex_unlock(&monitor->lock);
    return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

wring_status wri_monitor_open(wring_context *context, struct wri_monitor **monitor_out)
{
    struct wri_monitor *monitor;
    struct wri_secret secret;
    pthread_condattr_t attributes;
    int64_t silence_ns = context->config.heartbeat_timeout_ms * NS_PER_MS;
    WRI_TRY(wri_secret_load(&context->config, &secret));
    WRI_TRY(wri_alloc(1, sizeof(*monitor), (void **)&monitor));
    monitor->secret = secret;
    monitor->context = context;
    monitor->beat_ns = silence_ns / 4 < BEAT_NS ? silence_ns / 4 : BEAT_NS;
    monitor->silence_ns = silence_ns;
    monitor->wake.fd = -1;
    pthread_mutex_init(&monitor->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&monitor->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    monitor->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    int wake_fd = monitor->poll_fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    wring_status status = WRING_E_SYSTEM;
    if (wake_fd >= 0)
        status =
            wri_link_open(&monitor->wake, WRI_LINK_WAKE, NULL, -1, wake_fd, monitor->poll_fd, NULL);
    if (status == WRING_OK && pthread_create(&monitor->thread, NULL, monitor_main, monitor) != 0)
        status = WRING_E_SYSTEM;
    monitor->threaded = status == WRING_OK;
    if (status != WRING_OK) {
        status = wri_fail(status, "cannot start the monitor of the control path");
        wri_monitor_close(monitor);
        return status;
    }
    *monitor_out = monitor;
    return WRING_OK;
}

void wri_monitor_close(struct wri_monitor *monitor)
{
    if (monitor == NULL)
        return;
    if (monitor->threaded) {
        pthread_mutex_lock(&monitor->lock);
        monitor->stop = true;
        wri_monitor_wake(monitor);
        pthread_mutex_unlock(&monitor->lock);
        pthread_join(monitor->thread, NULL);
    }
    for (size_t i = 0; i < WRI_STRANGERS_MAX; i++)
        wri_monitor_drop(monitor, &monitor->stranger[i]);
    wri_link_close(&monitor->wake);
    if (monitor->poll_fd >= 0)
        close(monitor->poll_fd);
    pthread_cond_destroy(&monitor->changed);
    pthread_mutex_destroy(&monitor->lock);
    wri_free(monitor);
}
