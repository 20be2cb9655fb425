/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The star of one communicator: who is there, who leads, and how a failure reaches all.
 *
 * A rank follows the lowest one that it takes to be alive: it connects, says hello and becomes a
 * member when the other welcomes it. A root that was left by its own root, and so found itself the
 * lowest, waits for the others; who does not come is asked, and a closed port means death. A rank
 * that the others have given up, because it was silent for too long or its connection broke, is
 * told so when it comes back, and takes part in nothing any more: there is never a second star.
 */
#include "collective/control_state.h"

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "transport/socket.h"

#define RETRY_NS (50 * NS_PER_MS)  /* between tries to find a root */
#define PROBE_NS (100 * NS_PER_MS) /* before a rank that does not come is asked */
#define AGAIN_NS (500 * NS_PER_MS) /* and until it is asked again */
#define HEARD_MAX 64               /* messages that one link may say in a turn */
#define NONCE_NBYTES 8
#define WORDS_MAX (WRI_MESSAGE_MAX - 32) /* of a message's text, terminator included */

/* A failure that came by the control path: drivers look at the alarm each turn. */
static bool raise_alarm(struct wri_control *control, wring_status status, const char *message)
{
    const wring_context *context = control->monitor->context;
    if (!wri_alarm_raise(control->alarm, status, message))
        return false;
    if (context->transport->wake != NULL)
        context->transport->wake(context->link);
    return true;
}

/* ---- telling --------------------------------------------------------------------------------- */

void wri_control_tell(struct wri_link *link, enum wri_message_type type, int rank, uint32_t value,
                      uint64_t number, const void *block, size_t nbytes)
{
    struct wri_message head = {.type = (uint16_t)type,
                               .nbytes = (uint16_t)nbytes,
                               .rank = (uint32_t)rank,
                               .value = value,
                               .number = number};
    wri_link_send(link, head, block);
}

void wri_control_tell_all(struct wri_control *control, int except, enum wri_message_type type,
                          int rank, uint32_t value, const char *text)
{
    for (int q = 0; q < control->nranks; q++)
        if (q != except && control->member[q].link != NULL)
            wri_control_tell(control->member[q].link, type, rank, value, 0, text,
                             text ? strlen(text) : 0);
}

/* What went wrong here. */
static void tell_failure_to(struct wri_control *control, struct wri_link *link)
{
    const struct wri_alarm *alarm = control->alarm;
    size_t nbytes = strnlen(alarm->message, WORDS_MAX - 1);
    wri_control_tell(link, WRI_MESSAGE_FAILED, control->rank, alarm->status, 0, alarm->message,
                     nbytes);
}

/* The same to the others; through the root, if this is not it. */
static void tell_failure(struct wri_control *control)
{
    if (control->state == WRI_CONTROL_FOLLOWING)
        tell_failure_to(control, control->up);
    for (int q = 0; control->state == WRI_CONTROL_LEADING && q < control->nranks; q++)
        if (control->member[q].link != NULL)
            tell_failure_to(control, control->member[q].link);
}

void wri_control_fail(struct wri_control *control, wring_status status, const char *message)
{
    if (!raise_alarm(control, status, message))
        return;
    control->failed_here = true;
    tell_failure(control);
}

void wri_control_report(struct wri_control *control)
{
    pthread_mutex_lock(&control->monitor->lock);
    if (!control->leaving) {
        control->failed_here = true;
        tell_failure(control);
    }
    pthread_mutex_unlock(&control->monitor->lock);
}

/* ---- who is lost ----------------------------------------------------------------------------- */

void wri_control_cut_off(struct wri_control *control, const char *why)
{
    snprintf(control->cut_off, sizeof(control->cut_off), "rank %d was cut off from the others: %s",
             control->rank, why);
    raise_alarm(control, WRING_E_PEER_LOST, control->cut_off);
    control->state = WRI_CONTROL_CUT_OFF;
    wri_monitor_drop(control->monitor, &control->up);
    for (int q = 0; q < control->nranks; q++) {
        wri_monitor_drop(control->monitor, &control->member[q].link);
        wri_monitor_drop(control->monitor, &control->member[q].probe);
    }
    pthread_cond_broadcast(&control->monitor->changed);
}

/* Everybody else has left or is dead. */
bool wri_control_is_alone(const struct wri_control *control)
{
    for (int q = 0; q < control->nranks; q++)
        if (q != control->rank && control->member[q].state == WRI_MEMBER_ALIVE)
            return false;
    return true;
}

/* The root looks whether all have said goodbye. */
void wri_control_check_farewell(struct wri_control *control)
{
    if (!control->leaving || !wri_control_is_alone(control))
        return;
    wri_control_tell_all(control, -1, WRI_MESSAGE_FAREWELL, control->rank, 0, NULL);
    control->farewell = true;
    pthread_cond_broadcast(&control->monitor->changed);
}

static void drop_member_link(struct wri_control *control, int rank)
{
    wri_monitor_drop(control->monitor, &control->member[rank].link);
    if (control->asked == rank)
        control->asked = -1;
}

/* A member is not there any more: LOST or GONE. */
static void remove_member(struct wri_control *control, int rank, enum wri_member_state state,
                          const char *text)
{
    struct wri_member *member = &control->member[rank];
    bool was_root = control->state != WRI_CONTROL_LEADING && rank == control->root;
    member->state = state;
    if (control->state == WRI_CONTROL_LEADING) {
        bool lost = state == WRI_MEMBER_LOST;
        wri_control_tell_all(control, lost ? -1 : rank,
                             lost ? WRI_MESSAGE_LOST : WRI_MESSAGE_GOODBYE, rank, 0, text);
    }
    if (state == WRI_MEMBER_LOST)
        drop_member_link(control, rank);
    wri_monitor_drop(control->monitor, &member->probe);
    if (was_root && state == WRI_MEMBER_LOST)
        wri_control_seek(control);
    else if (control->state == WRI_CONTROL_LEADING) {
        wri_gather_progress(control);
        wri_control_check_farewell(control);
    }
}

void wri_control_lose(struct wri_control *control, int rank, const char *format, ...)
{
    char text[WORDS_MAX], why[256];
    va_list arguments;
    if (control->member[rank].state != WRI_MEMBER_ALIVE)
        return;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    snprintf(text, sizeof(text), "lost rank %d (%s): %s", rank, control->member[rank].name, why);
    raise_alarm(control, WRING_E_PEER_LOST, text);
    remove_member(control, rank, WRI_MEMBER_LOST, text);
}

/* ---- finding a root -------------------------------------------------------------------------- */

static int64_t patience_ns(const struct wri_control *control)
{
    return control->monitor->silence_ns + control->monitor->beat_ns;
}

/* Start a connection and say hello on it. False if that fails at once, with errno. */
static bool start_link(struct wri_control *control, enum wri_link_role role, int rank,
                       struct wri_link **link_out)
{
    const struct wri_member *member = &control->member[rank];
    unsigned char block[WRI_LINK_BLOCK_MAX] = {0};
    struct addrinfo *addresses;
    struct wri_link *link;
    if (wri_socket_resolve(member->host, member->port, &addresses) != WRING_OK) {
        errno = ENOMEM; /* the host is numeric */
        return false;
    }
    int fd = wri_socket_connect(addresses);
    int error = errno;
    freeaddrinfo(addresses);
    errno = error;
    if (fd < 0)
        return false;
    if (wri_alloc(1, sizeof(*link), (void **)&link) != WRING_OK) {
        close(fd);
        errno = ENOMEM;
        return false;
    }
    if (wri_link_open(link, role, control, rank, fd, control->monitor->poll_fd,
                      &control->monitor->secret) != WRING_OK) {
        wri_free(link);
        return false;
    }
    memcpy(block, &control->nonce, NONCE_NBYTES);
    for (int q = 0; q < control->nranks; q++)
        if (control->member[q].state == WRI_MEMBER_LOST)
            block[NONCE_NBYTES + q / 8] |= (unsigned char)(1 << q % 8);
    wri_control_tell(link, WRI_MESSAGE_HELLO, control->rank, role == WRI_LINK_PROBE,
                     control->gathers, block, NONCE_NBYTES + ((size_t)control->nranks + 7) / 8);
    *link_out = link;
    return true;
}

/* Nobody listens there any more; other errors may pass. */
static bool means_dead(int error)
{
    return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ||
           error == ETIMEDOUT;
}

static void lead(struct wri_control *control)
{
    int64_t now = wri_clock_ns();
    control->state = WRI_CONTROL_LEADING;
    for (int q = 0; q < control->nranks; q++) {
        control->member[q].since_ns = now;
        control->member[q].probe_ns = now + PROBE_NS;
    }
    pthread_cond_broadcast(&control->monitor->changed);
    wri_gather_progress(control);
    wri_control_check_farewell(control);
}

static void seek_on(struct wri_control *control, int64_t now)
{
    if (now - control->since_ns > patience_ns(control) && control->formed) {
        if (control->up != NULL)
            wri_control_lose(control, control->root, "it does not answer");
        else
            wri_control_cut_off(control, "no other rank leads them");
        return;
    }
    if (control->up != NULL || now < control->retry_ns)
        return;
    control->retry_ns = now + RETRY_NS;
    if (!start_link(control, WRI_LINK_UP, control->root, &control->up) && means_dead(errno))
        wri_control_lose(control, control->root, "%s", strerror(errno));
}

/* Follow the lowest rank that is alive. */
void wri_control_seek(struct wri_control *control)
{
    int q = 0;
    wri_monitor_drop(control->monitor, &control->up);
    while (q != control->rank && control->member[q].state != WRI_MEMBER_ALIVE)
        q++;
    control->root = q;
    if (q == control->rank) {
        lead(control);
        return;
    }
    control->state = WRI_CONTROL_SEEKING;
    control->since_ns = wri_clock_ns();
    control->retry_ns = 0;
    wri_monitor_wake(control->monitor);
}

/* The root has welcomed this rank: what it must know. */
static void follow(struct wri_control *control)
{
    control->state = WRI_CONTROL_FOLLOWING;
    control->formed = true;
    pthread_cond_broadcast(&control->monitor->changed);
    if (control->failed_here)
        tell_failure(control);
    wri_gather_resume(control);
    if (control->leaving)
        wri_control_tell(control->up, WRI_MESSAGE_GOODBYE, control->rank, 0, 0, NULL, 0);
}

/* ---- hello ----------------------------------------------------------------------------------- */

static void refuse(struct wri_control *control, struct wri_link *link, bool given_up)
{
    wri_control_tell(link, WRI_MESSAGE_REFUSED, control->rank, given_up, 0, NULL, 0);
}

/* Ranks that the other gave up are lost for all. LOST is the link's, which goes if no memory is
 * left to lead. */
static void merge_lost(struct wri_control *control, int rank, const unsigned char *lost)
{
    for (int q = 0; q < control->nranks && control->state == WRI_CONTROL_LEADING; q++)
        if (q != control->rank && q != rank && lost[q / 8] >> q % 8 & 1)
            wri_control_lose(control, q, "rank %d has lost it", rank);
}

bool wri_control_hello(struct wri_control *control, struct wri_link *link)
{
    const struct wri_message *head = &link->head;
    size_t nbytes = NONCE_NBYTES + ((size_t)control->nranks + 7) / 8;
    if (head->nbytes != nbytes || memcmp(link->block, &control->nonce, NONCE_NBYTES) != 0 ||
        head->rank >= (uint32_t)control->nranks || head->rank == (uint32_t)control->rank)
        return false;
    struct wri_member *member = &control->member[head->rank];
    bool leads = control->state == WRI_CONTROL_LEADING;
    if (member->state == WRI_MEMBER_LOST || (head->value != 0 && leads)) {
        refuse(control, link, true);
        return false;
    }
    if (head->value != 0 || !leads) {
        refuse(control, link, false);
        return false;
    }
    drop_member_link(control, (int)head->rank);
    wri_monitor_drop(control->monitor, &member->probe);
    member->link = link;
    link->role = WRI_LINK_DOWN;
    link->rank = (int)head->rank;
    member->gathers = head->number;
    wri_control_tell(link, WRI_MESSAGE_WELCOME, control->rank, 0, 0, NULL, 0);
    if (wri_alarm_status(control->alarm) != WRING_OK) /* whoever it was that failed */
        tell_failure_to(control, link);
    merge_lost(control, link->rank, link->block + NONCE_NBYTES);
    wri_gather_progress(control);
    pthread_cond_broadcast(&control->monitor->changed);
    return true;
}

/* ---- what comes in --------------------------------------------------------------------------- */

/* A rank's failure: the first one counts, and goes on to the others. */
static bool heard_failure(struct wri_control *control, const struct wri_link *link)
{
    char text[WORDS_MAX], message[WRI_MESSAGE_MAX];
    const struct wri_message *head = &link->head;
    wring_status status = (wring_status)head->value;
    if (head->rank >= (uint32_t)control->nranks || head->nbytes >= sizeof(text) ||
        status <= WRING_AGAIN || status > WRING_E_INTERNAL)
        return false;
    memcpy(text, link->block, head->nbytes);
    text[head->nbytes] = '\0';
    snprintf(message, sizeof(message), "rank %u: %s", head->rank, text);
    if (raise_alarm(control, status, message) && link->role == WRI_LINK_DOWN)
        wri_control_tell_all(control, link->rank, WRI_MESSAGE_FAILED, (int)head->rank, status,
                             text);
    return true;
}

static bool heard_lost(struct wri_control *control, const struct wri_link *link)
{
    char text[WORDS_MAX];
    const struct wri_message *head = &link->head;
    if (head->rank >= (uint32_t)control->nranks || head->rank == (uint32_t)link->rank ||
        head->nbytes >= sizeof(text))
        return false;
    memcpy(text, link->block, head->nbytes);
    text[head->nbytes] = '\0';
    if (head->rank == (uint32_t)control->rank) {
        wri_control_cut_off(control, text);
        return true;
    }
    raise_alarm(control, WRING_E_PEER_LOST, text);
    control->member[head->rank].state = WRI_MEMBER_LOST;
    return true;
}

static bool heard_goodbye(struct wri_control *control, const struct wri_link *link)
{
    uint32_t rank = link->head.rank;
    if (rank >= (uint32_t)control->nranks || rank == (uint32_t)control->rank ||
        (link->role == WRI_LINK_DOWN && rank != (uint32_t)link->rank))
        return false;
    if (control->member[rank].state == WRI_MEMBER_ALIVE)
        remove_member(control, (int)rank, WRI_MEMBER_GONE, NULL);
    return true;
}

static bool heard_farewell(struct wri_control *control, const struct wri_link *link)
{
    if (link->role != WRI_LINK_UP)
        return false;
    control->farewell = true;
    pthread_cond_broadcast(&control->monitor->changed);
    return true;
}

/* From the root that this rank follows, or from a rank that follows this one. False: it makes no
 * sense. */
static bool heard(struct wri_control *control, struct wri_link *link)
{
    switch (link->head.type) {
    case WRI_MESSAGE_BEAT:
        return true;
    case WRI_MESSAGE_FAILED:
        return heard_failure(control, link);
    case WRI_MESSAGE_LOST:
        return link->role == WRI_LINK_UP && heard_lost(control, link);
    case WRI_MESSAGE_GOODBYE:
        return heard_goodbye(control, link);
    case WRI_MESSAGE_FAREWELL:
        return heard_farewell(control, link);
    case WRI_MESSAGE_NOTES:
    case WRI_MESSAGE_MAKE:
    case WRI_MESSAGE_ASK:
        return wri_notes_heard(control, link);
    default:
        return wri_gather_heard(control, link);
    }
}

/* The answer to a hello of ours. */
static bool heard_answer(struct wri_control *control, struct wri_link *link)
{
    bool probe = link->role == WRI_LINK_PROBE;
    if (link->head.type == WRI_MESSAGE_WELCOME && !probe) {
        follow(control);
        return true;
    }
    if (link->head.type != WRI_MESSAGE_REFUSED)
        return false;
    if (link->head.value == 1)
        wri_control_cut_off(control, "they have given it up");
    else if (probe)
        wri_monitor_drop(control->monitor, &control->member[link->rank].probe);
    else
        wri_monitor_drop(control->monitor, &control->up);
    return true;
}

/* A link has ended, with errno as of wri_link_receive. */
static void link_ended(struct wri_control *control, struct wri_link *link, int error)
{
    struct wri_member *member = &control->member[link->rank];
    const char *why = error ? strerror(error) : "its connection closed";
    enum wri_link_role role = link->role;
    int rank = link->rank;
    bool established = role == WRI_LINK_DOWN || control->state == WRI_CONTROL_FOLLOWING;
    if (role == WRI_LINK_DOWN)
        drop_member_link(control, rank);
    else
        wri_monitor_drop(control->monitor, role == WRI_LINK_UP ? &control->up : &member->probe);
    if (!established && !means_dead(error))
        return; /* asked again later */
    if (member->state == WRI_MEMBER_ALIVE)
        wri_control_lose(control, rank, "%s", why);
    else if (control->state == WRI_CONTROL_FOLLOWING)
        wri_control_seek(control);
    else
        wri_gather_progress(control);
}

void wri_control_heard(struct wri_control *control, struct wri_link *link)
{
    struct wri_monitor *monitor = control->monitor;
    uint64_t closings = monitor->closings;
    wring_status status = link->waits ? wri_link_flush(link) : WRING_OK;
    for (int i = 0; status == WRING_OK && i < HEARD_MAX; i++) {
        status = wri_link_receive(link);
        if (status != WRING_OK)
            break;
        bool answer = link->role == WRI_LINK_PROBE || control->state == WRI_CONTROL_SEEKING;
        bool sense = answer ? heard_answer(control, link) : heard(control, link);
        if (monitor->closings != closings)
            return; /* the link may be gone; what else it has to say comes in the next turn */
        if (!sense)
            status = WRING_E_CORRUPT;
    }
    if (status == WRING_E_CORRUPT || status == WRING_E_MISMATCH)
        errno = EPROTO;
    if (status != WRING_OK && status != WRING_AGAIN)
        link_ended(control, link, errno);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A root looks after a rank that is not there. True while it is awaited. */
static bool await(struct wri_control *control, int rank, int64_t now)
{
    struct wri_member *member = &control->member[rank];
    if (now - member->since_ns > patience_ns(control) && control->formed) {
        wri_control_lose(control, rank, "it does not come");
        return false;
    }
    if (member->probe != NULL || now < member->probe_ns)
        return true;
    member->probe_ns = now + AGAIN_NS;
    if (!start_link(control, WRI_LINK_PROBE, rank, &member->probe) && means_dead(errno))
        wri_control_lose(control, rank, "%s", strerror(errno));
    return true;
}

static bool lead_on(struct wri_control *control, int64_t now)
{
    bool awaits = false;
    for (int q = 0; q < control->nranks && control->state == WRI_CONTROL_LEADING; q++) {
        struct wri_member *member = &control->member[q];
        if (q == control->rank || member->state != WRI_MEMBER_ALIVE)
            continue;
        if (member->link == NULL)
            awaits |= await(control, q, now);
        else if (now - member->link->heard_ns > patience_ns(control))
            wri_control_lose(control, q, "silent for %lld ms",
                             (long long)((now - member->link->heard_ns) / NS_PER_MS));
    }
    control->formed |= !awaits;
    if (!awaits)
        pthread_cond_broadcast(&control->monitor->changed);
    return awaits;
}

static void beat(struct wri_control *control, int64_t now)
{
    if (now < control->beat_ns)
        return;
    control->beat_ns = now + control->monitor->beat_ns;
    if (control->state == WRI_CONTROL_FOLLOWING)
        wri_control_tell(control->up, WRI_MESSAGE_BEAT, control->rank, 0, 0, NULL, 0);
    if (control->state == WRI_CONTROL_LEADING)
        wri_control_tell_all(control, -1, WRI_MESSAGE_BEAT, control->rank, 0, NULL);
}

/* This process did not run for a while: nobody can be blamed for it. */
void wri_control_forgive(struct wri_control *control, int64_t now)
{
    if (control->up != NULL)
        control->up->heard_ns = now;
    for (int q = 0; q < control->nranks; q++)
        if (control->member[q].link != NULL)
            control->member[q].link->heard_ns = now;
}

bool wri_control_tick(struct wri_control *control, int64_t now)
{
    bool notes = wri_notes_tick(control, now);
    beat(control, now);
    if (control->state == WRI_CONTROL_SEEKING) {
        seek_on(control, now);
        return true;
    }
    if (control->state == WRI_CONTROL_FOLLOWING) {
        int64_t silent_ns = now - control->up->heard_ns;
        if (silent_ns > patience_ns(control) &&
            control->member[control->root].state == WRI_MEMBER_GONE)
            wri_control_seek(control); /* it was to close after its goodbye */
        else if (silent_ns > patience_ns(control))
            wri_control_lose(control, control->root, "silent for %lld ms",
                             (long long)(silent_ns / NS_PER_MS));
        return notes;
    }
    return (control->state == WRI_CONTROL_LEADING && lead_on(control, now)) || notes;
}
