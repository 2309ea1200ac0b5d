#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The command line as users break it: wrong options, missing commands, signals and kills of every part,
closed streams, small limits. Exit statuses are right and nothing is left: no process, no run directory.

Usage: run_test.py CAUSEWAY_PROGRAM [CASE ...]

Prints TAP. What needs the preload library, mpirun or root is skipped where that is missing.
"""
import contextlib
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

CAUSEWAY = os.path.abspath(sys.argv[1])
PRELOAD = os.path.join(os.path.dirname(CAUSEWAY), "../clients/preload/libcauseway_preload.so")
CASES = []
TIMEOUT_S = 60
LEFT_S = 15
MARK = f"CAUSEWAY_TEST_MARK={os.getpid()}"  # in the environment of all that a case starts
HELLO = "echo hello >/causeway/f && cat /causeway/f"


class Skip(Exception):
    pass


def case(function):
    CASES.append(function)
    return function


def environment(tmp, **more):
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("OMPI_", "PMI", "CAUSEWAY_")) and k != "LD_PRELOAD"}
    name, value = MARK.split("=")
    return clean | {"XDG_RUNTIME_DIR": tmp, name: value} | more


def processes():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if MARK.encode() in file.read().split(b"\0"):
                found.append(int(pid))
    return found


def run_dirs(tmp):
    return [name for name in os.listdir(tmp) if name.startswith("causeway-run")]


def assert_nothing_left(tmp):
    end = time.monotonic() + LEFT_S
    while processes() or run_dirs(tmp):
        if time.monotonic() > end:
            left = [(pid, open(f"/proc/{pid}/cmdline").read()) for pid in processes()]
            for pid, _ in left:
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"left: {left} {run_dirs(tmp)}")
        time.sleep(0.05)


def causeway(tmp, *words, status=0, command=(), env=None, **how):
    done = subprocess.run([*command, CAUSEWAY, *words], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env=environment(tmp) | (env or {}), check=False, **how)
    assert done.returncode == status, f"{words}: {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
    return done


@contextlib.contextmanager
def running(tmp, script, *options, ready="up", **how):
    """`causeway run` with a shell script, once the script has said that it is there."""
    with subprocess.Popen([CAUSEWAY, "run", "-q", *options, "--", "sh", "-c", script], stdout=subprocess.PIPE,
                          text=True, env=environment(tmp), start_new_session=True, **how) as process:
        assert process.stdout.readline().strip().startswith(ready)
        yield process
        process.stdout.close()


def name_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return ""


def refused(tmp, *words, says):
    done = causeway(tmp, *words, status=2)
    assert re.search(says, done.stderr) and done.stderr.count("\n") == 1 and not done.stdout, done
    assert not run_dirs(tmp)


@case
def wrong_command_lines_are_refused(tmp):
    run = ["run", "-q"]
    true = ["--", "true"]
    refused(tmp, "nonsense", says="unknown command 'nonsense'")
    refused(tmp, "run", says="no command")
    refused(tmp, *run, "--", says="no command")
    refused(tmp, *run, "--quite", *true, says="'quite' .did you mean 'quiet'")
    refused(tmp, *run, "-vXj", *true, says="unknown option '-X'")
    refused(tmp, *run, "--verbose=1", *true, says="'--verbose=1': takes no value")
    refused(tmp, *run, "-q", *true, says="'quiet' is given twice")
    refused(tmp, *run, "-p", says="'-p' wants a value")
    refused(tmp, *run, "--osts", says="'--osts' wants a value")
    for value in ("0", "65", "-1", "", "1x", "9" * 40):
        refused(tmp, *run, "--osts", value, *true, says="'osts': ")
    refused(tmp, *run, "--store", "disk", *true, says="'disk' is none of mem")
    refused(tmp, *run, "--prefix", "relative", *true, says="'prefix'")
    refused(tmp, *run, "--prefix", "/", *true, says="'prefix'")
    refused(tmp, *run, "--stripe-size", "65537", *true, says="'stripe-size'")
    refused(tmp, *run, "--ring-bytes", "40000", *true, says="'ring-bytes': 40000 is no power of two")
    refused(tmp, *run, "--timeout", "nan", *true, says="'timeout'")
    refused(tmp, *run, "--config", f"{tmp}/none", *true, says="'config': .*ENOENT")
    refused(tmp, *run, "--json", f"{tmp}/none/j", *true, says="'json': .*ENOENT")
    refused(tmp, *run, "--json", tmp, *true, says="'json': .*EISDIR")
    refused(tmp, *run, "--preload", tmp, *true, says="EINVAL")
    for server in ("mds", "oss"):
        refused(tmp, server, "operand", says="options only")
        refused(tmp, server, "--nid", "7", says="'nid': '7' is no NID")
        refused(tmp, server, "--ring-bytes", "40000", says="'ring-bytes': 40000 is no power of two")
    refused(tmp, "mds", "--oss", "2@shm:0", says="'oss': '2@shm:0'")
    refused(tmp, "mds", "--stripe-size", "65537", says="'stripe-size'")
    refused(tmp, "lctl", "ping", says="verb and an address")
    refused(tmp, "lctl", "look", "1@shm", says="unknown verb 'look'")
    refused(tmp, "lctl", "ping", "1@moon", says="'1@moon' is no address")


@case
def a_dry_run_refuses_what_a_run_does(tmp):
    for option, value in (("prefix", "relative"), ("stripe-size", "65537"), ("ring-bytes", "40000")):
        refused(tmp, "run", f"--{option}", value, "--dry-run", says=f"'{option}'")
    for server in ("mds", "oss"):
        refused(tmp, server, "--nid", "7", "--dry-run", says="'nid'")
        refused(tmp, server, "--dry-run", "--ring-bytes", "40000", says="'ring-bytes'")
    refused(tmp, "mds", "--oss", "garbage", "--dry-run", says="'oss': 'garbage'")
    with open(f"{tmp}/bad.yaml", "w") as file:
        file.write("oss: [2@shm, garbage]\n")
    refused(tmp, "mds", "--dry-run", "--config", f"{tmp}/bad.yaml", says="'oss': 'garbage'")
    assert "prefix: " in causeway(tmp, "run", "--dry-run").stdout


@case
def a_prefix_that_hides_the_run_directory_is_refused(tmp):
    causeway(tmp, "run", "-q", "-p", tmp, "--", "sh", "-c", f"echo x >{tmp}/f && cat {tmp}/f")
    done = causeway(tmp, "run", "-q", "-p", "/tmp", "--", "true", status=2, env={"XDG_RUNTIME_DIR": ""})
    assert "'prefix': '/tmp' would hide" in done.stderr


@case
def the_status_is_the_commands(tmp):
    assert "no-such-command: No such" in causeway(tmp, "run", "-q", "--", "no-such-command", status=127).stderr
    causeway(tmp, "run", "-q", "--", "/etc/passwd", status=126)
    causeway(tmp, "run", "-q", "--", "sh", "-c", "exit 77", status=77)
    causeway(tmp, "run", "-q", "--", "sh", "-c", "kill -9 $$", status=137)
    assert causeway(tmp, "run", "-q", "--", "sh", "-c", HELLO).stdout == "hello\n"
    assert_nothing_left(tmp)


@case
def an_ignored_SIGCHLD_is_no_hang(tmp):
    causeway(tmp, "run", "-q", "--", "sh", "-c", "exit 3", status=3,
             preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))


@case
def closed_standard_streams(tmp):
    for closed in ("<&-", "2>&-", "<&- 2>&-"):
        shell = subprocess.run(["sh", "-c", f"{CAUSEWAY} run -- sh -c '{HELLO}; exit 4' {closed}"], text=True,
                               capture_output=True, timeout=TIMEOUT_S, env=environment(tmp), check=False)
        assert shell.returncode == 4 and shell.stdout == "hello\n", (closed, shell)
    with subprocess.Popen([CAUSEWAY, "run", "--", "sh", "-c", "echo up; read x; exit 4"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp)) as process:
        process.stdout.readline()
        process.stderr.close()  # its reader goes away
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 4
    assert_nothing_left(tmp)


@case
def signals_are_passed_on(tmp):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with running(tmp, "echo up; sleep 1000 & exec sleep 1000") as process:
            process.send_signal(number)
            assert process.wait(TIMEOUT_S) == 128 + number
        assert_nothing_left(tmp)
    with running(tmp, "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done") as process:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 9
    assert_nothing_left(tmp)


@case
def control_c_on_a_terminal(tmp):
    pid, terminal = pty.fork()
    if pid == 0:
        signal.alarm(TIMEOUT_S)
        os.execve(CAUSEWAY, [CAUSEWAY, "run", "-q", "--", "sh", "-c", "trap 'exit 130' INT; echo up; while :; do sleep 0.05; done"],
                  environment(tmp))
    assert os.read(terminal, 100).startswith(b"up")
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(terminal)
    assert_nothing_left(tmp)


@case
def a_terminal_that_hangs_up(tmp):
    pid, terminal = pty.fork()
    if pid == 0:
        signal.alarm(TIMEOUT_S)
        os.execve(CAUSEWAY, [CAUSEWAY, "run", "-q", "--", "sh", "-c", "echo up; sleep 1000"], environment(tmp))
    assert os.read(terminal, 100).startswith(b"up")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129
    assert_nothing_left(tmp)


@case
def a_signal_while_it_starts(tmp):
    for number, whole_group in ((signal.SIGTERM, True), (signal.SIGTERM, False), (signal.SIGKILL, True),
                                (signal.SIGKILL, False)):
        for delay_ms in (1, 2, 4, 8, 30, 60):
            with subprocess.Popen([CAUSEWAY, "run", "-q", "--", "sleep", "1000"], env=environment(tmp),
                                  start_new_session=True) as process:
                time.sleep(delay_ms / 1000)
                (os.killpg if whole_group else os.kill)(process.pid, number)
                assert process.wait(TIMEOUT_S) in (-number, 128 + number)
            assert_nothing_left(tmp)


@case
def kill_9_of_run_ends_all_descendants(tmp):
    script = "sleep 1000 & setsid sleep 1000 & (trap '' TERM; sleep 1000; sleep 1000) & echo up; sleep 1000; true"
    for whole_group in (False, True):
        with running(tmp, script) as process:
            (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
        assert_nothing_left(tmp)


@case
def kill_9_of_the_command(tmp):
    with running(tmp, "sleep 1000 & setsid sleep 1000 & echo up $$; sleep 1000; true") as process:
        for pid in processes():
            if name_of(pid) == "sh" and os.path.exists(f"/proc/{pid}"):
                os.kill(pid, signal.SIGKILL)
        assert process.wait(TIMEOUT_S) == 137
    assert_nothing_left(tmp)


@case
def kill_9_of_the_janitor(tmp):
    with running(tmp, "echo up; read x; exit 5", stdin=subprocess.PIPE) as process:
        for pid in processes():
            if name_of(pid) == "causeway-tidy":
                os.kill(pid, signal.SIGKILL)
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 5
    assert_nothing_left(tmp)


@case
def kill_9_around_mpirun(tmp):
    if not shutil.which("mpirun"):
        raise Skip("no mpirun")
    mpirun = ("exec mpirun --allow-run-as-root --oversubscribe -np 2 sh -c 'echo up; echo x >/causeway/$$; "
              "sleep 1000; true'")
    for victim in ("mpirun", "sh", "causeway"):
        with running(tmp, mpirun) as process:
            pids = [pid for pid in processes() if name_of(pid) == victim]
            assert pids, victim
            os.kill(pids[-1], signal.SIGKILL)
            assert process.wait(TIMEOUT_S) != 0
        assert_nothing_left(tmp)


@case
def nested_and_side_by_side(tmp):
    inner = f"{CAUSEWAY} run -q -- sh -c 'ls /causeway; echo in >/causeway/i; exit 6'; echo $?; ls /causeway; exit 7"
    assert causeway(tmp, "run", "-q", "--", "sh", "-c", f"echo >/causeway/o; {inner}", status=7).stdout == "6\no\n"
    with running(tmp, "echo up; echo one >/causeway/f; read x; cat /causeway/f; read y", stdin=subprocess.PIPE) as one:
        assert causeway(tmp, "run", "-q", "--", "sh", "-c", HELLO).stdout == "hello\n"
        one.stdin.write("\n")
        one.stdin.flush()
        assert one.stdout.readline() == "one\n"
        one.stdin.close()
    assert_nothing_left(tmp)


@case
def many_in_a_row(tmp):
    for _ in range(30):
        causeway(tmp, "run", "-q", "--prefault", "0", "--", "true")
    assert not run_dirs(tmp)
    assert_nothing_left(tmp)


@case
def few_descriptors_and_long_arguments(tmp):
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    assert causeway(tmp, "run", "-q", "--", "sh", "-c", HELLO, preexec_fn=few).stdout == "hello\n"
    causeway(tmp, "run", "-q", "--", "true", *["x" * 100] * 5000)
    done = causeway(tmp, "run", "-q", "--", "sh", "-c", "echo ${#BIG}", env={"BIG": "x" * 100000})
    assert done.stdout == "100000\n"


@case
def any_user_and_any_run_directory(tmp):
    for base in ("", "relative", "/nonexistent", "/etc/passwd", "/" + "x" * 300):
        done = causeway(tmp, "run", "-q", "--", "sh", "-c", "echo $CAUSEWAY_RUN_DIR", env={"XDG_RUNTIME_DIR": base})
        assert done.stdout.startswith("/tmp/causeway-run") and not os.path.exists(done.stdout.strip())
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise Skip("not root: one user only")
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*nobody, CAUSEWAY, "--version"], capture_output=True, check=False).returncode != 0:
        raise Skip("the build is not readable by other users")
    done = causeway(tmp, "run", "-q", "--", "sh", "-c", f"id -u; {HELLO}", command=nobody)
    assert done.stdout == "65534\nhello\n"


@case
def daemons_a_file_and_lctl(tmp):
    for server, options in (("oss", ["--osts", "2"]), ("mds", ["--oss", "2@shm:1:2"])):
        text = causeway(tmp, server, *options, "--run-dir", tmp, "--dry-run").stdout
        with open(f"{tmp}/{server}.yaml", "w") as file:
            file.write(text)
        assert causeway(tmp, server, "--config", f"{tmp}/{server}.yaml", "--dry-run").stdout == text
    with contextlib.ExitStack() as stack:
        daemons = [stack.enter_context(subprocess.Popen(
            [CAUSEWAY, server, "--config", f"{tmp}/{server}.yaml"], stdout=subprocess.PIPE, text=True,
            env=environment(tmp))) for server in ("oss", "mds")]
        try:
            assert all("serving" in daemon.stdout.readline() for daemon in daemons)
            for verb in ("ping", "nis", "peers", "stats", "params"):
                for nid in ("1@shm", "0-2@shm"):
                    assert causeway(tmp, "lctl", "--run-dir", tmp, verb, nid).stdout
                    late = causeway(tmp, "lctl", verb, nid, "--json", "--run-dir", tmp).stdout
                    json.loads(late, parse_constant=lambda name: 1 / 0)
            assert "EADDRINUSE" in causeway(tmp, "mds", "--run-dir", tmp, status=1).stderr
            client = {"CAUSEWAY_MDS": "0-1@shm", "CAUSEWAY_RUN_DIR": tmp}
            causeway(tmp, "mdtest", "-a", "CAUSEWAY", "-n", "10", "-F", "-d", "/causeway/d", env=client)
            if os.path.exists(PRELOAD):
                done = subprocess.run(["sh", "-c", HELLO], capture_output=True, text=True, timeout=TIMEOUT_S,
                                      env=environment(tmp, LD_PRELOAD=PRELOAD, **client), check=False)
                assert done.stdout == "hello\n", done
        finally:
            for daemon in daemons:
                daemon.terminate()
        assert [daemon.wait(TIMEOUT_S) for daemon in daemons] == [0, 0]
    assert sorted(os.listdir(tmp)) == ["mds.yaml", "oss.yaml"], os.listdir(tmp)


def main():
    wanted = [c for c in CASES if not sys.argv[2:] or c.__name__ in sys.argv[2:]]
    failed = 0
    print(f"1..{len(wanted)}")
    for number, function in enumerate(wanted, 1):
        title = function.__name__.replace("_", " ")
        scratch = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="causeway-test-", dir=scratch) as tmp:
            os.chmod(tmp, 0o1777)
            try:
                if not os.path.exists(PRELOAD):
                    raise Skip("no preload library here")
                function(tmp)
                print(f"ok {number} {title}", flush=True)
            except Skip as why:
                print(f"ok {number} {title} # SKIP {why}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired, OSError, ValueError):
                failed += 1
                print(f"not ok {number} {title}")
                for line in traceback.format_exc().splitlines():
                    print(f"# {line}", flush=True)
    sys.exit(1 if failed else 0)


main()
