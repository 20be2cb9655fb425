/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step: calls whose changes of state count together or not at all. Calls of a step that end well
 * leave what they changed here; the commit makes all of it current, unless a call failed or met
 * non-finite data. The last commit can be undone until the step's next call: ranks of a group that
 * failed may be one commit apart. All locked.
 */
#ifndef WRI_COLLECTIVE_TRANSACTION_H
#define WRI_COLLECTIVE_TRANSACTION_H

#include "collective/state.h"

struct wri_step {
    struct wri_change *change; /* n: of calls that ended well; after the commit, to undo it */
    size_t n, capacity, reserved;
    int calls; /* unfinished */
    bool open;
    bool committed; /* and can be undone */
    bool nonfinite;
    wring_status failed; /* of the first call that did */
};

/* A call on N tensors' elements begins: refuse what another step or call of this one has changed,
 * and make room for what it will leave. Opens the step if it is not. */
wring_status wri_step_enter(struct wri_step *step, const wring_segment *segment, size_t n);

/* It ended. N changes if it did so well. */
void wri_step_leave(struct wri_step *step, const struct wri_change *change, size_t n,
                    wring_status status, bool nonfinite);

/* A call that is a step of its own is about to change a tensor. */
wring_status wri_step_pass(wring_tensor *tensor);

/* As of the API. A step that calls enter needs no begin. False in *COMMITTED_OUT, which may be
 * NULL: rolled back instead. */
wring_status wri_step_begin(struct wri_step *step);
wring_status wri_step_commit(struct wri_step *step, bool *committed_out);
wring_status wri_step_rollback(struct wri_step *step);
wring_status wri_step_undo(struct wri_step *step);

/* The tensor ends, or the step. */
void wri_step_forget(wring_tensor *tensor);
void wri_step_fini(struct wri_step *step);

#endif
