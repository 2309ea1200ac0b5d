#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`causeway ior` and `causeway mdtest` from end to end: on a local directory, under mpirun, and on embedded
servers. Output is read as scripts read it: rows by their columns, JSON by a strict parser.

Usage: ior_mdtest_test.py CAUSEWAY_PROGRAM [CASE ...]

Prints TAP. What needs mpirun, causeway-mpi or the preload library is skipped where that is missing.
"""
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

CAUSEWAY = os.path.abspath(sys.argv[1])
MPI = os.path.join(os.path.dirname(CAUSEWAY), "causeway-mpi")
CASES = []
TIMEOUT_S = 120


class Skip(Exception):
    pass


def case(function):
    CASES.append(function)
    return function


def environment(**more):
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("OMPI_", "PMI", "CAUSEWAY_")) and k != "LD_PRELOAD"}
    clean.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # MPI libraries keep what they allocate
    return clean | more


def run(*command, status=0, **env):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=TIMEOUT_S, env=environment(**env), check=False)
    assert done.returncode == status, \
        f"{command}: status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
    return done


def ior(*flags, status=0):
    return run(CAUSEWAY, "ior", *flags, status=status)


def mdtest(*flags, status=0):
    return run(CAUSEWAY, "mdtest", *flags, status=status)


def mpirun(ranks, *command, status=0):
    if not shutil.which("mpirun") or not os.path.exists(MPI):
        raise Skip("no mpirun, or built without MPI")
    return run(*mpirun_words(ranks), *command, status=status)


def mpirun_words(ranks):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *root, "--oversubscribe", "-np", ranks]


def on_servers(*command, status=0):
    preload = os.path.join(os.path.dirname(CAUSEWAY), "../clients/preload/libcauseway_preload.so")
    if not os.path.exists(preload):
        raise Skip("no preload library, so no `causeway run`")
    return run(CAUSEWAY, "run", "-q", "--", *command, status=status)


def strict_json(path):
    def no_duplicates(pairs):
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"a key is there twice: {keys}"
        return dict(pairs)

    def no_constants(name):
        raise AssertionError(f"{name} in JSON")

    with open(path, encoding="utf-8") as file:
        return json.load(file, object_pairs_hook=no_duplicates, parse_constant=no_constants)


def rows(output, access):
    """The numbers in IOR's rows of one access."""
    found = []
    for line in output.splitlines():
        words = line.split()
        if words[:1] == [access] and len(words) == 11:
            found.append([float("nan") if word == "-" else float(word) for word in words[1:]])
    return found


def table(output):
    """mdtest's table: name -> [max, min, mean, deviation]."""
    found = {}
    for line in output.splitlines():
        match = re.fullmatch(r"   (\w+ \w+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", line)
        if match:
            found[match[1]] = [float(match[i]) for i in range(2, 6)]
    return found


def files_below(top):
    return sorted(os.path.relpath(os.path.join(path, name), top)
                  for path, dirs, names in os.walk(top) for name in dirs + names)


# ---- ior ----

@case
def ior_prints_the_rows_and_leaves_nothing(tmp):
    out = ior("-b", "1m", "-t64k", "-s", "3", "-i2", "-e", "-o", f"{tmp}/f").stdout
    assert os.listdir(tmp) == []
    for access in ("write", "read"):
        lines = rows(out, access)
        assert [line[-1] for line in lines] == [0, 1], out
        for bandwidth, ops, latency, block, transfer, opened, moved, closed, total, _ in lines:
            assert (block, transfer) == (1024, 64)
            assert math.isclose(bandwidth, 3 / total, rel_tol=0.05), out
            assert math.isclose(ops, 48 / moved, rel_tol=0.05), out
            assert opened + closed <= total + 2e-6 and latency > 0 and moved <= total + 2e-6
    assert len(rows(out, "remove")) == 2
    best = max(line[0] for line in rows(out, "write"))
    match = re.search(r"^Max Write: ([\d.]+) MiB/sec \(([\d.]+) MB/sec\)$", out, re.M)
    assert abs(float(match[1]) - best) <= 1 and math.isclose(float(match[2]), float(match[1]) * 1.048576, rel_tol=1e-3)
    assert re.search(r"^write .* POSIX +0$", out, re.M) and re.search(r"^Finished +: ", out, re.M)
    for label in ("api", "access", "segments", "tasks", "xfersize", "blocksize", "aggregate filesize"):
        assert re.search(rf"^{label} +: ", out, re.M), label


@case
def ior_flags_in_all_combinations_move_the_bytes_asked_for(tmp):
    sets = [["-F"], [], ["-z"], ["-F", "-z", "-e"], ["-C"], ["-g", "-Y"], ["-F", "-u"], ["-m", "-i2"],
            ["-E"], ["-W"], ["-R"], ["-W", "-R", "-z", "-F"], ["-v", "-v"], ["-d0", "-T0", "-A5"], ["-Q3", "-C"]]
    sizes = [("1m", "256k", 1), ("47008", "47008", 20), ("9", "3", 7), ("4095", "4095", 3), ("1", "1", 1)]
    for flags in sets:
        for block, transfer, segments in sizes:
            path = f"{tmp}/j.json"
            ior("-w", "-r", "-b", block, "-t", transfer, "-s", segments, *flags, "-o", f"{tmp}/f", "--json", path)
            data = strict_json(path)
            bytes_ = data["options"]["block_bytes"] * segments
            moved = [r for r in data["results"] if r["access"] in ("write", "read")]
            assert len(moved) == 2 * data["options"]["repetitions"]
            for result in moved:
                assert result["ok"] and result["done_bytes"] == result["expected_bytes"] == bytes_
                assert result["transfers"] * data["options"]["transfer_bytes"] == bytes_
                assert math.isclose(result["bandwidth_bytes_per_s"],
                                    bytes_ * 1e9 / result["total"]["total_ns"], rel_tol=1e-9)
                assert (result["fsync"] is not None) == ("-e" in flags and result["access"] == "write")
                assert (result["wrong_bytes"] == 0) == (result["access"] == "read" and "-R" in flags)
            os.unlink(path)
            assert os.listdir(tmp) == [], (flags, os.listdir(tmp))


@case
def ior_names_files_as_ior_does(tmp):
    ior("-w", "-k", "-o", f"{tmp}/f")
    ior("-w", "-k", "-F", "-o", f"{tmp}/p")
    ior("-w", "-k", "-F", "-m", "-i2", "-u", "-o", f"{tmp}/u")
    assert files_below(tmp) == ["0", "0/u.00000000.0", "0/u.00000000.1", "f", "p.00000000"]


@case
def ior_data_are_the_same_however_they_are_cut(tmp):
    contents = set()
    for flags in (["-t64k"], ["-t1m"], ["-t1m", "-Y"], ["-t1k", "-z"], ["-t1"]):
        ior("-w", "-k", "-G7", "-b", "1m", *flags, "-o", f"{tmp}/f")
        with open(f"{tmp}/f", "rb") as file:
            contents.add(file.read())
    assert len(contents) == 1 and len(contents.pop()) == 1 << 20


@case
def ior_finds_a_flipped_byte(tmp):
    ior("-w", "-k", "-G7", "-b1m", "-o", f"{tmp}/f")
    ior("-r", "-k", "-R", "-G7", "-b1m", "-o", f"{tmp}/f")
    with open(f"{tmp}/f", "r+b") as file:
        file.seek(777777)
        byte = file.read(1)
        file.seek(777777)
        file.write(bytes([byte[0] ^ 8]))
    for flags in (["-r", "-R"], ["-R"], ["-W"]):
        done = ior(*flags, "-k", "-G7", "-b1m", "-o", f"{tmp}/f", "--json", f"{tmp}/j", status=1)
        assert "1 wrong bytes, the first at 777777" in done.stderr
        data = strict_json(f"{tmp}/j")
        assert data["results"][0]["wrong_bytes"] == 1 and not data["results"][0]["ok"]
        assert data["exit_status"] == 1
    ior("-r", "-R", "-G8", "-k", "-b1m", "-o", f"{tmp}/f", status=1)
    ior("-r", "-R", "-G7", "-K", "-b1m", "-o", f"{tmp}/f", status=1)
    assert os.path.exists(f"{tmp}/f")
    ior("-r", "-R", "-G7", "-b1m", "-o", f"{tmp}/f", status=1)
    assert not os.path.exists(f"{tmp}/f")


@case
def ior_says_what_fails(tmp):
    assert "open of" in ior("-r", "-o", f"{tmp}/none", "-k", status=1).stderr
    assert "ENOENT" in ior("-w", "-o", f"{tmp}/no/dir", "-k", status=1).stderr
    with open(f"{tmp}/short", "wb") as file:
        file.truncate(1000)
    assert "the file ends before" in ior("-r", "-o", f"{tmp}/short", status=1, *["-k"]).stderr
    if os.path.exists("/dev/full"):
        assert "ENOSPC" in ior("-w", "-E", "-k", "-o", "/dev/full", status=1).stderr


@case
def ior_stops_at_the_deadline_and_reads_what_was_written(tmp):
    ior("-w", "-r", "-D1", "-F", "-R", "-t", "64", "-b", "4g", "-Y", "-o", f"{tmp}/f", "--json", f"{tmp}/j")
    write, read = [r for r in strict_json(f"{tmp}/j")["results"] if r["access"] != "remove"]
    assert write["stonewalled"] and 1e9 <= write["transfer"]["total_ns"] < 20e9
    assert 0 < write["done_bytes"] < write["expected_bytes"]
    assert read["done_bytes"] == write["done_bytes"] and read["wrong_bytes"] == 0


@case
def wrong_command_lines_end_with_2_and_name_the_option(tmp):
    wrong = [(["-b", "1mm"], "-b"), (["-t", "-1"], "-t"), (["-b1e9"], "-b"), (["-b", "3m", "-t", "2m"], "-b"),
             (["-s0"], "-s"), (["-i"], "-i"), (["-a", "MPIIO"], "-a"), (["-c"], "collective I/O"),
             (["-wc"], "'-c'"), (["-O", "x=1"], "'-O'"), (["-w", "-w"], "given twice"), (["-b1m", "-b2m"], "given twice"),
             (["--jsn", "x"], "did you mean '--json'"), (["-$"], "'-$'"), (["file"], "'file'"), (["-u"], "-F"),
             (["-r", "-R"], "-G"), (["-a", "CAUSEWAY"], "CAUSEWAY_MDS"), (["-o", ""], "-o"),
             (["-b", "1048576", "-t", "1", "-s", "99999999999999999999"], "-s"), (["-o", "x/"], "-o"),
             (["--warningAsErrors"], "not implemented")]
    for flags, text in wrong:
        done = ior(*flags, status=2)
        assert text in done.stderr and done.stdout == "", (flags, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
    wrong = [(["-n", "x"], "-n"), (["-n1", "-I1"], "-I"), (["-F", "-D"], "-D"), (["-w1", "-e2"], "-e"), (["-S"], "'-S'"),
             (["-d", "a@b"], "-d"), (["-z99"], "-z"), (["-z40", "-b9"], "too many"), (["-k", "-w1"], "-k"),
             (["-W", "3"], "stonewall"), (["-a", "CAUSEWAY", "-d", "/x"], "CAUSEWAY_MDS")]
    for flags, text in wrong:
        done = mdtest(*flags, status=2)
        assert text in done.stderr and done.stdout == "", (flags, done.stderr)
    assert os.listdir(tmp) == []


@case
def a_dry_run_prints_a_command_line_that_gives_the_same_one(tmp):
    for command, flags in (("ior", ["-wreb64m", "-t=1m", "-FCvv", "-G5", "-o", f"{tmp}/it's"]),
                           ("mdtest", ["-n100", "-uF", "-z2", "-b=3", "-d", f"{tmp}/a b", "--json", "j"])):
        first = run(CAUSEWAY, command, *flags, "--dry-run").stdout
        line = first.replace(f"causeway {command}", f"{CAUSEWAY} {command}", 1).strip()
        assert run("sh", "-c", f"{line} --dry-run").stdout == first
    assert os.listdir(tmp) == []


@case
def the_help_has_an_example(tmp):
    for command in ("ior", "mdtest"):
        for flag in ("--help", "-h"):
            out = run(CAUSEWAY, command, flag).stdout
            assert f"causeway {command}" in out and "example:" in out and "refused by name:" in out
    assert os.listdir(tmp) == []


@case
def json_that_cannot_be_written_fails(tmp):
    assert "--json" in ior("-b1k", "-t1k", "-o", f"{tmp}/f", "--json", f"{tmp}/no/j", status=1).stderr


# ---- mdtest ----

ALL = ["Directory creation", "Directory stat", "Directory rename", "Directory removal", "File creation", "File stat",
       "File read", "File removal", "Tree creation", "Tree removal"]


def names(kind, rank, numbers, below):
    return [f"{below}/{kind}.mdtest.{rank}.{i}" for i in numbers]


@case
def mdtest_prints_the_table_and_leaves_only_its_directory(tmp):
    out = mdtest("-n", "30", "-i", "3", "-d", f"{tmp}/md").stdout
    assert files_below(tmp) == ["md"]
    found = table(out)
    assert list(found) == ALL
    for high, low, mean, deviation in found.values():
        assert high >= mean >= low > 0 and 0 <= deviation <= high
    assert "SUMMARY rate (in ops/sec): (of 3 iterations)" in out and "1 tasks, 30 files/directories" in out
    assert list(table(mdtest("-n3", "-F", "-d", f"{tmp}/md").stdout)) == ALL[4:]
    assert list(table(mdtest("-n3", "-D", "-d", f"{tmp}/md").stdout)) == ALL[:4] + ALL[8:]
    assert "SUMMARY time (in ms/op)" in mdtest("-n3", "-P", "-d", f"{tmp}/md").stdout
    assert "ops/sec" not in mdtest("-n3", "-Z", "-d", f"{tmp}/md").stdout


@case
def mdtest_builds_the_tree_that_mdtest_builds(tmp):
    top = "test-dir.0-0"
    tree = f"{top}/mdtest_tree.0"
    mdtest("-C", "-n3", "-d", f"{tmp}/a")
    assert files_below(f"{tmp}/a") == sorted(
        [top, tree] + names("dir", 0, range(3), tree) + names("file", 0, range(3), tree))
    mdtest("-C", "-F", "-L", "-n20", "-z1", "-b3", "-d", f"{tmp}/b")
    wanted = [top, tree]
    for k in (1, 2, 3):
        wanted += [f"{tree}/mdtest_tree.{k}"] + names("file", 0, range(6 * k, 6 * k + 6), f"{tree}/mdtest_tree.{k}")
    assert files_below(f"{tmp}/b") == sorted(wanted)
    mdtest("-C", "-D", "-I2", "-z1", "-b2", "-u", "-d", f"{tmp}/c")
    tree = f"{top}/mdtest_tree.0.0"
    wanted = [top, tree] + names("dir", 0, range(2), tree)
    for k in (1, 2):
        wanted += [f"{tree}/mdtest_tree.0.{k}"] + names("dir", 0, range(2 * k, 2 * k + 2), f"{tree}/mdtest_tree.0.{k}")
    assert files_below(f"{tmp}/c") == sorted(wanted)
    mdtest("-r", "-D", "-I2", "-z1", "-b2", "-u", "-d", f"{tmp}/c")
    assert files_below(f"{tmp}/c") == []


@case
def mdtest_phases_run_alone_and_say_what_did_not_run(tmp):
    shape = ["-n7", "-z1", "-b2", "-d", f"{tmp}/md", "--json", f"{tmp}/j"]
    mdtest("-C", *shape)
    made = files_below(f"{tmp}/md")
    for flag, ran in (("-T", ["directory_stat", "file_stat"]), ("-E", ["file_read"]), ("-U", ["directory_rename"])):
        out = mdtest(flag, *shape).stdout
        assert files_below(f"{tmp}/md") == made, flag
        data = strict_json(f"{tmp}/j")
        phases = {phase["phase"]: phase for phase in data["results"][0]["phases"]}
        assert len(phases) == 10
        for name, phase in phases.items():
            if name in ran:
                assert phase["status"] == "ok" and phase["done"] == 6 and phase["rate_ops_per_s"] > 0
                assert data["summary"][name]["iterations"] == 1
            else:
                assert phase["status"] == "not run" and phase["done"] is None and phase["rate_ops_per_s"] is None
                assert data["summary"][name] is None
        assert "not run: " in out and table(out)["File removal"] == [0, 0, 0, 0]
    mdtest("-r", *shape)
    assert files_below(f"{tmp}/md") == []


@case
def mdtest_counts_only_what_succeeded(tmp):
    mdtest("-C", "-F", "-n10", "-d", f"{tmp}/md")
    for i in range(4):
        os.unlink(f"{tmp}/md/test-dir.0-0/mdtest_tree.0/file.mdtest.0.{i}")
    done = mdtest("-T", "-F", "-n10", "-d", f"{tmp}/md", "--json", f"{tmp}/j", status=1)
    phase = [p for p in strict_json(f"{tmp}/j")["results"][0]["phases"] if p["phase"] == "file_stat"][0]
    assert (phase["status"], phase["done"], phase["failed"]) == ("failures", 6, 4)
    assert math.isclose(phase["rate_ops_per_s"], 6e9 / phase["time"]["total_ns"], rel_tol=1e-9)
    assert "FAILED: File stat: 4 of 10" in done.stdout and "No such file" in done.stderr
    done = mdtest("-r", "-D", "-n10", "-d", f"{tmp}/none", "--json", f"{tmp}/j", status=1)
    phases = {p["phase"]: p for p in strict_json(f"{tmp}/j")["results"][0]["phases"]}
    assert phases["directory_removal"]["rate_ops_per_s"] is None and phases["directory_removal"]["failed"] == 10


@case
def mdtest_writes_and_reads_bytes(tmp):
    mdtest("-F", "-n5", "-w", "4097", "-e", "4000", "-y", "-i2", "-d", f"{tmp}/md")
    mdtest("-C", "-F", "-n5", "-w", "10", "-d", f"{tmp}/md")
    assert os.path.getsize(f"{tmp}/md/test-dir.0-0/mdtest_tree.0/file.mdtest.0.4") == 10
    mdtest("-E", "-F", "-n5", "-e", "10", "-d", f"{tmp}/md")
    assert "the file ends before" in mdtest("-E", "-F", "-n5", "-e", "11", "-d", f"{tmp}/md", status=1).stderr
    mdtest("-F", "-n5", "-k", "-R", "-d", f"{tmp}/k")


@case
def mdtest_with_nothing_to_do_ends_clean(tmp):
    for flags in (["-n0"], ["-n2", "-z1", "-b2"], ["-I0", "-z2", "-b3"], ["-n1"], ["-n1", "-D"], ["-n2", "-D"], []):
        mdtest(*flags, "-d", f"{tmp}/md", "--json", f"{tmp}/j")
        strict_json(f"{tmp}/j")
    assert files_below(f"{tmp}/md") == []


# ---- several ranks ----

@case
def several_ranks_share_a_file_and_check_each_other(tmp):
    for flags in ([], ["-F"], ["-C"], ["-F", "-z", "-g"], ["-u", "-F", "-C"]):
        done = mpirun(3, CAUSEWAY, "ior", "-wr", "-WR", "-e", "-b", "300k", "-t", "100k", "-s2", "-i2", *flags, "-o",
                      f"{tmp}/f", "--json", f"{tmp}/j")
        assert done.stdout.count("Options:") == 1
        data = strict_json(f"{tmp}/j")
        assert data["tasks"] == 3
        for result in data["results"]:
            assert result["ok"]
            if result["access"] != "remove":
                assert result["done_bytes"] == 3 * 2 * 300 * 1024
                slowest = result["slowest_ranks"]
                assert [r["rank"] for r in sorted(slowest, key=lambda r: r["rank"])] == [0, 1, 2]
                assert slowest == sorted(slowest, key=lambda r: -r["total_ns"])
                assert result["total"]["total_ns"] >= slowest[0]["total_ns"]
        os.unlink(f"{tmp}/j")
        assert os.listdir(tmp) == []
    mpirun(3, CAUSEWAY, "ior", "-w", "-k", "-b", "4k", "-t", "1k", "-s2", "-o", f"{tmp}/shared")
    assert os.path.getsize(f"{tmp}/shared") == 3 * 2 * 4096
    mpirun(3, CAUSEWAY, "ior", "-wk", "-N2", "-F", "-b", "4k", "-t", "1k", "-o", f"{tmp}/n")
    assert files_below(tmp) == ["n.00000000", "n.00000001", "shared"]


@case
def one_rank_that_fails_ends_all(tmp):
    mpirun(2, CAUSEWAY, "ior", "-w", "-k", "-F", "-o", f"{tmp}/f")
    os.unlink(f"{tmp}/f.00000001")
    for flags in ([], ["-g"]):
        done = mpirun(2, CAUSEWAY, "ior", "-r", "-k", "-F", *flags, "-o", f"{tmp}/f", status=1)
        assert "rank 1: open of" in done.stderr and "rank 0" not in done.stderr.replace("[0]", "")
    done = mpirun(2, CAUSEWAY, "ior", "-b", "1mm", status=2)
    assert done.stderr.count("'1mm'") == 1
    mpirun(2, CAUSEWAY, "ior", "-N5", "-o", f"{tmp}/f", status=2)


@case
def several_ranks_work_on_each_others_items(tmp):
    for flags in ([], ["-N1"], ["-u"], ["-u", "-N2"], ["-B1"], ["-z1", "-b2", "-N1"], ["-L", "-z2", "-b2", "-u", "-N1"]):
        done = mpirun(3, CAUSEWAY, "mdtest", "-n12", "-i2", *flags, "-d", f"{tmp}/md", "--json", f"{tmp}/j")
        assert list(table(done.stdout)) == ALL
        data = strict_json(f"{tmp}/j")
        trees = 3 if "-u" in flags else 1
        for iteration in data["results"]:
            for phase in iteration["phases"]:
                tree = phase["phase"].startswith("tree")
                wanted = trees * data["options"]["directories_per_tree"] if tree else \
                    3 * data["options"]["items_per_task"]
                assert (phase["done"], phase["failed"]) == (wanted, 0), phase
        assert files_below(f"{tmp}/md") == []
    mpirun(3, CAUSEWAY, "mdtest", "-n1", "-F", "-d", f"{tmp}/md")


@case
def without_mpi_the_first_rank_runs_alone_and_says_so(tmp):
    alone = f"{tmp}/causeway"
    shutil.copy(CAUSEWAY, alone)
    launched = {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"}
    done = run(alone, "ior", "-b1k", "-t1k", "-o", f"{tmp}/f", OMPI_COMM_WORLD_RANK="0", **launched)
    assert "running one rank" in done.stderr and len(rows(done.stdout, "write")) == 1
    done = run(alone, "mdtest", "-n1", "-d", f"{tmp}/md", OMPI_COMM_WORLD_RANK="1", **launched)
    assert done.stdout == "" and done.stderr == "" and not os.path.exists(f"{tmp}/md")
    done = run(alone, "ior", "-b1k", "-t1k", "-o", f"{tmp}/f", OMPI_COMM_WORLD_SIZE="1", OMPI_COMM_WORLD_RANK="0")
    assert done.stderr == ""


# ---- embedded servers ----

@case
def both_run_on_the_client_api(tmp):
    out = on_servers(CAUSEWAY, "ior", "-wrWR", "-e", "-b4m", "-t1m", "-s2", "-i2", "-o", "/causeway/f", "--json",
                     f"{tmp}/j").stdout
    data = strict_json(f"{tmp}/j")
    assert data["options"]["api"] == "CAUSEWAY" and all(r["ok"] for r in data["results"])
    assert len(rows(out, "read")) == 2
    on_servers(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-wrR", "-b", "470080", "-t", "47008", "-z", "-o", "relative")
    on_servers(CAUSEWAY, "ior", "-a", "POSIX", "-wrWR", "-b4m", "-t1m", "-o", "/causeway/f")
    on_servers(CAUSEWAY, "ior", "-a", "CAUSEWAY", "-o", f"{tmp}/f", status=2)
    for api in ("CAUSEWAY", "POSIX"):
        out = on_servers(CAUSEWAY, "mdtest", "-a", api, "-n40", "-z1", "-b3", "-i2", "-w100", "-e100", "-y", "-d",
                         "/causeway/md").stdout
        assert list(table(out)) == ALL and min(v[1] for v in table(out).values()) > 0
    on_servers(CAUSEWAY, "mdtest", "-n4", "-F", "-d", "/causeway")


@case
def ranks_are_clients_of_their_own(tmp):
    if not shutil.which("mpirun") or not os.path.exists(MPI):
        raise Skip("no mpirun, or built without MPI")
    for flags in (["-F", "-C"], ["-z"], ["-C", "-Q2", "-e"]):
        on_servers(*mpirun_words(4), CAUSEWAY, "ior", "-wrWR", "-b2m", "-t256k", "-s2", *flags, "-o", "/causeway/f",
                   "--json", f"{tmp}/j")
        data = strict_json(f"{tmp}/j")
        assert all(r["ok"] for r in data["results"]) and data["options"]["api"] == "CAUSEWAY"
        assert (data["options"]["ranks_shifted"] > 0) == ("-C" in flags)
    for flags in ([], ["-u"], ["-N1", "-z1", "-b2"]):
        out = on_servers(*mpirun_words(4), CAUSEWAY, "mdtest", "-n60", "-i2", *flags, "-d", "/causeway/md").stdout
        assert list(table(out)) == ALL and min(v[1] for v in table(out).values()) > 0


def main():
    wanted = [c for c in CASES if not sys.argv[2:] or c.__name__ in sys.argv[2:]]
    failed = 0
    print(f"1..{len(wanted)}")
    for number, function in enumerate(wanted, 1):
        title = function.__name__.replace("_", " ")
        scratch = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="causeway-test-", dir=scratch) as tmp:
            try:
                function(tmp)
                print(f"ok {number} {title}", flush=True)
            except Skip as why:
                print(f"ok {number} {title} # SKIP {why}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired, OSError, KeyError, ValueError, IndexError, TypeError):
                failed += 1
                print(f"not ok {number} {title}")
                for line in traceback.format_exc().splitlines():
                    print(f"# {line}", flush=True)
    sys.exit(1 if failed else 0)


main()
