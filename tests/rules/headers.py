# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone as C11; and as C++17 where C++ has business: the public headers, and the
layers that CUDA kernels and micro-benchmarks share."""
import os
import shlex
import shutil
import subprocess

from lib import tree

CC = os.environ.get("CC", "cc")
CXX = "clang++" if "clang" in os.path.basename(CC) else "c++"
FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE",
         f"-I{tree.ROOT}/include", f"-I{tree.ROOT}/src"]
CXX_TOO = ("include/", "src/base/", "src/simd/", "src/codec/")


def compiles(compiler, language, path):
    run = subprocess.run([*compiler, *FLAGS, *language, "-"], input=f'#include "{tree.ROOT / path}"\n',
                         text=True, capture_output=True)
    if run.returncode:
        tree.offence(path, 1, f"{' '.join(language)}: " + run.stderr.strip().replace("\n", "\n    "))


if not shutil.which(CXX):
    tree.skip(f"no {CXX}")
headers = tree.files(".h", under="include") + tree.files(".h", under="src")
for path in headers:
    compiles(shlex.split(CC), ["-x", "c", "-std=c11"], path)
    if str(path).startswith(CXX_TOO):
        compiles([CXX], ["-x", "c++", "-std=c++17"], path)
tree.finish(len(headers))
