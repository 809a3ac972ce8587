#!/usr/bin/env python3
"""Tests of scripts/: help, refusal of wrong options, what install-deps installs, what bench accepts."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "scripts"


def run(name, *arguments, **environment):
    return subprocess.run([SCRIPTS / name, *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment}, stdin=subprocess.DEVNULL)


class OptionsTest(unittest.TestCase):
    def test_every_script_explains_itself(self):
        names = sorted(p.name for p in SCRIPTS.iterdir() if os.access(p, os.X_OK) and p.is_file())
        self.assertIn("test", names)
        for name in names:
            done = run(name, "--help")
            self.assertEqual(done.returncode, 0, name)
            self.assertRegex(done.stdout.lower(), rf"usage: scripts/{name}\b")
            self.assertNotIn("set -euo", done.stdout)

    def test_wrong_options_are_refused(self):
        for name, arguments in (("install-deps", ["some"]), ("test", ["--fast"]), ("test", ["--only", "msan"]), ("test", ["-R"]),
                                ("test", ["--quick", "--only", "asan"]), ("test", ["--limit", "0"]),
                                ("format", ["--fix"]), ("bench", ["latency"]), ("bench", ["--yaml", "f"])):
            done = run(name, *arguments)
            self.assertNotEqual(done.returncode, 0, (name, arguments))
            self.assertIn(name, done.stderr)


class InstallDepsTest(unittest.TestCase):
    """With stand-ins for dpkg-query and apt-get, so that nothing is installed."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weightbus-deps-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls = self.folder / "calls"
        self.calls.touch()
        for name in ("apt-get", "sudo"):
            tail = "exec \"$@\"" if name == "sudo" else f"exit ${{APT_CODE:-0}}"
            self.stand_in(name, f'echo "{name} $*" >>"{self.calls}"\n{tail}')

    def stand_in(self, name, body):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def install(self, absent, *arguments, **environment):
        self.stand_in("dpkg-query", f'for last; do :; done\ncase " {absent} " in *" $last "*) exit 1 ;; esac\necho installed')
        done = run("install-deps", *arguments, PATH=f"{self.folder}:{os.environ['PATH']}", **environment)
        return done, [line for line in self.calls.read_text(encoding="utf-8").splitlines() if line.startswith("apt-get")]

    def test_nothing_missing_touches_nothing(self):
        done, calls = self.install("")
        self.assertEqual((done.returncode, calls), (0, []))

    def test_only_what_is_missing_is_installed(self):
        done, calls = self.install("ninja-build libzmq3-dev")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(calls), 2)
        self.assertIn("update", calls[0])
        self.assertRegex(calls[1], r"install .* ninja-build libzmq3-dev$")
        self.assertIn("ninja-build libzmq3-dev", done.stderr)

    def test_build_leaves_out_what_only_checks_need(self):
        self.assertEqual(self.install("clang-tidy", "build")[1], [])
        self.assertEqual(len(self.install("clang-tidy", "all")[1]), 2)

    def test_a_failed_installation_is_an_error(self):
        self.assertNotEqual(self.install("ninja-build", APT_CODE="100")[0].returncode, 0)


class BenchTest(unittest.TestCase):
    def setUp(self):
        loader = importlib.machinery.SourceFileLoader("bench", str(SCRIPTS / "bench"))
        self.bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", loader))
        loader.exec_module(self.bench)

    def row(self, **changes):
        return {**{"name": "a_s", "median": 1, "worst": 1.5, "unit": "s", "samples": 3}, **changes}

    def test_rows_keep_the_known_fields(self):
        self.assertEqual(self.bench.check_rows("plan", {"rows": [self.row(extra=1)]}), [self.row()])

    def test_wrong_answers_are_refused(self):
        without = self.row()
        del without["worst"]
        for document in ([], {}, {"rows": []}, {"rows": [without]}, {"rows": [self.row(median="1")]},
                         {"rows": [self.row(samples=True)]}, {"rows": [self.row(name=None)]}):
            with self.assertRaises(SystemExit, msg=str(document)):
                self.bench.check_rows("plan", document)


if __name__ == "__main__":
    unittest.main()
