/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring: every rank receives from the one before it and sends to the one after it.
 *
 *   reduce   n-1 hops: decode the partial sum of a shard, add this rank's input, encode, pass on;
 *            the last hop leaves the sum of shard r at rank r
 *   gather   n-1 hops: the owner's encoded bytes go round untouched
 *
 * Only neighbours need a link, and each carries 2(n-1)/n of the data. A partial sum travels in its
 * own type: exactly with codec none, rounded once a hop with a lossy one, whose residual then
 * covers each element exactly once (every rank encodes every shard once).
 */
#include "collective/collective.h"

/* Two slots a direction, so that a hop is received while the one before is still being sent. */
static int sent_slot(int hop)
{
    return hop & 1;
}
static int received_slot(int hop)
{
    return 2 + (hop & 1);
}

static int next_of(const struct wring_emit *emit)
{
    return wri_rank_add(emit->rank, 1, emit->nranks);
}
static int previous_of(const struct wring_emit *emit)
{
    return wri_rank_add(emit->rank, -1, emit->nranks);
}

/* n-1 hops; afterwards the accumulator holds the sum of this rank's shard. */
static void reduce(struct wring_emit *emit)
{
    int rank = emit->rank, n = emit->nranks;
    for (int hop = 0; hop < n - 1; hop++) {
        int gives = wri_rank_add(rank, -hop - 1, n), takes = wri_rank_add(rank, -hop - 2, n);
        wri_emit_transfer(emit, WRING_STEP_RECV, hop, received_slot(hop), takes, previous_of(emit),
                          hop, WRING_STEP_PARTIAL);
        wri_emit_local(emit, WRING_STEP_ENCODE,
                       hop == 0 ? WRING_BUFFER_INPUT : WRING_BUFFER_ACCUMULATOR, hop,
                       sent_slot(hop), gives, WRING_STEP_PARTIAL | WRING_STEP_LOCAL_RESIDUAL);
        wri_emit_transfer(emit, WRING_STEP_SEND, hop, sent_slot(hop), gives, next_of(emit), hop,
                          WRING_STEP_PARTIAL);
        wri_emit_local(emit, WRING_STEP_DECODE_SET, WRING_BUFFER_ACCUMULATOR, hop + 1,
                       received_slot(hop), takes, WRING_STEP_PARTIAL);
        wri_emit_local(emit, WRING_STEP_LOAD, WRING_BUFFER_ACCUMULATOR, hop + 1, 0, takes,
                       WRING_STEP_REDUCE);
    }
    if (n == 1)
        wri_emit_local(emit, WRING_STEP_LOAD, WRING_BUFFER_ACCUMULATOR, 0, 0, rank, 0);
}

/* n-1 hops, rounds FIRST on: FROM[own shard] to everyone, everyone's to the output. */
static void gather(struct wring_emit *emit, int first, int from, int flags)
{
    int rank = emit->rank, n = emit->nranks, own = sent_slot(first);
    wri_emit_local(emit, WRING_STEP_ENCODE, from, first, own, rank, flags);
    wri_emit_local(emit, WRING_STEP_DECODE_SET, WRING_BUFFER_OUTPUT, first, own, rank, 0);
    for (int hop = 0; hop < n - 1; hop++) {
        int takes = wri_rank_add(rank, -hop - 1, n), round = first + hop;
        int holds = hop == 0 ? own : received_slot(round - 1);
        wri_emit_transfer(emit, WRING_STEP_RECV, round, received_slot(round), takes,
                          previous_of(emit), round, 0);
        wri_emit_transfer(emit, WRING_STEP_SEND, round, holds, wri_rank_add(rank, -hop, n),
                          next_of(emit), round, 0);
        wri_emit_local(emit, WRING_STEP_DECODE_SET, WRING_BUFFER_OUTPUT, round + 1,
                       received_slot(round), takes, 0);
    }
}

/* The root's bytes pass down the chain; pieces follow each other, so all links are busy. */
static void broadcast(struct wring_emit *emit)
{
    int place = wri_rank_add(emit->rank, -emit->root, emit->nranks);
    if (place == 0)
        wri_emit_local(emit, WRING_STEP_ENCODE, WRING_BUFFER_INPUT, 0, 0, 0, 0);
    else
        wri_emit_transfer(emit, WRING_STEP_RECV, place - 1, 0, 0, previous_of(emit), 0, 0);
    if (place < emit->nranks - 1)
        wri_emit_transfer(emit, WRING_STEP_SEND, place, 0, 0, next_of(emit), 0, 0);
    wri_emit_local(emit, WRING_STEP_DECODE_SET, WRING_BUFFER_OUTPUT, place, 0, 0, 0);
}

static wring_status emit(struct wring_emit *emit)
{
    int n = emit->nranks;
    emit->nslots = 4;
    emit->nshards = emit->kind == WRING_BROADCAST ? 1 : (size_t)n;
    switch (emit->kind) {
    case WRING_ALLREDUCE:
        reduce(emit);
        gather(emit, n - 1, WRING_BUFFER_ACCUMULATOR, WRING_STEP_SCALE | WRING_STEP_LOCAL_RESIDUAL);
        return WRING_OK;
    case WRING_REDUCE_SCATTER:
        reduce(emit);
        wri_emit_local(emit, WRING_STEP_STORE, WRING_BUFFER_OUTPUT, n - 1, 0, emit->rank,
                       WRING_STEP_SCALE);
        return WRING_OK;
    case WRING_ALLGATHER:
        gather(emit, 0, WRING_BUFFER_INPUT, 0);
        return WRING_OK;
    case WRING_BROADCAST:
        broadcast(emit);
        return WRING_OK;
    default:
        return WRING_E_UNSUPPORTED;
    }
}

static double cost_s(const struct wring_cost *cost)
{
    double hops = cost->nranks - 1, n = cost->nranks;
    int phases = cost->kind == WRING_ALLREDUCE ? 2 : 1;
    double share = cost->kind == WRING_BROADCAST ? 1 : hops / n;
    double wire =
        phases * (hops * cost->latency_s + share * cost->encoded_nbytes * cost->s_per_byte);
    return wire + cost->encode_s + 2 * cost->decode_s;
}

const struct wring_collective_ops wri_collective_ring = {
    .size = sizeof(struct wring_collective_ops),
    .name = "ring",
    .when = "many ranks, large data, an exact codec",
    .kinds = 1u << WRING_ALLREDUCE | 1u << WRING_REDUCE_SCATTER | 1u << WRING_ALLGATHER |
             1u << WRING_BROADCAST,
    .rounds_per_hop = true,
    .cost_s = cost_s,
    .emit = emit,
};
