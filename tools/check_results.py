#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints one line per test of a meson testlog.json: RESULT<tab>LABEL: name.

Usage: check_results.py LABEL TESTLOG.JSON    Exits 1 if the log names no test.
"""
import json
import sys

GOOD = {"OK": "OK", "EXPECTEDFAIL": "OK", "SKIP": "SKIP"}

label, path = sys.argv[1:]
count = 0
try:
    with open(path, encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            result = test["result"]
            print(f"{GOOD.get(result, result)}\t{label}: {test['name']}")
            count += 1
except OSError as error:
    sys.exit(f"check_results.py: {error}")
sys.exit(count == 0)
