#!/usr/bin/env python3
"""The gate's step "portable binary" fails where what it asks does not answer, and where the answer is wrong.

usage: portable_test.py SOURCE_ROOT
"""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

ROOT = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]

LIBC = r"printf '\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\t/lib64/ld-linux-x86-64.so.2 (0x1)\n'"
GLIBC = "echo 'Name: GLIBC_2.34  Name: GLIBC_2.9'"
ANSWER = "echo 34.60 ms"


def step():
    """The function `portable` of .ci/run, as it stands there."""
    text = (ROOT / ".ci/run").read_text(encoding="utf-8")
    begin = text.index("portable() {\n")
    return text[begin:text.index("\n}\n", begin) + 3]


class Portable(unittest.TestCase):
    def held(self, ldd=LIBC, readelf=GLIBC, portable=ANSWER):
        """Whether the step held with tools and binaries that do this."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            programs = {"bin/ldd": ldd, "bin/readelf": readelf, "bin/meson": "exit 0", "build/pipewright": ANSWER,
                        "build-portable/pipewright": portable}
            for path, lines in programs.items():
                (folder / path).parent.mkdir(exist_ok=True)
                (folder / path).write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
                (folder / path).chmod(0o755)
            script = f"set -euo pipefail\nPATH={folder}/bin:$PATH\n{step()}\nif portable; then exit 0; else exit 9; fi"
            run = started.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
            self.assertIn(run.returncode, (0, 9), run.stderr)
            return run.returncode == 0

    def test_a_binary_that_needs_little_and_answers_alike_holds(self):
        self.assertTrue(self.held())
        self.assertTrue(self.held(readelf="echo 'Name: GLIBC_2.36'"))

    def test_what_a_portable_binary_may_not_have_fails(self):
        self.assertFalse(self.held(ldd=LIBC + r"; printf '\tlibfmt.so.9 => /lib/libfmt.so.9 (0x1)\n'"))
        self.assertFalse(self.held(readelf="echo 'Name: GLIBC_2.37  Name: GLIBC_2.4'"))
        self.assertFalse(self.held(readelf=GLIBC + "; echo '(RUNPATH) Library runpath: [/home]'"))
        self.assertFalse(self.held(portable="echo 34.61 ms"))

    def test_a_tool_that_fails_or_says_nothing_fails(self):
        self.assertFalse(self.held(ldd="exit 1"))
        self.assertFalse(self.held(readelf="exit 1"))
        self.assertFalse(self.held(readelf=GLIBC + "; exit 1"))
        self.assertFalse(self.held(readelf="echo 'no version information found'"))


if __name__ == "__main__":
    unittest.main()
