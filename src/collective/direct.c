/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct: every rank talks to every other (two shots for allreduce).
 *
 *   shot 1   rank r encodes shard q of its input and sends it to q, for every q; the owner of a
 *            shard decodes and adds all contributions in rank order, its own encoded like others'
 *   shot 2   the owner encodes the sum, decodes its own bytes, and sends them to everyone
 *
 * A value is rounded twice whatever the number of ranks, and sums run in rank order, so the result
 * depends on (inputs, group, codec) alone. 2(n-1) messages and 2(n-1)/n of the encoded data per
 * rank.
 */
#include "collective/collective.h"

/* Slots: 0..n-1 hold what this rank encodes for q, n..2n-1 what it receives from q. */
static int sent_slot(int q)
{
    return q;
}
static int received_slot(const struct wring_emit *emit, int q)
{
    return emit->nranks + q;
}

/* This rank's contribution to its own shard. An exact codec would only copy it. */
static void reduce_own(struct wring_emit *emit, bool first)
{
    int kind = emit->exact ? WRING_STEP_LOAD
               : first     ? WRING_STEP_DECODE_SET
                           : WRING_STEP_DECODE_ADD;
    wri_emit_local(emit, kind, WRING_BUFFER_ACCUMULATOR, 1, sent_slot(emit->rank), emit->rank,
                   emit->exact && !first ? WRING_STEP_REDUCE : 0);
}

/* Shot 1: afterwards the accumulator holds the sum of this rank's shard. */
static void scatter_reduce(struct wring_emit *emit)
{
    int rank = emit->rank, n = emit->nranks;
    for (int i = 1; i < n; i++) {
        int q = wri_rank_add(rank, -i, n);
        wri_emit_transfer(emit, WRING_STEP_RECV, 0, received_slot(emit, q), rank, q, 0, 0);
    }
    for (int i = 1; i < n; i++) {
        int q = wri_rank_add(rank, i, n);
        wri_emit_local(emit, WRING_STEP_ENCODE, WRING_BUFFER_INPUT, 0, sent_slot(q), q,
                       WRING_STEP_LOCAL_RESIDUAL);
        wri_emit_transfer(emit, WRING_STEP_SEND, 0, sent_slot(q), q, q, 0, 0);
    }
    if (!emit->exact)
        wri_emit_local(emit, WRING_STEP_ENCODE, WRING_BUFFER_INPUT, 0, sent_slot(rank), rank,
                       WRING_STEP_LOCAL_RESIDUAL);
    for (int q = 0; q < n; q++) {
        if (q == rank)
            reduce_own(emit, q == 0);
        else
            wri_emit_local(emit, q == 0 ? WRING_STEP_DECODE_SET : WRING_STEP_DECODE_ADD,
                           WRING_BUFFER_ACCUMULATOR, 1, received_slot(emit, q), rank, 0);
    }
}

/* Shot 2: FROM[own shard] to everyone, everyone's to the output. */
static void gather(struct wring_emit *emit, int from, int flags)
{
    int rank = emit->rank, n = emit->nranks, own = sent_slot(rank);
    for (int i = 1; i < n; i++) {
        int q = wri_rank_add(rank, -i, n);
        wri_emit_transfer(emit, WRING_STEP_RECV, 1, received_slot(emit, q), q, q, 1, 0);
    }
    wri_emit_local(emit, WRING_STEP_ENCODE, from, 1, own, rank, flags);
    for (int i = 1; i < n; i++)
        wri_emit_transfer(emit, WRING_STEP_SEND, 1, own, rank, wri_rank_add(rank, i, n), 1, 0);
    wri_emit_local(emit, WRING_STEP_DECODE_SET, WRING_BUFFER_OUTPUT, 1, own, rank, 0);
    for (int i = 1; i < n; i++) {
        int q = wri_rank_add(rank, -i, n);
        wri_emit_local(emit, WRING_STEP_DECODE_SET, WRING_BUFFER_OUTPUT, 2, received_slot(emit, q),
                       q, 0);
    }
}

static void broadcast(struct wring_emit *emit)
{
    int own = sent_slot(emit->root);
    if (emit->rank == emit->root) {
        wri_emit_local(emit, WRING_STEP_ENCODE, WRING_BUFFER_INPUT, 0, own, 0, 0);
        for (int i = 1; i < emit->nranks; i++)
            wri_emit_transfer(emit, WRING_STEP_SEND, 0, own, 0,
                              wri_rank_add(emit->rank, i, emit->nranks), 0, 0);
    } else {
        wri_emit_transfer(emit, WRING_STEP_RECV, 0, own, 0, emit->root, 0, 0);
    }
    wri_emit_local(emit, WRING_STEP_DECODE_SET, WRING_BUFFER_OUTPUT, 1, own, 0, 0);
}

/* Empty frames between all ranks: nobody leaves before the last one came. */
static void barrier(struct wring_emit *emit)
{
    int rank = emit->rank, n = emit->nranks, own = sent_slot(rank);
    wri_emit_local(emit, WRING_STEP_ENCODE, WRING_BUFFER_INPUT, 0, own, 0, 0);
    for (int i = 1; i < n; i++) {
        int from = wri_rank_add(rank, -i, n), to = wri_rank_add(rank, i, n);
        wri_emit_transfer(emit, WRING_STEP_RECV, 0, received_slot(emit, from), 0, from, 0, 0);
        wri_emit_transfer(emit, WRING_STEP_SEND, 0, own, 0, to, 0, 0);
    }
}

static wring_status emit(struct wring_emit *emit)
{
    emit->nslots = 2 * (size_t)emit->nranks;
    emit->nshards =
        emit->kind == WRING_BROADCAST || emit->kind == WRING_BARRIER ? 1 : (size_t)emit->nranks;
    switch (emit->kind) {
    case WRING_ALLREDUCE:
        scatter_reduce(emit);
        gather(emit, WRING_BUFFER_ACCUMULATOR, WRING_STEP_SCALE | WRING_STEP_OWNER_RESIDUAL);
        return WRING_OK;
    case WRING_REDUCE_SCATTER:
        scatter_reduce(emit);
        wri_emit_local(emit, WRING_STEP_STORE, WRING_BUFFER_OUTPUT, 1, 0, emit->rank,
                       WRING_STEP_SCALE);
        return WRING_OK;
    case WRING_ALLGATHER:
        gather(emit, WRING_BUFFER_INPUT, 0);
        return WRING_OK;
    case WRING_BROADCAST:
        broadcast(emit);
        return WRING_OK;
    case WRING_BARRIER:
        barrier(emit);
        return WRING_OK;
    default:
        return WRING_E_UNSUPPORTED;
    }
}

static double cost_s(const struct wring_cost *cost)
{
    double others = cost->nranks - 1, n = cost->nranks;
    int shots = cost->kind == WRING_ALLREDUCE ? 2 : 1;
    double share = cost->kind == WRING_BROADCAST ? others : others / n;
    double wire = shots * (cost->latency_s + share * cost->encoded_nbytes * cost->s_per_byte);
    /* One core starts all messages of a shot one after the other. */
    double starts = shots * others * 0.1 * cost->latency_s;
    return wire + starts + cost->encode_s * (1 + 1 / n) + 2 * cost->decode_s;
}

const struct wring_collective_ops wri_collective_direct = {
    .size = sizeof(struct wring_collective_ops),
    .name = "direct",
    .when = "few ranks or small data; a lossy codec, which rounds twice here whatever the ranks",
    .kinds = 1u << WRING_ALLREDUCE | 1u << WRING_REDUCE_SCATTER | 1u << WRING_ALLGATHER |
             1u << WRING_BROADCAST | 1u << WRING_BARRIER,
    .cost_s = cost_s,
    .emit = emit,
};
