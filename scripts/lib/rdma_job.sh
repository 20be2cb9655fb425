#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a guest of rdma-check.sh does. In mode `one` both ranks are here, in mode `two` rank $id - 1. What
# the runs say goes to /mnt/results, which all guests and the host share; rdma_report.py judges it.
set -u
out=/mnt/results steps=50 port=47000
codecs=(int8 ef+topk:0.01)
counter=/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
ranks=(0 1)
[ "$mode" = one ] || ranks=($((id - 1)))
export OPENBLAS_NUM_THREADS=1 OPENBLAS_CORETYPE=Nehalem WRING_LOG=info WRING_SIZE=2 WRING_JOIN_TIMEOUT=200000 WRING_SECRET=of-guests-that-nobody-reaches

# start TLS ARGUMENTS...: the ranks of this guest, in the background; pids and $name.RANK.log are theirs.
start() {
    local tls=$1 device=rxe0:1 rank
    shift
    [ "$tls" != tcp ] || device=eth0
    port=$((port + 1))
    pids=()
    for rank in "${ranks[@]}"; do
        UCX_TLS=$tls,self UCX_NET_DEVICES=$device WRING_RANK=$rank WRING_ROOT=10.78.0.1:$port \
            timeout 400 "$bin/wring-train" --data $out/data --model mlp --batch 4 --json "$@" \
            >"$out/$name.$rank.json" 2>"$out/$name.$rank.log" &
        pids+=($!)
    done
}

# train LINK TLS CODEC: a whole run.
train() {
    local name=$mode-$1-$2-$3 before pid
    before=$(cat $counter)
    echo "$name at $(cut -d' ' -f1 /proc/uptime) s"
    start "$2" --codec "$3" --steps $steps
    for pid in "${pids[@]}"; do wait "$pid" || echo "$name: status $?"; done
    echo $(($(cat $counter) - before)) >"$out/$name.packets.$id"
}

# kill_one TLS: rank 1 dies in the middle of training; rank 0's status and seconds until then are noted.
kill_one() {
    local name=$mode-kill-$1-none before rank
    before=$(cat $counter)
    echo "$name at $(cut -d' ' -f1 /proc/uptime) s"
    start "$1" --codec none --steps 100000
    for rank in "${ranks[@]}"; do
        [ "$rank" = 1 ] || continue
        while [ $(($(cat $counter) - before)) -lt 3000 ] && kill -0 "${pids[-1]}"; do sleep 0.2; done
        date +%s.%N >"$out/$name.killed"
        pkill -KILL -P "${pids[-1]}"
    done
    for rank in "${ranks[@]}"; do
        [ "$rank" = 0 ] || continue
        wait "${pids[0]}"
        echo $? "$(date +%s.%N)" >"$out/$name.ended"
    done
    wait
}

rdma link
for codec in "${codecs[@]}"; do
    for tls in tcp rc ud; do train clean $tls "$codec"; done
done
kill_one rc
kill_one ud
[ "$mode" = two ] || exit 0
tc qdisc add dev eth0 root netem loss 1% || exit 1
for codec in "${codecs[@]}"; do
    for tls in rc ud; do train lossy $tls "$codec"; done
done
tc -s qdisc show dev eth0 | grep -o 'Sent.*' >"$out/$mode-lossy.link.$id"
