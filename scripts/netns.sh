#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Run COMMAND on N hosts that are network namespaces of this machine, joined by a bridge, each link
# shaped to RATE both ways. The output of all ranks is passed on as it is. Every process sees
# torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, ...) and WRING_SECRET, made up if it is not set.
# Exit status: the worst; 77 without root. Nothing outside the namespaces is touched, and they are gone
# afterwards.
set -u

usage="usage: netns.sh [-n N] [-r RATE] -- COMMAND [ARGUMENT...]
  -n N      hosts, 2 to 32 (2)
  -r RATE   of each link and direction, as tc writes it: 1gbit, 100mbit, none (1gbit)"

hosts=2 rate=1gbit
while getopts "n:r:h" option; do
    case $option in
        n) hosts=$OPTARG ;;
        r) rate=$OPTARG ;;
        h) echo "$usage"; exit 0 ;;
        *) echo "$usage" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -eq 0 ] || ! [[ $hosts =~ ^[0-9]+$ ]] || [ "$hosts" -lt 2 ] || [ "$hosts" -gt 32 ]; then
    echo "$usage" >&2
    exit 2
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "netns.sh: skipped: network namespaces need root" >&2
    exit 77
fi

prefix=wring$$
pids=()

# The namespaces are found by their prefix, which holds our process id.
clean_up() {
    trap '' INT TERM
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null
    done
    wait 2>/dev/null
    for name in $(ip netns list | awk -v p="$prefix-" 'index($1, p) == 1 { print $1 }'); do
        ip netns delete "$name"
    done
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A token bucket of one millisecond, so that short messages are shaped too.
shape() { # NAMESPACE DEVICE
    [ "$rate" = none ] && return 0
    local number=${rate%%[a-z]*} unit=1000000
    case $rate in *gbit) unit=1000000000 ;; *kbit) unit=1000 ;; esac
    local burst=$((number * unit / 8000))
    [ $burst -lt 16384 ] && burst=16384
    ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst $burst latency 50ms
}

build() {
    ip netns add $prefix-net || return 1
    ip -n $prefix-net link add bridge type bridge || return 1
    ip -n $prefix-net link set bridge up || return 1
    for ((i = 0; i < hosts; i++)); do
        local host=$prefix-$i
        ip netns add $host &&
            ip link add eth0 netns $host type veth peer name port$i netns $prefix-net &&
            ip -n $prefix-net link set port$i master bridge &&
            ip -n $prefix-net link set port$i up &&
            ip -n $host address add 10.77.0.$((i + 1))/24 dev eth0 &&
            ip -n $host link set lo up &&
            ip -n $host link set eth0 up &&
            shape $host eth0 && shape $prefix-net port$i || return 1
    done
}

if ! build; then
    echo "netns.sh: skipped: this machine does not let us build network namespaces" >&2
    exit 77
fi

WRING_SECRET=${WRING_SECRET-$(od -An -N16 -tx8 /dev/urandom | tr -d ' ')}
export WRING_SECRET

# Their own IPC namespaces keep the hosts from finding each other through shared memory.
for ((i = 0; i < hosts; i++)); do
    ip netns exec $prefix-$i unshare --ipc \
        env RANK=$i WORLD_SIZE=$hosts LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 \
        MASTER_PORT=29500 TORCHELASTIC_RUN_ID=$prefix "$@" &
    pids+=($!)
done
worst=0
for pid in "${pids[@]}"; do
    wait "$pid"
    status=$?
    [ $status -gt $worst ] && worst=$status
done
pids=()
exit $worst
