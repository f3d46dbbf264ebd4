#!/usr/bin/env python3
"""The Python that the pages show runs, block after block, in a folder that has scenarios/ of the source.

usage: documented_test.py, with PYTHONPATH, PIPEWRIGHT_SOURCE and PIPEWRIGHT_BINARY set (tests/python/meson.build)
"""
import contextlib
import io
import os
import re
import tempfile
import unittest

import needs
import pipewright as pw

PAGES = ["README.md", "docs/reference/python.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


class Documented(unittest.TestCase):
    def test_every_block_runs(self):
        for page in PAGES:
            blocks = BLOCK.findall((needs.SOURCE / page).read_text(encoding="utf-8"))
            self.assertGreater(len(blocks), 0, page)
            names = {}
            with tempfile.TemporaryDirectory() as folder:
                os.symlink(needs.SOURCE / "scenarios", os.path.join(folder, "scenarios"))
                os.chdir(folder)
                for number, block in enumerate(blocks):
                    with self.subTest(page=page, block=number), contextlib.redirect_stdout(io.StringIO()):
                        exec(compile(block, f"{page}, block {number}", "exec"), names)
                os.chdir(needs.SOURCE)

    def test_what_the_page_names_is_there(self):
        page = (needs.SOURCE / "docs/reference/python.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `(\w+)\(.*?\)` \| `\w+[^`]*` \| (.*?) \|$", page, re.M)
        self.assertEqual([name for name, _ in rows], ["simulate", "plan", "sweep", "capacity", "compare", "launch", "validate", "draw", "reproduce"])
        classes = {"simulate": pw.Simulation, "plan": pw.Plans, "sweep": pw.Sweep, "capacity": pw.Capacity, "compare": pw.Comparison,
                   "launch": pw.Launch, "validate": pw.Validation}
        for name, figures in rows[:7]:
            for figure in re.findall(r"`(\w+)[`(]", figures):
                self.assertTrue(hasattr(classes[name], figure), f"{name}: {figure}")
        for name in pw.__all__:
            self.assertTrue(hasattr(pw, name), name)


if __name__ == "__main__":
    needs.main("numpy")
