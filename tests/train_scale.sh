# SPDX-License-Identifier: Apache-2.0
# Gradients of 16 bits train as those of 32 do. Where one rank's gradient is infinite, all ranks skip the
# step and halve the scale of the loss; after good steps it doubles.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

run full --spawn 2 --steps 30
for dtype in bfloat16 float16; do
    run narrow --spawn 2 --steps 30 --grad-dtype $dtype --loss-scale 256
    check 's["narrow"]["replicas_equal"] is True' narrow
    check '0 < max(abs(a - b) / a for a, b in zip(loss["full"], loss["narrow"])) < 0.02' full narrow
    check '2 * s["narrow"]["wire_bytes_per_step"] < 1.02 * s["full"]["wire_bytes_per_step"]' full narrow
done

# 65536 times a gradient of the first step is more than float16 holds: it is skipped.
run narrow --spawn 2 --steps 30 --grad-dtype float16
check 's["narrow"]["steps_skipped"] == 1 and s["narrow"]["loss_scale"] == 32768' narrow
check 's["full"]["loss_scale"] == 1 and s["full"]["steps_skipped"] == 0' full

# A power of two changes no bit, as long as gradients stay in range.
run scaled --spawn 2 --steps 30 --loss-scale 1024
check 's["scaled"]["digest"] == s["full"]["digest"]' scaled full
run scaled --spawn 2 --steps 30 --loss-scale dynamic --scale-window 10
check 's["scaled"]["digest"] == s["full"]["digest"] and s["scaled"]["loss_scale"] == 8 * 65536' scaled full

# scale EXPRESSION: about the scale of each step of run `poisoned`.
scale() {
    python3 -c "
import json, sys
lines = [json.loads(line) for line in open('$work/poisoned.jsonl')]
scale = [line['loss_scale'] for line in lines if 'loss' in line]
sys.exit(not ($1))" || fail "$1"
}
for codec in none int8 ef+topk:0.01+int8; do
    for ranks in 2 3; do
        run poisoned --spawn $ranks --steps 12 --loss-scale dynamic --codec $codec --poison 4 --scale-window 6
        check 's["poisoned"]["steps_skipped"] == 1 and s["poisoned"]["replicas_equal"] is True' poisoned
        scale 'scale == 4 * [65536] + 6 * [32768] + 2 * [65536]'
    done
done
