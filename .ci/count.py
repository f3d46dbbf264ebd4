#!/usr/bin/env python3
"""Adds up what .ci/run did: prints what failed, then one line "N passed, N failed"; exits 1 when anything failed.

usage: count.py OUTCOMES TESTLOG...

OUTCOMES holds one line per step, "passed NAME" or "failed NAME". A TESTLOG is Meson's testlog.json, one JSON object per
test program; a doctest program counts with its test cases as its last summary has them (a process that it started may
have printed one before), any other as one. A log that is not there is one failure:
that build did not get as far as its tests.
"""
import json
import pathlib
import re
import sys

DOCTEST_CASES = re.compile(r"test cases:\s*\d+\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def count_program(entry):
    """(passed, failed) of one test program."""
    good = entry["result"] in ("OK", "EXPECTEDFAIL")
    if entry["result"] == "SKIP":
        return 0, 0
    cases = DOCTEST_CASES.findall(COLOUR.sub("", entry.get("stdout", "")))
    if not cases:
        return (1, 0) if good else (0, 1)
    passed, failed = map(int, cases[-1])
    return passed, failed if good else max(failed, 1)


def main():
    outcomes, *logs = sys.argv[1:]
    passed = failed = 0
    complaints = []
    for line in pathlib.Path(outcomes).read_text(encoding="utf-8").splitlines():
        verdict, name = line.split(" ", 1)
        passed, failed = passed + (verdict == "passed"), failed + (verdict == "failed")
        if verdict == "failed":
            complaints.append(f"failed: {name}")
    for log in map(pathlib.Path, logs):
        if not log.is_file():
            failed += 1
            complaints.append(f"failed: {log} was not written")
            continue
        for line in log.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            good, bad = count_program(entry)
            passed, failed = passed + good, failed + bad
            if bad:
                complaints.append(f"failed: {entry['name']} ({log.parts[0]})")
            if entry["result"] == "SKIP":
                complaints.append(f"skipped: {entry['name']} ({log.parts[0]})")
    print("\n".join(complaints))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
