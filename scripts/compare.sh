#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All-reduce of float32 between two ranks through Gloo (Debian's python3-torch), Open MPI and wring,
# the same sizes, in turn, ROUNDS times; prints a Markdown table of medians. What is not installed is
# left out with a message. The readings stay in build/compare.
#
#   scripts/compare.sh local [ROUNDS]   both ranks on this host
#   scripts/compare.sh link [ROUNDS]    two network namespaces, 1 Gbit/s between them (needs root)
set -euo pipefail
cd "$(dirname "$0")/.."

place=${1:-local}
rounds=${2:-3}
bin=$(realpath "${WRING_BIN:-build/release/bin}")
readings=$PWD/build/compare/$place
sizes="4096 16384 65536 262144 1048576 4194304 16777216 67108864"
iterations=5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

die() {
    echo "compare.sh: $*" >&2
    exit 1
}

# both COMMAND...: run it as rank 0 and rank 1, with torchrun's variables; only rank 0 prints.
case $place in
local)
    gbits=0
    both() {
        local port=$((20000 + RANDOM % 10000))
        local launch="WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port"
        env $launch RANK=1 LOCAL_RANK=1 "$@" &
        env $launch RANK=0 LOCAL_RANK=0 "$@"
        wait $!
    }
    run_mpi() {
        mpirun --allow-run-as-root -np 2 "$scratch/compare_mpi" $iterations $sizes
    }
    ;;
link)
    gbits=1
    both() { # shared memory would go around the link
        scripts/netns.sh -r 1gbit -- env UCX_TLS=tcp,self UCX_LOG_FILE=stderr GLOO_SOCKET_IFNAME=eth0 "$@"
    }
    run_mpi() {
        rm -f "$scratch/over"
        both bench/compare/compare_mpi.sh "$scratch" "$scratch/compare_mpi" $iterations $sizes
    }
    ;;
*) die "usage: compare.sh local|link [ROUNDS]" ;;
esac

run_wring() {
    both "$bin/wring-bench" allreduce --json -b 4K -e 64M -f 4 -n $iterations \
        --codec none --codec bf16 --codec int8
}

run_gloo() {
    both /usr/bin/python3 bench/compare/compare_gloo.py $iterations $sizes
}

programs=wring
[ -x "$bin/wring-bench" ] || die "no $bin/wring-bench: build first (cmake --build --preset release)"
if command -v mpicc >/dev/null; then
    mpicc -O2 bench/compare/compare_mpi.c -o "$scratch/compare_mpi"
    programs+=" mpi"
else
    echo "left out: Open MPI (apt install libopenmpi-dev)" >&2
fi
if /usr/bin/python3 -c "import torch.distributed" 2>/dev/null; then
    programs+=" gloo"
else
    echo "left out: Gloo (apt install python3-torch)" >&2
fi

rm -rf "$readings"
mkdir -p "$readings"
for round in $(seq "$rounds"); do
    for program in $programs; do
        echo "round $round of $rounds: $program" >&2
        "run_$program" >"$readings/$program.$round.json"
    done
done
python3 bench/compare/compare_table.py $gbits "$readings"
