#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Processes that die, stop, or come in crowds, on both sides of the `causeway mds` and `causeway oss` daemons.

Whatever happens to clients, the daemons go on and have afterwards what they had before: exports, open handles,
leases, descriptors, peers, memory (`causeway lctl --json` and /proc). Whatever happens to a daemon, its clients'
calls end.

Usage: death_test.py CAUSEWAY_PROGRAM [CASE ...]

Prints TAP.
"""
import json
import os
import random
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
SEED = int(os.environ.get("DEATH_TEST_SEED", "1"))
KILLS = int(os.environ.get("DEATH_TEST_KILLS", "50"))
PATIENCE_S = 20
# What a sanitizer keeps back of freed memory to find its use is no growth of ours: it stops at this.
KEPT_BYTES = 64 << 20 if "CAUSEWAY_TEST_SANITIZER" in os.environ else 0
GROWTH_BYTES = 8 << 20  # of a daemon's private memory: the pools that the first clients made grow


class Skip(Exception):
    pass


def case(function):
    CASES.append(function)
    return function


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_") and k != "LD_PRELOAD"}
    return clean | more


class Daemons:
    """An MDS and an OSS in a run directory of their own."""

    def __init__(self, *flags):
        self.dir = tempfile.mkdtemp(prefix="causeway-death-")
        self.env = environment(CAUSEWAY_RUN_DIR=self.dir, CAUSEWAY_MDS="1@shm", CAUSEWAY_PREFIX="/causeway",
                               CAUSEWAY_TIMEOUT_MS="5000")
        self.processes = {}
        self.clients = []
        self.flags = flags
        self.start("oss", "--mem", "512m", "--prefault", "0", *flags)
        self.start("mds", "--oss", "2@shm", *flags)

    def start(self, name, *flags):
        with open(os.path.join(self.dir, f"{name}.log"), "ab") as log:
            process = subprocess.Popen([CAUSEWAY, name, *flags], stdout=subprocess.PIPE, stderr=log, text=True,
                                       env=self.env)
        line = process.stdout.readline()
        assert f"causeway {name}: serving" in line, f"{name}: {line!r}\n{self.log(name)}"
        self.processes[name] = process

    def log(self, name):
        with open(os.path.join(self.dir, f"{name}.log"), encoding="utf-8") as log:
            return log.read()

    def client(self, *command, **options):
        client = subprocess.Popen([str(word) for word in command], env=self.env, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, **options)
        self.clients.append(client)
        return client

    def run(self, *command, status=0, timeout=PATIENCE_S):
        done = subprocess.run([str(word) for word in command], env=self.env, capture_output=True, text=True,
                              timeout=timeout, check=False)
        assert status is None or done.returncode == status, \
            f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def lctl(self, verb, nid):
        return json.loads(self.run(CAUSEWAY, "lctl", "--json", verb, nid).stdout)

    def holds(self):
        """What clients hold at the servers, and must not when they are gone."""
        held = {}
        for name, nid in (("mds", "1@shm"), ("oss", "2@shm")):
            for service in self.lctl("stats", nid):
                if service["name"] != "control":
                    held[f"{service['name']}.exports"] = service["export_count"]
                    held[f"{service['name']}.active"] = service["req_active_count"]
                    for key in ("open_handle_count", "orphan_count", "lease_count"):
                        held |= {f"{name}.{key}": v for part in ("mds", "oss")
                                 for k, v in service.get(part, {}).items() if k == key}
            held[f"{name}.peers"] = sum(peer["state"] != "down" for peer in self.lctl("peers", nid))
        for name in self.processes:
            # The least of some looks: the connection of lctl itself may be about to end.
            looks = []
            for _ in range(5):
                time.sleep(0.005)
                looks.append((self.descriptors(name), self.mappings(name, "conn")))
            held[f"{name}.descriptors"], held[f"{name}.connections"] = min(looks)
        return held

    def descriptors(self, name):
        """Those of a daemon that are not memory: memory grows with what is stored."""
        folder = f"/proc/{self.processes[name].pid}/fd"
        count = 0
        for entry in os.listdir(folder):
            try:
                count += not os.readlink(f"{folder}/{entry}").startswith("/memfd:")
            except FileNotFoundError:
                pass
        return count

    def mappings(self, name, what):
        """Shared memory of one kind that is mapped by a daemon."""
        with open(f"/proc/{self.processes[name].pid}/maps", encoding="ascii") as maps:
            return sum(f"/memfd:causeway-{what}" in line for line in maps)

    def at_rest(self):
        """What the servers hold when a first client, for which the MDS connects to the OSS, has come and gone."""
        self.run(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-b", "1m", "-t", "1m", "-o", "/causeway/first")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            held = self.holds()
            if held["mds.exports"] == 0 and held["ost.exports"] == 1 and held["oss.peers"] == 2:
                return held
            assert time.monotonic() < deadline, held
            time.sleep(0.1)

    def private_bytes(self, name):
        """Without what is stored, which is shared memory."""
        with open(f"/proc/{self.processes[name].pid}/smaps_rollup", encoding="ascii") as rollup:
            kib = {line.split(":")[0]: int(line.split()[1]) for line in rollup if line.endswith("kB\n")}
        return 1024 * kib["Anonymous"]

    def assert_holds(self, wanted):
        """Exports live a second after their client, and connections are seen to end at the next look."""
        deadline = time.monotonic() + PATIENCE_S
        while (held := self.holds()) != wanted and time.monotonic() < deadline:
            time.sleep(0.2)
        assert held == wanted, f"held: {held}\nwanted: {wanted}"

    def assert_well(self):
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended: {process.returncode}\n{self.log(name)}"

    def assert_idle(self):
        """Under 5 % of a core for a second."""
        def ticks(process):
            with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        before = {name: ticks(process) for name, process in self.processes.items()}
        time.sleep(1)
        for name, process in self.processes.items():
            used_s = (ticks(process) - before[name]) / os.sysconf("SC_CLK_TCK")
            assert used_s <= 0.05, f"{name} used {used_s} s in a second without clients"

    def close(self):
        for process in self.clients + list(self.processes.values()):
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def writer(daemons, name, *more):
    """A client that writes and reads 1 MiB at a time until it is killed."""
    return daemons.client(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-r", "-k", "-b", "16m", "-t", "1m", "-i", "10000",
                          "-o", f"/causeway/{name}", *more)


def kill_at_random(daemons, rng, kills):
    """Three clients at a time, each killed somewhere between its start and some transfers later."""
    alive = []
    for i in range(kills):
        alive.append(writer(daemons, f"file{i % 4}", *(["-F"] if i % 2 else [])))
        time.sleep(rng.uniform(0, 0.12))
        if len(alive) == 3:
            victim = alive.pop(rng.randrange(len(alive)))
            victim.kill()
            victim.wait()
        daemons.assert_well()
    for victim in alive:
        time.sleep(rng.uniform(0, 0.12))
        victim.kill()
        victim.wait()


@case
def killed_clients_give_back_all_they_had():
    daemons = Daemons()
    rng = random.Random(SEED)
    try:
        wanted = daemons.at_rest()
        kill_at_random(daemons, rng, 6)
        daemons.assert_holds(wanted)
        before = {name: daemons.private_bytes(name) for name in daemons.processes}
        regions = {name: daemons.mappings(name, "region") for name in daemons.processes}
        kill_at_random(daemons, rng, KILLS - 6)
        daemons.assert_holds(wanted)
        for name, was in regions.items():
            assert daemons.mappings(name, "region") <= was + 16, f"{name}: regions of the dead are mapped"
        for name, was in before.items():
            grown = daemons.private_bytes(name) - was
            assert grown <= GROWTH_BYTES + KEPT_BYTES, f"{name} grew by {grown} bytes"
        daemons.run(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-r", "-W", "-R", "-b", "16m", "-t", "1m", "-o",
                    "/causeway/file0")
        daemons.assert_holds(wanted)
        daemons.assert_idle()
    finally:
        daemons.close()


@case
def killed_clients_of_servers_that_make_the_copies():
    """The same without leases, so that the server is the one that copies when the client dies."""
    daemons = Daemons()
    daemons.processes["oss"].kill()
    daemons.processes["oss"].wait()
    daemons.start("oss", "--mem", "512m", "--prefault", "0", "--no-lease")
    try:
        wanted = daemons.at_rest()
        kill_at_random(daemons, random.Random(SEED + 1), KILLS // 3)
        daemons.assert_holds(wanted)
    finally:
        daemons.close()


@case
def a_killed_server_ends_the_calls_of_busy_clients():
    for name in ("oss", "mds"):
        daemons = Daemons()
        try:
            clients = [writer(daemons, f"file{i}", "-F") for i in range(3)]
            time.sleep(0.7)
            for client in clients:
                assert client.poll() is None
            daemons.processes[name].kill()
            daemons.processes[name].wait()
            for client in clients:
                assert client.wait(timeout=PATIENCE_S) != 0, f"{name}: a client ended well"
        finally:
            daemons.close()


@case
def a_crowd_connects_at_once():
    daemons = Daemons()
    try:
        wanted = daemons.at_rest()
        clients = [daemons.client(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-b", "64k", "-t", "64k", "-o",
                                  f"/causeway/file{i}") for i in range(64)]
        for client in clients:
            assert client.wait(timeout=PATIENCE_S) == 0
        daemons.assert_holds(wanted)
    finally:
        daemons.close()


@case
def clients_come_one_after_another():
    daemons = Daemons()
    try:
        wanted = daemons.at_rest()
        before = None
        for i in range(500):
            daemons.run(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-b", "64k", "-t", "64k", "-o", "/causeway/file")
            if i == 100:
                before = {name: daemons.private_bytes(name) for name in daemons.processes}
        daemons.assert_holds(wanted)
        for name, was in before.items():
            grown = daemons.private_bytes(name) - was
            assert grown <= (1 << 20) + KEPT_BYTES, f"{name} grew by {grown} bytes with 400 clients"
    finally:
        daemons.close()


@case
def a_stopped_client_keeps_what_it_has_and_goes_on():
    """Stopped amid transfers for a while, with the servers serving others meanwhile."""
    daemons = Daemons()
    stop_s = float(os.environ.get("DEATH_TEST_STOP_S", "3"))
    try:
        wanted = daemons.at_rest()
        stopped = daemons.client(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-r", "-W", "-b", "64m", "-t", "1m", "-i",
                                 "20", "-o", "/causeway/stopped")
        time.sleep(0.3)
        for _ in range(8):
            stopped.send_signal(signal.SIGSTOP)
            daemons.run(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-r", "-R", "-b", "4m", "-t", "1m", "-o",
                        "/causeway/other")
            time.sleep(stop_s / 8)
            stopped.send_signal(signal.SIGCONT)
            time.sleep(0.02)
        assert stopped.wait(timeout=60) == 0, "it ended badly"
        daemons.assert_holds(wanted)
    finally:
        daemons.close()


@case
def servers_start_over_what_the_dead_left():
    daemons = Daemons()
    try:
        # A second one of the same name is refused, and the first goes on.
        second = daemons.run(CAUSEWAY, "oss", status=None)
        assert second.returncode == 1 and "2@shm-0" in second.stderr, second
        daemons.run(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-b", "1m", "-t", "1m", "-o", "/causeway/file")
        for name in ("oss", "mds"):
            daemons.processes[name].kill()
            daemons.processes[name].wait()
        # A client without a server: an error, soon.
        started = time.monotonic()
        daemons.run(CAUSEWAY, "lctl", "ping", "1@shm", status=1)
        daemons.run(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-b", "1m", "-t", "1m", "-o", "/causeway/file",
                    status=None)
        assert time.monotonic() - started < PATIENCE_S
        # The MDS before the OSS this time.
        daemons.start("mds", "--oss", "2@shm")
        daemons.start("oss", "--mem", "256m", "--prefault", "0")
        daemons.run(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-w", "-r", "-W", "-b", "4m", "-t", "1m", "-o",
                    "/causeway/file")
        assert not [entry for entry in os.listdir(daemons.dir) if entry.endswith(".new")]
    finally:
        daemons.close()


@case
def a_run_directory_of_wrong_permissions_is_refused_by_name():
    daemons = Daemons()
    try:
        for mode, text in ((0o777, "closed to others"), (0o770, "closed to others")):
            os.chmod(daemons.dir, mode)
            done = daemons.run(CAUSEWAY, "lctl", "ping", "1@shm", status=1)
            assert text in done.stderr and daemons.dir in done.stderr, done.stderr
        os.chmod(daemons.dir, 0o700)
        daemons.run(CAUSEWAY, "lctl", "ping", "1@shm")
    finally:
        daemons.close()


@case
def embedded_servers_die_with_their_command_and_leave_nothing():
    if not os.path.exists(PRELOAD):
        raise Skip("no preload library, so no `causeway run`")
    base = tempfile.mkdtemp(prefix="causeway-death-")
    try:
        for i in range(6):
            run = subprocess.Popen([CAUSEWAY, "run", "-q", "--", CAUSEWAY, "ior", "-w", "-r", "-b", "16m", "-t", "1m",
                                    "-i", "10000", "-o", "/causeway/file"],
                                   env=environment(XDG_RUNTIME_DIR=base, TMPDIR=base), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
            time.sleep(0.2 + 0.1 * i)
            run.kill()
            run.wait()
        deadline = time.monotonic() + PATIENCE_S
        while left_running(base) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left_running(base), left_running(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def left_running(base):
    """Processes that a `causeway run` with @base started."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as env:
                if f"XDG_RUNTIME_DIR={base}".encode() in env.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def main():
    chosen = [function for function in CASES if not sys.argv[2:] or function.__name__ in sys.argv[2:]]
    failed = 0

    print(f"1..{len(chosen)}", flush=True)
    for number, function in enumerate(chosen, 1):
        started = time.monotonic()
        try:
            function()
            verdict = f"ok {number} - {function.__name__}"
        except Skip as why:
            verdict = f"ok {number} - {function.__name__} # SKIP {why}"
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc(file=sys.stdout)
            verdict = f"not ok {number} - {function.__name__}"
            failed += 1
        print(f"{verdict}\n# {time.monotonic() - started:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
