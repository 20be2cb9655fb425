/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a control path: listening, the first star, and the last word. */
#include "collective/control_state.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/spans.h"
#include "base/status.h"
#include "transport/socket.h"

#define LEAVE_MS 2000 /* how long a rank that leaves stays for the others */

/* ---- the alarm ------------------------------------------------------------------------------- */

bool wri_alarm_raise(struct wri_alarm *alarm, wring_status status, const char *message)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&alarm->raised, &none, 1))
        return false;
    alarm->status = status;
    snprintf(alarm->message, sizeof(alarm->message), "%s", message);
    atomic_store(&alarm->raised, 2);
    return true;
}

wring_status wri_alarm_status(struct wri_alarm *alarm)
{
    return atomic_load(&alarm->raised) == 2 ? alarm->status : WRING_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

/* Both places are listened on, and nobody is let in, until it is known where the ranks are. Without
 * a secret other machines shall not reach us: where they would have to, read_cards says so. */
static wring_status listen_on(struct wri_control *control, struct wri_card *card)
{
    int fd;
    WRI_TRY(wri_socket_listen("127.0.0.1", &control->local_port, &control->local_fd));
    if (!is_loopback(control->host) &&
        wri_secret_permits_host(&control->monitor->secret, control->host) == WRING_OK) {
        WRI_TRY(wri_socket_listen(control->host, &control->port, &fd));
        control->listener.fd = fd;
    }
    snprintf(card->control_host, sizeof(card->control_host), "%s", control->host);
    card->control_port = (uint32_t)control->port;
    card->control_local_port = (uint32_t)control->local_port;
    return WRING_OK;
}

wring_status wri_control_open(wring_context *context, int rank, int nranks, const char *host,
                              struct wri_alarm *alarm, struct wri_card *card,
                              struct wri_control **control_out)
{
    struct wri_control *control;
    WRI_TRY(wri_alloc(1, sizeof(*control), (void **)&control));
    control->monitor = context->monitor;
    control->alarm = alarm;
    control->rank = rank;
    control->nranks = nranks;
    control->asked = control->local_fd = control->listener.fd = -1;
    control->listener.poll_fd = control->monitor->poll_fd;
    snprintf(control->host, sizeof(control->host), "%s", host);
    wring_status status =
        wri_alloc((size_t)nranks, sizeof(*control->member), (void **)&control->member);
    if (status == WRING_OK)
        status = listen_on(control, card);
    if (status != WRING_OK) {
        wri_control_close(control, false);
        return status;
    }
    *control_out = control;
    return WRING_OK;
}

static bool is_address(const char *text)
{
    unsigned char address[16];
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

static wring_status read_card(struct wri_member *member, const struct wri_card *card, int rank,
                              bool local)
{
    snprintf(member->host, sizeof(member->host), "%.*s", (int)sizeof(member->host) - 1,
             local ? "127.0.0.1" : card->control_host);
    snprintf(member->name, sizeof(member->name), "%.*s", (int)sizeof(member->name) - 1, card->name);
    member->port = (int)(local ? card->control_local_port : card->control_port);
    if (!local && is_loopback(member->host))
        WRI_FAIL(WRING_E_CONFIG,
                 "rank %d listens on loopback only, but not all ranks are on its host; name its "
                 "network interface in WRING_INTERFACE",
                 rank);
    if (!local && member->port == 0)
        WRI_FAIL(WRING_E_CONFIG,
                 "rank %d is reached from its own machine only: it has no job secret, and not all "
                 "ranks are on its host; set the same WRING_SECRET for all, or WRING_INSECURE=1",
                 rank);
    if (!is_address(member->host) || member->port < 1 || member->port > 65535)
        WRI_FAIL(WRING_E_CORRUPT, "rank %d says that it is reached at %s port %d", rank,
                 member->host, member->port);
    return WRING_OK;
}

/* Where the others are; what need not be listened on is closed. */
static wring_status read_cards(struct wri_control *control, const struct wri_card *cards)
{
    bool local = true;
    for (int q = 0; q < control->nranks; q++)
        local = local && cards[q].host == cards[control->rank].host;
    if (!local)
        WRI_TRY(wri_secret_permits_host(&control->monitor->secret, control->host));
    for (int q = 0; q < control->nranks; q++)
        WRI_TRY(read_card(&control->member[q], &cards[q], q, local));
    if (local) {
        wri_link_close(&control->listener);
        control->listener.fd = control->local_fd;
        snprintf(control->host, sizeof(control->host), "127.0.0.1");
        control->port = control->local_port;
    } else {
        close(control->local_fd);
    }
    control->local_fd = -1;
    return WRING_OK;
}

static bool is_missing(const void *arg, int rank)
{
    const struct wri_control *control = arg;
    return rank != control->rank && control->member[rank].link == NULL;
}

static wring_status await_star(struct wri_control *control)
{
    struct wri_monitor *monitor = control->monitor;
    int64_t end = wri_clock_ns() + monitor->context->config.join_timeout_ms * NS_PER_MS;
    char missing[256];
    while (!control->formed && wri_alarm_status(control->alarm) == WRING_OK &&
           wri_monitor_wait(monitor, end))
        ;
    if (wri_alarm_status(control->alarm) != WRING_OK)
        WRI_FAIL(control->alarm->status, "%s", control->alarm->message);
    if (control->formed)
        return WRING_OK;
    wri_spans(control->nranks, is_missing, control, missing, sizeof(missing));
    if (control->root == control->rank)
        WRI_FAIL(WRING_E_TIMEOUT, "control path: ranks %s did not connect to %s:%d", missing,
                 control->host, control->port);
    WRI_FAIL(WRING_E_TIMEOUT, "control path: rank %d does not answer at %s:%d", control->root,
             control->member[control->root].host, control->member[control->root].port);
}

wring_status wri_control_start(struct wri_control *control, const struct wri_card *cards,
                               uint64_t nonce)
{
    struct wri_monitor *monitor = control->monitor;
    WRI_TRY(read_cards(control, cards));
    pthread_mutex_lock(&monitor->lock);
    int fd = control->listener.fd;
    control->nonce = nonce;
    wring_status status = wri_link_open(&control->listener, WRI_LINK_LISTENER, control, -1, fd,
                                        monitor->poll_fd, NULL);
    if (status == WRING_OK) {
        control->next = monitor->controls;
        monitor->controls = control;
        wri_control_seek(control);
        wri_monitor_wake(monitor);
        status = await_star(control);
    } else {
        status = wri_fail(status, "control path: cannot watch the listening socket");
    }
    pthread_mutex_unlock(&monitor->lock);
    return status;
}

/* Who has taken part in a gather may have its result alone, if the root died with it. */
static void say_goodbye(struct wri_control *control, bool waits)
{
    struct wri_monitor *monitor = control->monitor;
    int64_t end = wri_clock_ns() + LEAVE_MS * NS_PER_MS;
    control->leaving = true;
    control->member[control->rank].state = WRI_MEMBER_GONE;
    if (control->state == WRI_CONTROL_FOLLOWING)
        wri_control_tell(control->up, WRI_MESSAGE_GOODBYE, control->rank, 0, 0, NULL, 0);
    if (control->state == WRI_CONTROL_LEADING) {
        wri_control_tell_all(control, -1, WRI_MESSAGE_GOODBYE, control->rank, 0, NULL);
        wri_gather_progress(control);
        wri_control_check_farewell(control);
    }
    waits = waits || control->gathers > 0;
    while (waits && !control->farewell && !wri_control_is_alone(control) &&
           control->state != WRI_CONTROL_CUT_OFF && wri_monitor_wait(monitor, end))
        ;
}

static void leave_monitor(struct wri_control *control, bool waits)
{
    struct wri_monitor *monitor = control->monitor;
    struct wri_control **at = &monitor->controls;
    while (*at != NULL && *at != control)
        at = &(*at)->next;
    if (*at != NULL) {
        say_goodbye(control, waits);
        *at = control->next;
    }
}

void wri_control_close(struct wri_control *control, bool waits)
{
    if (control == NULL)
        return;
    struct wri_monitor *monitor = control->monitor;
    pthread_mutex_lock(&monitor->lock);
    leave_monitor(control, waits);
    for (size_t i = 0; i < WRI_STRANGERS_MAX; i++)
        if (monitor->stranger[i] != NULL && monitor->stranger[i]->control == control)
            wri_monitor_drop(monitor, &monitor->stranger[i]);
    wri_monitor_drop(monitor, &control->up);
    for (int q = 0; control->member != NULL && q < control->nranks; q++) {
        wri_monitor_drop(monitor, &control->member[q].link);
        wri_monitor_drop(monitor, &control->member[q].probe);
    }
    wri_link_close(&control->listener);
    if (control->local_fd >= 0)
        close(control->local_fd);
    monitor->closings++;
    wri_gather_close(control);
    wri_notes_close(control);
    pthread_mutex_unlock(&monitor->lock);
    wri_free(control->member);
    wri_free(control);
}

void wri_control_place(struct wri_control *control, int rank, int nranks)
{
    control->rank = rank;
    control->nranks = nranks; /* at most as many as there was room made for */
}

const char *wri_control_host(const struct wri_control *control)
{
    return control->host;
}

int wri_control_left(struct wri_control *control)
{
    int left = -1;
    pthread_mutex_lock(&control->monitor->lock);
    for (int q = 0; q < control->nranks && left < 0; q++)
        if (control->member[q].state == WRI_MEMBER_GONE)
            left = q;
    pthread_mutex_unlock(&control->monitor->lock);
    return left;
}
