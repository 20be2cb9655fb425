# SPDX-License-Identifier: Apache-2.0
# The transformer learns text, from one rank or several alike, and from any file.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

if ! command -v bible >/dev/null; then
    echo "skipped: no text; apt install bible-kjv"
    exit 77
fi

# train_gpt.sh long: 300 steps of one per cent of the gradient end within 3 % of all of it.
if [ "${1-}" = long ]; then
    run none --model gpt --spawn 2 --steps 300 --codec none
    run coded --model gpt --spawn 2 --steps 300 --codec ef+topk:0.01+int8
    check 's["none"]["test_loss"] < 2.6 and s["coded"]["test_loss"] < 1.03 * s["none"]["test_loss"]' none coded
    exit 0
fi

run one --model gpt --steps 20
check '"test_accuracy" not in s["one"] and s["one"]["model"] == "gpt"' one
check '2 < s["one"]["test_loss"] < 3.6 and loss["one"][0] > 5' one
run two --model gpt --steps 20 --spawn 2 --accumulate 2 --codec none
check 's["two"]["replicas_equal"] is True' two
check 'max(abs(a - b) / a for a, b in zip(loss["one"], loss["two"])) <= 1e-3' one two
run coded --model gpt --steps 20 --spawn 2 --codec ef+topk:0.01+int8
check 's["coded"]["replicas_equal"] is True and s["coded"]["ratio"] > 40' coded
check 's["coded"]["test_loss"] < 4.5' coded

# A file of 10 000 bytes: 140 windows to learn from, 15 for the test.
yes "the same line again, and again " | head -c 10000 >"$work/text"
run file --model gpt --data "$work/text" --steps 60
check 's["file"]["test_loss"] < 0.5 * loss["file"][0]' file

if [ -e "$WRING_LIB/libemucuda.so" ]; then
    "$train" --model gpt --device cuda --steps 1 2>"$work/err" && fail "trained gpt on a device"
    grep -q "embed" "$work/err" || fail "gpt on a device: $(cat "$work/err")"
fi
