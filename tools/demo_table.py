#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the layers and the two workloads and prints one table: the second half of tools/demo.

Usage: demo_table.py BUILD_DIR WORK_DIR [--json FILE]

Each figure stands beside a limit or a peer that was measured in the same run.
"""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

build, work = sys.argv[1:3]
json_path = sys.argv[sys.argv.index("--json") + 1] if "--json" in sys.argv else None
causeway = os.path.abspath(os.path.join(build, "tools/causeway"))
rows = []


def say(text):
    print(f"\n== {text}", flush=True)


def row(layer, name, value, unit, against=None, ratio=None):
    rows.append({"layer": layer, "figure": name, "value": value, "unit": unit, "against": against,
                 "ratio": ratio})


def bench(name, pattern, repetitions=5):
    """Runs bench_NAME; returns {benchmark: median record}."""
    out = os.path.join(work, f"{name}.json")
    command = [os.path.join(build, f"microbench/bench_{name}"), f"--benchmark_filter={pattern}",
               f"--benchmark_repetitions={repetitions}", "--benchmark_min_time=0.1",
               f"--benchmark_out={out}", "--benchmark_out_format=json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
    with open(out, encoding="utf-8") as file:
        records = json.load(file)["benchmarks"]
    return {record["run_name"]: record for record in records
            if record.get("aggregate_name") == "median" and not record.get("error_occurred")}


def layers():
    say("the layers by themselves: microbench/")
    for name, record in bench("lnet", "BM_lnet_put").items():
        if "p50_ns" in record:
            row("lnet", name, record["p50_ns"], "ns", "bare copy-in, copy-out", record.get("ratio_to_limit"))
        else:
            row("lnet", name, record.get("p50_items_per_second", record["items_per_second"]) / 1e6, "M/s", "bare ring", record.get("ratio_to_limit"))
    for name, record in bench("rpc", "BM_rpc_null/in_flight:(1|16|64)$").items():
        if name.endswith(":1") and "p50_ns" in record:
            row("ptlrpc", name, record["p50_ns"], "ns", "two bare messages", record.get("ratio_to_limit"))
        else:
            row("ptlrpc", name, record.get("p50_items_per_second", record["items_per_second"]) / 1e6, "M/s", "bare rings", record.get("ratio_to_limit"))
    for name, record in bench("bulk", "(mapped|cma|staging).*/bytes:1048576/memory:0", 3).items():
        row("bulk", name, record["bytes_per_second"] / 1e9, "GB/s", "memcpy, process_vm_readv",
            record.get("ratio_to_limit"))


def mpirun(ranks):
    command = ["mpirun", "-np", str(ranks), "--oversubscribe"]
    return command + (["--allow-run-as-root"] if os.geteuid() == 0 else [])


def output(command):
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def workload(program, arguments, directory, patterns):
    """Medians over three runs on @directory of what @patterns find in the program's own tables."""
    found = {name: [] for name in patterns}
    for _ in range(3):
        command = mpirun(4) + program + arguments(directory)
        if directory == "/causeway":
            command = [causeway, "run", "--quiet", "--"] + command
        text = output(command)
        for name, pattern in patterns.items():
            found[name] += [float(value) for value in re.findall(pattern, text, re.M)]
    return {name: statistics.median(values) for name, values in found.items()}


def workloads():
    tmpfs = "/dev/shm" if os.path.isdir("/dev/shm") else work
    local = os.path.join(tmpfs, f"causeway-demo-{os.getpid()}")
    ior = [shutil.which("ior")] if shutil.which("ior") else [causeway, "ior"]
    mdtest = [shutil.which("mdtest")] if shutil.which("mdtest") else [causeway, "mdtest"]
    say(f"{os.path.basename(ior[0])} and mdtest, 4 ranks: unmodified on files, on tmpfs and on Causeway")
    os.mkdir(local)
    try:
        patterns = {kind: rf"^{kind}\s+([0-9.]+)\s+[0-9.]+\s+[0-9.]+\s+[0-9]" for kind in ("write", "read")}
        arguments = lambda top: ["-a", "POSIX", "-o", f"{top}/ior", "-F", "-t", "1m", "-b", "64m", "-w",
                                 "-r", "-C", "-e", "-i", "3"]
        ours, peer = (workload(ior, arguments, top, patterns) for top in ("/causeway", local))
        for kind in patterns:
            row("files", f"IOR {kind}, 1 MiB, file per process", ours[kind], "MiB/s", f"tmpfs {peer[kind]:.0f}",
                ours[kind] / peer[kind])
        kinds = ("creation", "stat", "read", "removal")
        patterns = {kind: rf"^\s*File {kind}\s+[0-9.]+\s+[0-9.]+\s+([0-9.]+)" for kind in kinds}
        arguments = lambda top: ["-d", f"{top}/mdtest", "-n", "2000", "-F", "-i", "3"] + \
            (["-a", "POSIX"] if mdtest[-1] == "mdtest" else [])
        ours, peer = (workload(mdtest, arguments, top, patterns) for top in ("/causeway", local))
        for kind in kinds:
            row("files", f"mdtest file {kind}, shared directory", ours[kind] / 1e3, "k/s",
                f"tmpfs {peer[kind] / 1e3:.0f}", ours[kind] / peer[kind])
    finally:
        shutil.rmtree(local, ignore_errors=True)


layers()
workloads()
say("result")
print(f"{'layer':8} {'figure':44} {'value':>10} {'unit':6} {'ratio':>6}  against")
for entry in rows:
    ratio = f"{entry['ratio']:.2f}" if entry["ratio"] is not None else "-"
    print(f"{entry['layer']:8} {entry['figure']:44} {entry['value']:10.1f} {entry['unit']:6} {ratio:>6}  "
          f"{entry['against'] or ''}")
print("\nlatencies: ratio to the limit, lower is better; rates and bandwidths: higher is better")
if json_path:
    with open(json_path, "w", encoding="utf-8") as file:
        json.dump({"schema_version": 1, "rows": rows}, file, indent=2, allow_nan=False)
