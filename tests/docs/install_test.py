#!/usr/bin/env python3
"""What `meson install` puts in place works from any folder: the program finds what is beside it.

usage: install_test.py BUILD_FOLDER

Skipped (77) where there is no meson.
"""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
MESON = shutil.which("meson")


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        run = started.run([MESON, "install", "-C", BUILD, "--no-rebuild", "--destdir", cls.folder.name],
                          capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        cls.binary = next(pathlib.Path(cls.folder.name).rglob("bin/pipewright"))
        cls.share = cls.binary.parent.parent / "share"

    def run_in(self, folder, *arguments):
        return started.run([self.binary, *arguments], cwd=folder, capture_output=True, text=True, check=False,
                           env={"PATH": "/usr/bin:/bin", "HOME": folder})

    def test_everything_is_in_place(self):
        for place in ["pipewright/configs/devices", "pipewright/scenarios/quickstart.yaml", "man/man1/pipewright.1",
                      "bash-completion/completions"]:
            self.assertTrue((self.share / place).exists(), place)
        for kind in ["scenario", "sweep", "model", "device", "cluster", "profile"]:
            schema = json.loads((self.share / "pipewright/schemas" / f"{kind}.json").read_text(encoding="utf-8"))
            self.assertEqual(schema["$schema"], "http://json-schema.org/draft-07/schema#")

    def test_names_are_looked_up_beside_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            made = self.run_in(folder, "init", "--model", "gpt2", "--cluster", "dgx-a100x8", "--batch", "64")
            self.assertEqual(made.returncode, 0, made.stderr)
            text = (pathlib.Path(folder) / "scenario.yaml").read_text(encoding="utf-8")
            self.assertIn(f"$schema={self.share}/pipewright/schemas/scenario.json", text)
            resolved = self.run_in(folder, "check", "--resolved", "scenario.yaml")
            self.assertEqual(resolved.returncode, 0, resolved.stderr)
            self.assertIn(str(self.share / "pipewright/configs/clusters/dgx-a100x8.yaml"), resolved.stdout)

    def test_shipped_scenarios_run_from_any_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            run = self.run_in(folder, "simulate", str(self.share / "pipewright/scenarios/quickstart.yaml"))
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("step time", run.stdout)


if __name__ == "__main__":
    if MESON is None:
        print("skipped: meson is not on the PATH")
        sys.exit(77)
    unittest.main()
