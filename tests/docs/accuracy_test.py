#!/usr/bin/env python3
"""docs/accuracy.md and the summary in the README say what `reproduce --all` computes today.

usage: accuracy_test.py SOURCE_ROOT BINARY

PIPEWRIGHT_ACCEPT=1 writes both anew and reports "skipped" (77) instead of comparing.
"""
import os
import pathlib
import subprocess
import sys

BEGIN, END = "<!-- accuracy: written by tests/docs/accuracy_test.py -->\n", "<!-- /accuracy -->"


def summary(document):
    """The first table: one line per published table."""
    lines = document.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    return "".join(lines[first:last])


def main():
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    accuracy, readme = root / "docs/accuracy.md", root / "README.md"
    run = subprocess.run([binary, "reproduce", "--all", "--md"], cwd=root, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(run.stderr + f"reproduce --all --md exits with {run.returncode}: a cell without a status misses its tolerance")
        return 1
    text = readme.read_text(encoding="utf-8")
    begin = text.index(BEGIN) + len(BEGIN)
    end = text.index(END, begin)
    if os.environ.get("PIPEWRIGHT_ACCEPT"):
        accuracy.write_text(run.stdout, encoding="utf-8")
        readme.write_text(text[:begin] + summary(run.stdout) + text[end:], encoding="utf-8")
        print("wrote docs/accuracy.md and its summary in README.md")
        return 77
    faults = []
    if not accuracy.exists() or accuracy.read_text(encoding="utf-8") != run.stdout:
        faults.append("docs/accuracy.md is not what `reproduce --all --md` writes")
    if text[begin:end] != summary(run.stdout):
        faults.append("README.md: the summary of docs/accuracy.md is out of date")
    for fault in faults:
        print(fault + "; PIPEWRIGHT_ACCEPT=1 meson test --suite docs writes it anew")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
