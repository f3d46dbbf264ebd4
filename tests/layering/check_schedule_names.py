#!/usr/bin/env python3
"""Outside sim/schedules no schedule is known by its name: what another room must know of it is a trait in the table.

usage: check_schedule_names.py SOURCE_ROOT

Takes the names from the rules in sim/schedules and looks for them in the strings of all rooms. Prints one line per
violation, "file:line: what", and exits 1 when there is any.
"""
import pathlib
import re
import sys

import report

ROOMS = ["core", "sim", "planner", "calibrate", "kernels", "runtime", "io", "study", "cli"]
RULES = "sim/schedules"

# Names that are words of YAML or of every sentence, too: forbidden only where a schedule is compared with them or set to them.
ALSO_KEYS = {"data_parallel", "file", "search"}

# File, string: why it stands there.
ALLOWED = {
    ("core/question/scenario.hpp", "1f1b"): "the default of plan.schedule",
    ("io/read/read_plan.cpp", "1f1b"): "the end of a help text: default: 1f1b",
    ("io/writers/schedule_csv.cpp", "1f1b"): "the end of a message: use e.g. 1f1b",
    ("cli/import.cpp", "pipedream"): "a format of import: the profiles of PipeDream's release; and its completion",
}

# Files with texts for readers that name a schedule, which no code reads.
TEXTS = {
    "io/read/read_plan.cpp": "help of the keys of plan, a constant table that sim is not known to",
    "io/read/read_measured.cpp": "an example in a message",
    "cli/compare.cpp": "an example in the help",
    "cli/draw.cpp": "examples in the help and in a message",
    "cli/import.cpp": "a format of import in the help",
    "cli/show.cpp": "an example in the help",
}

NAME = re.compile(r'\.name = "(\w+)"')
TOKEN = re.compile(r"//[^\n]*|'(?:\\.|[^'\\\n])'|" r'"((?:\\.|[^"\\\n])*)"')
OF_A_SCHEDULE = re.compile(r'(?:schedule(?:\.value)?\s*[!=]?=|find_schedule\()\s*$')


def names_of(root):
    """The names in the rules, one per generator."""
    return {name for file in sorted((root / RULES).glob("*.cpp")) for name in NAME.findall(file.read_text(encoding="utf-8"))}


def fault(path, text, before, distinct, pattern):
    """None when the string may stand in `path` behind the code `before`, else what is wrong."""
    if text in ALSO_KEYS:
        return f'a schedule by its name "{text}"' if OF_A_SCHEDULE.search(before) else None
    if text in distinct:
        return None if (path, text) in ALLOWED else f'a schedule by its name "{text}"'
    if found := pattern.search(text):
        return None if path in TEXTS else f'a text with the name of the schedule {found[0]}'
    return None


def violations(root):
    root = pathlib.Path(root)
    distinct = names_of(root) - ALSO_KEYS
    pattern = re.compile(r"(?<![\w./-])(?:" + "|".join(sorted(map(re.escape, distinct))) + r")(?![\w/-])")
    found = []
    for path, file in report.sources(root, ROOMS, {".hpp", ".cpp", ".cu", ".cuh"}):
        if path.startswith(RULES + "/"):
            continue
        code = file.read_text(encoding="utf-8")
        for token in TOKEN.finditer(code):
            if token[1] is not None and (what := fault(path, token[1], code[max(0, token.start() - 80):token.start()], distinct, pattern)):
                found.append(f"{path}:{code.count(chr(10), 0, token.start()) + 1}: {what}; make it a trait of {RULES}/table.hpp")
    return found


if __name__ == "__main__":
    sys.exit(report.main(__doc__, violations, "no schedule is known by its name outside " + RULES))
