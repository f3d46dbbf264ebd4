#!/usr/bin/env python3
"""The measured runs beside predictions: no set gets worse, and no row is lost, without a reason.

usage: runs_test.py SOURCE_ROOT BINARY

tests/docs/runs.csv keeps, for every set, figure and subset, how many rows are scored and their mean error. A mean that is
worse by more than 2 points and a tenth of itself, a share of rows inside their 90 % interval that falls by more than 10 points and by more than
one row, or fewer rows, fails until the line's column `why` says why and the new
figures are written; the old mean is then put before the reason, so that it explains this change only. docs/results/runs.md is the output of `reproduce runs --data DIR --md`, and README quotes it.
PIPEWRIGHT_ACCEPT=1 writes all of it again and reports "skipped" (77). Without the runs (PIPEWRIGHT_TEST_DATA, default
../shared/data beside the source tree) the means are not checked: skipped.
"""
import csv
import io
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

HEADS = ["set", "figure", "of", "scored", "mean_percent", "inside_percent", "half_width_percent", "why"]
BEGIN, END = "<!-- runs: written by tests/docs/runs_test.py -->\n", "<!-- /runs -->"


def now(document):
    """{(set, figure, of): (scored, mean in percent, share inside and half-width of the 90 % interval in percent or "")} of
    what stands in docs/results/runs.md's first table."""
    figures = {}
    for each in document["sets"]:
        for error in each["errors"]:
            if error["split"] in ("", "subset", "group"):
                interval = [f"{100 * error[key]:.1f}" if error["with_interval"] else "" for key in ("inside", "half_width")]
                figures[each["set"], error["figure"], error["of"]] = (error["runs"], 100 * error["mean"], *interval)
    return figures


def faults(kept, figures):
    """What is worse than what was kept. `kept`: rows of runs.csv."""
    found = []
    for row in kept:
        key = row["set"], row["figure"], row["of"]
        name = ", ".join(key)
        if key not in figures:
            found.append(f"{name}: is not compared any more")
            continue
        scored, mean, inside, _ = figures[key]
        before = float(row["mean_percent"])
        if scored < int(row["scored"]):
            found.append(f"{name}: {scored} rows are scored, {row['scored']} were")
        if mean > before + 2 and mean > 1.1 * before:
            found.append(f"{name}: mean error {mean:.2f} %, was {before:.2f} %")
        if (fewer := float(row.get("inside_percent") or 0) - float(inside or 0)) > 10 and fewer * scored > 100.5:
            found.append(f"{name}: {inside or 0} % of the rows lie inside their interval, {row['inside_percent']} % did")
    return found


def check_of_the_check():
    kept = [{"set": "a", "figure": "time", "of": "all", "scored": "10", "mean_percent": "8.00", "why": ""}]
    assert not faults(kept, {("a", "time", "all"): (10, 9.9, "", "")})
    assert not faults([{**kept[0], "mean_percent": "40.00"}], {("a", "time", "all"): (10, 43.0, "", "")})
    assert faults(kept, {("a", "time", "all"): (10, 10.1, "", "")})
    assert faults(kept, {("a", "time", "all"): (9, 5.0, "", "")})
    assert faults(kept, {})
    covered = [{**kept[0], "inside_percent": "90.0"}]
    assert not faults(covered, {("a", "time", "all"): (10, 8.0, "80.0", "9.0")})
    assert faults(covered, {("a", "time", "all"): (10, 8.0, "70.0", "9.0")})
    assert faults(covered, {("a", "time", "all"): (10, 8.0, "", "")})


def explained(row):
    return row["why"] and not row["why"].startswith("[")


def written(figures, kept):
    why = {(row["set"], row["figure"], row["of"]): f"[{row['mean_percent']} %] {row['why']}" if explained(row) else row["why"]
           for row in kept}
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(HEADS)
    for key, (scored, mean, inside, half_width) in figures.items():
        out.writerow([*key, scored, f"{mean:.2f}", inside, half_width, why.get(key, "")])
    return text.getvalue()


def readme_lines(document):
    """A line per set and figure over all rows."""
    lines = ["| measured runs | figure | fitted on | scored | mean error | median | inside 90 % | half-width |",
             "|---|---|--:|--:|--:|--:|--:|--:|"]
    for each in document["sets"]:
        for error in each["errors"]:
            if error["split"] == "":
                interval = [f"{100 * error['inside']:.0f} %", f"{100 * error['half_width']:.1f} %"] if error["with_interval"] else ["-", "-"]
                lines.append(f"| {each['set']} | {error['figure']} | {each['rows']['fitted']} | {error['runs']} | {100 * error['mean']:.1f} % | "
                             f"{100 * error['median']:.1f} % | {interval[0]} | {interval[1]} |")
    return "\n".join(lines) + "\n"


def between(text):
    begin = text.index(BEGIN) + len(BEGIN)
    return begin, text.index(END, begin)


def main():
    check_of_the_check()
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    data = pathlib.Path(os.environ.get("PIPEWRIGHT_TEST_DATA", root.parent / "shared/data"))
    if not (data / "runs").exists():
        print(f"skipped: no measured runs in {data} (PIPEWRIGHT_TEST_DATA names their folder)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "runs.md"
        command = [binary, "reproduce", "runs", "--data", data, "--json", "-o", file]
        document = json.loads(started.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)
        page = file.read_text(encoding="utf-8")
    results, readme, store = root / "docs/results/runs.md", root / "README.md", root / "tests/docs/runs.csv"
    kept = list(csv.DictReader(io.StringIO(store.read_text(encoding="utf-8")))) if store.exists() else []
    figures = now(document)
    text = readme.read_text(encoding="utf-8")
    begin, end = between(text)
    worse = faults(kept, figures)
    accept = os.environ.get("PIPEWRIGHT_ACCEPT")
    reasons = tuple(", ".join((row["set"], row["figure"], row["of"])) + ": " for row in kept if explained(row))
    unexplained = [fault for fault in worse if not (accept and reasons and fault.startswith(reasons))]
    if accept and not unexplained:
        store.write_text(written(figures, kept), encoding="utf-8")
        results.write_text(page, encoding="utf-8")
        readme.write_text(text[:begin] + readme_lines(document) + text[end:], encoding="utf-8")
        print("wrote docs/results/runs.md, tests/docs/runs.csv and the table of README.md")
        return 77
    for fault in unexplained:
        print(fault + "; mend it, or say why in column `why` of tests/docs/runs.csv and write it again with PIPEWRIGHT_ACCEPT=1")
    stale = []
    if not results.exists() or results.read_text(encoding="utf-8") != page:
        stale.append("docs/results/runs.md is not what `reproduce runs --md` writes")
    if text[begin:end] != readme_lines(document):
        stale.append("README.md: its table of measured runs is out of date")
    for fault in stale:
        print(fault + "; PIPEWRIGHT_ACCEPT=1 meson test \"measured runs\" writes it again")
    return 1 if unexplained or stale else 0


if __name__ == "__main__":
    sys.exit(main())
