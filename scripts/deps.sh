#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Install what building and testing need, and nothing that is there already: deps.sh [bench|rdma]
# `bench` adds what only the comparisons with other libraries and the plots need, `rdma` rdma-check.sh.
# Debian 12 and Ubuntu 24.04, by apt, through sudo when not root; elsewhere prints the list and stops.
set -euo pipefail

packages="build-essential clang cmake ninja-build pkg-config python3 iproute2
    libucx-dev libopenmpi-dev openmpi-bin libcmocka-dev libbenchmark-dev libopenblas-dev
    libjansson-dev libxxhash-dev libsodium-dev zlib1g-dev dataset-fashion-mnist bible-kjv
    clang-format"
case "${1-}" in
"") ;;
bench) packages="$packages python3-torch python3-matplotlib" ;;
rdma) packages="$packages qemu-system-x86 busybox-static cpio kmod ibverbs-providers" ;;
*)
    sed -n '3,5s/^# //p' "$0" >&2
    exit 2
    ;;
esac

installed() {
    dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^.i'
}

if ! command -v apt-get >/dev/null; then
    echo "deps.sh: no apt-get here. Install the equivalents of:" $packages >&2
    exit 1
fi
missing=""
for package in $packages; do
    installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "deps.sh: installing$missing"
as_root=""
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    command -v sudo >/dev/null || { echo "deps.sh: not root, and no sudo: apt-get install$missing" >&2; exit 1; }
fi
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
