"""The Python that has PyTorch and the frameworks goes on with the script; where there is none, the test is skipped."""
import importlib.metadata
import os
import pathlib
import sys

PINNED = dict(line.split("==") for line in (pathlib.Path(__file__).parent / "requirements.txt").read_text().split()
              if "==" in line)
SKIPPED = 77


def skip(why):
    print(f"skipped: {why}")
    raise SystemExit(SKIPPED)


def installed(package):
    try:
        return importlib.metadata.version(package).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def use(package):
    """Goes on in that Python, which must have the package in the version that is pinned."""
    name = os.environ.get("PIPEWRIGHT_TORCH_PYTHON")
    if not name:
        skip("PIPEWRIGHT_TORCH_PYTHON does not name a Python with what tests/torch/requirements.txt pins")
    if sys.prefix != os.environ.get("PIPEWRIGHT_TORCH_PREFIX"):
        os.environ["PIPEWRIGHT_TORCH_PREFIX"] = str(pathlib.Path(name).absolute().parent.parent)
        try:
            os.execv(name, [name, "-B", *sys.argv])
        except OSError as error:
            raise SystemExit(f"PIPEWRIGHT_TORCH_PYTHON: {name}: {error.strerror}") from error
    if installed(package) != PINNED[package]:
        skip(f"{name} has {package} {installed(package)}, tests/torch/requirements.txt pins {PINNED[package]}")
