#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The first lines of every file, and words that must not stand in the tree."""
import re

import tree

C = (".c", ".h")
CODE = C + (".py", ".sh", ".build")
ALL = CODE + (".md", ".txt", ".lua")
SELF = "tests/tidy/check_text.py"

# (pattern, files by suffix, prefixes that may, why not)
BANNED = [
    (r"\b(TODO|FIXME|XXX|HACK)\b", ALL, (), "what is missing is an issue or a sentence in a README"),
    (r"/(work|home|root)/", ALL, (), "absolute path of one machine"),
    (r"\b_?_rdtscp?\b", C, ("base/clock.", "microbench/"), "stamps come from the context"),
    (r"\t", C + (".py", ".build"), (), "tab"),
    (r"[ \t]+$", ALL, (), "white space at the end of the line"),
    (r"^.{101,}$", C, (), "longer than 100 columns"),
    (r"#include \".*\.c\"", C, (), "a .c file is compiled, not included"),
]


def main():
    report = tree.Report()
    for path in tree.files(*ALL):
        text = tree.read(path)
        lines = text.split("\n")
        if path.endswith(C):
            if lines[0] != "/* SPDX-License-Identifier: BSD-3-Clause */":
                report.complain(path, 1, "the first line names the licence")
            elif not lines[1].startswith("/*"):
                report.complain(path, 2, "no head comment says what the file is")
            if path.endswith(".h") and not path.startswith("include/") and \
                    "#pragma once" not in lines:
                report.complain(path, 1, "no #pragma once")
        if path == SELF:
            continue
        for number, line in enumerate(lines, 1):
            for pattern, suffixes, may, why in BANNED:
                if path.endswith(suffixes) and not (may and path.startswith(may)) and re.search(pattern, line):
                    report.complain(path, number, why)
    report.exit()


main()
