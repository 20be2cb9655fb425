# SPDX-License-Identifier: Apache-2.0
"""What every source file has: a licence line, a comment that says what the file decides, no line over
100 columns, no notes to self; and the layout of clang-format, where the version that decides it is
installed."""
import re
import shutil
import subprocess

from lib import tree

LICENCE = "SPDX-License-Identifier: Apache-2.0"
FORMATTER = "clang-format"
FORMAT_VERSION = "14."  # versions differ in detail; this one, of Debian 12, decides
NOTE = re.compile(r"\b(TO" r"DO|FIX" r"ME)\b")
BY_HAND = "include/wring/"  # laid out to be read as a text


def check_text(path):
    text = tree.lines(path)
    if not any(LICENCE in line for line in text[:3]):
        tree.offence(path, 1, "no licence line")
    if path.suffix in {".c", ".h", ".inc"} and not any(
            line.startswith("/*") and "SPDX" not in line for line in text[:4]):
        tree.offence(path, 2, "no comment that says what the file decides")
    for number, line in enumerate(text, 1):
        if len(line) > 100 and path.suffix in {".c", ".h", ".inc"}:
            tree.offence(path, number, f"{len(line)} columns")
        if line != line.rstrip() or "\t" in line:
            tree.offence(path, number, "tab or trailing space")
        if NOTE.search(line):
            tree.offence(path, number, "a note to self")


def formatter():
    if not shutil.which(FORMATTER):
        return False
    version = subprocess.run([FORMATTER, "--version"], text=True, capture_output=True).stdout
    return f"version {FORMAT_VERSION}" in version


def check_format(paths):
    run = subprocess.run([FORMATTER, "--dry-run", "--style=file", *map(str, paths)], cwd=tree.ROOT,
                         text=True, capture_output=True)
    for path, line in dict.fromkeys(re.findall(r"^(\S+?):(\d+):\d+: warning", run.stderr, re.M)):
        tree.offence(path, line, "layout: run clang-format -i")


code = tree.files(".c", ".h")
checked = code + tree.files(".inc", ".def", ".py", ".sh", ".cmake", "CMakeLists.txt")
for path in checked:
    check_text(path)
if formatter():
    check_format([path for path in code if not str(path).startswith(BY_HAND)])
else:
    print(f"layout not checked: no {FORMATTER} {FORMAT_VERSION}")
tree.finish(len(checked))
