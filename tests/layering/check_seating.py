#!/usr/bin/env python3
"""Who runs what and who holds which weights is worked out in core/plan/seating.hpp alone; everybody else asks it.

usage: check_seating.py SOURCE_ROOT

Looks for the arithmetic of seats in all rooms: the chunk's place on its stage (v / stages), its stage (v % stages), the
replica of a micro-batch (m % r), its round (m / r, rounded up for their number), and whether a stage is reduced. Prints
one line per violation, "file:line: what", and exits 1 when there is any.
"""
import pathlib
import re
import sys

import report

ROOMS = ["core", "sim", "planner", "calibrate", "kernels", "runtime", "io", "study", "cli"]
OWNER = "core/plan/seating.hpp"

STAGES = r"(?:[\w.>()-]*\bstages\b|K\b)"
REPLICAS = r"(?:[\w.>-]*\breplicas?\w*\b|r\b)"
ARITHMETIC = [
    (re.compile(rf"\b(?:v|c|chunk|virtual_stage)\)?\s*[/%]\s*(?:at\()?{STAGES}"), "the place of a chunk"),
    (re.compile(rf"\b(?:m|micro_batch|micro_batch\))\s*%\s*(?:static_cast<[\w:]+>\()?{REPLICAS}"), "the replica of a micro-batch"),
    (re.compile(rf"\b(?:m|micro_batch|micro_batch\))\s*/\s*(?:static_cast<[\w:]+>\()?{REPLICAS}"), "the round of a micro-batch"),
    (re.compile(rf"\bmicro_batches\s*\+\s*{REPLICAS}\s*-\s*1"), "the number of rounds"),
    (re.compile(r"\bdata_parallel\s*>\s*1\s*\|\|[^;]*\breplicas"), "whether a stage is reduced"),
    (re.compile(r"\bdata_parallel\s*==\s*1\s*&&[^;]*\breplicas"), "whether a stage is reduced"),
    (re.compile(r"\bv\s*=\s*(?:stage|k)\s*;[^;]*;\s*v\s*\+="), "the chunks of a stage"),
]
COMMENT = re.compile(r"//[^\n]*")


def violations(root):
    found = []
    for path, file in report.sources(pathlib.Path(root), ROOMS, {".hpp", ".cpp", ".cu", ".cuh"}):
        if path == OWNER:
            continue
        code = COMMENT.sub("", file.read_text(encoding="utf-8"))
        for pattern, what in ARITHMETIC:
            for match in pattern.finditer(code):
                line = code.count("\n", 0, match.start()) + 1
                found.append(f"{path}:{line}: {what} is worked out here; ask {OWNER}")
    return sorted(found)


if __name__ == "__main__":
    sys.exit(report.main(__doc__, violations, f"seats are worked out in {OWNER} alone"))
