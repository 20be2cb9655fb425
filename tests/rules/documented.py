# SPDX-License-Identifier: Apache-2.0
"""Every public function has a comment: directly above it, or above the group (lines without a blank
one between) that it stands in."""
import re

from lib import tree

PATH = "include/wring/wring.h"
FUNCTION = re.compile(r"^WRING_API .*?(wring_\w+)\(")

checked, commented = 0, False
for number, line in enumerate(tree.lines(PATH), 1):
    if not line.strip():
        commented = False
    elif "*/" in line and not line.startswith("/* ----"):
        commented = True
    match = FUNCTION.match(line)
    if match:
        checked += 1
        if not commented:
            tree.offence(PATH, number, f"{match[1]} has no comment")
tree.finish(checked)
