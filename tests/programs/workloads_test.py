#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The users' own benchmarks, unmodified, on Causeway: IOR and mdtest under mpirun end clean and their data
checks pass. Also what an idle server costs.

Usage: workloads_test.py CAUSEWAY_PROGRAM

Prints TAP. IOR and mdtest are taken from PATH; cases without their program are skipped and say so.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

causeway = os.path.abspath(sys.argv[1])

IOR = [
    (4, "-a POSIX -b 64m -t 1m -F -C -w -r -e -k -W -R"),
    (16, "-a POSIX -i 3 -w -r -b 16m -t 1m -C -Q 17 -e"),
    # IOR refuses -z when a block is one transfer: ten of the same odd size instead.
    (4, "-a POSIX -t 47008 -b 470080 -s 20 -z -w -r -e"),
    (4, "-a POSIX -t 47008 -b 47008 -s 200 -w -r -W -R"),
]
MDTEST = [
    (4, "-n 2000 -F -i 3"),
    (4, "-n 2000 -F -i 3 -u"),
    (4, "-n 200 -D -z 3 -b 3 -I 2"),
    (4, "-z 3 -b 3 -I 5 -i 2"),
]


def run(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)


def mpirun(ranks):
    command = ["mpirun", "-np", str(ranks), "--oversubscribe"]
    return command + (["--allow-run-as-root"] if os.geteuid() == 0 else [])


def workload(program, ranks, arguments, target):
    """Returns (name, reason to skip, what is wrong)."""
    name = f"mpirun -np {ranks} {program} {arguments}"
    for wanted in ("mpirun", program):
        if shutil.which(wanted) is None:
            return name, f"not on PATH: {wanted}", None
    result = run([causeway, "run", "--quiet", "--prefault", "1g", "--", *mpirun(ranks), program,
                  *arguments.split(), *target])
    text = result.stdout
    bad = [line for line in text.splitlines()
           if re.search(r"ERROR|incorrect|inconsistent|[1-9]\d* error|WARNING: (?!Read bytes is 0)", line)]
    if result.returncode != 0 or bad:
        return name, None, f"exit status {result.returncode}\n{text}"
    return name, None, None


def idle():
    """An idle server sleeps: what five seconds more cost it."""
    name = "an idle server uses under 1 % of a core"
    cpu_ns = []
    for seconds in ("1", "6"):
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            result = run([causeway, "run", "--quiet", "--json", out.name, "--", "sleep", seconds])
            if result.returncode != 0:
                return name, None, result.stdout
            cpu_ns.append(sum(json.load(open(out.name, encoding="utf-8"))["reactor_cpu_ns"]))
    share = (cpu_ns[1] - cpu_ns[0]) / 5e9
    # Starting up costs more or less by 30 ms from run to run.
    return name, None, None if share < 0.01 else f"{100 * share:.2f} % of a core"


todo = [lambda r=r, a=a: workload("ior", r, a, ["-o", "/causeway/ior"]) for r, a in IOR]
todo += [lambda r=r, a=a: workload("mdtest", r, a, ["-d", "/causeway/mdtest"]) for r, a in MDTEST]
todo.append(idle)
failed = 0
print(f"1..{len(todo)}", flush=True)
for number, function in enumerate(todo, 1):
    try:
        name, skip, wrong = function()
    except subprocess.TimeoutExpired as error:
        name, skip, wrong = " ".join(error.cmd), None, "no end within 300 s"
    if skip is not None:
        print(f"ok {number} - {name} # SKIP {skip}", flush=True)
    elif wrong is None:
        print(f"ok {number} - {name}", flush=True)
    else:
        failed += 1
        print(f"not ok {number} - {name}\n# " + wrong.replace("\n", "\n# "), flush=True)
sys.exit(failed != 0)
