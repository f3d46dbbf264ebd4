#!/usr/bin/env python3
"""Who runs what and who holds which weights is worked out in core/plan/seating.hpp alone; everybody else asks it.

usage: check_seating.py SOURCE_ROOT

Looks for the arithmetic of seats in all rooms: whatever is divided by stages, replicas, holders or units, or its remainder, a
step of as many, a chunk counted by rounds of stages (chunk * K + k), or from the end of a V (2 * K - 1 - k), which half of the
micro-batches one is of, and whether a stage is reduced. What only looks like it is listed below, with its reason. Prints one
line per violation, "file:line: what", and exits 1 when there is any.
"""
import re
import sys

import report

ROOMS = ["core", "sim", "planner", "calibrate", "kernels", "runtime", "io", "study", "cli", "python"]
OWNER = "core/plan/seating.hpp"

# Reason -> (file or folder, expression): taken out before anything is looked for.
HARMLESS = {
    "layers, blocks or devices are divided evenly over stages": [
        ("io/launch/deepspeed.cpp", "layers / stages + (k < layers % stages ? 1 : 0)"),
        ("planner/launch/nearest.cpp", "blocks % stages == 0"),
        ("planner/launch/nearest.cpp", "blocks / stages"),
        ("planner/launch/nearest.cpp", "layers / stages"),
        ("planner/launch/nearest.cpp", "layers % stages"),
        ("planner/layer_order.cpp", "layers / plan.stages.value"),
        ("planner/search/candidate.cpp", "each / layout.stages"),
        ("planner/search/open_values.cpp", "layers / stages"),
        ("planner/search/space.cpp", "devices / stages"),
    ],
    "a limit over the number of stages": [
        ("planner/find_plan.cpp", "most / plan.stages.value"),
        ("planner/find_schedule.cpp", "100.0) / problem.stages"),
        ("planner/graph_cut.cpp", "kMostLabels / stages"),
    ],
    "a mean over stages": [("planner/search/path_bound.cpp", "static_cast<double>(micro_batches) / seating_.stages")],
    "micro-batches of a batch are split in groups of K": [
        ("planner/search/space.cpp", "group.first.micro_batches % stages == 0"),
        ("sim/kth_wrap.cpp", "m % at(seating_.stages) != 0"),
        ("sim/schedules/chimera.cpp", "M % (K * shape.forwards)"),
        ("sim/schedules/chimera.cpp", "M / K + 1"),
        ("sim/schedules/interleaved_zb.cpp", "shape.micro_batches / shape.stages"),
        ("sim/schedules/interleaved_zb.cpp", "M / shape.stages * shape.stages"),
    ],
    "a time, a load or bytes that the replicas of a stage share": [
        ("planner/graph_cut.cpp", "kUnreached / replicas_[k]"),
        ("planner/partitioners/", "kLargest / r"),
        ("planner/partitioners/balanced.cpp", "sum / r + (sum % r > 0 ? 1 : 0)"),
        ("planner/partitioners/fitting.cpp", "(sums_[at(range.end)] - sums_[at(range.begin)] + r - 1) / r"),
        ("planner/partitioners/suffix_stages.cpp", "/ replicas + reduce"),
        ("planner/partitioners/suffix_stages.cpp", "2 * (r - 1) / r"),
        ("planner/partitioners/suffix_stages.cpp", "(in + out) / r"),
        ("planner/partitioners/suffix_stages.cpp", "std::max(in, out) / r"),
        ("planner/partitioners/suffix_stages.cpp", "in / r, out / r"),
        ("planner/replica_shapes.cpp", "compute / r)"),
        ("planner/replica_shapes.cpp", "static_cast<double>(replica_in_flight(r, behind)) / r"),
        ("sim/summarize.cpp", "static_cast<double>(per_micro_batch.value) / schedule.shape.replicas_of("),
    ],
    "passes of one holder, on the average": [("core/cost/", "plan.passes() / plan.seating().holders(")],
    "workers behind a stage, in rounds of its replicas": [("sim/schedules/lists.cpp", "(workers + r - 1) / r")],
}

NAMES = r"(?:\w+(?:\([^()]*\))?(?:\.|->))*"  # of what a member is of
NUMBER = r"(?!\w|\s*[.(\[]|\s*->)"
STAGES = rf"{NAMES}(?:stages_?(?:\.value)?|K){NUMBER}"
UNITS = rf"{NAMES}units_?{NUMBER}"
REPLICAS = rf"{NAMES}(?:(?:replicas?(?:_\w*)?|holders_?)\b|r_?(?!\w|\s*[.(]|\s*->))"
COPIES = rf"{NAMES}(?:data_parallel(?:\.value)?|copies(?:\(\))?)"
CAST = r"(?:(?:at|int|std::\w+|static_cast<[\w:]+>)[({])*"
INSIDE = rf"(?:\(|{CAST})*"
MANY = r"\s*(?:(?:>|!=|==|<=)\s*1|(?:<|>=)\s*2)\b"
NEAR = r"[^;]{0,120}?"
MICRO_BATCHES = rf"{NAMES}(?:micro_batches|M)\b"
ARITHMETIC = [
    (rf"[/%]=?\s*{INSIDE}{STAGES}", "the place or the stage of a chunk"),
    (rf"\+=\s*{CAST}(?:{STAGES}|{UNITS})", "the chunks of a stage, or the units of a chunk"),
    (rf"[/%]=?\s*{INSIDE}{UNITS}", "the chunk of a unit"),
    (rf"[/%]=?\s*{INSIDE}{REPLICAS}", "the replica or the round of a micro-batch"),
    (rf"(?:\b[A-Za-z_]\w*|[\])}}])\s*\*\s*{CAST}(?:{STAGES}|{UNITS})[)}}]*\s*\+", "the number of a chunk"),
    (rf"\+\s*{CAST}[A-Za-z_]\w*\s*\*\s*{CAST}(?:{STAGES}|{UNITS})(?!\s*[*/])", "the number of a chunk"),
    (rf"\b2\s*\*\s*{CAST}{STAGES}[)}}]*\s*-\s*1\s*-", "the chunk on the way back"),
    (rf"\b2\s*\*\s*{NAMES}(?:m|\w*micro_batch)\s*[<>]=?\s*{MICRO_BATCHES}", "the way of a micro-batch"),
    (rf"\b(?:m|\w*micro_batch)\s*[<>]=?\s*\(?{MICRO_BATCHES}(?:\s*\+\s*1\))?\s*/\s*2", "the way of a micro-batch"),
    (rf"{COPIES}{MANY}{NEAR}(?:\|\||&&){NEAR}\breplicas", "whether a stage is reduced"),
    (rf"\breplicas?\w*{NEAR}{MANY}{NEAR}(?:\|\||&&)\s*{COPIES}{MANY}", "whether a stage is reduced"),
    (rf"{COPIES}\s*\*\s*{REPLICAS}(?:\([^()]*\)|\[[^\[\]]*\])?{MANY}", "whether a stage is reduced"),
    (rf"\b{REPLICAS}(?:\([^()]*\)|\[[^\[\]]*\])?\s*\*\s*{COPIES}{MANY}", "whether a stage is reduced"),
]
ARITHMETIC = [(re.compile(pattern), what) for pattern, what in ARITHMETIC]
TEXT = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"')


def expression(text):
    """It, wherever it is broken into lines."""
    return re.compile(r"\s+".join(re.escape(word) for word in text.split()))


HARMLESS = [(place, expression(text), text) for list_ in HARMLESS.values() for place, text in list_]


def found_in(path, code, met=None):
    """Violations of one file. `met`: harmless expressions that were there are added to it."""
    if path == OWNER:
        return []
    code = TEXT.sub("_", code)
    for place, pattern, text in HARMLESS:
        if path.startswith(place):
            code, times = pattern.subn(lambda match: "_" + "\n" * match[0].count("\n"), code)
            if times and met is not None:
                met.add((place, text))
    lines = {}
    for pattern, what in ARITHMETIC:
        for match in pattern.finditer(code):
            lines.setdefault(code.count("\n", 0, match.start()) + 1, what)
    return [f"{path}:{line}: {what} is worked out here; ask {OWNER}" for line, what in sorted(lines.items())]


def violations(root):
    found, met = [], set()
    for path, file in report.sources(root, ROOMS, {".hpp", ".cpp", ".cu", ".cuh"}):
        found += found_in(path, file.read_text(encoding="utf-8"), met)
    unmet = [(place, text) for place, _, text in HARMLESS if (place, text) not in met]
    return found + [f"{place}: listed as harmless, and is not there: {text}" for place, text in unmet]


if __name__ == "__main__":
    sys.exit(report.main(__doc__, violations, f"seats are worked out in {OWNER} alone"))
