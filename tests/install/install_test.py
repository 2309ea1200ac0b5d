#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What is installed serves a program outside the tree: shared and static, C11 and C++17, from the
prefix it was installed to and from one it was moved to.

Usage: install_test.py BUILD_DIR SOURCE_DIR
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

build, source = map(pathlib.Path, sys.argv[1:3])
hello = source / "tests/install/hello.c"
failed = 0


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, **options)


def case(name, prefix, compiler, standard, static):
    """Compiles and runs hello against @prefix; prints a TAP line."""
    global failed
    case.number += 1
    pc_dir = next(prefix.rglob("causeway.pc")).parent
    env = dict(os.environ, PKG_CONFIG_PATH=str(pc_dir))
    try:
        query = ["pkg-config", "--cflags", "--libs", "causeway"]
        flags = run(*query, *(["--static"] if static else []), env=env).stdout.split()
        if static:  # the archive itself, whatever shared library lies beside it
            archive = next(prefix.rglob("libcauseway.a"))
            flags = [str(archive) if flag == "-lcauseway" else flag for flag in flags]
        with tempfile.TemporaryDirectory() as work:
            program = pathlib.Path(work) / "hello"
            language = "c++" if "++" in compiler else "c"
            run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-x", language, str(hello),
                "-x", "none", "-o", str(program), *flags)
            lib_dir = next(prefix.rglob("libcauseway.so")).parent
            env["LD_LIBRARY_PATH"] = str(lib_dir)
            output = run(str(program), work, env=env).stdout
        assert output == "hello OK\n", output
        print(f"ok {case.number} - {name}")
    except (subprocess.CalledProcessError, AssertionError) as error:
        failed += 1
        print(f"not ok {case.number} - {name}")
        print("# " + str(getattr(error, "stderr", error)).replace("\n", "\n# "))


case.number = 0
print("1..9")
with tempfile.TemporaryDirectory() as top:
    first = pathlib.Path(top) / "first"
    run("meson", "install", "-C", str(build), "--no-rebuild", "--destdir", str(first))
    for moved in (False, True):
        prefix = first
        if moved:
            prefix = pathlib.Path(top) / "moved"
            shutil.move(first, prefix)
        for compiler, standard in (("gcc", "c11"), ("g++", "c++17")):
            for static in (False, True):
                case(f"{'static' if static else 'shared'}, {standard}"
                     f"{', moved prefix' if moved else ''}", prefix, compiler, standard, static)
    # Nothing but our own names leaves the library.
    library = next((pathlib.Path(top) / "moved").rglob("libcauseway.so"))
    names = run("nm", "-D", "--defined-only", str(library)).stdout
    foreign = [name for name in re.findall(r" [A-Z] (\S+)", names)
               if not re.match(r"(lnet|bulk|ptlrpc|causeway|mds|oss)_", name)]
    print(f"{'not ok' if foreign else 'ok'} 9 - only our prefixes are exported {foreign}")
sys.exit(failed != 0 or bool(foreign))
