#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One of three ranks that train on the emulated device is killed, the first or another: the others take the step
# again without it and stay equal, whether gradients travel by UCX or by (mock) NCCL beside a communicator over UCX.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

needs_mock_nccl

# lose TRANSPORT VICTIM: the summary goes to $work/shrunk.json.
lose() {
    WRING_LOG=debug WRING_TRANSPORT=$1 "$train" --model mlp --device cuda --spawn 3 --steps 20 --batch 48 \
        --codec ef+topk:0.01+int8 --on-failure shrink --json --log "$work/shrunk.jsonl" \
        >"$work/shrunk.json" 2>"$work/err" &
    local launcher=$!
    while kill -0 $launcher 2>/dev/null && ! grep -qs 'scheduler: .* buckets' "$work/err"; do
        sleep 0.01
    done
    sleep 0.7 # some steps
    # shellcheck disable=SC2046 # a list of processes
    set -- "$2" $(pgrep -P $launcher)
    shift $(($1 + 1))
    kill -9 "$1" || fail "the run was over before a rank could be killed"
    wait $launcher || fail "the others ended with status $?: $(cat "$work/err")"
    grep -q 'lost 1 of 3 ranks' "$work/err" || fail "not told of the loss: $(cat "$work/err")"
    grep -q 'residuals: .* handed over' "$work/err" || fail "residuals: $(cat "$work/err")"
    check 's["shrunk"]["ranks"] == 2 and s["shrunk"]["replicas_equal"] is True' shrunk
    check 'len(loss["shrunk"]) == 20 and None not in loss["shrunk"]' shrunk
}

for transport in ucx nccl; do
    for victim in 0 1; do
        lose $transport $victim
    done
done
