#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The harness keeps Google Benchmark's format, strictly, and its own promises.

Usage: check_harness.py SAMPLE [COMPARE_PY]
SAMPLE is harness_sample. COMPARE_PY is google/benchmark's tools/compare.py; without it (or without
the scipy it needs) that one case is left out, and says so.
"""
import csv
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import unittest

SAMPLE = sys.argv[1]
COMPARE = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("COMPARE_PY", "")
GOOD = "--benchmark_filter=-bad"
QUICK = "--benchmark_min_time=0.001"


def run(*flags):
    return subprocess.run([SAMPLE, *flags], capture_output=True, text=True, check=False)


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def refuse_duplicates(pairs):
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        raise ValueError(f"a key twice among {keys}")
    return dict(pairs)


def strict(text):
    return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=refuse_duplicates)


class Harness(unittest.TestCase):
    def json_of(self, *flags, code=0):
        result = run("--benchmark_format=json", *flags)
        self.assertEqual(result.returncode, code, result.stderr)
        return strict(result.stdout)

    def test_every_record_has_its_times_and_unit(self):
        records = self.json_of(QUICK, code=1)["benchmarks"]
        for record in records:
            self.assertEqual(record["time_unit"], "ns")
            for key in ("name", "run_name", "run_type", "real_time", "cpu_time", "iterations",
                        "repetitions", "threads", "family_index", "per_family_instance_index"):
                self.assertIn(key, record)
        self.assertEqual([r["name"] for r in records],
                         ["BM_loop/1", "BM_loop/64", "BM_manual/tens:10/ones:1",
                          "BM_manual/tens:20/ones:2", "BM_fixed", "BM_skips", "BM_bad_fails",
                          "BM_bad_nan", "BM_bad_leaves"])

    def test_what_fails_has_a_message_and_no_number(self):
        records = self.json_of(QUICK, "--benchmark_filter=bad", code=1)["benchmarks"]
        self.assertEqual(len(records), 3)
        for record in records:
            self.assertIs(record["error_occurred"], True)
            self.assertEqual((record["real_time"], record["cpu_time"]), (0, 0))
            self.assertNotIn("ratio_to_limit", record)
        self.assertEqual(records[0]["error_message"], "credits lost: 3")
        self.assertIn("finite", records[1]["error_message"])

    def test_what_is_skipped_is_no_failure(self):
        record = self.json_of(QUICK, "--benchmark_filter=skips")["benchmarks"][0]
        self.assertIs(record["skipped"], True)
        self.assertEqual(record["skip_message"], "no second core")

    def test_counters_are_rates_or_shares(self):
        record = self.json_of(QUICK, "--benchmark_filter=loop/64")["benchmarks"][0]
        self.assertAlmostEqual(record["sum_per_iteration"], 64)
        self.assertAlmostEqual(record["sum_per_second"] / record["items_per_second"], 64)
        self.assertAlmostEqual(record["bytes_per_second"] / record["items_per_second"], 8)
        self.assertAlmostEqual(record["items_per_second"] * record["real_time"] * 1e-9, 1)
        self.assertEqual(record["label"], 'label with "quotes", a \\ and a \t')

    def test_a_benchmark_may_bring_its_own_time(self):
        record = self.json_of(QUICK, "--benchmark_filter=manual/tens:20")["benchmarks"][0]
        self.assertAlmostEqual(record["real_time"], 22)
        self.assertEqual((record["p50_ns"], record["max_ns"]), (50, 100))

    def test_min_time_is_reached_and_iterations_can_be_fixed(self):
        record = self.json_of("--benchmark_min_time=0.02s", "--benchmark_filter=loop/1$")
        record = record["benchmarks"][0]
        self.assertGreaterEqual(record["iterations"] * record["real_time"], 0.02e9 * 0.999)
        self.assertEqual(self.json_of("--benchmark_filter=fixed")["benchmarks"][0]["iterations"], 7)
        record = self.json_of("--benchmark_filter=loop/1$", "--benchmark_min_time=123x")
        self.assertEqual(record["benchmarks"][0]["iterations"], 123)

    def test_aggregates_are_those_of_the_repetitions(self):
        records = self.json_of(QUICK, "--benchmark_filter=loop/1$", "--benchmark_repetitions=5")
        records = records["benchmarks"]
        runs = [r for r in records if r["run_type"] == "iteration"]
        self.assertEqual([r["repetition_index"] for r in runs], list(range(5)))
        self.assertEqual(len({r["iterations"] for r in runs}), 1)
        aggregates = {r["aggregate_name"]: r for r in records if r["run_type"] == "aggregate"}
        self.assertEqual(list(aggregates), ["mean", "median", "stddev", "cv"])
        for key in ("real_time", "cpu_time", "items_per_second"):
            values = [r[key] for r in runs]
            mean = statistics.mean(values)
            stddev = statistics.stdev(values)
            for name, expected in (("mean", mean), ("median", statistics.median(values)),
                                   ("stddev", stddev), ("cv", stddev / mean)):
                self.assertAlmostEqual(aggregates[name][key] / expected, 1, 9)
        self.assertEqual(aggregates["cv"]["aggregate_unit"], "percentage")
        self.assertEqual(aggregates["mean"]["aggregate_unit"], "time")
        self.assertEqual(aggregates["mean"]["name"], "BM_loop/1_mean")
        self.assertEqual(aggregates["mean"]["iterations"], 5)

    def test_aggregates_only_leaves_the_runs_out(self):
        records = self.json_of(QUICK, "--benchmark_filter=loop", "--benchmark_repetitions=3",
                               "--benchmark_report_aggregates_only=true")["benchmarks"]
        self.assertEqual([r["run_type"] for r in records], ["aggregate"] * 8)

    def test_the_context_names_machine_and_build(self):
        context = self.json_of(QUICK, GOOD, "--benchmark_context=lnd=shm,note=a=b")["context"]
        self.assertEqual(context["json_schema_version"], 1)
        for key in ("date", "host_name", "executable", "num_cpus", "mhz_per_cpu", "caches",
                    "cpu_scaling_enabled", "load_avg", "library_version", "library_build_type",
                    "git_id", "kernel", "cpu_model", "cores"):
            self.assertIn(key, context)
        self.assertEqual((context["lnd"], context["note"]), ("shm", "a=b"))
        self.assertRegex(context["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d$")

    def test_wrong_flags_exit_with_2_and_say_which(self):
        for flag in ("--benchmark_filte=x", "--benchmark_min_time=", "--benchmark_min_time=1h",
                     "--benchmark_min_time=nan", "--benchmark_min_time=0x",
                     "--benchmark_repetitions=0", "--benchmark_format=xml",
                     "--benchmark_filter=(", "--benchmark_out=", "--benchmark_context=novalue",
                     "--benchmark_context=git_id=x", "--benchmark_context=a=1,a=2", "extra",
                     "--smoke=maybe"):
            result = run(flag)
            self.assertEqual(result.returncode, 2, flag)
            self.assertIn(flag.split("=")[0], result.stderr)
            self.assertEqual(result.stdout, "")

    def test_a_filter_without_match_exits_with_1(self):
        self.assertEqual(run("--benchmark_filter=nothing").returncode, 1)

    def test_list_and_help_run_nothing(self):
        result = run("--benchmark_list_tests", "--benchmark_filter=loop")
        self.assertEqual((result.returncode, result.stdout), (0, "BM_loop/1\nBM_loop/64\n"))
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("--benchmark_out_format", result.stdout)

    def test_out_writes_json_beside_the_console(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            result = run(QUICK, GOOD, f"--benchmark_out={path}")
            self.assertEqual(result.returncode, 0)
            self.assertIn("BM_loop/64", result.stdout)
            with open(path, encoding="utf-8") as out:
                self.assertEqual(len(strict(out.read())["benchmarks"]), 6)
        self.assertEqual(run(f"--benchmark_out={path}").returncode, 1)

    def test_csv_has_one_shape_for_all_rows(self):
        result = run(QUICK, "--benchmark_format=csv")
        rows = list(csv.reader(io.StringIO(result.stdout)))
        self.assertEqual(len({len(row) for row in rows}), 1)
        self.assertEqual(rows[0][:5], ["name", "iterations", "real_time", "cpu_time", "time_unit"])
        self.assertIn('quoted "key"', rows[0])
        self.assertEqual(len(rows), 10)

    def test_the_console_prints_columns_when_asked(self):
        result = run(QUICK, GOOD, "--benchmark_counters_tabular")
        self.assertIn("items_per_second", result.stdout.splitlines()[1])
        self.assertNotIn("items_per_second=", result.stdout)

    def test_smoke_is_short(self):
        records = self.json_of("--smoke", GOOD)["benchmarks"]
        self.assertTrue(all(r["iterations"] <= 100 for r in records))

    def test_compare_py_accepts_two_results(self):
        python = next((p for p in (sys.executable, "/usr/bin/python3")
                       if subprocess.run([p, "-c", "import scipy"], capture_output=True,
                                         check=False).returncode == 0), None)
        if not COMPARE or python is None:
            self.skipTest("needs compare.py (COMPARE_PY) and scipy")
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("a.json", "b.json")]
            for path in paths:
                run(QUICK, "--benchmark_repetitions=9", f"--benchmark_out={path}")
            result = subprocess.run([python, COMPARE, "benchmarks", *paths], capture_output=True,
                                    text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("BM_loop/64_pvalue", result.stdout)


unittest.main(argv=sys.argv[:1], verbosity=0)
