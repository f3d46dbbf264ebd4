#!/usr/bin/env python3
"""Nobody decides by the text of an error: a Fault has a place, a key and a code for that (core/check.hpp).

usage: check_message_texts.py SOURCE_ROOT

Looks for what() that is searched or compared, directly or through a variable. Prints one line per violation,
"file:line: what", and exits 1 when there is any.
"""
import pathlib
import re
import sys

ROOMS = ["core", "sim", "planner", "calibrate", "kernels", "runtime", "io", "study", "cli"]
ALLOWED = {"cli/main.cpp": "reads the text of CLI11, which has no codes"}

SEARCH = r"(?:find|rfind|find_first_of|starts_with|ends_with|contains|compare|substr)\("
DIRECT = re.compile(r"what\(\)\)*\s*(?:\." + SEARCH + r"|[!=]=)")
KEPT = re.compile(r"(?:std::string|std::string_view|auto)\s+(\w+)(?:\s*=\s*|\(|\{)[\w.>-]*what\(\)")
NEAR = 12  # lines in which a variable is followed


def violations(root):
    root = pathlib.Path(root)
    found = []
    for file in sorted(file for room in ROOMS for file in (root / room).rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in {".hpp", ".cpp"} or path in ALLOWED:
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


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    found = violations(sys.argv[1])
    print("\n".join(found) if found else "layering: nobody decides by the text of an error")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
