"""The notebook that goes from a list of ops to a run by PyTorch and its error, cell after cell.

usage: notebook_test.py PIPEWRIGHT SOURCE PYTHON_PACKAGE

PIPEWRIGHT_TORCH_PYTHON names a Python that has what requirements.txt pins; without it the test is skipped.
"""
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *sys.argv[3:]]
import torch_python

torch_python.use("torch")

try:
    import pandas
    import pipewright
except ImportError as error:
    torch_python.skip(f"{sys.executable} has no {error.name}")

PATH = pathlib.Path(sys.argv[2]) / "notebooks/6-torch.ipynb"

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    names = {}
    for number, cell in enumerate(json.loads(PATH.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{PATH.name}, cell {number}", "exec"), names)
    assert os.listdir(folder) == [], os.listdir(folder)
    trace = names["validation"].data["trace"]
    assert trace["steps"] == 3 and trace["absent"] == 0, trace
    assert isinstance(names["table"], pandas.DataFrame) and len(names["table"]) == 4, names["table"]
    print(names["table"])
    os.chdir("/")
