/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allgather: every rank sends its whole encoded input to every other, and all add up in rank order.
 *
 * A value is rounded once and nothing is owned, so any unit will do, the whole tensor included, and
 * the result depends on (inputs, group, codec) alone. The price is (n-1) times the encoded data per
 * rank: for very sparse codecs, few ranks, or tiny data.
 */
#include "collective/collective.h"

static wring_status emit(struct wring_emit *emit)
{
    int rank = emit->rank, n = emit->nranks;
    emit->nslots = (size_t)n;
    emit->nshards = 1;
    for (int i = 1; i < n; i++) {
        int q = wri_rank_add(rank, -i, n);
        wri_emit_transfer(emit, WRING_STEP_RECV, 0, q, 0, q, 0, 0);
    }
    wri_emit_local(emit, WRING_STEP_ENCODE, WRING_BUFFER_INPUT, 0, rank, 0,
                   WRING_STEP_LOCAL_RESIDUAL);
    for (int i = 1; i < n; i++)
        wri_emit_transfer(emit, WRING_STEP_SEND, 0, rank, 0, wri_rank_add(rank, i, n), 0, 0);
    for (int q = 0; q < n; q++)
        wri_emit_local(emit, q == 0 ? WRING_STEP_DECODE_SET : WRING_STEP_DECODE_ADD,
                       WRING_BUFFER_ACCUMULATOR, 1, q, 0, 0);
    wri_emit_local(emit, WRING_STEP_STORE, WRING_BUFFER_OUTPUT, 1, 0, 0, WRING_STEP_SCALE);
    return WRING_OK;
}

static double cost_s(const struct wring_cost *cost)
{
    double others = cost->nranks - 1;
    double wire = cost->latency_s + others * cost->encoded_nbytes * cost->s_per_byte;
    return wire + others * 0.1 * cost->latency_s + cost->encode_s + cost->nranks * cost->decode_s;
}

const struct wring_collective_ops wri_collective_allgather = {
    .size = sizeof(struct wring_collective_ops),
    .name = "allgather",
    .when = "very sparse codecs, tiny data, and codecs that select over the whole tensor",
    .kinds = 1u << WRING_ALLREDUCE,
    .whole_units = true,
    .cost_s = cost_s,
    .emit = emit,
};
