#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tree is formatted by clang-format 14 and .clang-format.

Repair with: clang-format-14 -i FILE...
"""
import shutil
import subprocess
import sys

import tree


def main():
    tool = shutil.which("clang-format-14")
    if tool is None:
        print("clang-format-14 is not installed")
        sys.exit(tree.SKIP)
    files = tree.files(".c", ".h")
    sys.exit(subprocess.run([tool, "--dry-run", "--Werror", *files], cwd=tree.ROOT,
                            check=False).returncode)


main()
