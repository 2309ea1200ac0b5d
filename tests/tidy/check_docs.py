#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Functions in headers say what they do.

Public ones (include/, marked X_API) in the full form: `name() - summary`, every parameter, Return:
or Errors: unless void, and Context:. Private ones have a comment directly above them, or above the
group of declarations they stand in.
"""
import re

import tree

PUBLIC = re.compile(r"(?P<doc>/\*\*(?:(?!\*/).)*\*/\s*)?^[A-Z]+_API\b(?P<decl>[^;{]*);", re.S | re.M)
PRIVATE = re.compile(r"^(?!typedef|struct \w+ \{|enum|union|extern \"C\"|#|return)"
                     r"(?:static inline )?[a-z_][\w \t\*]*\b(?P<name>\w+)\(", re.M)


def public_complaints(text):
    for match in PUBLIC.finditer(text):
        line = text.count("\n", 0, match.start("decl")) + 1
        name = re.search(r"(\w+)\s*\(", match["decl"])[1]
        params = match["decl"].split("(", 1)[1].rsplit(")", 1)[0]
        params = re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)?(?:,|$)", params)
        doc = match["doc"] or ""
        if f"{name}() - " not in doc:
            yield line, f"{name}: no doc comment that starts with '{name}() - '"
            continue
        for param in params:
            if param != "void" and f"@{param}:" not in doc:
                yield line, f"{name}: @{param} is not described"
        if "Context:" not in doc:
            yield line, f"{name}: no Context: line"
        result = match["decl"].split(name + "(")[0]
        if not re.search(r"(Return|Errors):", doc) and not re.search(r"\bvoid\s*$", result):
            yield line, f"{name}: neither Return: nor Errors:"


def private_complaints(text):
    lines = text.split("\n")
    for match in PRIVATE.finditer(text):
        line = text.count("\n", 0, match.start("name")) + 1
        # Up over the declaration itself (its result type may stand alone) and its group.
        above = line - 2
        while above >= 0 and lines[above] != "" and not lines[above].endswith("*/"):
            above -= 1
        if above < 0 or not lines[above].endswith("*/"):
            yield line, f"{match['name']}: no comment above it says what it does"


def main():
    report = tree.Report()
    for path in tree.files(".h"):
        text = tree.read(path)
        if path.startswith("include/"):
            complaints = public_complaints(text)
        elif path.startswith("tests/"):
            continue
        else:
            # static inline functions have their result type on a line of its own
            complaints = private_complaints(re.sub(r"^(static inline .*)\n(?=\w+\()", r"\1 ", text,
                                                   flags=re.M))
        for line, complaint in complaints:
            report.complain(path, line, complaint)
    report.exit()


main()
