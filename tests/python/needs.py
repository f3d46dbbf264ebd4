"""What the tests of the Python package share."""
import importlib.util
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

SOURCE = pathlib.Path(os.environ["PIPEWRIGHT_SOURCE"])
PROGRAM = os.environ["PIPEWRIGHT_BINARY"]
QUICKSTART = "scenarios/quickstart.yaml"


def has(module):
    return importlib.util.find_spec(module) is not None


def command(*arguments, status=(0, 1)):
    """What the program prints, run in the source folder."""
    run = started.run([PROGRAM, *map(str, arguments)], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert run.returncode in status, run.stderr
    return run.stdout


def main(*needed):
    """Runs the tests of the calling file; skips them (77) where a module is missing."""
    os.chdir(SOURCE)
    missing = [module for module in needed if not has(module)]
    if missing:
        print(f"{sys.executable} has no {', '.join(missing)}: python3 -m pip install {' '.join(missing)}")
        sys.exit(77)
    unittest.main(verbosity=2)
