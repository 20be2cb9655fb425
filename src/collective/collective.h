/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of algorithms, and what their emit functions are written with. */
#ifndef WRI_COLLECTIVE_COLLECTIVE_H
#define WRI_COLLECTIVE_COLLECTIVE_H

#include <wring/plugin.h>

/* The INDEX-th algorithm, NULL past the end; by name, NULL if there is none. */
const struct wring_collective_ops *wri_collective_at(size_t index);
const struct wring_collective_ops *wri_collective_find(const char *name);

/* Short name of a kind of collective ("allreduce"). */
const char *wri_kind_name(wring_kind kind);
const char *wri_op_name(wring_op op);

/* Append STEP; past max_steps it is only counted. */
static inline void wri_emit_step(struct wring_emit *emit, struct wring_step step)
{
    if (emit->nsteps < emit->max_steps)
        emit->steps[emit->nsteps] = step;
    emit->nsteps++;
}

/* The steps that every algorithm is full of. A transfer's flags are 0 or WRING_STEP_PARTIAL. */
static inline void wri_emit_local(struct wring_emit *emit, int kind, int buffer, int round,
                                  int slot, int shard, int flags)
{
    wri_emit_step(emit, (struct wring_step){.kind = (uint8_t)kind,
                                            .buffer = (uint8_t)buffer,
                                            .flags = (uint8_t)flags,
                                            .round = (uint8_t)round,
                                            .slot = (uint16_t)slot,
                                            .shard = shard});
}
static inline void wri_emit_transfer(struct wring_emit *emit, int kind, int round, int slot,
                                     int shard, int peer, int tag, int flags)
{
    wri_emit_step(emit, (struct wring_step){.kind = (uint8_t)kind,
                                            .flags = (uint8_t)flags,
                                            .round = (uint8_t)round,
                                            .slot = (uint16_t)slot,
                                            .shard = shard,
                                            .peer = peer,
                                            .tag = (uint16_t)tag});
}

/* Rank arithmetic that stays in 0..n-1. */
static inline int wri_rank_add(int rank, int offset, int nranks)
{
    return ((rank + offset) % nranks + nranks) % nranks;
}

#endif
