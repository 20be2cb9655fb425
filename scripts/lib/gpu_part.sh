#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One part of gpu-check.sh, as a program so that a time limit can stop it: gpu_part.sh NAME. What it
# measured goes into $GPU_RESULTS. Status 77, and a line "skipped: why", where the machine lacks it.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$WRING_BIN
export UCX_MEM_EVENTS=n UCX_HANDLE_ERRORS=none # as tests/CMakeLists.txt, for static programs

skip() {
    echo "skipped: $*"
    exit 77
}
fail() {
    echo "FAILED: $*"
    exit 1
}
emulated() {
    [ "$GPU_PRESET" = emulated ]
}

# One architecture does not belong into build/cuda, where test.sh looks at all of them.
build() {
    local options=()
    emulated || options=(-B "$GPU_BUILD" -DCMAKE_CUDA_ARCHITECTURES=native)
    emulated || nvidia-smi -L || fail "nvidia-smi sees no GPU"
    cmake --preset "$GPU_PRESET" "${options[@]}" || fail "cmake: status $?"
    cmake --build "$GPU_BUILD" -j "$(nproc)" || fail "build: status $?"
}

# compare PROGRAM: a test against the host. That it skips, because there is no device, is a failure.
compare() {
    ! emulated || export WRING_TEST_SMALL=1
    "$bin/$1" || fail "$1: status $?"
}

sanitize() {
    command -v compute-sanitizer >/dev/null || skip "there is no compute-sanitizer"
    local log=$GPU_RESULTS/$1.txt code=0
    WRING_TEST_SMALL=1 compute-sanitizer --tool "$1" --error-exitcode 9 "$bin/conform_device" \
        >"$log" 2>&1 || code=$?
    tail -n 40 "$log"
    [ $code = 0 ] || fail "$1: $(grep -m 1 -E '^=+ (Error|Invalid|Uninit|Race)' "$log" ||
        echo "status $code")"
}

bench() {
    local options=()
    ! emulated || options=(-b 16K -e 64K -f 4 -n 1 -w 0)
    "$bin/wring-bench-cuda" --json "${options[@]}" >"$GPU_RESULTS/codec.jsonl" ||
        fail "wring-bench-cuda: status $?"
}

# ---- training -----------------------------------------------------------------------------------

# ranks N TRANSPORT CODEC ARGUMENTS...: N ranks, each of them a host to NCCL, so that they may share
# a GPU. What rank R prints goes to $GPU_RESULTS/ranks-N-TRANSPORT-CODEC.R.
ranks() {
    local n=$1 transport=$2 codec=$3 out=$GPU_RESULTS/ranks-$1-$2-$3 rank pids=() code=0
    local port=$((20000 + RANDOM % 10000))
    shift 3
    for ((rank = 0; rank < n; rank++)); do
        WRING_TRANSPORT=$transport WRING_RANK=$rank WRING_SIZE=$n WRING_ROOT=127.0.0.1:$port \
            NCCL_HOSTID=wring-$rank NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_DEBUG=WARN \
            "$bin/wring-train" --device cuda --model mlp --batch 48 --json --codec "$codec" "$@" \
            >"$out.$rank" 2>&1 &
        pids+=($!)
    done
    for ((rank = 0; rank < n; rank++)); do
        wait -n || { code=$?; break; }
    done
    [ $code = 0 ] || { kill "${pids[@]}" 2>/dev/null; wait; }
    cat "$out".*
    return $code
}

# compare_ranks N CODEC ARGUMENTS...: the same parameters over NCCL as over UCX. Only these words
# are a refusal: NCCL is not there, is too old, or will not have several ranks on one GPU.
compare_ranks() {
    local steps=20 why refusal='install NCCL|at least .* is needed|Duplicate GPU'
    ! emulated || steps=4 WRING_NCCL=${WRING_NCCL-$WRING_LIB/libmocknccl.so}
    export WRING_NCCL
    if ! ranks "$1" nccl "${@:2}" --steps $steps; then
        why=$(cat "$GPU_RESULTS/ranks-$1-nccl-$2".* | grep -m 1 -E "$refusal") ||
            fail "$1 ranks, codec $2, over nccl"
        skip "$why"
    fi
    ranks "$1" ucx "${@:2}" --steps $steps || fail "$1 ranks, codec $2, over ucx"
    python3 scripts/lib/gpu_report.py same-digest "$GPU_RESULTS/ranks-$1-"{nccl,ucx}"-$2.0"
}

nccl() {
    compare_ranks "$1" none --algorithm ring
    compare_ranks "$1" ef+topk:0.01+int8
}

train() {
    local model=$1 steps=100 device
    ! emulated || steps=10
    for device in cpu cuda; do
        "$bin/wring-train" --model "$model" --device $device --steps $steps --json \
            --log "$GPU_RESULTS/$model-$device.jsonl" >"$GPU_RESULTS/$model-$device.json" ||
            fail "$model on $device: status $?"
    done
    python3 scripts/lib/gpu_report.py same-loss "$GPU_RESULTS/$model-"{cpu,cuda}.jsonl
}

case ${1-} in
build | bench) "$1" ;;
conform) compare conform_device ;;
device) compare test_device ;;
memcheck | racecheck | initcheck) sanitize "$1" ;;
nccl-one) nccl 1 ;;
nccl-two) nccl 2 ;;
mlp | cnn) train "$1" ;;
*) fail "gpu-check has no part '${1-}'" ;;
esac
