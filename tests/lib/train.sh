# SPDX-License-Identifier: Apache-2.0
# What the tests of wring-train share. WRING_BIN is the folder of the programs.
set -u
train=$WRING_BIN/wring-train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -x "$train" ]; then
    echo "skipped: wring-train was not built"
    exit 77
fi
if [ ! -e /usr/share/datasets/fashion-mnist ]; then
    echo "skipped: no data; apt install dataset-fashion-mnist"
    exit 77
fi

fail() {
    echo "FAILED: $*"
    exit 1
}

# For --device cuda and WRING_TRANSPORT=nccl without a GPU.
needs_mock_nccl() {
    if [ ! -e "$WRING_LIB/libmocknccl.so" ]; then
        echo "skipped: the emulated device belongs to builds with WRING_CUDA=EMULATED"
        exit 77
    fi
    export WRING_NCCL=$WRING_LIB/libmocknccl.so
}

# run NAME ARGUMENTS...: a short run of the mlp that must succeed; its summary goes to $work/NAME.json,
# its log to $work/NAME.jsonl.
run() {
    local name=$1
    shift
    "$train" --model mlp --json --log "$work/$name.jsonl" "$@" >"$work/$name.json" ||
        fail "wring-train $* ended with status $?"
}

# check EXPRESSION NAMES...: a Python expression over the summaries s["NAME"] and the losses of each step
# loss["NAME"] of the runs so named.
check() {
    python3 - "$work" "$@" <<'END' || fail "$1"
import json, sys
work, expression, names = sys.argv[1], sys.argv[2], sys.argv[3:]
s, loss = {}, {}
for name in names:
    s[name] = json.loads(open(f"{work}/{name}.json").read().splitlines()[-1])
    log = [json.loads(line) for line in open(f"{work}/{name}.jsonl")]
    loss[name] = [line["loss"] for line in log if "loss" in line]
if not eval(expression):
    print(s)
    sys.exit(1)
END
}
