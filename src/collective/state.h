/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a tensor. It has two generations: a call reads the current one and writes the next one;
 * the commit at its good end makes the next one current. A call that fails, or that met NaN or Inf
 * anywhere, is simply not committed.
 */
#ifndef WRI_COLLECTIVE_STATE_H
#define WRI_COLLECTIVE_STATE_H

#include "collective/comm.h"

/* Error of elements [begin, end) of the tensor that was not sent yet; generation[current]
 * counts. */
struct wri_residual {
    float *generation[2];
    int current;
    size_t begin, end;
    uint32_t *on_device; /* what stands for `current` there; NULL: the host */
};

struct wring_tensor {
    wring_tensor *next; /* in the communicator's list */
    wring_comm *comm;
    char *name;
    uint64_t id; /* hash of the name: the same on every rank and in every run */
    wring_dtype dtype;
    size_t count;
    const wring_codec *codec;
    struct wri_residual
        local; /* of what this rank sends: the whole tensor, if the codec has `ef` */
    struct wri_residual owner;       /* of what it sends as the owner of a reduced range */
    const struct wri_device *device; /* where its state is */
    struct wri_device_state *words;  /* there; NULL on the host */
    uint64_t step;                   /* committed calls: seeds random rounding */
    uint64_t marked;                 /* by the last call that was looked at: comm->checked */
    int calls;                       /* that are not finished */
    const char *algorithm, *reason;  /* of the last call, for explain; NULL before */
    uint64_t wire_nbytes;            /* of the last call, all its tensors together */
};

/* This rank owns [begin, end) of the reduced tensor from now on. What it kept for a range that it
 * no longer owns goes into its local residual, times WEIGHT (the owner's units per local unit), so
 * no mass is lost. */
wring_status wri_tensor_own(wring_tensor *tensor, size_t begin, size_t end, float weight);

/* A call that covered [offset, offset + count) ended well: its next generation becomes current. */
void wri_tensor_commit(wring_tensor *tensor, size_t offset, size_t count);

/* The same for one residual on a device, as what the device is to do; nothing for one that is not
 * there. */
struct wri_device_commit wri_residual_commit(const struct wri_residual *residual, size_t begin,
                                             size_t end);

/* Where a call reads and writes the residual of element `index`; NULL, NULL without one. */
void wri_residual_at(const struct wri_residual *residual, size_t index, const float **in_out,
                     float **out_out);

#endif
