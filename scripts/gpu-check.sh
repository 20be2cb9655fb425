#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that only a GPU can tell, in under eight minutes: scripts/gpu-check.sh [--emulated] [FILE.json]
# Builds with nvcc, compares every kernel with the CPU bit for bit (small sizes under compute-sanitizer),
# measures kernels against what the device copies, reads and launches, runs NCCL and the trainer. One line
# per part; the whole outcome goes to FILE.json (build/gpu-check.json). Needs one GPU and the toolkit.
# --emulated: the script itself tried on the emulated device, without what other tests do there.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

preset=cuda
sizes=(-b 262144 -b 16777216 -b 1073741824)
if [ "${1-}" = --emulated ]; then
    preset=emulated
    sizes=(-b 16384 -n 1)
    shift
fi
case "${1-}" in -*) sed -n '3,7s/^# //p' "$0" >&2; exit 2 ;; esac
result=${1-build/gpu-check.json}
folder=build/$preset
mkdir -p build
export WRING_BIN=$PWD/$folder/bin WRING_LIB=$PWD/$folder/lib WRING_SOURCE=$PWD WRING_MODULES=$PWD/$folder/lib
rows=build/gpu-check.rows
parts=build/gpu-check.parts
: >"$rows"
: >"$parts"
failed=0

# part NAME SECONDS COMMAND...: run it for at most so long; one line, and one object for the result.
part() {
    local name=$1 limit=$2 begin=$SECONDS log="build/gpu-check-${1// /-}.log" outcome=ok
    shift 2
    timeout "$limit" "$@" >"$log" 2>&1
    local status=$?
    case $status in
    0) ;;
    77) outcome=skipped ;;
    124) outcome="not done in $limit s" ;;
    *) outcome="FAILED with $status" ;;
    esac
    [ $status = 0 ] || [ $status = 77 ] || failed=1
    printf '%-28s %-18s %4d s  %s\n' "$name" "$outcome" $((SECONDS - begin)) \
        "$([ "$outcome" = ok ] || tail -n 1 "$log" | cut -c1-100)"
    python3 - "$name" "$outcome" $((SECONDS - begin)) "$log" >>"$parts" <<'END'
import json, sys
name, outcome, seconds, log = sys.argv[1:]
tail = "".join(open(log, errors="replace").readlines()[-5:])
print(json.dumps({"part": name, "outcome": outcome, "seconds": int(seconds), "tail": tail}))
END
}

build() {
    local options=()
    [ $preset = cuda ] && options=(-DCMAKE_CUDA_ARCHITECTURES=native)
    cmake --preset $preset "${options[@]}" && cmake --build --preset $preset -j "$(nproc)"
}

sanitizer() { # TOOL
    command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here"; return 77; }
    WRING_TEST_SMALL=1 compute-sanitizer --tool "$1" --error-exitcode 1 "$WRING_BIN/conform_device"
}

bench() {
    "$WRING_BIN/wring-bench-cuda" "${sizes[@]}" >"$rows"
}

# train TRANSPORT RANKS ARGUMENTS...: the digest of a short run. NCCL takes each process for a host of its
# own, or it would refuse two on one GPU.
train() {
    local transport=$1 ranks=$2 port=$((20000 + RANDOM % 20000))
    shift 2
    for ((rank = ranks - 1; rank >= 0; rank--)); do
        local out=/dev/null
        [ "$rank" != 0 ] || out=build/gpu-check.train
        WRING_TRANSPORT=$transport WRING_RANK=$rank WRING_SIZE=$ranks WRING_ROOT=127.0.0.1:$port \
            NCCL_HOSTID=$rank "$WRING_BIN/wring-train" --device cuda --json "$@" >$out &
    done
    wait -n || return 1
    wait || return 1
    python3 -c 'import json, sys; print(json.loads(sys.stdin.read().splitlines()[-1])["digest"])' \
        <build/gpu-check.train
}

nccl() { # RANKS
    export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
    [ $preset = emulated ] && export WRING_NCCL=$WRING_LIB/libmocknccl.so
    local staged ordered
    staged=$(train ucx "$1" --model mlp --steps 20 --batch 64 --codec ef+int4) || return 1
    ordered=$(train nccl "$1" --model mlp --steps 20 --batch 64 --codec ef+int4) ||
        { echo "NCCL refused"; return 77; }
    echo "$staged over ucx, $ordered over nccl"
    [ "$staged" = "$ordered" ]
}

trainer() { # MODEL STEPS
    for device in cpu cuda; do
        "$WRING_BIN/wring-train" --model "$1" --steps "$2" --batch 64 --device $device --json | tail -n 1
    done | python3 -c 'import json, sys
a, b = (json.loads(line)["train_loss"] for line in sys.stdin)
print(a, b)
sys.exit(abs(a - b) > 1e-3 * a)'
}
export -f build sanitizer bench train nccl trainer
export preset rows
export sizes_text="${sizes[*]}"

part build 480 bash -c build
if [ $preset = cuda ]; then
    part "kernels against the CPU" 240 "$WRING_BIN/conform_device"
    part "collectives" 120 "$WRING_BIN/test_device"
    part "memcheck" 120 bash -c 'sanitizer memcheck'
    part "racecheck" 120 bash -c 'sanitizer racecheck'
    part "initcheck" 120 bash -c 'sanitizer initcheck'
fi
part "speed of kernels" 120 bash -c 'sizes=($sizes_text); bench'
part "nccl, one rank" 60 bash -c 'nccl 1'
part "nccl, two on one GPU" 60 bash -c 'nccl 2'
part "trainer mlp" 60 bash -c 'trainer mlp 20'
[ $preset = emulated ] || part "trainer cnn" 90 bash -c 'trainer cnn 20'

python3 - "$rows" "$parts" "$result" <<'END'
import json, sys
rows, parts = ([json.loads(line) for line in open(path)] for path in sys.argv[1:3])
json.dump({"parts": parts, "kernels": rows}, open(sys.argv[3], "w"), indent=1)
if rows:
    print(f"\n{rows[0]['isa']}: fraction of the copy's bytes per second")
    print(f"{'codec':20} {'count':>10} {'encode':>7} {'decode':>7} {'add':>7} {'us':>9} {'launch us':>9}")
for r in rows:
    print(f"{r['codec']:20} {r['count']:10} {r['encode_fraction']:7.2f} {r['decode_fraction']:7.2f} "
          f"{r['decode_add_fraction']:7.2f} {r['encode_us']:9.1f} {r['launch_us']:9.1f}")
print(f"all of it in {sys.argv[3]}")
END
exit $failed
