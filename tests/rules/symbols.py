# SPDX-License-Identifier: Apache-2.0
"""Names that the linker sees: libwring.so exports wring_ only and needs no back end; the static library
adds wri_; a plugin's file defines its table and nothing else; a module exports wring_module and takes
nothing from the library but the services that it is handed."""
import re
import subprocess

from lib import tree

PLUGINS = {"codec": "codecs.def", "transport": "transports.def", "collective": "collectives.def"}
BACK_ENDS = re.compile(r"cuda|nccl|ucp|ucs|uct|ucm|mpi|nvidia", re.I)
ALSO = {"self.c.o": {"wri_self_set_fault"}}  # how tests damage what transport self carries


def run(*command):
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


def symbols(library, *options):
    return [line.split()[-1].split("@")[0] for line in run("nm", *options, library).splitlines() if line]


def check_shared(library):
    names = symbols(library, "-D", "--defined-only")
    for name in names:
        if not name.startswith("wring_"):
            tree.offence(library.name, 0, f"exports {name}")
    for line in run("readelf", "-d", library).splitlines():
        if "NEEDED" in line and BACK_ENDS.search(line):
            tree.offence(library.name, 0, line.strip())
    return len(names)


def members(library):
    """Object file -> names of its globals."""
    found = {}
    for line in run("nm", "-A", "-g", "--defined-only", library).splitlines():
        where, name = line.split()[0], line.split()[-1]
        found.setdefault(where.split(":")[1], set()).add(name)
    return found


def check_static(library):
    objects = members(library)
    for member, names in sorted(objects.items()):
        for name in sorted(names):
            if not name.startswith(("wring_", "wri_")):
                tree.offence(library.name, 0, f"{member} defines {name}")
    for kind, file in PLUGINS.items():
        for line in tree.lines(f"src/{kind}/{file}"):
            row = re.match(r"WRING_[A-Z]+\((\w+)", line)
            if row and f"{row[1]}.c.o" in objects:
                member = f"{row[1]}.c.o"
                extra = objects[member] - {f"wri_{kind}_{row[1]}"} - ALSO.get(member, set())
                for name in sorted(extra):
                    tree.offence(member, 0, f"plugin defines {name} besides its table")


def check_module(library):
    if symbols(library, "-D", "--defined-only") != ["wring_module"]:
        tree.offence(library.name, 0, "a module exports wring_module and nothing else")
    for name in symbols(library, "-D", "--undefined-only"):
        if name.startswith(("wri_", "wring_")):
            tree.offence(library.name, 0, f"a module may not need {name}")


shared = tree.LIB / "libwring.so"
if not shared.exists():
    tree.skip(f"no {shared}")
if "san.so" in run("readelf", "-d", shared):
    tree.skip("a sanitizer adds names of its own")
exported = check_shared(shared)
check_static(tree.LIB / "libwring.a")
for module in sorted(tree.LIB.glob("libwring_*.so")):
    check_module(module)
tree.finish(exported)
