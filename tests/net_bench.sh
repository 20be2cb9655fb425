#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# wring-bench and wring-info as their users call them: every row right, JSON with the names that
# bench/README.md gives, bytes on the wire as promised, bad options refused with a reason.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Not `| grep -q`: it ends at the first match, and the program then fails on a closed pipe.
"$WRING_BIN/wring-info" >"$work/info"
grep -q WRING_CODEC "$work/info"
"$WRING_BIN/wring-info" --json >"$work/info.json"
"$WRING_BIN/wring-bench" codec --json --count 1M -n 1 --dist gauss --dist mix \
    --codec none --codec int8 --codec sign --codec topk:0.01 >"$work/codec.json"
for op in sum avg; do
    for type in float half bfloat16; do
        "$WRING_BIN/wring-bench" allreduce --json --spawn 2 -n 1 -w 0 -b 3000 -e 200K -f 8 -d $type \
            -o $op --codec none --codec int8 --codec topk:0.01 >>"$work/allreduce.json"
    done
done
"$WRING_BIN/wring-bench" allreduce --spawn 3 -n 1 -b 4K -e 4K -d int64 -o max --codec none \
    --algorithm ring >"$work/table"
grep -q "Out of bounds values : 0 OK" "$work/table"

python3 - "$work" <<'END'
import json, sys
rows = {name: [json.loads(line) for line in open(f"{sys.argv[1]}/{name}.json")]
        for name in ("codec", "allreduce")}
info = json.load(open(sys.argv[1] + "/info.json"))
assert all(info[key] for key in ("version", "cpu", "transports", "codecs", "algorithms", "settings"))

assert len(rows["codec"]) == 8
ratios = {"none": 1, "int8": 3.87, "sign": 31, "topk": 60}
for row in rows["codec"]:
    for key in ("encode_gbps", "decode_gbps", "decode_add_gbps", "read_gbps", "memcpy_gbps"):
        assert row[key] > 0, row
    assert row["count"] == 1 << 20 and row["isa"] and row["dist"] in ("gauss", "mix"), row
    assert row["ratio"] >= ratios[row["codec"].split(":")[0]], row
    assert (row["nmse"] == 0) == (row["codec"] == "none"), row

assert len(rows["allreduce"]) == 6 * 3 * 3
for row in rows["allreduce"]:
    assert row["ranks"] == 2 and row["wrong"] == 0 and row["in_place_wrong"] == 0, row
    for key in ("time_us", "algbw", "busbw", "baseline_us", "bf16_us", "wire_bytes"):
        assert row[key] > 0, row
    assert (row["rel_l2"] == 0) == (row["codec"] == "none"), row
    if row["codec"] == "none":
        assert row["size"] <= row["wire_bytes"] <= row["size"] + 1024, row
END

refused() {
    local reason=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "not refused: $*"
        exit 1
    fi
    grep -q -e "$reason" "$work/out" || { cat "$work/out"; exit 1; }
}
refused "int9" "$WRING_BIN/wring-bench" codec --codec int9
refused "--dist" "$WRING_BIN/wring-bench" codec --dist flat
refused "not a size" "$WRING_BIN/wring-bench" allreduce --spawn 2 -b 4X
refused "WRING_RANK" env -u WRING_RANK "$WRING_BIN/wring-bench" allreduce
refused "COMMAND" "$WRING_BIN/wring-bench" dance
