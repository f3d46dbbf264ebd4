#!/usr/bin/env python3
"""docs/results/accuracy.md and the summary in the README say what `reproduce --all` computes today.

usage: accuracy_test.py SOURCE_ROOT BINARY

PIPEWRIGHT_ACCEPT=1 writes both anew and reports "skipped" (77) instead of comparing.
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

BEGIN, END = "<!-- accuracy: written by tests/docs/accuracy_test.py -->\n", "<!-- /accuracy -->"


def summary(document):
    """The first table: one line per published table."""
    lines = document.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    return "".join(lines[first:last])


# What a published table is about, by words of its title; the first that fits.
KINDS = [("speed", re.compile(r"speed|time|throughput|tax|forward and backward|shares of the peak", re.I)),
         ("bubble rates that authors computed", re.compile("bubble rate")),
         ("memory and what fits", re.compile(r"memory|activations|fits|largest number", re.I)),
         ("parameters", re.compile(""))]


def by_kind(table):
    """The summary in short: a line per kind of figure, errors averaged over the cells that count."""
    groups = {}
    for line in table.splitlines()[2:]:
        title, cells, missed, mean, largest, *_, left_out = (cell.strip() for cell in line.strip("|").split("|"))
        kind = next(name for name, words in KINDS if words.search(title))
        group = groups.setdefault(kind, {"cells": 0, "sum": 0.0, "n": 0, "largest": 0.0, "left": 0})
        group["cells"] += int(cells)
        group["left"] += int(left_out)
        if mean != "-":
            group["sum"] += int(cells) * float(mean.rstrip(" %"))
            group["n"] += int(cells)
            group["largest"] = max(group["largest"], float(largest.rstrip(" %")))
        if int(missed):
            raise SystemExit(f"{title}: {missed} cells missed without a status")
    lines = ["| published figures of | cells that count | mean error | largest | left out, with reasons |",
             "|---|--:|--:|--:|--:|"]
    for kind, _ in KINDS:
        group = groups[kind]
        lines.append(f"| {kind} | {group['cells']} | {group['sum'] / group['n']:.2f} % | {group['largest']:.2f} % | {group['left']} |")
    return "\n".join(lines) + "\n"


def main():
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    accuracy, readme = root / "docs/results/accuracy.md", root / "README.md"
    run = started.run([binary, "reproduce", "--all", "--md"], cwd=root, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(run.stderr + f"reproduce --all --md exits with {run.returncode}: a cell without a status misses its tolerance")
        return 1
    text = readme.read_text(encoding="utf-8")
    begin = text.index(BEGIN) + len(BEGIN)
    end = text.index(END, begin)
    if os.environ.get("PIPEWRIGHT_ACCEPT"):
        accuracy.write_text(run.stdout, encoding="utf-8")
        readme.write_text(text[:begin] + by_kind(summary(run.stdout)) + text[end:], encoding="utf-8")
        print("wrote docs/results/accuracy.md and its summary in README.md")
        return 77
    faults = []
    if not accuracy.exists() or accuracy.read_text(encoding="utf-8") != run.stdout:
        faults.append("docs/results/accuracy.md is not what `reproduce --all --md` writes")
    if text[begin:end] != by_kind(summary(run.stdout)):
        faults.append("README.md: the summary of docs/results/accuracy.md is out of date")
    for fault in faults:
        print(fault + "; PIPEWRIGHT_ACCEPT=1 meson test --suite docs writes it anew")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
