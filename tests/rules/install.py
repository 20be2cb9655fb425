# SPDX-License-Identifier: Apache-2.0
"""What is installed can be used from elsewhere: through pkg-config and through CMake, shared and static,
after the folder was moved; and what is installed finds its modules."""
import os
import re
import shlex
import subprocess
import tempfile

from lib import tree

BUILD = tree.LIB.parent
CC = os.environ.get("CC", "cc")

CONSUMER = """
#include <stdio.h>
#include <wring/wring.h>

int main(int argc, char **argv)
{
    wring_context_options options = WRING_CONTEXT_OPTIONS_INIT;
    wring_context *context = NULL;
    options.transport = argv[argc - 1];
    if (wring_context_create(&options, &context) != WRING_OK)
        printf("%s\\n", wring_error_message());
    printf("%d\\n", context ? wring_version() : -1);
    wring_context_destroy(context);
}
"""

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(consumer C)
find_package(wring {version} REQUIRED)
add_executable(consumer_shared consumer.c)
target_link_libraries(consumer_shared PRIVATE wring::wring)
add_executable(consumer_static consumer.c)
target_link_libraries(consumer_static PRIVATE wring::wring_static)
"""

checked = 0


def version():
    """What wring_version() must answer."""
    header = "\n".join(tree.lines("include/wring/wring.h"))
    parts = (("MAJOR", 10000), ("MINOR", 100), ("PATCH", 1))
    return sum(weight * int(re.search(rf"VERSION_{part} (\d+)", header)[1]) for part, weight in parts)


def run(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        print(done.stdout)
        tree.offence(command[0], 0, f"{' '.join(map(str, command))} ended with {done.returncode}")
        tree.finish(1)
    return done.stdout


def transports():
    """One that is part of the library, and all that are modules."""
    table = (tree.ROOT / "src/transport/transports.def").read_text()
    modules = re.findall(r"^WRING_TRANSPORT\((\w+), MODULE", table, re.M)
    return ["self"] + [name for name in modules if (tree.LIB / f"libwring_{name}.so").exists()]


def check_program(path, environment):
    global checked
    for transport in transports():
        checked += 1
        output = run(path, transport, env=environment)
        if output.split()[-1:] != [str(version())]:
            tree.offence(path, 0, f"with transport {transport} printed {output!r}")


def pkg_config(prefix, *options):
    folder = next(prefix.glob("**/pkgconfig"))
    return shlex.split(run("pkg-config", *options, "wring",
                           env={**os.environ, "PKG_CONFIG_PATH": str(folder)}))


def by_pkg_config(work, prefix, libraries):
    source = work / "consumer.c"
    shared, static = work / "pc_shared", work / "pc_static"
    run(CC, source, "-o", shared, *pkg_config(prefix, "--cflags", "--libs"))
    check_program(shared, {**os.environ, "LD_LIBRARY_PATH": str(libraries)})
    flags = pkg_config(prefix, "--static", "--cflags", "--libs")
    flags = [f"{libraries}/libwring.a" if flag == "-lwring" else flag for flag in flags]
    run(CC, source, "-o", static, *flags)
    check_program(static, os.environ)


def by_cmake(work, prefix):
    (work / "CMakeLists.txt").write_text(PROJECT.format(version=pkg_config(prefix, "--modversion")[0]))
    run("cmake", "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_C_COMPILER={CC}")
    run("cmake", "--build", work / "build")
    for kind in ("shared", "static"):
        check_program(work / "build" / f"consumer_{kind}", os.environ)


if not (BUILD / "cmake_install.cmake").exists():
    tree.skip(f"{BUILD} is no build folder")
if b"-fsanitize" in (BUILD / "build.ninja").read_bytes():
    tree.skip("a sanitizer build is not for installing")
with tempfile.TemporaryDirectory() as folder:
    work = type(tree.ROOT)(folder)
    run("cmake", "--install", BUILD, "--prefix", work / "first")
    prefix = (work / "first").rename(work / "moved")
    libraries = next(prefix.glob("**/libwring.so")).parent
    (work / "consumer.c").write_text(CONSUMER)
    by_pkg_config(work, prefix, libraries)
    by_cmake(work, prefix)
    for program in prefix.glob("bin/*"):
        run(program, "--help")
        checked += 1
tree.finish(checked)
