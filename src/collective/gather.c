/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few bytes of every rank that is left, to all of them, through the root of the star.
 *
 * All who get a result must get the same one, even if the root dies while it tells them. So each
 * rank keeps the result of its last gather, and a new root, which waits for all that are left
 * before it ends a gather, first asks for the result of whoever has it already. The numbers of
 * gathers of two ranks never differ by more than one, because a gather ends only when all have
 * begun it.
 */
#include "collective/control_state.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

/* In a result, in front of each block. */
struct entry {
    uint32_t rank, nbytes;
};

static struct wri_link *link_of(const struct wri_control *control, int rank)
{
    return control->member[rank].link;
}

static bool has_contributed(const struct wri_control *control, int rank)
{
    const struct wri_member *member = &control->member[rank];
    return rank == control->rank ? control->pending
                                 : member->block != NULL && member->number == control->gathers;
}

/* ---- results --------------------------------------------------------------------------------- */

static bool append(struct wri_control *control, int rank, const void *block, size_t nbytes)
{
    struct entry entry = {(uint32_t)rank, (uint32_t)nbytes};
    size_t needed = control->coming_nbytes + sizeof(entry) + nbytes;
    if (needed > control->coming_capacity) {
        unsigned char *larger;
        if (wri_alloc(needed, 2, (void **)&larger) != WRING_OK)
            return false;
        if (control->coming_nbytes > 0)
            memcpy(larger, control->coming, control->coming_nbytes);
        wri_free(control->coming);
        control->coming = larger;
        control->coming_capacity = 2 * needed;
    }
    memcpy(control->coming + control->coming_nbytes, &entry, sizeof(entry));
    if (nbytes > 0)
        memcpy(control->coming + control->coming_nbytes + sizeof(entry), block, nbytes);
    control->coming_nbytes = needed;
    control->coming_n++;
    return true;
}

static void forget_coming(struct wri_control *control)
{
    control->coming_nbytes = control->coming_n = 0;
}

static void send_result(struct wri_control *control, struct wri_link *link)
{
    for (size_t at = 0; at < control->result_nbytes;) {
        struct entry entry;
        memcpy(&entry, control->result + at, sizeof(entry));
        wri_control_tell(link, WRI_MESSAGE_ENTRY, (int)entry.rank, 0, control->gathers - 1,
                         control->result + at + sizeof(entry), entry.nbytes);
        at += sizeof(entry) + entry.nbytes;
    }
    wri_control_tell(link, WRI_MESSAGE_GATHERED, control->rank, (uint32_t)control->result_n,
                     control->gathers - 1, NULL, 0);
}

/* What was coming is the result of the gather that is due. */
static void take_over(struct wri_control *control)
{
    wri_free(control->result);
    control->result = control->coming;
    control->result_nbytes = control->coming_nbytes;
    control->result_n = control->coming_n;
    control->coming = NULL;
    control->coming_capacity = 0;
    forget_coming(control);
    control->gathers++;
    control->pending = false;
    control->asked = -1;
    pthread_cond_broadcast(&control->monitor->changed);
}

/* ---- the root -------------------------------------------------------------------------------- */

static void tell_result(struct wri_control *control)
{
    for (int q = 0; q < control->nranks; q++) {
        struct wri_member *member = &control->member[q];
        if (member->block == NULL || member->number != control->gathers - 1)
            continue;
        if (member->link != NULL)
            send_result(control, member->link);
        wri_free(member->block);
        member->block = NULL;
        member->gathers = control->gathers;
    }
}

/* Somebody has the result already: ask for it. */
static bool ask_for_result(struct wri_control *control)
{
    for (int q = 0; q < control->nranks; q++) {
        if (link_of(control, q) == NULL || control->member[q].gathers <= control->gathers)
            continue;
        forget_coming(control);
        control->asked = q;
        wri_control_tell(link_of(control, q), WRI_MESSAGE_WANT, control->rank, 0, control->gathers,
                         NULL, 0);
        return true;
    }
    return false;
}

static bool all_have_begun(const struct wri_control *control)
{
    bool any = false;
    for (int q = 0; q < control->nranks; q++) {
        bool has = has_contributed(control, q);
        any |= has;
        if (control->member[q].state == WRI_MEMBER_ALIVE &&
            (!has || (q != control->rank && link_of(control, q) == NULL)))
            return false;
    }
    return any;
}

void wri_gather_progress(struct wri_control *control)
{
    if (control->state != WRI_CONTROL_LEADING || control->asked >= 0 || ask_for_result(control) ||
        !all_have_begun(control))
        return;
    forget_coming(control);
    for (int q = 0; q < control->nranks; q++) {
        const struct wri_member *member = &control->member[q];
        bool own = q == control->rank;
        if (!has_contributed(control, q) || (!own && member->link == NULL))
            continue;
        if (!append(control, q, own ? control->own : member->block,
                    own ? control->own_nbytes : member->nbytes)) {
            wri_control_cut_off(control, "no memory to lead them");
            return;
        }
    }
    take_over(control);
    tell_result(control);
}

static bool heard_block(struct wri_control *control, const struct wri_link *link)
{
    struct wri_member *member = &control->member[link->rank];
    const struct wri_message *head = &link->head;
    if (head->nbytes > WRI_LINK_BLOCK_MAX || head->number + 1 < control->gathers ||
        head->number > control->gathers + 1)
        return false;
    wri_free(member->block);
    member->block = NULL;
    if (head->number + 1 == control->gathers) {
        send_result(control, member->link);
        return true;
    }
    if (wri_alloc(head->nbytes, 1, (void **)&member->block) != WRING_OK)
        return false;
    memcpy(member->block, link->block, head->nbytes);
    member->nbytes = head->nbytes;
    member->number = head->number;
    wri_gather_progress(control);
    return true;
}

/* ---- every rank ------------------------------------------------------------------------------ */

void wri_gather_resume(struct wri_control *control)
{
    forget_coming(control);
    if (control->pending)
        wri_control_tell(control->up, WRI_MESSAGE_BLOCK, control->rank, 0, control->gathers,
                         control->own, control->own_nbytes);
}

static bool heard_entry(struct wri_control *control, const struct wri_link *link)
{
    const struct wri_message *head = &link->head;
    return head->number == control->gathers && head->rank < (uint32_t)control->nranks &&
           head->nbytes <= WRI_LINK_BLOCK_MAX && control->coming_n < (size_t)control->nranks &&
           append(control, (int)head->rank, link->block, head->nbytes);
}

static bool heard_gathered(struct wri_control *control, const struct wri_link *link)
{
    if (link->head.number != control->gathers || link->head.value != control->coming_n)
        return false;
    take_over(control);
    if (control->state == WRI_CONTROL_LEADING) {
        tell_result(control);
        wri_gather_progress(control);
    }
    return true;
}

bool wri_gather_heard(struct wri_control *control, struct wri_link *link)
{
    bool down = link->role == WRI_LINK_DOWN;
    bool awaited = down ? link->rank == control->asked : control->pending;
    switch (link->head.type) {
    case WRI_MESSAGE_BLOCK:
        return down && heard_block(control, link);
    case WRI_MESSAGE_ENTRY:
        return awaited && heard_entry(control, link);
    case WRI_MESSAGE_GATHERED:
        return awaited && heard_gathered(control, link);
    case WRI_MESSAGE_WANT:
        if (down || link->head.number + 1 != control->gathers)
            return false;
        send_result(control, link);
        return true;
    default:
        return false;
    }
}

void wri_gather_close(struct wri_control *control)
{
    for (int q = 0; control->member != NULL && q < control->nranks; q++)
        wri_free(control->member[q].block);
    wri_free(control->own);
    wri_free(control->result);
    wri_free(control->coming);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* KIND goes in front of every block. */
static wring_status contribute(struct wri_control *control, uint64_t kind, const void *block,
                               size_t nbytes)
{
    if (control->state == WRI_CONTROL_CUT_OFF)
        WRI_FAIL(WRING_E_PEER_LOST, "%s", control->cut_off);
    wri_free(control->own);
    control->own = NULL;
    WRI_TRY(wri_alloc(1, sizeof(kind) + nbytes, (void **)&control->own));
    memcpy(control->own, &kind, sizeof(kind));
    memcpy(control->own + sizeof(kind), block, nbytes);
    control->own_nbytes = sizeof(kind) + nbytes;
    control->pending = true;
    if (control->state == WRI_CONTROL_FOLLOWING)
        wri_gather_resume(control);
    wri_gather_progress(control);
    return WRING_OK;
}

static wring_status await_result(struct wri_control *control)
{
    struct wri_monitor *monitor = control->monitor;
    int64_t timeout_ms = monitor->context->config.timeout_ms;
    int64_t end = wri_clock_ns() + timeout_ms * NS_PER_MS;
    while (control->pending && control->state != WRI_CONTROL_CUT_OFF &&
           wri_monitor_wait(monitor, end))
        ;
    if (!control->pending)
        return WRING_OK;
    if (control->state == WRI_CONTROL_CUT_OFF)
        WRI_FAIL(WRING_E_PEER_LOST, "%s", control->cut_off);
    wri_control_cut_off(control, "it waited for them too long");
    WRI_FAIL(WRING_E_TIMEOUT, "not all ranks that are left came within %lld ms",
             (long long)timeout_ms);
}

/* A copy of the result, checked: it came from outside. */
static wring_status copy_result(struct wri_control *control, uint64_t kind,
                                struct wri_gathered **out)
{
    struct wri_gathered *gathered;
    size_t head = sizeof(*gathered) + control->result_n * sizeof(gathered->entry[0]);
    WRI_TRY(wri_alloc(1, head + control->result_nbytes, (void **)&gathered));
    unsigned char *bytes = (unsigned char *)gathered + head;
    wring_status status = WRING_OK;
    if (control->result_nbytes > 0)
        memcpy(bytes, control->result, control->result_nbytes);
    for (size_t at = 0; at < control->result_nbytes && status == WRING_OK; gathered->n++) {
        struct entry entry;
        uint64_t theirs = 0;
        memcpy(&entry, bytes + at, sizeof(entry));
        at += sizeof(entry);
        if (entry.nbytes >= sizeof(theirs))
            memcpy(&theirs, bytes + at, sizeof(theirs));
        if (theirs != kind)
            status = wri_fail(WRING_E_MISMATCH,
                              "rank %u calls another of agree, shrink and split than this rank",
                              entry.rank);
        else
            gathered->entry[gathered->n].nbytes = entry.nbytes - sizeof(theirs);
        gathered->entry[gathered->n].rank = (int)entry.rank;
        gathered->entry[gathered->n].block = bytes + at + sizeof(theirs);
        at += entry.nbytes;
    }
    if (status != WRING_OK)
        wri_free(gathered);
    else
        *out = gathered;
    return status;
}

wring_status wri_control_gather(struct wri_control *control, enum wri_gather_kind kind,
                                const void *block, size_t nbytes, struct wri_gathered **out)
{
    pthread_mutex_lock(&control->monitor->lock);
    wring_status status = contribute(control, kind, block, nbytes);
    if (status == WRING_OK)
        status = await_result(control);
    if (status == WRING_OK)
        status = copy_result(control, kind, out);
    pthread_mutex_unlock(&control->monitor->lock);
    return status;
}
