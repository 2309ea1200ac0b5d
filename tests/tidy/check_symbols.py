#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""No layer reads a clock, draws a number, sleeps or uses threads behind its caller's back.

Usage: check_symbols.py SOURCE_ROOT NM LIBRARY...
Lists the undefined symbols of each layer's static library.
"""
import pathlib
import re
import subprocess
import sys

import tree

EVERYWHERE = re.compile(
    r"clock_gettime|clock_getres|gettimeofday|time|ftime|timespec_get"
    r"|s?rand|rand_r|s?random|[dlm]rand48|arc4random\w*|getrandom|getentropy"
    r"|u?sleep|nanosleep|clock_nanosleep")
# Layers below the faces of the client: time is an argument and there is one thread.
POLLED = re.compile(r"base_clock_\w+|base_wait_\w+|base_runner_\w+|pthread_\w+|thrd_\w+|mtx_\w+"
                    r"|cnd_\w+|sched_yield")
POLLED_LAYERS = ("lnet", "bulk", "ptlrpc", "servers")

# (layer, object file, symbol pattern): why. Each is an exception somebody argued for.
EXEMPT = {
    ("base", r"clock\.c", "clock_gettime"): "it is the file that reads the clocks",
    ("servers", r"store_.*\.c", r"pthread_\w+"): "a store may have a thread of its own behind it",
}


def is_exempt(layer, member, symbol):
    return any(layer == where and re.search(file, member) and re.fullmatch(pattern, symbol)
               for where, file, pattern in EXEMPT)


def main():
    report = tree.Report()
    for library in sys.argv[3:]:
        layer = pathlib.Path(library).stem.removeprefix("lib")
        listing = subprocess.run([sys.argv[2], "-A", "-u", library], check=True,
                                 capture_output=True, text=True).stdout
        for line in listing.splitlines():
            member, symbol = re.fullmatch(r".*?\.a:(.*?):\s+\w (\S+)", line).groups()
            symbol = symbol.split("@")[0]
            is_bad = EVERYWHERE.fullmatch(symbol) or (
                layer in POLLED_LAYERS and POLLED.fullmatch(symbol))
            if is_bad and not is_exempt(layer, member, symbol):
                report.complain(f"{layer}/{member}", 0, f"may not use {symbol}()")
    report.exit()


main()
