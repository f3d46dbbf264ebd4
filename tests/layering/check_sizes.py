#!/usr/bin/env python3
"""Functions of at most 80 lines, structs and classes of at most 25 fields: what is larger is listed below, with its reason.

usage: check_sizes.py SOURCE_ROOT

Prints one line per violation, "file:line: rule", and exits 1 when there is any. The parser knows only braces and what stands
before them; a lambda belongs to the function around it.
"""
import re
import sys

import report

ROOMS = ["core", "sim", "planner", "calibrate", "kernels", "runtime", "io", "cli", "study", "python"]
MOST_LINES, MOST_FIELDS = 80, 25

# Name -> why it has more fields.
LARGE = {
    "Device": "one per key of a device file",
    "Transformer": "one per key of `model: {family: transformer}`",
    "Plan": "the answer as it is written: one per key of `plan:` that is settled",
    "RuntimePolicy": "one per key of `plan:` that a plan carries as it was asked",
    "PlanRequest": "one per key of `plan:` that is settled in a plan",
    "ScheduleShape": "one per choice of a plan that its lists of ops depend on",
    "StepCosts": "one table per kind of price that engines look up",
    "Training": "one per key of `training:`",
    "Operator": "the facts of one operator, which prices, memory and counts of FLOPs read together",
    "ResultFigures": "one per figure that `compare` reads of a result",
    "Work": "the facts of one layer, which prices, memory and exchanges read together",
    "Worker": "all that one thread of a real run owns, so that nothing of it is shared",
}

LITERALS = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'', re.S)
HEAD_OF_TYPE = re.compile(r"\b(struct|class|union)\s+(?:alignas\([^)]*\)\s*)?(\w+)[^;={}()]*$")
NO_FIELD = re.compile(r"^(using|friend|static|typedef|template|return|enum|struct|class|union|public|private|protected)\b")


def blank(match):
    """As many lines, no braces."""
    return "\n" * match[0].count("\n") or "_"


def fields_of(statement):
    """How many fields a statement of a type declares: `double a = 0, b` two, a function none."""
    statement = re.sub(r"^\s*(?:(?:public|private|protected)\s*:\s*)+", "", statement).strip()
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)(?=[^(]*=)|\{[^{}]*\}|\[[^\[\]]*\]", "", statement)) != statement:
        statement = shorter
    if not statement or NO_FIELD.match(statement) or "(" in statement or " " not in statement:
        return 0
    return statement.count(",") + 1


def blocks(text):
    """(kind, name, line it begins, lines, fields) of every function and type. Fields with braced values count as well."""
    text = LITERALS.sub(blank, text)
    text = re.sub(r"^\s*#.*(?:\\\n.*)*$", lambda match: "\n" * match[0].count("\n"), text, flags=re.M)
    stack, since, found = [], 0, []
    for at, sign in enumerate(text):
        if sign == "{":
            head = text[since:at]
            kind, name = "other", ""
            outer = stack[-1][0] if stack else "namespace"
            if re.search(r"\bnamespace\b[\w:\s]*$", head) or head.strip() == 'extern "C"':
                kind = "namespace"
            elif match := HEAD_OF_TYPE.search(head):
                kind, name = "type", match[2]
            elif outer in ("namespace", "type") and re.search(r"\)[\w\s:&<>,>.*()\[\]-]*$", head) and not re.search(r"=\s*[\w:<>, ]*$", head):
                kind, name = "function", (re.findall(r"([~\w]+|operator\S+)\s*\(", head) or ["?"])[0]
            begin = since + len(head) - len(head.lstrip())
            stack.append([kind, name, text.count("\n", 0, begin) + 1, 0, since])
            if kind != "other":
                since = at + 1
        elif sign == "}" and stack:
            kind, name, line, fields, start = stack.pop()
            if kind in ("function", "type"):
                found.append((kind, name, line, text.count("\n", 0, at) + 2 - line, fields))
            if kind != "other":
                since = at + 1
        elif sign == ";" and not (stack and stack[-1][0] == "other"):
            if stack and stack[-1][0] == "type":
                stack[-1][3] += fields_of(text[since:at])
            since = at + 1
    return found


def violations(root):
    found, large = [], set()
    for path, file in report.sources(root, ROOMS, {".hpp", ".cpp", ".cu", ".cuh"}):
        for kind, name, line, lines, fields in blocks(file.read_text(encoding="utf-8")):
            if kind == "function" and lines > MOST_LINES:
                found.append(f"{path}:{line}: {name} has {lines} lines, more than {MOST_LINES}")
            if fields > MOST_FIELDS:
                large.add(name)
                if name not in LARGE:
                    found.append(f"{path}:{line}: {name} has {fields} fields, more than {MOST_FIELDS}")
    return found + [f"{name}: listed as large, and is not" for name in sorted(LARGE.keys() - large)]


if __name__ == "__main__":
    sys.exit(report.main(__doc__, violations, "no function and no type is too large"))
