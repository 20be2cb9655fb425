# SPDX-License-Identifier: Apache-2.0
# One of four ranks is killed in the middle of training, the first or another: the others go on without it, stay
# equal, and end as well as four do.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

steps=400
for codec in none ef+topk:0.01+int8; do
    run whole --spawn 4 --steps $steps --codec $codec
    for victim in 0 2; do
        rm -f "$work/shrunk.jsonl"
        "$train" --model mlp --spawn 4 --steps $steps --codec $codec --on-failure shrink --json \
            --log "$work/shrunk.jsonl" >"$work/shrunk.json" 2>"$work/err" &
        launcher=$!
        while kill -0 $launcher 2>/dev/null && [ "$(cat "$work/shrunk.jsonl" 2>/dev/null | wc -l)" -lt 50 ]; do
            sleep 0.01
        done
        # shellcheck disable=SC2046 # a list of processes
        set -- $(pgrep -P $launcher)
        shift $victim
        kill -9 "$1" || fail "the run was over before a rank could be killed"
        wait $launcher || fail "the others ended with status $?: $(cat "$work/err")"
        grep -q 'lost 1 of 4 ranks' "$work/err" || fail "not told of the loss: $(cat "$work/err")"
        check 's["shrunk"]["ranks"] == 3 and s["shrunk"]["replicas_equal"] is True' shrunk
        check 'len(loss["shrunk"]) == '$steps' and None not in loss["shrunk"]' shrunk
        case $codec in
        none) check 's["shrunk"]["test_accuracy"] > s["whole"]["test_accuracy"] - 0.01' shrunk whole ;;
        ef*) # 400 steps are the steep part of its curve: between two such runs lie 4 points of noise
            check 's["shrunk"]["train_loss"] < 1.5 * s["whole"]["train_loss"]' shrunk whole
            grep -q 'residuals: .* handed over' "$work/err" || fail "residuals: $(cat "$work/err")" ;;
        esac
    done
done

# Without the option, the loss of a rank ends the run.
"$train" --model mlp --spawn 3 --epochs 50 >"$work/out" 2>"$work/err" &
launcher=$!
sleep 1
# shellcheck disable=SC2046
set -- $(pgrep -P $launcher)
kill -9 "$2"
wait $launcher && fail "a run that lost a rank ended with status 0"
grep -q 'rank 1' "$work/err" || fail "does not name the rank: $(cat "$work/err")"
