#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# InfiniBand's path for real, without its hardware: guests under QEMU with soft-RoCE (rdma_rxe) train over
# UCX's rc and ud transports to the digest of TCP, also over a link that loses packets, and a rank is killed.
# rdma-check.sh [one|two]...: two ranks in one guest, in two guests; default both. What was measured goes
# into $RDMA_RESULTS (build/rdma-check). Status 77 where there is no QEMU or no kernel to be had.
# PRESET names the build that runs (release); ACCEL is QEMU's (tcg: works everywhere, 30 to 100 times slower).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
source=$PWD
guest=$source/build/rdma-guest results=${RDMA_RESULTS:-$source/build/rdma-check}
bin=${WRING_BIN:-$source/build/${PRESET:-release}/bin}
limit_s=2400 # of one guest
PATH=$PATH:/usr/sbin:/sbin

[ $# -gt 0 ] || set -- one two
for mode in "$@"; do
    case $mode in
    one | two) ;;
    *)
        sed -n '3,7s/^# //p' "$0" >&2
        exit 2
        ;;
    esac
done

skip() {
    echo "skipped: $*"
    exit 77
}

# The kernel is unpacked, not installed. Its package's name holds the version: linux-image-6.1.0-49-amd64.
build_guest() {
    local package version tree=$guest/initrd module
    mkdir -p "$guest/deb" "$tree"/{bin,proc,sys,dev,root,run} || return
    package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
    version=${package#linux-image-}
    [ -n "$package" ] && (cd "$guest/deb" && apt-get download "$package" && dpkg -x ./*.deb .) || return
    depmod -b "$guest/deb" "$version" || return
    for module in virtio_pci virtio_net 9p 9pnet_virtio overlay dummy sch_netem ib_uverbs rdma_ucm \
        crc32_generic rdma_rxe; do # crc32_generic: rdma_rxe needs it and does not say so
        modprobe -d "$guest/deb" -S "$version" --show-depends "$module" || return
    done | awk '$1 == "insmod" { print $2 }' | sort -u >"$guest/modules" || return
    while read -r module; do
        install -D -m 644 "$module" "$tree/lib/${module#*/deb/lib/}" || return
    done <"$guest/modules"
    cp "$guest/deb/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} \
        "$tree/lib/modules/$version/" || return
    depmod -b "$tree" "$version" || return
    cp "$(command -v busybox)" "$tree/bin/" && install -m 755 scripts/lib/rdma_init "$tree/init" || return
    (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$guest/initrd.gz" || return
    mv "$guest"/deb/boot/vmlinuz-* "$guest/vmlinuz" && rm -rf "$guest/deb" "$tree"
}

# A few images: in an emulated machine, reading all of them takes longer than the training.
make_data() {
    python3 - /usr/share/datasets/fashion-mnist "$results/data" <<'END'
import gzip, pathlib, struct, sys
source, target = map(pathlib.Path, sys.argv[1:])
target.mkdir(parents=True, exist_ok=True)
for name, count in (("train", 3200), ("t10k", 200)):
    for kind, head, item in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
        data = gzip.open(source / f"{name}-{kind}-ubyte.gz").read(head + count * item)
        data = data[:4] + struct.pack(">i", count) + data[8:]
        (target / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(data, 1))
END
}

# boot MODE NUMBER GUESTS: start a guest in the background. Two of them share an Ethernet link.
boot() {
    local net=(-nic none) end=listen
    [ "$2" = 1 ] || end=connect
    [ "$3" = 1 ] || net=(-netdev "socket,id=link,$end=127.0.0.1:$port"
        -device "virtio-net-pci,netdev=link,mac=52:54:00:78:00:0$2")
    timeout -k 5 $limit_s qemu-system-x86_64 -accel "${ACCEL:-tcg,thread=multi}" -cpu max -smp 2 -m 1536 \
        -nodefaults -no-user-config -no-reboot -display none -serial stdio "${net[@]}" \
        -kernel "$guest/vmlinuz" -initrd "$guest/initrd.gz" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 rxe.mode=$1 rxe.id=$2 \
rxe.bin=$bin rxe.source=$source" \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
        -virtfs "local,path=$results,mount_tag=results,security_model=none" \
        </dev/null >"$results/console-$1.$2" 2>&1 &
}

run_guests() {
    local mode=$1 n=1 i
    [ "$mode" = one ] || n=2
    port=$((20000 + RANDOM % 10000))
    for ((i = 1; i <= n; i++)); do
        boot "$mode" $i $n
        sleep 1
    done
    wait
    for ((i = 1; i <= n; i++)); do
        tr -d '\r' <"$results/console-$mode.$i" | grep -qx "guest $i: status 0" && continue
        echo "FAILED: $mode: guest $i; the end of $results/console-$mode.$i:"
        tail -n 25 "$results/console-$mode.$i"
        return 1
    done
}

command -v apt-get >/dev/null || skip "no apt-get: Debian's kernel and QEMU are needed"
[ -x "$bin/wring-train" ] || skip "no wring-train in $bin"
scripts/deps.sh rdma || skip "packages cannot be installed"
rm -rf "$results"
mkdir -p "$results" || exit 1
if [ ! -s "$guest/vmlinuz" ] || [ ! -s "$guest/initrd.gz" ]; then
    rm -rf "$guest"
    (build_guest) >"$results/guest.log" 2>&1 || { tail -n 5 "$results/guest.log"; skip "no guest"; }
fi
make_data || skip "no data; apt install dataset-fashion-mnist"

failed=0
for mode in "$@"; do
    begin=$SECONDS
    run_guests "$mode" || failed=1
    python3 scripts/lib/rdma_report.py "$results" "$mode" || failed=1
    echo "$mode: $((SECONDS - begin)) s"
done
exit $failed
