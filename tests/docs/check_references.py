#!/usr/bin/env python3
"""Documentation that points at something must point at something that is there.

usage: check_references.py SOURCE_ROOT

Checked: paths of files of the tree (in code not those of presets and scenarios: tests write their own), the test named
in quotes behind the path of a test file, relative links of the Markdown files, and keys such as [GPipe19], which
docs/reference/references.md must list. Prints one line per fault, "file:line: what", and exits 1 when there is any.
"""
import pathlib
import re
import sys

FOLDERS = "core|sim|planner|io|cli|kernels|runtime|configs|scenarios|tests|docs"
PATH = re.compile(rf"(?<![\w/.\-])((?:{FOLDERS})/[\w\-./]*\w\.(?:hpp|cpp|py|md|yaml|svg))(?![\w])")
TEST = re.compile(r'(tests/[\w\-./]+\.cpp),? "([^"]+)"')
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
KEY = re.compile(r"\[([A-Za-z]+\d{2})\]")
LISTED = re.compile(r"`\[([A-Za-z]+\d{2})\]`")
CODE = {".hpp", ".cpp"}
TEXT = CODE | {".md", ".yaml", ".build", ".py"}


def faults(root):
    known = set(LISTED.findall((root / "docs/reference/references.md").read_text(encoding="utf-8")))
    found = []
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root)
        if file.suffix not in TEXT or path.parts[0].startswith((".", "build")) or "layering" in path.parts:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            for target in PATH.findall(line):
                if file.suffix in CODE and target.startswith(("configs/", "scenarios/")):
                    continue
                if not (root / target).exists():
                    found.append(f"{path}:{number}: there is no {target}")
            for target, name in TEST.findall(line):
                if (root / target).exists() and name not in (root / target).read_text(encoding="utf-8"):
                    found.append(f'{path}:{number}: {target} has no test "{name}"')
            for key in KEY.findall(line):
                if key not in known:
                    found.append(f"{path}:{number}: [{key}] is not in docs/reference/references.md")
            if file.suffix == ".md":
                for target in LINK.findall(line):
                    if not (file.parent / target).exists():
                        found.append(f"{path}:{number}: link to {target}, which is not there")
    return found


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    found = faults(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(found) if found else "docs: every reference points at something")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
