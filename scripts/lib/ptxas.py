# SPDX-License-Identifier: Apache-2.0
"""What the CUDA compiler says about each kernel: registers, shared memory, spills.

    ptxas.py FOLDER [ARCHITECTURE]

Reads the log that the build in FOLDER keeps beside each object (cmake/keep_log.sh), prints one row for
each kernel of ARCHITECTURE (default sm_90), and ends with status 1 if a kernel of any architecture
spills, or if there is no kernel."""
import collections
import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def said(folder):
    for path in sorted(pathlib.Path(folder).rglob("*.cu.o")):
        yield from path.with_name(path.name + ".log").read_text(errors="replace").splitlines()


def read(folder):
    kernels, name = collections.defaultdict(dict), None
    for line in said(folder):
        if match := ENTRY.search(line):
            name = match.groups()
        elif name and (match := SPILL.search(line)):
            kernels[name].update(stack=int(match[1]), spill=int(match[2]) + int(match[3]))
        elif name and (match := USED.search(line)):
            shared = SHARED.search(line)
            kernels[name].update(registers=int(match[1]), shared=int(shared[1]) if shared else 0)
            name = None
    return kernels


def plain(names):
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return [re.sub(r"\(.*", "", name).replace("void ", "") for name in done.stdout.splitlines()]


def main():
    kernels = read(sys.argv[1])
    wanted = sys.argv[2] if len(sys.argv) > 2 else "sm_90"
    rows = sorted((key for key in kernels if key[1] == wanted), key=lambda key: key[0])
    print(f"{'kernel, ' + wanted:60} registers  shared  stack  spills")
    for key, name in zip(rows, plain([key[0] for key in rows])):
        k = kernels[key]
        print(f"{name:60} {k['registers']:9} {k['shared']:7} {k['stack']:6} {k['spill']:7}")
    spilling = [key for key, k in kernels.items() if k.get("spill")]
    architectures = sorted({key[1] for key in kernels})
    print(f"{len(kernels)} kernels for {', '.join(architectures)}; {len(spilling)} spill")
    for name, architecture in spilling:
        print(f"spills: {architecture} {plain([name])[0]}")
    sys.exit(bool(spilling) or not rows)


main()
