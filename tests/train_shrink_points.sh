# SPDX-License-Identifier: Apache-2.0
# A rank dies between two steps, at a chosen call: while the window's losses are summed, the test set is
# evaluated, a checkpoint is gathered, or all meet after that. What the others had ended is ended by all of them,
# or by none: every step is in the log once, and the run goes on.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1
shim=$WRING_LIB/libfault_lose.so
if [ ! -e "$shim" ]; then
    echo "skipped: a sanitizer does not go with a preloaded library"
    exit 77
fi

# train_losing "RANK CALL N MS" ARGUMENTS...: that rank dies there.
train_losing() {
    rm -f "$work/lost.jsonl"
    LOSE=$1 LD_PRELOAD=$shim timeout 60 "$train" --model mlp --batch 32 --json --on-failure shrink \
        --log "$work/lost.jsonl" "${@:2}" >"$work/lost.json" 2>"$work/err"
}

# lose STEPS RANK CALL N MS
lose() {
    local steps=$1
    shift
    rm -rf "$work/cp"
    train_losing "$*" --spawn 4 --steps "$steps" --codec ef+int4 --checkpoint "$work/cp" --checkpoint-every 26 \
        --eval-every 40 ||
        fail "lost $*: status $?: $(cat "$work/err")"
    grep -q 'lost 1 of 4 ranks' "$work/err" || fail "nobody died at $*"
    check 's["lost"]["ranks"] == 3 and s["lost"]["replicas_equal"] is True' lost
    python3 - "$work/lost.jsonl" "$steps" <<'END' || fail "the log after $*"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line["step"] for line in lines if "loss" in line]
assert steps == list(range(1, int(sys.argv[2]) + 1)), steps
assert int(sys.argv[2]) in {line["step"] for line in lines if "test_loss" in line}
END
}

for call in 26 27 28 29 42 43 44 54; do # the step before a checkpoint, and what comes after it
    lose 60 $((call % 4)) barrier $call 0
done
for call in 1 2 3 4 5; do
    lose 60 $((call % 4)) allreduce $call $((call * 7))
done
for call in 2 3 4 5 6; do # the first is that of --resume
    lose 30 2 broadcast $call 100
done
steps=120 # a whole window, without a checkpoint or a test in it
for call in 51 52; do
    train_losing "2 barrier $call 0" --spawn 3 --steps $steps ||
        fail "barrier $call: status $?: $(cat "$work/err")"
    check 's["lost"]["ranks"] == 2 and len(loss["lost"]) == '$steps lost
done
# Before all have begun, the loss of one ends the run on all.
for call in "broadcast 1 100" "barrier 1 0"; do
    train_losing "2 $call" --spawn 4 --steps 20 --checkpoint "$work/new" && fail "went on after $call"
    grep -q 'lost rank 2' "$work/err" || fail "$call: $(cat "$work/err")"
done
