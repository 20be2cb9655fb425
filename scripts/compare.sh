#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All-reduce of float32 between two ranks through Gloo (Debian's python3-torch), Open MPI and wring, the
# same sizes, in turn, ROUNDS times; prints a Markdown table of medians. A program that is not installed
# is left out with a message.
#
#   scripts/compare.sh local [ROUNDS]   both ranks on this host
#   scripts/compare.sh link [ROUNDS]    in two network namespaces with 1 Gbit/s between them (root)
set -euo pipefail
cd "$(dirname "$0")/.."

place=${1:-local}
rounds=${2:-3}
bin=$(realpath "${WRING_BIN:-build/release/bin}")
sizes="4096 16384 65536 262144 1048576 4194304 16777216 67108864"
iterations=5
work=$(mktemp -d)
space=cmp$$ # prefix of the namespaces and links
leave() {
    if [ "$place" = link ]; then
        ip netns del "${space}0" 2>/dev/null || true
        ip netns del "${space}1" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap leave EXIT

die() {
    echo "compare.sh: $*" >&2
    exit 1
}

# ---- where the two ranks live ----------------------------------------------------------------------
# Both ends of a link of 1 Gbit/s each way; the token bucket is what a switch port would enforce.
make_link() {
    [ "$(id -u)" = 0 ] || die "link: needs root, for network namespaces"
    ip netns add "${space}0"
    ip netns add "${space}1"
    ip link add "${space}v0" netns "${space}0" type veth peer name "${space}v1" netns "${space}1"
    for r in 0 1; do
        ip -n "$space$r" addr add "10.77.0.$((r + 1))/24" dev "${space}v$r"
        ip -n "$space$r" link set "${space}v$r" up
        ip -n "$space$r" link set lo up
        ip netns exec "$space$r" tc qdisc add dev "${space}v$r" root tbf rate 1gbit burst 256k latency 50ms
    done
}

case $place in
local) root=127.0.0.1 gbits=0 tls="" ;;
link) root=10.77.0.1 gbits=1 tls=tcp,self && make_link ;; # shared memory would go around the link
*) die "usage: compare.sh local|link [ROUNDS]" ;;
esac

# at RANK COMMAND...: run where that rank lives.
at() {
    local rank=$1
    shift
    if [ "$place" = link ]; then
        ip netns exec "$space$rank" "$@"
    else
        "$@"
    fi
}

# ---- the programs: each prints one JSON object a size ------------------------------------------------
# pair COMMAND...: both ranks with the variables of torchrun and wring set; the output of rank 0.
pair() {
    local port=$((20000 + RANDOM % 10000))
    local common="WORLD_SIZE=2 MASTER_ADDR=$root MASTER_PORT=$port WRING_SIZE=2 WRING_ROOT=$root:$port"
    at 1 env $common RANK=1 WRING_RANK=1 ${tls:+UCX_TLS=$tls GLOO_SOCKET_IFNAME=${space}v1} "$@" >/dev/null &
    at 0 env $common RANK=0 WRING_RANK=0 ${tls:+UCX_TLS=$tls GLOO_SOCKET_IFNAME=${space}v0} "$@"
    wait $!
}

run_wring() {
    pair "$bin/wring-bench" allreduce --json -b 4K -e 64M -f 4 -n $iterations \
        --codec none --codec bf16 --codec int8
}

run_gloo() {
    pair /usr/bin/python3 bench/compare/compare_gloo.py $iterations $sizes
}

# Between namespaces mpirun starts its second daemon there through this in place of ssh; each side has a
# host name of its own, because Open MPI takes equal names for one host.
write_agent() {
    cat >"$work/agent" <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
shift
exec ip netns exec ${space}1 unshare --uts bash -c "hostname node1; \$*"
END
    chmod +x "$work/agent"
}

run_mpi() {
    local run=(mpirun --allow-run-as-root -np 2)
    if [ "$place" = link ]; then
        write_agent
        run+=(--host 10.77.0.1:1,10.77.0.2:1 --mca plm_rsh_agent "$work/agent" --mca pml ob1
            --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24)
        at 0 unshare --uts bash -c "hostname node0; ${run[*]} $work/compare_mpi $iterations $sizes"
    else
        "${run[@]}" "$work/compare_mpi" $iterations $sizes
    fi
}

# ---- which of them are here --------------------------------------------------------------------------
programs=wring
[ -x "$bin/wring-bench" ] || die "no $bin/wring-bench: build first (cmake --build --preset release)"
if command -v mpicc >/dev/null; then
    mpicc -O2 bench/compare/compare_mpi.c -o "$work/compare_mpi"
    programs+=" mpi"
else
    echo "left out: Open MPI (apt install libopenmpi-dev)" >&2
fi
if /usr/bin/python3 -c "import torch.distributed" 2>/dev/null; then
    programs+=" gloo"
else
    echo "left out: Gloo (apt install python3-torch)" >&2
fi

for round in $(seq "$rounds"); do
    for program in $programs; do
        echo "round $round of $rounds: $program" >&2
        "run_$program" >"$work/$program.$round.json"
    done
done
python3 bench/compare/compare_table.py $gbits "$work"
