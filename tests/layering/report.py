"""What the checks of this folder have in common: which files they read, and how they say what they found."""
import pathlib
import sys


def sources(root, rooms, suffixes):
    """(path from the root, file) of the sources in these rooms, sorted."""
    root = pathlib.Path(root)
    for file in sorted(file for room in rooms for file in (root / room).rglob("*")):
        if file.suffix in suffixes:
            yield file.relative_to(root).as_posix(), file


def main(usage, violations, in_order):
    """Prints one line per violation, or `in_order`. The exit status: 0 none, 1 some, 2 wrong arguments."""
    if len(sys.argv) != 2:
        print(usage.strip(), file=sys.stderr)
        return 2
    found = violations(sys.argv[1])
    print("\n".join(found) if found else "layering: " + in_order)
    return 1 if found else 0
