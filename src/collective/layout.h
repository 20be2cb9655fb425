/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the data of a call is cut: segments -> units -> shards -> pieces.
 *
 *   segments   |  tensor a (7 units)    | b |   tensor c (5 units)   |  units never cross a segment
 *   shards     |      shard 0       |      shard 1      |  shard 2   |  whole units, about equal
 *   pieces     |  0  |  1  |  2  |..|                                   one message each
 *
 * A unit is what the codec encodes on its own, counted from the tensor's start, so the encoded
 * values depend neither on the bucket nor on who owns what. A (shard, piece) is a range of units;
 * within a segment it is a run of elements.
 */
#ifndef WRI_COLLECTIVE_LAYOUT_H
#define WRI_COLLECTIVE_LAYOUT_H

#include "base/memory.h"
#include "codec/codec.h"

struct wri_layout {
    const wring_codec *codec;
    wring_dtype dtype;
    const wring_segment *segment; /* nsegments */
    size_t nsegments;
    size_t *unit_count;     /* elements of a unit of segment i */
    size_t *first_unit;     /* nsegments + 1: units before segment i */
    size_t *first_of_shard; /* nshards + 1: units before shard s */
    size_t nshards;
    size_t piece_units, npieces;
};

/* A run of elements of one segment. */
struct wri_run {
    size_t segment, begin, count;
    size_t done; /* elements of the range before this run */
};

/* Cut: arrays come from ARENA (two-pass). With BY_SEGMENT, shard i is segment i (reduce-scatter,
 * allgather: nshards == nsegments); else shards are balanced. PIECE_COUNT: elements wished in a
 * (shard, piece). */
void wri_layout_init(struct wri_layout *layout, struct wri_arena *arena, size_t nshards,
                     bool by_segment, size_t piece_count);

/* Walk the runs of (shard, piece); start with *run zeroed. False when there is none left. */
bool wri_layout_next(const struct wri_layout *layout, size_t shard, size_t piece,
                     struct wri_run *run);

/* Elements, and encoded bytes when DTYPE travels, of a (shard, piece). */
size_t wri_layout_count(const struct wri_layout *layout, size_t shard, size_t piece);
size_t wri_layout_nbytes(const struct wri_layout *layout, wring_dtype dtype, size_t shard,
                         size_t piece);

/* The elements [*begin, *end) of SEGMENT that belong to SHARD. */
void wri_layout_owned(const struct wri_layout *layout, size_t shard, size_t segment, size_t *begin,
                      size_t *end);

#endif
