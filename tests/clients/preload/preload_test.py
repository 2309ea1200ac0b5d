#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The preload library, by programs that make every call on files.

Usage: preload_test.py compare CAUSEWAY PROGRAM [PART...]   the same output in a local directory and on Causeway
       preload_test.py check CAUSEWAY PROGRAM [CASE...]     a program that checks itself, on both
       preload_test.py gaps CAUSEWAY PROGRAM                no path below the prefix reaches the kernel

Prints TAP.
"""
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile

TIMEOUT_S = 120
NAME = "top"

# What is not the same in two places, and may differ.
NORMAL = [(re.compile(r"causeway-script-\w+"), "SCRIPT")]


def run(command, env=None, merge=False):
    """Returns exit status and output; the status is None if it did not end in time."""
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT if merge else subprocess.PIPE, start_new_session=True)
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        return None, out.decode(errors="replace"), (err or b"").decode(errors="replace")
    return process.returncode, out.decode(errors="replace"), (err or b"").decode(errors="replace")


def on_causeway(causeway, command):
    """The command in an empty directory of a new file system."""
    script = 'mkdir "$0" && exec "$@"'
    return [causeway, "run", "--quiet", "--", "sh", "-c", script, f"/causeway/{NAME}", *command]


def normal(text, top):
    text = text.replace(top, "TOP")
    for pattern, instead in NORMAL:
        text = pattern.sub(instead, text)
    return text.splitlines()


def parts_of(program, wanted):
    """The parts that a program has, by asking it."""
    if wanted:
        return wanted
    status, out, _ = run([program, "--list"])
    return out.split() if status == 0 else [""]


def comment(text):
    return "".join(f"# {line}\n" for line in text.splitlines())


def report(number, name, problem):
    print(f"{'ok' if problem is None else 'not ok'} {number} - {name}", flush=True)
    if problem is not None:
        print(comment(problem), end="", flush=True)
    return problem is not None


def compare_part(causeway, program, part):
    with tempfile.TemporaryDirectory() as scratch:
        top = os.path.join(scratch, NAME)
        os.mkdir(top)
        arguments = [part] if part else []
        local = run([program, top, "local", *arguments])
        ours = run(on_causeway(causeway, [program, f"/causeway/{NAME}", "causeway", *arguments]))
    if local[0] != 0:
        return f"in a local directory: exit status {local[0]}\n{local[1]}{local[2]}"
    difference = list(difflib.unified_diff(normal(local[1], top), normal(ours[1], f"/causeway/{NAME}"),
                                           "local", "causeway", n=1, lineterm=""))
    if ours[0] != 0 or difference:
        return f"exit status {ours[0]}\n" + "\n".join(difference[:60]) + "\n" + ours[2]
    return None


def check_part(causeway, program, part):
    with tempfile.TemporaryDirectory() as scratch:
        top = os.path.join(scratch, NAME)
        os.mkdir(top)
        arguments = [part] if part else []
        for where, command in (("in a local directory", [program, top, "local", *arguments]),
                               ("on Causeway", on_causeway(causeway, [program, f"/causeway/{NAME}", "causeway",
                                                                      *arguments]))):
            status, out, _ = run(command, merge=True)
            if status != 0:
                return f"{where}: " + ("no end within {TIMEOUT_S} s" if status is None else
                                       f"exit status {status}") + "\n" + out[-3000:]
    return None


# A path with the prefix as an argument of a system call; execve's are arguments of programs and the environment.
ESCAPED = re.compile(r'^(?:\[pid +\d+\] )?(?!execve)\w+\(.*"/causeway(?:/[^"]*)?"')


def gaps(causeway, program):
    """Commands that must not let a path of ours through to the kernel."""
    commands = [["env", "LD_PRELOAD=", "ls", "/causeway"],  # the detector must see this one
                ["ls", "-laR", "/causeway"], ["cp", "-r", "/etc/apt", "/causeway/copy"],
                ["sh", "-c", "cd /causeway && echo x > f && cat f && mkdir -p d/e && mv f d && rm -r d"],
                ["find", "/causeway", "-name", "*x*"], ["tar", "cf", "/causeway/t.tar", "/etc/apt"],
                ["du", "-a", "/causeway"], ["python3", "-c", "import os, shutil; os.makedirs('/causeway/p/q'); "
                 "open('/causeway/p/q/r', 'w').write('x'); print(os.listdir('/causeway/p')); "
                 "shutil.rmtree('/causeway/p')"]]
    if program is not None:
        commands += [[program, "/causeway", "causeway", part] for part in parts_of(program, [])
                     if part not in ("processes",)]  # execs programs there, on purpose
    print(f"1..{len(commands)}", flush=True)
    if shutil.which("strace") is None:
        for number, command in enumerate(commands, 1):
            print(f"ok {number} - {command[0]} # SKIP no strace on PATH")
        return 0
    failed = 0
    for number, command in enumerate(commands, 1):
        with tempfile.NamedTemporaryFile() as trace:
            name = " ".join([os.path.basename(command[0]), *command[1:]])[:60]
            if shutil.which(command[0]) is None:
                print(f"ok {number} - {name} # SKIP not on PATH", flush=True)
                continue
            run([causeway, "run", "--quiet", "--", "strace", "-f", "-qq", "-s", "200", "-e", "trace=file", "-o",
                 trace.name, *command])
            lines = open(trace.name, errors="replace").read().splitlines()
        escaped = [line for line in lines if ESCAPED.search(re.sub(r"^\d+ +", "", line))]
        if number == 1:
            escaped = [] if escaped else ["what did escape was not seen"]
        problem = None if lines and not escaped else "\n".join(escaped[:20]) or "strace saw nothing"
        failed += report(number, name, problem)
    return 1 if failed else 0


def main():
    kind, causeway, program = sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])
    if kind == "gaps":
        return gaps(causeway, program)
    parts = parts_of(program, sys.argv[4:])
    print(f"1..{len(parts)}", flush=True)
    run_part = compare_part if kind == "compare" else check_part
    failed = sum([report(number, part or os.path.basename(program), run_part(causeway, program, part))
                  for number, part in enumerate(parts, 1)])
    return 1 if failed else 0


sys.exit(main())
