/* SPDX-License-Identifier: Apache-2.0 */
/* What a call would cost under each algorithm: the planner's arithmetic, apart from its rules. */
#ifndef WRI_PLANNER_COST_H
#define WRI_PLANNER_COST_H

#include "codec/codec.h"
#include "collective/comm.h"

/* The inputs of a cost function for COUNT elements in all (per rank for by-rank kinds). */
struct wring_cost wri_cost_of(const wring_comm *comm, const wring_call *call,
                              const wring_codec *codec, size_t count);

/* Elements of a shard that should travel as one message. */
size_t wri_cost_piece_count(const wring_comm *comm, wring_dtype dtype, const wring_codec *codec);

#endif
