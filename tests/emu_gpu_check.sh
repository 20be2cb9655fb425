#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/gpu-check.sh itself, so that it works on the day that there is a GPU.
cd "$WRING_SOURCE" || exit 1
[ -e "$WRING_LIB/libmocknccl.so" ] && [ "$WRING_LIB" = "$PWD/build/emulated/lib" ] || {
    echo "skipped: not the preset \"emulated\""
    exit 77
}
out=$(mktemp)
scripts/gpu-check.sh --emulated "$out" || exit 1
python3 - "$out" <<'END'
import json, sys
found = json.load(open(sys.argv[1]))
assert len(found["kernels"]) == 11 and all(r["encode_gbps"] > 0 for r in found["kernels"]), found
assert all(p["outcome"] == "ok" for p in found["parts"]) and len(found["parts"]) == 5, found["parts"]
END
