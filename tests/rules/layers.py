# SPDX-License-Identifier: Apache-2.0
"""Includes point down: api > scheduler > planner > collective > codec | transport > simd > base.
Codec and transport never include each other and meet in src/collective/exec*.c only. What is
outside src/ sees the public headers only, apart from tests and benchmarks of kernels."""
import re

from lib import tree

RANK = {"base": 0, "simd": 1, "codec": 2, "transport": 2, "collective": 3, "planner": 4,
        "scheduler": 5, "api": 6}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path):
    for number, line in enumerate(tree.lines(path), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == "<", match[2]


def layer(path):
    return path.parts[1] if len(path.parts) > 2 else "api"


# Written by the build, one for each library.
GENERATED = {"transport/linked.def"}


def check_inside(path):
    """A file of src/."""
    own = layer(path)
    met = {target.split("/")[0] for _, _, target in includes(path)}
    if {"codec", "transport"} <= met and own != "api" and not path.match("src/collective/exec*"):
        tree.offence(path, 1, "codec and transport meet in src/collective/exec*.c only")
    for number, system, target in includes(path):
        if system:
            if target.split("/")[0] in RANK:
                tree.offence(path, number, f"<{target}>: own headers are included with quotes")
            continue
        other = target.split("/")[0] if "/" in target else own
        if target not in GENERATED and not (tree.ROOT / "src" / target).exists():
            tree.offence(path, number, f'"{target}" is no file of src/')
        elif other != own and RANK.get(other, 99) >= RANK[own]:
            tree.offence(path, number, f"{own} may not include {other}")


def check_outside(path):
    """A file of integrations/ or bench/: <wring/...>, system headers, its own, and what programs share."""
    top = path.parts[0]
    for number, system, target in includes(path):
        where = [tree.ROOT / path.parent / target, *(tree.ROOT / top).glob(f"*/{target}"),
                 tree.ROOT / top / target, tree.ROOT / "integrations/common" / target]
        if target.startswith("wring/"):
            continue
        if not system and not any(place.exists() for place in where):
            tree.offence(path, number, f'{top} may include public and its own headers only: "{target}"')


inside = tree.files(".c", ".h", ".inc", under="src")
outside = [path for top in ("integrations", "bench") for path in tree.files(".c", ".h", under=top)
           if path.parts[:2] != ("bench", "cuda")]
for path in inside:
    if layer(path) not in RANK:
        tree.offence(path, 1, "not in the folder of a layer")
    else:
        check_inside(path)
for path in outside:
    check_outside(path)
tree.finish(len(inside) + len(outside))
