# SPDX-License-Identifier: Apache-2.0
# A GPU, or what the build emulates of one, trains as the host does: the loss of each step is the same but
# for the order of float32 sums. The same run gives the same bits, in whatever order threads run.
. "$WRING_SOURCE/tests/lib/train.sh" || exit 1

if [ ! -e "$WRING_LIB/libwring-train-cuda.so" ]; then
    echo "skipped: built without CUDA"
    exit 77
fi
if [ ! -e "$WRING_LIB/libemucuda.so" ] && ! nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped: no GPU"
    exit 77
fi

# compare STEPS ARGUMENTS...: the host against the device, and the device against itself.
compare() {
    local steps=$1
    shift
    run cpu --steps "$steps" "$@"
    run cuda --steps "$steps" --device cuda "$@"
    EMU_SEED=7 run again --steps "$steps" --device cuda "$@"
    check 's["cpu"]["device"] == "cpu" and s["cuda"]["device"] == "cuda"' cpu cuda
    check 'len(loss["cuda"]) == '"$steps" cuda
    check 'max(abs(a - b) / a for a, b in zip(loss["cpu"], loss["cuda"])) <= 1e-4' cpu cuda
    check 'abs(s["cpu"]["test_accuracy"] - s["cuda"]["test_accuracy"]) < 2e-3' cpu cuda
    check 's["cuda"]["digest"] == s["again"]["digest"] and loss["cuda"] == loss["again"]' cuda again
}
compare 20
compare 20 --optimizer adam --accumulate 2
compare 20 --spawn 2 --accumulate 2
compare 5 --model cnn

if [ -e "$WRING_LIB/libemucuda.so" ]; then
    EMU_DRIVER=missing "$train" --device cuda --steps 1 2>"$work/errors" && fail "trained without a driver"
    grep -q "no NVIDIA driver" "$work/errors" || fail "without a driver: $(cat "$work/errors")"
    EMU_MEMORY=50000000 "$train" --device cuda --steps 1 2>"$work/errors" && fail "trained without memory"
    grep -q "out of memory" "$work/errors" || fail "without memory: $(cat "$work/errors")"
fi
WRING_MODULES=$work "$train" --device cuda --steps 1 2>"$work/errors" && fail "trained without the module"
grep -q "libwring-train-cuda.so" "$work/errors" || fail "without the module: $(cat "$work/errors")"
