/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting a call's data; see layout.h for the picture. */
#include "collective/layout.h"

/* Codecs with tiny units are cut in steps of this many elements, so that shards start aligned. */
#define MIN_UNIT 32

static size_t unit_count_of(const wring_codec *codec, size_t count)
{
    size_t unit = wri_codec_unit(codec, count);
    return unit < MIN_UNIT && !wri_codec_whole_unit(codec) ? wri_round_up(MIN_UNIT, unit) : unit;
}

/* Units per piece such that one holds about PIECE_COUNT elements of the segments. */
static size_t piece_units_of(const struct wri_layout *layout, size_t piece_count)
{
    size_t largest = 1;
    for (size_t i = 0; i < layout->nsegments; i++)
        if (layout->unit_count[i] > largest)
            largest = layout->unit_count[i];
    size_t units = piece_count / largest;
    return units > 0 ? units : 1;
}

static void cut_shards(struct wri_layout *layout, bool by_segment)
{
    size_t units = layout->first_unit[layout->nsegments];
    for (size_t s = 0; s <= layout->nshards; s++) {
        /* floor(units * s / nshards) without overflow */
        size_t each = units / layout->nshards, rest = units % layout->nshards;
        layout->first_of_shard[s] =
            by_segment ? layout->first_unit[s] : each * s + rest * s / layout->nshards;
    }
}

void wri_layout_init(struct wri_layout *layout, struct wri_arena *arena, size_t nshards,
                     bool by_segment, size_t piece_count)
{
    size_t n = layout->nsegments;
    layout->nshards = nshards;
    layout->unit_count = wri_arena_take(arena, n, sizeof(size_t));
    layout->first_unit = wri_arena_take(arena, n + 1, sizeof(size_t));
    layout->first_of_shard = wri_arena_take(arena, nshards + 1, sizeof(size_t));
    if (arena->base == NULL)
        return;
    layout->first_unit[0] = 0;
    for (size_t i = 0; i < n; i++) {
        size_t count = layout->segment[i].count;
        layout->unit_count[i] = unit_count_of(layout->codec, count);
        layout->first_unit[i + 1] =
            layout->first_unit[i] + wri_div_up(count, layout->unit_count[i]);
    }
    cut_shards(layout, by_segment);
    layout->piece_units = piece_units_of(layout, piece_count);
    layout->npieces = 1;
    for (size_t s = 0; s < nshards; s++) {
        size_t units = layout->first_of_shard[s + 1] - layout->first_of_shard[s];
        size_t pieces = wri_div_up(units, layout->piece_units);
        if (pieces > layout->npieces)
            layout->npieces = pieces;
    }
}

/* Segment that holds UNIT (not past the end): the last whose first unit is <= UNIT and not
 * empty. */
static size_t segment_of(const struct wri_layout *layout, size_t unit)
{
    size_t low = 0, high = layout->nsegments;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (layout->first_unit[middle] <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The part of SEGMENT within the units [first, last). */
static void clip(const struct wri_layout *layout, size_t segment, size_t first, size_t last,
                 size_t *begin, size_t *end)
{
    size_t base = layout->first_unit[segment], stop = layout->first_unit[segment + 1];
    first = first < base ? base : first > stop ? stop : first;
    last = last < first ? first : last > stop ? stop : last;
    size_t unit = layout->unit_count[segment], count = layout->segment[segment].count;
    *begin = wri_min((first - base) * unit, count);
    *end = wri_min((last - base) * unit, count);
}

static void piece_range(const struct wri_layout *layout, size_t shard, size_t piece, size_t *first,
                        size_t *last)
{
    size_t end = layout->first_of_shard[shard + 1];
    *first = wri_min(layout->first_of_shard[shard] + piece * layout->piece_units, end);
    *last = wri_min(*first + layout->piece_units, end);
}

bool wri_layout_next(const struct wri_layout *layout, size_t shard, size_t piece,
                     struct wri_run *run)
{
    size_t first, last;
    piece_range(layout, shard, piece, &first, &last);
    if (first == last)
        return false;
    /* count == 0 marks the start of the walk: no run is empty. */
    size_t segment = run->count == 0 ? segment_of(layout, first) : run->segment + 1;
    for (; segment < layout->nsegments && layout->first_unit[segment] < last; segment++) {
        size_t begin, end;
        clip(layout, segment, first, last, &begin, &end);
        if (begin == end)
            continue;
        *run = (struct wri_run){segment, begin, end - begin, run->done + run->count};
        return true;
    }
    return false;
}

size_t wri_layout_count(const struct wri_layout *layout, size_t shard, size_t piece)
{
    struct wri_run run = {0};
    size_t count = 0;
    while (wri_layout_next(layout, shard, piece, &run))
        count += run.count;
    return count;
}

size_t wri_layout_nbytes(const struct wri_layout *layout, wring_dtype dtype, size_t shard,
                         size_t piece)
{
    struct wri_run run = {0};
    size_t nbytes = 0;
    while (wri_layout_next(layout, shard, piece, &run))
        nbytes += wri_codec_nbytes(layout->codec, dtype, run.count);
    return nbytes;
}

void wri_layout_owned(const struct wri_layout *layout, size_t shard, size_t segment, size_t *begin,
                      size_t *end)
{
    clip(layout, segment, layout->first_of_shard[shard], layout->first_of_shard[shard + 1], begin,
         end);
}
