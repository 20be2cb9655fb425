# SPDX-License-Identifier: Apache-2.0
"""What gpu-check.sh does with results: compares two runs of wring-train, and makes one JSON file
and a short table of all that the parts left in their folder.

    gpu_report.py same-digest A.json B.json
    gpu_report.py same-loss A.jsonl B.jsonl
    gpu_report.py report FOLDER FILE"""
import collections
import datetime
import json
import pathlib
import subprocess
import sys

# Host and device add float32 in different orders; what that does to a loss grows from step to step,
# so only the first steps are held to each other.
LOSS_STEPS, LOSS_TOLERANCE = 20, 1e-3


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def objects(path):
    path = pathlib.Path(path)
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{")]


def same_digest(*paths):
    first, second = (objects(path)[-1] for path in paths)
    print(first["digest"], second["digest"])
    if first["digest"] != second["digest"]:
        fail(f"parameters differ: {paths[0]} and {paths[1]}")
    if not (first["replicas_equal"] and second["replicas_equal"]):
        fail("ranks differ")


def losses(path):
    return [line["loss"] for line in objects(path) if "loss" in line][:LOSS_STEPS]


def loss_difference(first, second):
    pairs = list(zip(losses(first), losses(second)))
    return max((abs(a - b) / abs(a) for a, b in pairs), default=None)


def same_loss(first, second):
    difference = loss_difference(first, second)
    print(f"losses of {len(losses(second))} steps differ by {difference} at most")
    if difference is None or not difference <= LOSS_TOLERANCE:
        fail(f"losses differ by {difference}, more than {LOSS_TOLERANCE}")


# ---- report -------------------------------------------------------------------------------------


def output_of(*command):
    try:
        run = subprocess.run(command, text=True, capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() if run.returncode == 0 else None


def training(folder):
    rows = []
    for model in ("mlp", "cnn"):
        runs = {device: objects(folder / f"{model}-{device}.json") for device in ("cpu", "cuda")}
        if all(runs.values()):
            logs = [folder / f"{model}-{device}.jsonl" for device in ("cpu", "cuda")]
            rows.append({"model": model, "loss_difference": loss_difference(*logs),
                         **{device: run[-1] for device, run in runs.items()}})
    return rows


def collect(folder):
    parts = []
    for line in (folder / "parts").read_text().splitlines():
        name, status, seconds, reason = line.split("\t", 3)
        parts.append({"part": name, "status": status.lower(), "seconds": int(seconds),
                      "reason": reason})
    ranks = [{"run": path.stem, **objects(path)[-1]} for path in sorted(folder.glob("ranks-*.0"))
             if objects(path)]
    query = "--query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem"
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": output_of("git", "rev-parse", "--short", "HEAD"),
            "gpu": output_of("nvidia-smi", query, "--format=csv,noheader"),
            "toolkit": (output_of("nvcc", "--version") or "").splitlines()[-1:],
            "parts": parts, "codec": objects(folder / "codec.jsonl"), "ranks": ranks,
            "training": training(folder)}


def size_name(nbytes):
    for shift, suffix in ((30, "G"), (20, "M"), (10, "K")):
        if nbytes % (1 << shift) == 0 and nbytes:
            return f"{nbytes >> shift}{suffix}"
    return str(nbytes)


def print_codecs(rows):
    """Of each codec and size, bytes moved per second over those that the device's copy moves."""
    sizes = sorted({row["count"] for row in rows})
    found = {(row["codec"], row["count"]): row for row in rows}
    print(f"\n{'fraction of the copy':20}" + "".join(f" | {size_name(4 * n):^20}" for n in sizes))
    print(f"{rows[0]['isa'][:20]:20}" + " | encode decode de+add" * len(sizes))
    for codec in dict.fromkeys(row["codec"] for row in rows):
        print(f"{codec:20}", end="")
        for n in sizes:
            row = found.get((codec, n))
            cells = [f"{row[f'copy_fraction_{key}']:6.3f}" if row else f"{'-':>6}"
                     for key in ("encode", "decode", "decode_add")]
            print(" |", *cells, end="")
        print()
    for name, key, scale, best in (("copy, GB/s moved", "memcpy_gbps", 2, max),
                                   ("read, GB/s", "read_gbps", 1, max),
                                   ("launch, us", "launch_us", 1, min)):
        values = [best(scale * row[key] for row in rows if row["count"] == n) for n in sizes]
        print(f"{name:20}" + "".join(f" | {value:20.4g}" for value in values))


def report(folder, file):
    found = collect(pathlib.Path(folder))
    pathlib.Path(file).write_text(json.dumps(found, indent=1) + "\n")
    if found["codec"]:
        print_codecs(found["codec"])
    for row in found["training"]:
        seconds = [row[device]["seconds"] for device in ("cpu", "cuda")]
        print(f"{row['model']}: losses differ by {row['loss_difference']:.1e}, "
              "{:.2f} s on the CPU, {:.2f} s on the device".format(*seconds))
    count = collections.Counter(part["status"] for part in found["parts"])
    seconds = sum(part["seconds"] for part in found["parts"])
    print(f"\n{count['passed']} parts passed, {count['skipped']} skipped, {count['failed']} failed "
          f"in {seconds} s; all in {file}")


if __name__ == "__main__":
    actions = {"same-digest": same_digest, "same-loss": same_loss, "report": report}
    actions[sys.argv[1]](*sys.argv[2:])
