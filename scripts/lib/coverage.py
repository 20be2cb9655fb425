# SPDX-License-Identifier: Apache-2.0
"""What gcov counted, as branches taken of all branches: coverage.py BUILD SOURCE [--missing]. One line
for each file of the groups below; status 1 if a group is below what it promises. A branch that no test
can take is marked in the source by a comment with `no test:` and the reason, on its line; such lines are
left out and counted."""
import collections
import fnmatch
import json
import pathlib
import subprocess
import sys

# group: promised percentage of branches, files
GROUPS = {
    "frame decoder": (100, ["src/collective/frame.c"]),
    "joining parser": (100, ["src/transport/auth.c", "src/transport/rendezvous*.c"]),
    "codecs": (90, ["src/codec/*.c"]),
    "protocol": (90, ["src/collective/exec.c", "src/collective/exec_data.c",
                      "src/collective/exec_message.c", "src/collective/gather.c",
                      "src/collective/control*.c", "src/collective/star.c",
                      "src/collective/note.c", "src/collective/monitor.c", "src/collective/link.c",
                      "src/collective/join.c", "src/transport/socket.c"]),
}


def counted(build, source):
    """{file: {(line, index of branch): times taken}}, added up over all objects."""
    branches = collections.defaultdict(lambda: collections.defaultdict(int))
    for notes in sorted(build.rglob("*.gcda")):
        run = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", str(notes)],
                             capture_output=True, text=True, cwd=build, check=True)
        for text in run.stdout.splitlines():
            for file in json.loads(text)["files"]:
                path = (build / file["file"]).resolve()
                if not path.is_relative_to(source / "src"):
                    continue
                into = branches[str(path.relative_to(source))]
                for line in file["lines"]:
                    for index, branch in enumerate(line["branches"]):
                        into[line["line_number"], index] += branch["count"]
    return branches


def main():
    build, source = (pathlib.Path(name).resolve() for name in sys.argv[1:3])
    branches, low = counted(build, source), 0
    for group, (promised, patterns) in GROUPS.items():
        files = [name for name in sorted(branches)
                 if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
        taken_of_group = all_of_group = 0
        for name in files:
            text = (source / name).read_text().splitlines()
            marked = {number for number, line in enumerate(text, 1) if "no test:" in line}
            kept = {key: n for key, n in branches[name].items() if key[0] not in marked}
            taken = sum(n > 0 for n in kept.values())
            taken_of_group, all_of_group = taken_of_group + taken, all_of_group + len(kept)
            missing = sorted({line for (line, _), n in kept.items() if n == 0})
            percent = 100 * taken / max(len(kept), 1)
            print(f"    {name:36} {taken:5} of {len(kept):5} {percent:6.1f} %"
                  + (f"  {len(marked)} lines marked" if marked else ""))
            if "--missing" in sys.argv and missing:
                print("        lines", *missing)
        percent = 100 * taken_of_group / max(all_of_group, 1)
        low += percent < promised
        print(f"{group:40} {taken_of_group:5} of {all_of_group:5} {percent:6.1f} %, promised {promised} %"
              + ("  TOO LOW" if percent < promised else ""))
    return low > 0


sys.exit(main())
