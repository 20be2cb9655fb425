/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do all ranks make the same calls? The data says so where ranks exchange frames; but ranks that
 * disagree may wait for messages that nobody sends, and a stream-ordered transport hangs or mangles
 * a message of another size before anybody sees its frame. So ranks note their calls, as a number
 * and a digest, and the root compares. Where notes cost more than they bring, on polled transports,
 * a rank notes the call that it is stuck in, and the root asks the others for theirs, who may be
 * through with it already.
 */
#include "collective/control_state.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"

#define SEND_NS 10000000 /* notes are collected for so long */

/* A call as the first rank noted it. */
struct wri_compared {
    uint64_t operation, digest;
    int rank;
    bool used;
};

/* What a digest stands for. */
struct wri_make {
    uint64_t digest;
    struct wri_frame frame;
};

/* Of all that two calls must have in common, and of nothing else. */
static uint64_t digest_of(const struct wri_frame *frame)
{
    struct wri_frame make = *frame;
    make.flags = 0;
    make.source = 0;
    make.operation = make.step = make.last_good_step = 0;
    make.payload_hash = make.header_hash = 0;
    return wri_hash(&make, sizeof(make), 0) | UINT64_C(1) << 63; /* never 0, which is none */
}

/* ---- the root -------------------------------------------------------------------------------- */

static bool open_tables(struct wri_control *control)
{
    if (control->compared == NULL &&
        wri_alloc(WRI_NOTES_OPEN, sizeof(*control->compared), (void **)&control->compared))
        return false;
    return control->make != NULL ||
           wri_alloc(WRI_MAKES_MAX, sizeof(*control->make), (void **)&control->make) == WRING_OK;
}

static void learn_make(struct wri_control *control, uint64_t digest, const struct wri_frame *frame)
{
    struct wri_make *make = &control->make[digest % WRI_MAKES_MAX];
    make->digest = digest;
    make->frame = *frame;
}

static void describe(const struct wri_control *control, uint64_t digest, char *text, size_t nbytes)
{
    const struct wri_make *make = &control->make[digest % WRI_MAKES_MAX];
    if (make->digest == digest)
        wri_frame_describe(&make->frame, text, nbytes);
    else
        snprintf(text, nbytes, "call %016llx", (unsigned long long)digest);
}

static void differ(struct wri_control *control, const struct wri_compared *first, int rank,
                   uint64_t digest)
{
    char one[192], other[192], message[WRI_MESSAGE_MAX];
    describe(control, first->digest, one, sizeof(one));
    describe(control, digest, other, sizeof(other));
    snprintf(message, sizeof(message), "operation %llu is %s on rank %d, but %s on rank %d",
             (unsigned long long)first->operation, one, first->rank, other, rank);
    wri_control_fail(control, WRING_E_MISMATCH, message);
}

static void send_kept(struct wri_control *control, uint64_t operation);

/* The others may be through with that call. */
static void ask_all(struct wri_control *control, uint64_t operation)
{
    for (int q = 0; q < control->nranks; q++)
        if (control->member[q].link != NULL)
            wri_control_tell(control->member[q].link, WRI_MESSAGE_ASK, control->rank, 0, operation,
                             NULL, 0);
    send_kept(control, operation);
}

static void compare(struct wri_control *control, int rank, const struct wri_note *note)
{
    struct wri_compared *at = &control->compared[note->operation % WRI_NOTES_OPEN];
    if (at->used && at->operation > note->operation)
        return; /* another rank is too far ahead */
    if (at->used && at->operation == note->operation) {
        if (at->digest != note->digest)
            differ(control, at, rank, note->digest);
        return;
    }
    *at = (struct wri_compared){note->operation, note->digest, rank, true};
    if (!wri_context_ordered(control->monitor->context))
        ask_all(control, note->operation);
}

/* ---- every rank ------------------------------------------------------------------------------ */

static void send_notes(struct wri_control *control)
{
    if (control->state == WRI_CONTROL_FOLLOWING)
        wri_control_tell(control->up, WRI_MESSAGE_NOTES, control->rank, 0, 0, control->note,
                         control->nnotes * sizeof(control->note[0]));
    control->nnotes = 0; /* without a root the communicator has failed anyway */
}

static bool tell_make(struct wri_control *control, uint64_t digest, const struct wri_frame *frame)
{
    if (control->told == NULL &&
        wri_alloc(WRI_MAKES_MAX, sizeof(*control->told), (void **)&control->told) != WRING_OK)
        return false;
    if (control->told[digest % WRI_MAKES_MAX] == digest || control->state != WRI_CONTROL_FOLLOWING)
        return true;
    control->told[digest % WRI_MAKES_MAX] = digest;
    wri_control_tell(control->up, WRI_MESSAGE_MAKE, control->rank, 0, 0, frame, sizeof(*frame));
    return true;
}

static void note(struct wri_control *control, const struct wri_frame *frame)
{
    struct wri_note own = {frame->operation, digest_of(frame)};
    if (control->state == WRI_CONTROL_LEADING) {
        if (!open_tables(control))
            return; /* what is not compared is found by its frames, or by the time-out */
        learn_make(control, own.digest, frame);
        compare(control, control->rank, &own);
        return;
    }
    if (!tell_make(control, own.digest, frame))
        return;
    if (control->nnotes == 0) {
        control->notes_ns = wri_clock_ns() + SEND_NS;
        wri_monitor_wake(control->monitor);
    }
    control->note[control->nnotes++] = own;
    if (control->nnotes == WRI_NOTES_MAX)
        send_notes(control);
}

/* A call that this rank has started already, if it still knows it; else as soon as it starts. */
static void send_kept(struct wri_control *control, uint64_t operation)
{
    const struct wri_frame *kept = &control->kept[operation % WRI_NOTES_KEPT];
    if (operation >= control->wanted)
        control->wanted = operation + 1;
    if (kept->magic != 0 && kept->operation == operation)
        note(control, kept);
}

void wri_control_note(struct wri_control *control, const struct wri_frame *frame, bool now)
{
    pthread_mutex_lock(&control->monitor->lock);
    control->kept[frame->operation % WRI_NOTES_KEPT] = *frame;
    if (now || frame->operation < control->wanted)
        note(control, frame);
    pthread_mutex_unlock(&control->monitor->lock);
}

bool wri_notes_tick(struct wri_control *control, int64_t now)
{
    if (control->nnotes > 0 && now >= control->notes_ns)
        send_notes(control);
    return control->nnotes > 0;
}

static bool heard_notes(struct wri_control *control, const struct wri_link *link)
{
    struct wri_note note;
    if (link->head.nbytes % sizeof(note) != 0)
        return false;
    for (size_t at = 0; at < link->head.nbytes; at += sizeof(note)) {
        memcpy(&note, link->block + at, sizeof(note));
        compare(control, link->rank, &note);
    }
    return true;
}

static bool heard_make(struct wri_control *control, const struct wri_link *link)
{
    struct wri_frame frame;
    if (link->head.nbytes != sizeof(frame))
        return false;
    memcpy(&frame, link->block, sizeof(frame));
    learn_make(control, digest_of(&frame), &frame);
    return true;
}

bool wri_notes_heard(struct wri_control *control, struct wri_link *link)
{
    bool down = link->role == WRI_LINK_DOWN;
    if (link->head.type == WRI_MESSAGE_ASK && !down) {
        send_kept(control, link->head.number);
        return true;
    }
    if (!down || link->head.type == WRI_MESSAGE_ASK)
        return false;
    if (!open_tables(control))
        return true;
    return link->head.type == WRI_MESSAGE_NOTES ? heard_notes(control, link)
                                                : heard_make(control, link);
}

void wri_notes_close(struct wri_control *control)
{
    wri_free(control->told);
    wri_free(control->compared);
    wri_free(control->make);
}
