# SPDX-License-Identifier: Apache-2.0
"""Judges what the guests of rdma-check.sh left: rdma_report.py FOLDER MODE. Every run over RDMA must end
with the digest of TCP, must have gone over the transport and the device asked for, and through the
device's own counters; the rank that outlives a killed one must end with an error that names it."""
import json
import pathlib
import re
import sys

folder, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
LINKS = ["clean"] + ["lossy"] * (mode == "two")
CODECS = ["int8", "ef+topk:0.01"]
SURVIVOR_S = 60  # a guest is slow, and UCX's own detection over RDMA takes 7 times a second and more
PACKET_NBYTES = 4096
faults = 0


def fault(text):
    global faults
    faults += 1
    print(f"FAILED: {mode}: {text}")


def text_of(name):
    path = folder / name
    return path.read_text() if path.exists() else ""


def summary(name):
    lines = [line for line in text_of(f"{name}.0.json").splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def packets(name):
    return sum(int(path.read_text()) for path in folder.glob(f"{name}.packets.*"))


def path_of(name):
    """What rank 0 logged about its peer, "rc_verbs/rxe0:1 ud_verbs/rxe0:1"."""
    found = re.search(r"ucx: to \S+ over (.*)", text_of(f"{name}.0.log"))
    return found.group(1) if found else "?"


def judge(link, tls, codec):
    name = f"{mode}-{link}-{tls}-{codec}"
    run, reference = summary(name), summary(f"{mode}-clean-tcp-{codec}")
    if not run or not reference:
        return fault(f"{name} did not end well: {text_of(name + '.0.log')[-600:]}")
    sent, route = packets(name), path_of(name)
    print(f"{name:32} {run['digest']} {run['seconds']:7.1f} s {sent:7} RoCE packets  {route}")
    if run["digest"] != reference["digest"] or not run["replicas_equal"]:
        fault(f"{name}: digest {run['digest']}, over TCP {reference['digest']}")
    least = 2 * run["steps"] * run["wire_bytes_per_step"] / PACKET_NBYTES
    if tls == "tcp" and sent or tls != "tcp" and sent < least:
        fault(f"{name}: {sent} RoCE packets, of at least {least:.0f}")
    if tls != "tcp" and f"{tls}_verbs/rxe0:1" not in route:
        fault(f"{name}: went over {route}")


def judge_kill(tls):
    name = f"{mode}-kill-{tls}-none"
    ended, killed = text_of(f"{name}.ended").split(), text_of(f"{name}.killed")
    log = text_of(f"{name}.0.log").strip()
    if len(ended) != 2 or not killed:
        return fault(f"{name}: {log[-600:]}")
    status, seconds = int(ended[0]), float(ended[1]) - float(killed)
    last = log.splitlines()[-1] if log else ""
    print(f"{name:32} survivor ended after {seconds:.1f} s with status {status}: {last}")
    if status in (0, 124) or seconds > SURVIVOR_S or not re.search(r"rank 1\b", last):
        fault(f"{name}: the survivor did not end with an error that names rank 1")


for link in LINKS:
    for codec in CODECS:
        for tls in ["tcp", "rc", "ud"] if link == "clean" else ["rc", "ud"]:
            judge(link, tls, codec)
for tls in ("rc", "ud"):
    judge_kill(tls)
for path in sorted(folder.glob(f"{mode}-lossy.link.*")):
    print(f"guest {path.suffix[1:]}, link with loss: {path.read_text().strip()}")
    if not re.search(r"dropped [1-9]", path.read_text()):
        fault("the link lost nothing")
sys.exit(faults > 0)
