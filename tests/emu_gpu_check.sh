#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/gpu-check.sh on the emulated device: its parts pass, the file holds what they measured, a
# part that fails neither stops the others nor goes unnoticed, only a refusal of NCCL is skipped.
set -u
cd "$WRING_SOURCE" || exit 1
if [ "$WRING_BIN" != "$PWD/build/emulated/bin" ]; then
    echo 'skipped: not the preset "emulated"'
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

scripts/gpu-check.sh --emulated "$work/all.json" || fail "gpu-check ended with status $?"
python3 - "$work/all.json" <<'END' || fail "the file of results is not complete"
import json, sys
found = json.load(open(sys.argv[1]))
rows = found["codec"]
assert len({row["codec"] for row in rows}) == 11 and len({row["count"] for row in rows}) == 2, rows
for row in rows:
    for name in ("encode", "decode", "decode_add"):
        assert row[f"{name}_gbps"] > 0 and row[f"copy_fraction_{name}"] > 0, row
    assert row["memcpy_gbps"] > 0 and row["read_gbps"] > 0 and row["launch_us"] > 0, row
    assert row["nmse"] < (1e-3 if row["ratio"] < 5 else 1), row
assert len(found["ranks"]) == 8 and len(found["training"]) == 1, found
assert all(part["status"] == "passed" for part in found["parts"]), found["parts"]
END

# line PATTERN PARTS: gpu-check of PARTS says so.
line() {
    scripts/gpu-check.sh --emulated --parts "$2" "$work/some.json" >"$work/out"
    local status=$?
    grep -q "$1" "$work/out" || fail "no '$1' in: $(cat "$work/out")"
    return $status
}
line "^bench *passed" "nonsense bench" && fail "a part that fails is not noticed"
grep -q "^nonsense *FAILED .*no part 'nonsense'" "$work/out" || fail "the part: $(cat "$work/out")"
EMU_DRIVER=missing line "^conform *FAILED" conform && fail "no device is no failure"
WRING_NCCL=/nowhere line "^nccl-one *skipped .*install NCCL" nccl-one || fail "no NCCL is a failure"
MOCKNCCL_FAIL=ncclCommInitRankConfig:1:5 line "^nccl-two *FAILED" nccl-two &&
    fail "not every failure of NCCL is a refusal"
exit 0
