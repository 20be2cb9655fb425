# SPDX-License-Identifier: Apache-2.0
"""Each plugin has a row and each row a plugin; wire ids are unique; once one codec has a golden file,
all have."""
import re

from lib import tree

KINDS = {"codec": "codecs.def", "transport": "transports.def", "collective": "collectives.def"}
ROW = re.compile(r"WRING_[A-Z]+\((\w+)")
WIRE_ID = re.compile(r"\.wire_id\s*=\s*(\w+)")


def rows(kind):
    found = (ROW.match(line) for line in tree.lines(f"src/{kind}/{KINDS[kind]}"))
    return [match[1] for match in found if match]


def check_kind(kind):
    """Compare the rows with the tables that the files of the folder define."""
    table = re.compile(rf"^const struct wring_{kind}_ops wri_{kind}_(\w+)\s*=")
    named = rows(kind)
    for name in sorted(set(named)):
        if named.count(name) > 1:
            tree.offence(f"src/{kind}/{KINDS[kind]}", 1, f"two rows for {name}")
    defined = {}
    for path in tree.files(".c", under=f"src/{kind}"):
        for number, line in enumerate(tree.lines(path), 1):
            match = table.match(line)
            if match:
                defined[match[1]] = path
                if match[1] != path.stem:
                    tree.offence(path, number, f"{kind} {match[1]} belongs into {match[1]}.c")
    for name in set(defined) - set(named):
        tree.offence(defined[name], 1, f"no row in {KINDS[kind]}: nobody would find it")
    for name in set(named) - set(defined):
        tree.offence(f"src/{kind}/{KINDS[kind]}", 1, f"{name}.c defines no wri_{kind}_{name}")
    return defined


def check_wire_ids(codecs):
    owner = {}
    for name, path in sorted(codecs.items()):
        match = WIRE_ID.search("\n".join(tree.lines(path)))
        if not match or not match[1].isdigit() or not 1 <= int(match[1]) <= 999:
            tree.offence(path, 1, "no .wire_id from 1 to 999 written as a number")
        elif int(match[1]) in owner:
            tree.offence(path, 1, f"wire id {match[1]} is {owner[int(match[1])]}'s")
        else:
            owner[int(match[1])] = name


def check_golden(codecs):
    golden = [path.name for path in tree.files("", under="tests/golden")]
    for name, path in sorted(codecs.items()):
        if golden and not any(re.split(r"[^a-z0-9]", file)[0] == name for file in golden):
            tree.offence(path, 1, f"no golden file tests/golden/{name}*")


plugins = {kind: check_kind(kind) for kind in KINDS}
check_wire_ids(plugins["codec"])
check_golden(plugins["codec"])
tree.finish(sum(len(found) for found in plugins.values()))
