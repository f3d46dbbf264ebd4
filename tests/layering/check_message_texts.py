#!/usr/bin/env python3
"""Nobody decides by the text of an error: a Fault has a place, a key and a code for that (core/check.hpp).

usage: check_message_texts.py SOURCE_ROOT

Looks for what() that is searched or compared, directly or through a variable. Prints one line per violation,
"file:line: what", and exits 1 when there is any.
"""
import re
import sys

import report

ROOMS = ["core", "sim", "planner", "calibrate", "kernels", "runtime", "io", "study", "cli"]
ALLOWED = {"cli/main.cpp": "reads the text of CLI11, which has no codes"}

SEARCH = r"(?:find|rfind|find_first_of|starts_with|ends_with|contains|compare|substr)\("
DIRECT = re.compile(r"what\(\)\)*\s*(?:\." + SEARCH + r"|[!=]=)")
KEPT = re.compile(r"(?:std::string|std::string_view|auto)\s+(\w+)(?:\s*=\s*|\(|\{)[\w.>-]*what\(\)")
NEAR = 12  # lines in which a variable is followed


def violations(root):
    found = []
    for path, file in report.sources(root, ROOMS, {".hpp", ".cpp"}):
        if path in ALLOWED:
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            if DIRECT.search(line):
                found.append(f"{path}:{number}: the text of an error is searched")
            if kept := KEPT.search(line):
                use = re.compile(rf"\b{kept[1]}(?:\.{SEARCH}|\s*[!=]=)")
                found += [f"{path}:{number + i}: the text of an error is searched"
                          for i, after in enumerate(lines[number - 1:number - 1 + NEAR]) if use.search(after)]
    return found


if __name__ == "__main__":
    sys.exit(report.main(__doc__, violations, "nobody decides by the text of an error"))
