/* SPDX-License-Identifier: Apache-2.0 */
/* Steps as transactions; see transaction.h. */
#include "collective/transaction.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

static bool overlap(const struct wri_change *change, const wring_segment *segment)
{
    return change->tensor == segment->tensor && change->offset < segment->offset + segment->count &&
           segment->offset < change->offset + change->count;
}

/* Nothing is listed any more. */
static void clear(struct wri_step *step)
{
    for (size_t i = 0; i < step->n; i++)
        step->change[i].tensor->listed = NULL;
    step->n = 0;
    step->committed = false;
}

static wring_status make_room(struct wri_step *step, size_t n)
{
    size_t capacity = step->capacity ? step->capacity : 64;
    struct wri_change *larger;
    while (capacity < n)
        capacity *= 2;
    if (capacity == step->capacity)
        return WRING_OK;
    WRI_TRY(wri_alloc(capacity, sizeof(*larger), (void **)&larger));
    if (step->n > 0)
        memcpy(larger, step->change, step->n * sizeof(*larger));
    wri_free(step->change);
    step->change = larger;
    step->capacity = capacity;
    return WRING_OK;
}

static void reset(struct wri_step *step)
{
    clear(step);
    step->nonfinite = false;
    step->failed = WRING_OK;
    step->reserved = 0;
}

wring_status wri_step_begin(struct wri_step *step)
{
    if (step->open)
        WRI_FAIL(WRING_E_STATE, "a step was begun before, and neither committed nor rolled back");
    reset(step);
    step->open = true;
    return WRING_OK;
}

wring_status wri_step_pass(wring_tensor *tensor)
{
    struct wri_step *step = tensor->listed;
    if (step != NULL && step->open)
        WRI_FAIL(WRING_E_STATE, "tensor '%s' was changed in a step that is not committed",
                 tensor->name);
    if (step != NULL)
        clear(step); /* too late to undo it */
    return WRING_OK;
}

static wring_status check_segment(const struct wri_step *step, const wring_segment *segment)
{
    if (segment->tensor == NULL)
        return WRING_OK;
    if (segment->tensor->listed != step)
        return wri_step_pass(segment->tensor);
    for (size_t i = 0; i < step->n; i++)
        if (overlap(&step->change[i], segment))
            WRI_FAIL(WRING_E_STATE, "elements of tensor '%s' are in two calls of one step",
                     segment->tensor->name);
    return WRING_OK;
}

/* Calls that are unfinished have not left their changes yet, so room for them is counted again with
 * every one that enters: SEGMENTS of all. */
wring_status wri_step_enter(struct wri_step *step, const wring_segment *segment, size_t n)
{
    if (!step->open)
        reset(step);
    for (size_t i = 0; i < n; i++)
        WRI_TRY(check_segment(step, &segment[i]));
    WRI_TRY(make_room(step, step->reserved + n));
    step->reserved += n;
    step->open = true;
    step->calls++;
    return WRING_OK;
}

void wri_step_leave(struct wri_step *step, const struct wri_change *change, size_t n,
                    wring_status status, bool nonfinite)
{
    step->calls--;
    step->nonfinite |= nonfinite;
    if (step->failed == WRING_OK)
        step->failed = status;
    for (size_t i = 0; status == WRING_OK && i < n; i++) {
        if (change[i].tensor == NULL)
            continue;
        change[i].tensor->listed = step;
        step->change[step->n++] = change[i];
    }
}

/* Elements of the step's list, from FIRST on, that one commit takes: of one communicator. */
static size_t same_comm(const struct wri_step *step, size_t first)
{
    size_t i = first;
    while (i < step->n && step->change[i].tensor->comm == step->change[first].tensor->comm &&
           step->change[i].tensor->device == step->change[first].tensor->device)
        i++;
    return i - first;
}

typedef wring_status apply_fn(wring_comm *comm, const struct wri_change *change, size_t n,
                              const struct wri_verdict *verdict);

static wring_status apply(const struct wri_step *step, apply_fn *function)
{
    wring_status status = WRING_OK;
    for (size_t i = 0, n; status == WRING_OK && i < step->n; i += n) {
        const wring_tensor *tensor = step->change[i].tensor;
        wring_comm *comm = tensor->comm;
        n = same_comm(step, i);
        int was = wri_context_enter(comm->context);
        status =
            function(comm, &step->change[i], n, tensor->device->host ? NULL : comm->lane.clean);
        wri_context_leave(comm->context, was);
    }
    return status;
}

static wring_status check_open(const struct wri_step *step)
{
    if (!step->open)
        WRI_FAIL(WRING_E_STATE, "no step was begun");
    if (step->calls > 0)
        WRI_FAIL(WRING_E_STATE, "%d calls of the step are not finished", step->calls);
    return WRING_OK;
}

static void drop(struct wri_step *step)
{
    wri_state_abandon(step->change, step->n);
    clear(step);
    step->open = false;
}

wring_status wri_step_commit(struct wri_step *step, bool *committed_out)
{
    WRI_TRY(check_open(step));
    bool good = step->failed == WRING_OK && !step->nonfinite;
    if (good) {
        bool final = wri_state_moves(step->change, step->n);
        WRI_TRY(apply(step, wri_state_commit));
        wri_state_sweep(step->change, step->n);
        if (final)
            clear(step); /* what changed hands cannot be taken back */
        step->committed = !final;
        step->open = false;
    } else {
        drop(step);
    }
    if (committed_out != NULL)
        *committed_out = good;
    return WRING_OK;
}

wring_status wri_step_rollback(struct wri_step *step)
{
    WRI_TRY(check_open(step));
    drop(step);
    return WRING_OK;
}

wring_status wri_step_undo(struct wri_step *step)
{
    if (step->open || !step->committed)
        WRI_FAIL(WRING_E_STATE, "there is no commit that can be undone: a later call has begun, or "
                                "ranks exchanged what they own in it");
    WRI_TRY(apply(step, wri_state_undo));
    clear(step);
    return WRING_OK;
}

void wri_step_forget(wring_tensor *tensor)
{
    struct wri_step *step = tensor->listed;
    size_t kept = 0;
    for (size_t i = 0; step != NULL && i < step->n; i++)
        if (step->change[i].tensor != tensor)
            step->change[kept++] = step->change[i];
    if (step != NULL)
        step->n = kept;
    tensor->listed = NULL;
}

void wri_step_fini(struct wri_step *step)
{
    clear(step);
    wri_free(step->change);
    *step = (struct wri_step){0};
}
