#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each header compiles alone; public ones in C11 and in C++17.

Usage: check_headers.py SOURCE_ROOT CC
The C++ half is left out if CC has no C++ beside it.
"""
import concurrent.futures
import shutil
import subprocess
import sys

import tree

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-I.", "-Iinclude", "-fsyntax-only"]


def compile_alone(command, path):
    name = path.removeprefix("include/")
    run = subprocess.run([*command, *WARNINGS, "-"], cwd=tree.ROOT, input=f'#include "{name}"\n',
                         capture_output=True, text=True, check=False)
    return path, " ".join(command), run.returncode, run.stderr


def main():
    cc = sys.argv[2]
    cxx = shutil.which("clang++" if "clang" in cc else "g++")
    jobs = []
    for path in tree.files(".h"):
        if path.startswith("include/"):
            jobs.append(([cc, "-std=c11", "-Wpedantic", "-xc"], path))
            if cxx is not None:
                jobs.append(([cxx, "-std=c++17", "-Wpedantic", "-xc++"], path))
        else:
            jobs.append(([cc, "-std=gnu17", "-D_GNU_SOURCE", "-xc"], path))
    report = tree.Report()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for path, command, status, errors in pool.map(lambda job: compile_alone(*job), jobs):
            if status != 0:
                report.complain(path, 1, f"does not compile alone with {command}\n{errors}")
    report.exit()


main()
