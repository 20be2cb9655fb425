#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that only a GPU can tell, on a machine with one NVIDIA GPU and the CUDA toolkit:
# builds, compares every kernel with the CPU bit for bit, times each against the device's own copy,
# sends gradients through NCCL, trains, and looks for bad accesses. Under eight minutes;
# docs/performance-gpu.md says what each part does.
#
#   scripts/gpu-check.sh [--emulated] [--parts "NAME ..."] [FILE]
#
# --emulated  on the host's emulation of a GPU, at tiny sizes: proves this script, measures nothing
# --parts     only these, by the names in the first column
# FILE        all results as JSON (build/gpu-check.json); what parts print goes to FILE's .parts/
#
# A part that fails does not keep the others from running. Status 0 only if none failed: what this
# machine lacks (compute-sanitizer, NCCL, its consent to share a GPU) is skipped, and says why.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

preset=cuda folder=build/cuda-native file=build/gpu-check.json
parts="build conform device bench nccl-one nccl-two mlp cnn memcheck racecheck initcheck"
while [ $# -gt 0 ]; do
    case $1 in
    --emulated)
        preset=emulated folder=build/emulated
        parts="build conform bench nccl-one nccl-two mlp"
        ;;
    --parts)
        parts=${2-}
        shift
        ;;
    -*)
        sed -n '8,12s/^# //p' "$0" >&2
        exit 2
        ;;
    *) file=$1 ;;
    esac
    shift
done
results=${file%.json}.parts
rm -rf "$results"
mkdir -p "$results"
results=$(realpath "$results")
export GPU_PRESET=$preset GPU_BUILD=$PWD/$folder GPU_RESULTS=$results
export WRING_BIN=$GPU_BUILD/bin WRING_LIB=$GPU_BUILD/lib WRING_MODULES=$GPU_BUILD/lib

deadline=470 # seconds for all parts together
limit_of() {
    local limit=90 left=$((deadline - SECONDS))
    case $1 in
    build) limit=240 ;;
    conform | bench) limit=120 ;;
    esac
    echo $((limit < left ? limit : left))
}

# run PART: one line for people, one for the report; status 1 if it failed.
run() {
    local part=$1 begin=$SECONDS code=124 word reason="" limit log=$results/$1.log
    limit=$(limit_of "$part")
    : >"$log"
    if [ "$limit" -gt 0 ]; then
        timeout --kill-after=5 "$limit" scripts/lib/gpu_part.sh "$part" >"$log" 2>&1
        code=$?
    fi
    word=FAILED
    case $code in
    0) word=passed ;;
    77) word=skipped reason=$(sed -n 's/^skipped: //p' "$log" | tail -n 1) ;;
    124 | 137) reason="not done within $limit s, $SECONDS of $deadline s in all" ;;
    *) reason=$(sed -n 's/^FAILED: //p' "$log" | tail -n 1) ;;
    esac
    printf '%-10s %-8s %4d s  %s\n' "$part" $word $((SECONDS - begin)) "$reason"
    printf '%s\t%s\t%s\t%s\n' "$part" $word $((SECONDS - begin)) "$reason" >>"$results/parts"
    [ $word != FAILED ] || { tail -n 20 "$log" | sed 's/^/    /'; return 1; }
}

status=0
for part in $parts; do
    run "$part" || status=1
done
python3 scripts/lib/gpu_report.py report "$results" "$file" || status=1
exit $status
