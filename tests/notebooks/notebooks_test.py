#!/usr/bin/env python3
"""Every notebook runs from top to bottom, shows pictures, and is committed without what it printed.

usage: notebooks_test.py, with PYTHONPATH and PIPEWRIGHT_SOURCE set (tests/notebooks/meson.build)
"""
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import needs

FOLDER = needs.SOURCE / "notebooks"
LONGEST = 300  # seconds for a cell


class Notebooks(unittest.TestCase):
    def test_they_are_committed_empty(self):
        notebooks = sorted(FOLDER.glob("*.ipynb"))
        self.assertGreaterEqual(len(notebooks), 6)
        for path in notebooks:
            for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
                self.assertFalse(cell.get("outputs"), f"{path.name}, cell {number}: clear its output")
                self.assertIsNone(cell.get("execution_count"), f"{path.name}, cell {number}: clear its number")

    def test_they_run(self):
        import nbformat
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import AsyncKernelManager
        from nbclient import NotebookClient

        class Manager(AsyncKernelManager):
            """The interpreter of this test, whatever kernels the machine has."""

            @property
            def kernel_spec(self):
                return KernelSpec(argv=[sys.executable, "-B", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                                  display_name="this", language="python")

        for path in sorted(FOLDER.glob("*.ipynb")):
            if "torch" in path.name:
                continue  # tests/torch/notebook_test.py
            with self.subTest(notebook=path.name), tempfile.TemporaryDirectory() as folder:
                notebook = nbformat.read(path, as_version=4)
                client = NotebookClient(notebook, timeout=LONGEST, kernel_manager_class=Manager,
                                        resources={"metadata": {"path": folder}})
                client.execute()  # raises what a cell raised, with the cell
                outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
                for output in outputs:
                    self.assertFalse(output.get("name") == "stderr" and "Traceback" in output.text, output)
                self.assertEqual(os.listdir(folder), [], "what a notebook leaves behind")
                kinds = {kind for output in outputs for kind in output.get("data", {})}
                if any(word in path.name for word in ("bubble", "schedule")):
                    self.assertIn("image/svg+xml", kinds)
                if any(word in path.name for word in ("bubble", "sweep")):
                    self.assertIn("image/png", kinds)
                self.assertTrue(outputs)


if __name__ == "__main__":
    needs.main("numpy", "pandas", "matplotlib", "nbclient", "ipykernel")
