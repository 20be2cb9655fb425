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

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "transport/socket.h"

#define NS_PER_MS 1000000LL
#define RETRY_NS (50 * NS_PER_MS)  /* between tries to find a root */
#define PROBE_NS (100 * NS_PER_MS) /* before a rank that does not come is asked */
#define AGAIN_NS (500 * NS_PER_MS) /* and until it is asked again */
#define LEAVE_MS 2000              /* how long a rank that leaves stays for the others */
#define HEARD_MAX 64               /* messages that one link may say in a turn */
#define NONCE_NBYTES 8
#define WORDS_MAX (WRI_MESSAGE_MAX - 32) /* of a message's text, terminator included */

static void seek(struct wri_control *control);

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
static bool is_alone(const struct wri_control *control)
{
    for (int q = 0; q < control->nranks; q++)
        if (q != control->rank && control->member[q].state == WRI_MEMBER_ALIVE)
            return false;
    return true;
}

/* The root looks whether all have said goodbye. */
static void check_farewell(struct wri_control *control)
{
    if (!control->leaving || !is_alone(control))
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
    if (was_root && (state == WRI_MEMBER_LOST || control->state == WRI_CONTROL_SEEKING))
        seek(control);
    else if (control->state == WRI_CONTROL_LEADING) {
        wri_gather_progress(control);
        check_farewell(control);
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
    errno = ENOMEM;
    if (wri_socket_resolve(member->host, member->port, &addresses) != WRING_OK)
        return false;
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
    check_farewell(control);
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
static void seek(struct wri_control *control)
{
    int q = 0;
    wri_monitor_drop(control->monitor, &control->up);
    while (q < control->nranks && q != control->rank &&
           control->member[q].state != WRI_MEMBER_ALIVE)
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

/* Ranks that the other gave up are lost for all. */
static void merge_lost(struct wri_control *control, int rank, const unsigned char *lost)
{
    for (int q = 0; q < control->nranks; q++)
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
    if (control->failed_here)
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
    if (head->rank >= (uint32_t)control->nranks || head->nbytes >= sizeof(text))
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
        control->farewell = true;
        pthread_cond_broadcast(&control->monitor->changed);
        return link->role == WRI_LINK_UP;
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
        seek(control);
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
    beat(control, now);
    if (control->state == WRI_CONTROL_SEEKING) {
        seek_on(control, now);
        return true;
    }
    if (control->state == WRI_CONTROL_FOLLOWING) {
        int64_t silent_ns = now - control->up->heard_ns;
        if (silent_ns > patience_ns(control))
            wri_control_lose(control, control->root, "silent for %lld ms",
                             (long long)(silent_ns / NS_PER_MS));
        return false;
    }
    return control->state == WRI_CONTROL_LEADING && lead_on(control, now);
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
        local = local && cards[q].network == cards[control->rank].network;
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

/* "1, 2": the ranks that are not there. */
static void list_missing(const struct wri_control *control, char *text, size_t nbytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int q = 0; q < control->nranks && used + 16 < nbytes; q++)
        if (q != control->rank && control->member[q].link == NULL)
            used += (size_t)snprintf(text + used, nbytes - used, "%s%d", used ? ", " : "", q);
}

static wring_status await_star(struct wri_control *control)
{
    struct wri_monitor *monitor = control->monitor;
    int64_t end = wri_clock_ns() + monitor->context->config.join_timeout_ms * NS_PER_MS;
    struct timespec until = {end / 1000000000, end % 1000000000};
    char missing[128];
    int late = 0;
    while (!control->formed && wri_alarm_status(control->alarm) == WRING_OK && late == 0)
        late = pthread_cond_timedwait(&monitor->changed, &monitor->lock, &until);
    if (wri_alarm_status(control->alarm) != WRING_OK)
        WRI_FAIL(control->alarm->status, "%s", control->alarm->message);
    if (control->formed)
        return WRING_OK;
    list_missing(control, missing, sizeof(missing));
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
        seek(control);
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
    struct timespec until = {end / 1000000000, end % 1000000000};
    control->leaving = true;
    control->member[control->rank].state = WRI_MEMBER_GONE;
    if (control->state == WRI_CONTROL_FOLLOWING)
        wri_control_tell(control->up, WRI_MESSAGE_GOODBYE, control->rank, 0, 0, NULL, 0);
    if (control->state == WRI_CONTROL_LEADING) {
        wri_control_tell_all(control, -1, WRI_MESSAGE_GOODBYE, control->rank, 0, NULL);
        wri_gather_progress(control);
        check_farewell(control);
    }
    waits = waits || control->gathers > 0;
    while (waits && !control->farewell && !is_alone(control) &&
           control->state != WRI_CONTROL_CUT_OFF &&
           pthread_cond_timedwait(&monitor->changed, &monitor->lock, &until) == 0)
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
