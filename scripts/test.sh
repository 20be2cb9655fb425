#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that proves a change, on a fresh machine: packages, then for each preset configure, build
# and test. scripts/test.sh [--long]; --long adds the tests with label `long`.
# One line per phase with its seconds; what ctest says at the end of each phase comes last. Whole
# output in build/<preset>/test.log. Exit status 0 only if every phase passed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

long='|long'
case "${1-}" in
"") long="" ;;
--long) ;;
*)
    sed -n '3,6s/^# //p' "$0" >&2
    exit 2
    ;;
esac

# Which tests a preset runs: the sanitizers look at our own code in one process; what starts
# programs, and the rules over the tree, would tell nothing new there.
labels_of() {
    case $1 in
    release) echo "unit|conform|rules|fuzz|train|net|dropin$long" ;;
    dev) echo "unit|conform" ;;
    asan) echo "unit|conform|fuzz" ;;
    tsan) echo "unit|conform|threads" ;;
    emulated | emulated-asan) echo emu ;;
    esac
}

jobs=$(nproc)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
failed=0
closing=""

# phase NAME LOG COMMAND...: run it, print one line, keep the log; on failure show its end.
phase() {
    local name=$1 log=$2 begin=$SECONDS
    shift 2
    if "$@" >"$log" 2>&1; then
        printf '%-20s ok      %4d s\n' "$name" $((SECONDS - begin))
        return 0
    fi
    printf '%-20s FAILED  %4d s, whole output in %s\n' "$name" $((SECONDS - begin)) "$log"
    tail -n 60 "$log"
    failed=1
    return 1
}

test_preset() {
    local preset=$1 folder=build/$1
    mkdir -p "$folder"
    phase "$preset configure" "$folder/configure.log" cmake --preset "$preset" "${launcher[@]}" || return
    phase "$preset build" "$folder/build.log" cmake --build --preset "$preset" -j "$jobs" || return
    phase "$preset test" "$folder/test.log" ctest --preset "$preset" -j "$jobs" --no-tests=error \
        -L "^($(labels_of "$preset"))\$"
    closing+="$preset: $(grep -E 'tests passed|No tests were found' "$folder/test.log")"$'\n'
    closing+="$(sed -n '/did not run:$/,/^$/p; /tests FAILED:$/,/^$/p' "$folder/test.log")"$'\n'
}

# The kernels by nvcc, for every architecture: without warnings, and none may spill registers.
build_cuda() {
    local folder=build/cuda
    if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
        printf '%-20s skipped: no nvcc here\n' "cuda build"
        return
    fi
    mkdir -p "$folder"
    phase "cuda configure" "$folder/configure.log" cmake --preset cuda || return
    phase "cuda build" "$folder/build.log" cmake --build --preset cuda -j "$jobs" \
        --target wring_cuda trainer_cuda wring-bench-cuda || return
    phase "cuda kernels" "$folder/kernels.log" python3 scripts/lib/ptxas.py "$folder"
    closing+="cuda: $(tail -n 1 "$folder/kernels.log")"$'\n'
}

mkdir -p build
phase packages build/packages.log scripts/deps.sh || exit 1
for preset in release dev asan tsan emulated emulated-asan; do
    test_preset "$preset"
done
build_cuda
printf '\n%s' "$closing" | cat -s
printf '%s in %d s\n' "$([ $failed = 0 ] && echo 'all phases passed' || echo 'SOMETHING FAILED')" $SECONDS
exit $failed
