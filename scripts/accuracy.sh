#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does accuracy hold? Trains the cnn for 5 epochs from 3 seeds with 2 processes and each codec, and writes
# the table of docs/accuracy.md. About two minutes a run on two cores. Can be stopped and started again:
# a finished run is a file in build/accuracy/; remove that folder to begin anew.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib/training.sh
set_up

codecs="none bf16 int8 ef+int4 ef+topk:0.01+int8 ef+sign"
folder=build/accuracy
mkdir -p "$folder"
for seed in 1 2 3; do
    for codec in $codecs; do
        result=$folder/$codec-$seed.json
        if [ ! -e "$result" ]; then
            echo "$codec, seed $seed"
            # shellcheck disable=SC2046 # options are words
            $train --model cnn --spawn 2 --epochs 5 --seed $seed --codec "$codec" \
                $(options_of "$codec") --json --log "$folder/$codec-$seed.jsonl" >"$result.part"
            mv "$result.part" "$result"
        fi
    done
done

machine=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)
python3 - docs/accuracy.md "$folder" "$(nproc) cores of $machine, $(git log -1 --format=%h), $(date +%F)" \
    $codecs <<'END'
import json, pathlib, re, statistics, sys
page, folder, where, *codecs = sys.argv[1:]


def runs(codec):
    files = sorted(pathlib.Path(folder).glob("*.json"))
    return [json.loads(f.read_text()) for f in files if f.name.rsplit("-", 1)[0] == codec]


def mean(codec):
    return 100 * statistics.mean(run["test_accuracy"] for run in runs(codec))


rows = [f"Measured on {where}.", "",
        "| codec | test accuracy %, mean | standard deviation | difference to none | train loss "
        "| bytes per step and rank | ratio | replicas |", "|---|---|---|---|---|---|---|---|"]
for codec in codecs:
    group = runs(codec)
    spread = 100 * statistics.stdev(run["test_accuracy"] for run in group)
    loss = statistics.mean(run["train_loss"] for run in group)
    equal = "equal" if all(run["replicas_equal"] for run in group) else "DIFFER"
    rows.append(f"| {codec} | {mean(codec):.2f} | {spread:.2f} | {mean(codec) - mean('none'):+.2f} "
                f"| {loss:.4f} | {group[0]['wire_bytes_per_step']:.0f} | {group[0]['ratio']:.2f} "
                f"| {equal} |")
text = pathlib.Path(page).read_text()
begin, end = "<!-- table: scripts/accuracy.sh -->", "<!-- end -->"
text = re.sub(f"{begin}.*?{end}", lambda _: "\n".join([begin, *rows, end]), text, flags=re.S)
pathlib.Path(page).write_text(text)
print("\n".join(rows))
END
