#!/usr/bin/env python3
"""setup.sh installs what is missing and nothing else. Debian's tools are stood in for by scripts that note their calls.

usage: setup_test.py SOURCE_ROOT
"""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

ROOT = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.bin = pathlib.Path(self.folder.name)
        self.calls = self.bin / "calls"
        for tool in ("bash", "dirname", "cut", "cat", "env"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.tool("apt-get", f'echo "apt-get $*" >> {self.calls}')

    def tool(self, name, script):
        file = self.bin / name
        file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def debian(self, missing, user):
        """dpkg-query knows every package but `missing`; `id -u` says `user`."""
        self.tool("dpkg-query", f'case "${{@: -1}}" in {missing or "-"}) exit 1 ;; *) echo "ii " ;; esac')
        self.tool("id", f"echo {user}")

    def packages(self):
        run = started.run([self.bin / "bash", ROOT / "setup.sh", "--packages"], env={"PATH": str(self.bin)},
                          capture_output=True, text=True, check=False)
        calls = self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []
        return run, calls

    def test_with_everything_installed_it_calls_no_package_manager_and_needs_no_rights(self):
        self.debian(missing="", user=1000)
        run, calls = self.packages()
        self.assertEqual((run.returncode, calls), (0, []), run.stderr)
        self.assertIn("are installed", run.stdout)

    def test_root_gets_exactly_the_missing_package_installed(self):
        self.debian(missing="libfmt-dev", user=0)
        run, calls = self.packages()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("installing libfmt-dev\n", run.stdout)
        self.assertEqual(len(calls), 2, calls)
        self.assertTrue(calls[0].startswith("apt-get update"), calls)
        self.assertTrue(calls[1].endswith("--no-install-recommends libfmt-dev"), calls)

    def test_another_user_asks_sudo(self):
        self.debian(missing="meson", user=1000)
        self.tool("sudo", f'echo "sudo $1" >> {self.calls}\n"$@"')
        run, calls = self.packages()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([call.split()[0] for call in calls], ["sudo", "apt-get", "sudo", "apt-get"], calls)

    def test_without_root_and_sudo_it_says_what_root_has_to_run(self):
        self.debian(missing="meson", user=1000)
        run, calls = self.packages()
        self.assertEqual((run.returncode, calls), (2, []))
        self.assertIn("as root run: apt-get install meson", run.stderr)

    def test_what_a_user_needs_is_built_and_nothing_else(self):
        """Of a copy, whose build/ is only configured: what meson is asked to do."""
        with tempfile.TemporaryDirectory() as copy:
            shutil.copy(ROOT / "setup.sh", copy)
            (pathlib.Path(copy) / "build").mkdir()
            (pathlib.Path(copy) / "build/build.ninja").touch()
            self.debian(missing="", user=1000)
            self.tool("meson", f'echo "meson $*" >> {self.calls}')
            for arguments, calls in [([], ["meson compile -C build program"]),
                                     (["--test"], ["meson compile -C build",
                                                   "meson test -C build --print-errorlogs"])]:
                self.calls.unlink(missing_ok=True)
                run = started.run([self.bin / "bash", pathlib.Path(copy) / "setup.sh", *arguments],
                                  env={"PATH": str(self.bin)}, capture_output=True, text=True, check=False)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(self.calls.read_text(encoding="utf-8").splitlines(), calls)

    def test_an_unknown_argument_is_refused_with_the_usage(self):
        run = started.run(["bash", ROOT / "setup.sh", "--tset"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn('unknown argument "--tset"', run.stderr)
        self.assertIn("usage: ./setup.sh", run.stderr)


if __name__ == "__main__":
    unittest.main()
