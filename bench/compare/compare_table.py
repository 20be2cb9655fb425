# SPDX-License-Identifier: Apache-2.0
"""Markdown table from the JSON lines of several programs, medians over the rounds. Usage:
compare_table.py GBITS FOLDER. FOLDER holds PROGRAM.ROUND.json; GBITS is the link's speed, 0 if it has
none worth naming."""
import collections
import json
import pathlib
import statistics
import sys

RANKS = 2
TCP_SHARE = 1448 / 1514  # payload in a full Ethernet frame: TCP, IP and Ethernet headers take the rest
COLUMNS = ["Gloo", "Open MPI", "wring none", "wring bf16", "wring int8"]


def readings(folder):
    """(column, size) -> times in microseconds."""
    times = collections.defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        program = path.name.split(".")[0]
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if program == "wring":
                times["wring " + row["codec"], row["size"]].append(row["time_us"])
            else:
                times[{"gloo": "Gloo", "mpi": "Open MPI"}[program], row["size"]].append(row["time_us"])
    return times


def size_text(nbytes):
    for unit, power in ("MiB", 20), ("KiB", 10):
        if nbytes >= 1 << power:
            return f"{nbytes / (1 << power):g} {unit}"
    return f"{nbytes} B"


def number(microseconds):
    return "–" if microseconds is None else f"{microseconds:.3g}" if microseconds < 100 else f"{microseconds:.0f}"


def row(times, size, gbits):
    median = {c: statistics.median(times[c, size]) if times[c, size] else None for c in COLUMNS}
    cells = [size_text(size)] + [number(median[c]) for c in COLUMNS]
    none, int8 = median["wring none"], median["wring int8"]
    cells.append(f"{none / int8:.2f}" if none and int8 else "–")
    if gbits:
        bound = 2 * (RANKS - 1) / RANKS * size * 8 / (gbits * 1e3 * TCP_SHARE)
        cells += [number(bound), f"{bound / none:.2f}" if none else "–"]
    return cells


gbits, folder = float(sys.argv[1]), pathlib.Path(sys.argv[2])
times = readings(folder)
head = ["size"] + [c + " (µs)" for c in COLUMNS] + ["none / int8"]
if gbits:
    head += ["bound (µs)", "bound / none"]
print("| " + " | ".join(head) + " |")
print("|" + "---:|" * len(head))
for size in sorted({size for _, size in times}):
    print("| " + " | ".join(row(times, size, gbits)) + " |")
