#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each file includes only what its layer may see. The table is the architecture; keep it short."""
import re

import tree

LNET = "include/causeway/lnet.h"
BULK = "include/causeway/bulk.h"

# A file belongs to the first prefix that matches it; "tests/" is absent and may include anything.
# {own} is the folder of a driver. A trailing "*" means files directly in that folder.
MAY_INCLUDE = {
    "include/causeway/lnet.h":   [],
    "include/causeway/bulk.h":   [LNET],
    "include/causeway/ptlrpc.h": [LNET, BULK],
    "include/":    ["include/"],
    "base/":       ["base/"],
    "lnet/lnd/registry.c": [LNET, "lnet/lnd/"],
    "lnet/lnd/":   ["base/", LNET, "lnet/lnd/*", "{own}"],
    "lnet/":       ["base/", LNET, "lnet/*", "lnet/lnd/*"],
    "bulk/":       ["base/", LNET, BULK, "bulk/"],
    "ptlrpc/":     ["base/", LNET, BULK, "include/causeway/ptlrpc.h", "ptlrpc/"],
    "servers/":    ["base/", "include/", "ptlrpc/proto/", "servers/"],
    "clients/":    ["base/", "include/", "ptlrpc/proto/", "clients/"],
    "microbench/bench_mds.c": ["base/", "include/", "microbench/", "servers/"],  # no network
    "microbench/bench_oss.c": ["base/", "include/", "microbench/", "ptlrpc/proto/"],
    "microbench/": ["base/", "include/", "microbench/"],
    "tools/":      ["base/", "include/", "tools/"],
}
OURS = ("base/", "lnet/", "bulk/", "ptlrpc/", "servers/", "clients/", "microbench/", "tools/",
        "tests/")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|<([^>]+)>)', re.M)


def own_folder(path):
    """lnet/lnd/tcp/ for any file of that driver."""
    parts = path.split("/")
    return "/".join(parts[:3]) + "/" if len(parts) > 3 else "lnet/lnd/*"


def is_allowed(seen, rules, path):
    for rule in rules:
        rule = rule.replace("{own}", own_folder(path))
        if rule.endswith("*"):
            if seen.rpartition("/")[0] + "/" == rule[:-1]:
                return True
        elif seen.startswith(rule):
            return True
    return False


def main():
    report = tree.Report()
    for path in tree.files(".c", ".h"):
        rules = next((r for prefix, r in MAY_INCLUDE.items() if path.startswith(prefix)), None)
        text = tree.read(path)
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(0)) + 1
            target = match[1] or match[2]
            seen = f"include/{target}" if target.startswith("causeway/") else target
            if not seen.startswith(OURS + ("include/",)):
                if match[1]:
                    report.complain(path, line, f'"{target}": our headers are named from the top')
                continue
            if rules is not None and not is_allowed(seen, rules, path):
                report.complain(path, line, f"{path.split('/')[0]}/ may not include {seen} here")
    report.exit()


main()
