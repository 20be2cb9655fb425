# SPDX-License-Identifier: Apache-2.0
"""Stop wring-train with SIGKILL at random moments and resume it, until it has come to its end; the end must
be bit for bit that of a run which nobody stopped, the log of its steps included. Every other try changes
the number of ranks: then replicas must be equal, and what became of residuals must be told.

    resume.py PROGRAM FOLDER TRIES SEED"""
import json
import pathlib
import random
import subprocess
import sys
import time

program, folder, tries, seed = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
STEPS = 400
KINDS = ["--codec ef+topk:0.01+int8",
         "--codec ef+int4 --grad-dtype float16 --scale-window 30 --clip 1 --optimizer rmsprop",
         "--codec int8:round=stochastic --optimizer adam --accumulate 2", "--codec none --batch 50 --seed 3"]


def command(kind, ranks, log, *more):
    return [program, "--model", "mlp", "--steps", str(STEPS), "--spawn", str(ranks), "--json", "--log",
            str(log), *kind.split(), *more]


def steps(log):
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if "loss" in line]


def whole(kind, ranks):
    log = folder / "whole.jsonl"
    out = subprocess.run(command(kind, ranks, log), check=True, capture_output=True, text=True)
    return json.loads(out.stdout), steps(log)


def interrupted(kind, ranks, other, log):
    """The summary, how often it was stopped, and all that it told; OTHER ranks from the first stop on."""
    stops, told, saved = 0, "", folder / "saved"
    while True:
        more = ["--checkpoint", str(saved), "--checkpoint-every", str(random.randint(1, 40)), "--resume"]
        process = subprocess.Popen(command(kind, other if stops else ranks, log, *more),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + random.uniform(0.2, 2) if stops < 3 else float("inf")
        while stops == 0 and not (saved / "checkpoint").exists() and process.poll() is None:
            deadline = time.monotonic() + random.uniform(0, 0.3)
            time.sleep(0.002)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.kill()
        out, err = process.communicate()
        told += err
        if process.returncode == 0:
            return json.loads(out), stops, told
        if process.returncode != -9:
            sys.exit(f"ended with {process.returncode}: {err}")
        stops += 1


random.seed(seed)
stopped = 0
for number in range(tries):
    kind, ranks = KINDS[number % len(KINDS)], random.choice([2, 3])
    other = ranks if (number + number // len(KINDS)) % 2 == 0 else random.choice([n for n in (1, 2, 3, 4) if n != ranks])
    log = folder / f"{number}.jsonl"
    summary, stops, told = interrupted(kind, ranks, other, log)
    what = f"try {number} (seed {seed}): {kind}, {ranks} ranks, then {other}, stopped {stops} times"
    stopped += stops
    if not summary["replicas_equal"] or [line["step"] for line in steps(log)] != list(range(1, STEPS + 1)):
        sys.exit(f"FAILED {what}: {summary}")
    if ranks == other:
        want, want_steps = whole(kind, ranks)
        if summary["digest"] != want["digest"] or steps(log) != want_steps:
            sys.exit(f"FAILED {what}: {summary['digest']} instead of {want['digest']}")
    elif stops and (f"was 'ranks {ranks}'" not in told or "ef" in kind and "residuals:" not in told):
        sys.exit(f"FAILED {what}: not told what became of residuals: {told}")
    for left in (folder / "saved").glob("*"):
        left.unlink()
    print(what)
if stopped < tries / 2:
    sys.exit(f"stopped only {stopped} times in {tries} tries: the test proves nothing")
