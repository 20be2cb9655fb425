# SPDX-License-Identifier: Apache-2.0
"""What is installed can be used from elsewhere: through pkg-config and through CMake, shared and static,
after the folder was moved."""
import os
import shlex
import subprocess
import tempfile

from lib import tree

BUILD = tree.LIB.parent
CC = os.environ.get("CC", "cc")

CONSUMER = """
#include <stdio.h>
#include <wring/wring.h>

int main(void)
{
    wring_codec *codec;
    if (wring_codec_create("none", &codec) != WRING_OK)
        return 1;
    printf("%d %zu\\n", wring_version(), wring_codec_nbytes(codec, WRING_FLOAT32, 25));
    wring_codec_destroy(codec);
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


def run(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        print(done.stdout)
        tree.offence(command[0], 0, f"{' '.join(map(str, command))} ended with {done.returncode}")
        tree.finish(1)
    return done.stdout


def check_program(path, environment):
    global checked
    checked += 1
    output = run(path, env=environment)
    if output.split()[-1:] != ["100"]:
        tree.offence(path, 0, f"printed {output!r}")


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


def check_modules(libraries):
    """Modules stand beside the library."""
    for module in tree.LIB.glob("libwring_*.so"):
        if not (libraries / module.name).exists():
            tree.offence(module.name, 0, "is not installed beside libwring.so")


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
    check_modules(libraries)
tree.finish(checked)
