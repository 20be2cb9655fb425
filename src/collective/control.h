/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control path: what ranks of a communicator tell each other beside the data, whichever
 * transport carries those. It notices a rank that died or fell silent, carries one rank's failure
 * to all, and gathers a few bytes among the ranks that are left.
 *
 * Each communicator of several processes has a star of TCP connections; the lowest rank that is
 * alive is its root. Every rank listens, so that the star can form again around the next one. One
 * thread per context, the monitor, serves all its stars, so that beats go on while the program
 * computes. docs/architecture.md says how the star stays one.
 *
 * Locks: the monitor's, taken after the context's and never held while anything blocks. The
 * monitor's thread never takes the context's, because a driver may hold that for long.
 */
#ifndef WRI_COLLECTIVE_CONTROL_H
#define WRI_COLLECTIVE_CONTROL_H

#include "collective/context.h"
#include "collective/frame.h"
#include "collective/join.h"
#include "collective/link.h"

#define WRI_MESSAGE_MAX 512

/* The first failure of a communicator, raised by any thread, without a lock. */
struct wri_alarm {
    _Atomic int raised; /* 0 no, 1 being written, 2 yes */
    wring_status status;
    char message[WRI_MESSAGE_MAX];
};

/* True if this is the first one; else nothing is changed. */
bool wri_alarm_raise(struct wri_alarm *alarm, wring_status status, const char *message);

/* WRING_OK, or the failure's status; its message is in the alarm. */
wring_status wri_alarm_status(struct wri_alarm *alarm);

struct wri_monitor;
struct wri_control;

/* The thread that serves the control paths of a context. Destroy them before. */
wring_status wri_monitor_open(wring_context *context, struct wri_monitor **monitor_out);
void wri_monitor_close(struct wri_monitor *monitor);

/* Listen on HOST, and write into CARD how others reach this rank. Failures will be raised in
 * ALARM. */
wring_status wri_control_open(wring_context *context, int rank, int nranks, const char *host,
                              struct wri_alarm *alarm, struct wri_card *card,
                              struct wri_control **control_out);

/* Form the star with those who have CARDS. Blocks until it is whole, or WRING_JOIN_TIMEOUT. */
wring_status wri_control_start(struct wri_control *control, const struct wri_card *cards,
                               uint64_t nonce);

/* Say goodbye; with WAITS, stay up to 2 s until all who are left have, because they may need what
 * this rank knows. Accepts NULL. */
void wri_control_close(struct wri_control *control, bool waits);

/* The address at which others reach this rank, for a control path beside this one. */
const char *wri_control_host(const struct wri_control *control);

/* The ranks of this one's communicator are RANK of NRANKS, known after open and before start. */
void wri_control_place(struct wri_control *control, int rank, int nranks);

/* This rank failed, as its alarm says: tell the others. Never waits. */
void wri_control_report(struct wri_control *control);

/* This rank has started the call of FRAME: the root compares it with the other ranks' calls of the
 * same number, and on a difference fails the communicator on all of them with WRING_E_MISMATCH,
 * naming both sides. Never waits: the note goes out in some 10 ms. NOW false: only if some rank
 * asks for it, which one does that waits in that call. Calls of both may be repeated. */
void wri_control_note(struct wri_control *control, const struct wri_frame *frame, bool now);

/* A rank that has left and so will take part in nothing any more; -1: all are there. */
int wri_control_left(struct wri_control *control);

/* What is gathered: ranks that gather different things are told so. */
enum wri_gather_kind {
    WRI_GATHER_AGREE = 1,
    WRI_GATHER_SHRINK, /* cards of ranks that want a communicator of all that are left */
    WRI_GATHER_SPLIT,  /* the same of several communicators */
    WRI_GATHER_NAME,   /* the name of a transport's group, from its rank 0 */
    WRI_GATHER_SEAL    /* whether the new communicator works */
};

/* NBYTES of each rank that is left; in order of rank. */
struct wri_gathered {
    size_t n;
    struct {
        int rank;
        size_t nbytes;
        const void *block;
    } entry[];
};

/* Gather NBYTES (at most WRI_LINK_BLOCK_MAX - 8) from every rank that is left, after a failure too.
 * All who get a result get the same one, even if ranks die meanwhile. Blocks until all have called
 * or died; WRING_TIMEOUT without that cuts this rank off from the others. Free with wri_free. */
wring_status wri_control_gather(struct wri_control *control, enum wri_gather_kind kind,
                                const void *block, size_t nbytes, struct wri_gathered **out);

#endif
