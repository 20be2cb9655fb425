#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wring-train --device cuda with several ranks, on the emulated device: 20 steps end with the same digest
# whether gradients travel by UCX, staged through pinned memory, or by (mock) NCCL in the order of a stream.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

needs_mock_nccl

# compare RANKS ARGUMENTS...
compare() {
    local ranks=$1
    shift
    for transport in ucx nccl; do
        WRING_TRANSPORT=$transport run $transport --device cuda --spawn "$ranks" --steps 20 --batch 48 "$@"
    done
    check 's["ucx"]["digest"] == s["nccl"]["digest"]' ucx nccl
    check 'all(r["replicas_equal"] and r["device"] == "cuda" for r in s.values())' ucx nccl
    check 's["ucx"]["wire_bytes_per_step"] == s["nccl"]["wire_bytes_per_step"] or "none" in s["ucx"]["codec"]' \
        ucx nccl
}
compare 2 --codec none --algorithm ring
compare 2 --codec ef+topk:0.01+int8
compare 3 --codec ef+int4
