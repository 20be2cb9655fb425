#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job on a fresh machine: installs packages, builds, then 4 processes train the cnn for one epoch
# with each of six codecs. Under three minutes on two cores after set-up.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib/training.sh
set_up

folder=build/demo
mkdir -p "$folder"
printf '\ncnn on Fashion-MNIST, 4 processes, one epoch\n\n'
printf '%-20s %10s %16s %8s %9s %9s\n' codec 'accuracy %' 'bytes/step/rank' ratio replicas seconds
for codec in none bf16 int8 ef+int4 ef+sign ef+topk:0.01+int8; do
    # shellcheck disable=SC2046 # options are words
    $train --model cnn --spawn 4 --epochs 1 --codec "$codec" $(options_of "$codec") --json \
        --log "$folder/$codec.jsonl" >"$folder/$codec.json"
    table '{codec:20} {test_accuracy:10.2%} {wire_bytes_per_step:16.0f} {ratio:8.2f} '` \
        `'{replicas_equal!s:>9} {seconds:9.1f}' "$folder/$codec.json" | sed 's/ True/equal/'
done
cat <<END

accuracy: of 10 000 test images, after one epoch; five bring about 91 %: $train --spawn 2
bytes/step/rank: all that one process hands to the network in one step, headers included
ratio: bytes of codec none / bytes of this codec; replicas: all parameters compared, bit for bit

Next:
  $train --help
  $train --spawn 2 --codec ef+int4                      five epochs, with a progress bar
  mpirun -np 2 $train --codec int8                      the same under a launcher
  scripts/accuracy.sh                                   five epochs, three seeds, every codec
  build/release/bin/wring-bench codec                   how fast the codecs are here
  build/release/bin/wring-info                          what is built in and found
END
