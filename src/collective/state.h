/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a tensor. It has two generations: a call reads the current one and writes the next one;
 * the commit at its good end makes the next one current. A call that fails, or that met NaN or Inf
 * anywhere, is simply not committed.
 */
#ifndef WRI_COLLECTIVE_STATE_H
#define WRI_COLLECTIVE_STATE_H

#include "collective/comm.h"
#include "collective/residual.h"

struct wring_tensor {
    wring_tensor *next; /* in the communicator's list */
    wring_comm *comm;
    char *name;
    uint64_t id; /* hash of the name: the same on every rank and in every run */
    wring_dtype dtype;
    size_t count;
    const wring_codec *codec;
    const char *codec_reason;   /* why that one, for explain; or NULL */
    struct wri_residual local;  /* of what this rank sends: the whole tensor, if the codec has ef */
    struct wri_residual *owned; /* of what it sends as the owner of reduced ranges: a list */
    const struct wri_device *device; /* where its state is */
    uint64_t *step_on_device;        /* `step`, there; NULL on the host */
    uint64_t step;                   /* committed calls: seeds random rounding */
    uint64_t marked;                 /* by the last call that was looked at: comm->checked */
    int calls;                       /* that are not finished */
    bool mean;                       /* the last call was an average */
    bool single; /* has one generation: what is not committed is lost, and state is reset */
    int resets;  /* how often that was */
    struct wri_step *listed;        /* the step that has changes of it, to commit or to undo */
    const char *algorithm, *reason; /* of the last call, for explain; NULL before */
    uint64_t wire_nbytes;           /* of the last call, all its tensors together */
};

/* What a call changes of a tensor, if it is committed. */
struct wri_change {
    wring_tensor *tensor;       /* NULL: nothing */
    size_t offset, count;       /* elements whose local residual has a next generation */
    struct wri_residual *owned; /* or NULL: all of it has one */
};

/* Residual of [begin, end) in the tensor's place, BITS wide, all zero. */
wring_status wri_residual_open(const wring_tensor *tensor, int bits, size_t begin, size_t end,
                               struct wri_residual *residual);
void wri_residual_close(const wring_tensor *tensor, struct wri_residual *residual);

/* What this rank keeps as the owner of the reduced range [begin, end) of TENSOR; made if there is
 * none, NULL for an empty range. */
wring_status wri_residual_own(wring_tensor *tensor, size_t begin, size_t end, float weight,
                              struct wri_residual **owned_out);

/* Make the next generations of N changes current. What was kept as the owner of other ranges of the
 * changed elements goes into the local residual, so no mass is lost where ownership moves. On a
 * device this is enqueued on the communicator's stream, and does nothing if VERDICT, there, has
 * found anything. */
wring_status wri_state_commit(wring_comm *comm, const struct wri_change *change, size_t n,
                              const struct wri_verdict *verdict);

/* Whether that would move something: then it cannot be undone. And undo it. */
bool wri_state_moves(const struct wri_change *change, size_t n);
wring_status wri_state_undo(wring_comm *comm, const struct wri_change *change, size_t n,
                            const struct wri_verdict *verdict);

/* After the commit has been done: free what it has emptied. */
void wri_state_sweep(const struct wri_change *change, size_t n);

/* What these changes were is not committed: tensors with a single generation start from zero. */
void wri_state_abandon(const struct wri_change *change, size_t n);

/* End a residual of the list that LINK is in; and all that the tensor has. */
void wri_residual_drop(wring_tensor *tensor, struct wri_residual **link);
void wri_state_close(wring_tensor *tensor);

#endif
