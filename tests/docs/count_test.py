#!/usr/bin/env python3
"""The count at the end of .ci/run never turns a failure into a pass; a test that would hang fails.

usage: count_test.py SOURCE_ROOT
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

ROOT = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]


def program(result, stdout=""):
    return {"name": "core", "result": result, "stdout": stdout}


def doctest(passed, failed):
    return f"[doctest] test cases: \x1b[1m{passed + failed}\x1b[0m | {passed} passed | {failed} failed | 0 skipped\n"


class Count(unittest.TestCase):
    def count(self, steps, programs):
        """Last line and status of the count over these steps and one log (None: it was never written)."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "steps").write_text("".join(f"{step}\n" for step in steps), encoding="utf-8")
            if programs is not None:
                text = "".join(json.dumps(entry) + "\n" for entry in programs)
                (folder / "log.json").write_text(text, encoding="utf-8")
            run = started.run([sys.executable, ROOT / ".ci/count.py", folder / "steps", folder / "log.json"],
                              capture_output=True, text=True, check=False)
            return run.stdout.splitlines()[-1], run.returncode

    def test_steps_doctest_cases_and_other_programs_add_up(self):
        self.assertEqual(self.count(["passed a", "passed b"], [program("OK", doctest(5, 0)), program("OK")]),
                         ("8 passed, 0 failed", 0))

    def test_a_failed_step_or_case_fails_the_run(self):
        self.assertEqual(self.count(["failed a"], [program("OK")]), ("1 passed, 1 failed", 1))
        self.assertEqual(self.count([], [program("FAIL", doctest(4, 2))]), ("4 passed, 2 failed", 1))

    def test_a_program_that_crashed_or_hung_counts_as_failed(self):
        self.assertEqual(self.count([], [program("TIMEOUT")]), ("0 passed, 1 failed", 1))
        self.assertEqual(self.count([], [program("FAIL", doctest(3, 0))]), ("3 passed, 1 failed", 1))

    def test_the_last_summary_is_the_programs_own(self):
        self.assertEqual(self.count([], [program("OK", doctest(2, 1) + doctest(5, 0))]), ("5 passed, 0 failed", 0))
        self.assertEqual(self.count([], [program("FAIL", doctest(5, 0) + doctest(4, 1))]), ("4 passed, 1 failed", 1))

    def test_a_log_that_was_never_written_is_a_failure(self):
        self.assertEqual(self.count(["passed a"], None), ("1 passed, 1 failed", 1))

    def test_a_skipped_program_counts_as_neither(self):
        self.assertEqual(self.count(["passed a"], [program("SKIP")]), ("1 passed, 0 failed", 0))


class Started(unittest.TestCase):
    def test_a_program_that_hangs_ends_with_what_it_has_started_and_the_test_says_so(self):
        with self.assertRaisesRegex(SystemExit, r"(?s)the test ended it after 0\.\d+ s: sh -c .*"):
            started.run(["sh", "-c", "sleep 600 & sleep 600"], longest=0.1, capture_output=True, text=True)
        # It came back: both sleepers, which had its pipes, are gone.

    def test_what_ends_is_as_subprocess_says(self):
        done = started.run(["sh", "-c", "cat; echo err >&2; exit 3"], input="in", capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "in", "err\n"))
        with self.assertRaises(subprocess.CalledProcessError):
            started.run(["false"], check=True)


if __name__ == "__main__":
    unittest.main()
