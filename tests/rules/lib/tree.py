# SPDX-License-Identifier: Apache-2.0
"""The source tree as the rules see it, and how they report. Each rule is a program: it prints one line
per offence and exits with 1 if there was any, 77 if this machine cannot check it."""
import os
import pathlib
import sys

ROOT = pathlib.Path(os.environ.get("WRING_SOURCE", pathlib.Path(__file__).parents[3])).resolve()
LIB = pathlib.Path(os.environ.get("WRING_LIB", ROOT / "build/release/lib"))
OUTSIDE = {"build", "install", ".git", "__pycache__"}

_offences = 0


def files(*suffixes, under="."):
    """Paths relative to ROOT of all files below UNDER whose name ends with one of SUFFIXES."""
    found = []
    for folder, folders, names in os.walk(ROOT / under):
        folders[:] = sorted(name for name in folders if name not in OUTSIDE)
        found += [pathlib.Path(folder, name).relative_to(ROOT)
                  for name in sorted(names) if name.endswith(suffixes)]
    return found


def lines(path):
    return (ROOT / path).read_text(encoding="utf-8").split("\n")


def excepted(rule, path):
    """True if rules/exceptions.txt lets PATH break RULE."""
    for line in lines("tests/rules/exceptions.txt"):
        words = line.split()
        if words[:2] == [rule, str(path)]:
            return True
    return False


def offence(path, line, text):
    global _offences
    _offences += 1
    print(f"{path}:{line}: {text}")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def finish(checked):
    """End the rule. CHECKED says how much was looked at; nothing at all is an offence too."""
    if not checked:
        offence(ROOT, 0, "nothing was checked")
    print(f"{checked} checked, {_offences} offences")
    sys.exit(1 if _offences else 0)
