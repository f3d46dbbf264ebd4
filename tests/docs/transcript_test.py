#!/usr/bin/env python3
"""README, docs/guide/bubble.md, docs/results/schedules.md and docs/reference/whole-training.md show what the tool prints and draws today, docs/quickstart.svg and the pictures of docs/results/schedules.md.

Of `plan` and `sweep` the whole output stands there. They are run with a longer time limit than a reader needs, so that a
slow machine gets the same answer.

usage: transcript_test.py SOURCE_ROOT BINARY

PIPEWRIGHT_ACCEPT=1 writes both anew and reports "skipped" (77) instead of comparing.
"""
import os
import pathlib
import re
import shlex
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

BEGIN = "```console\n$ build/pipewright simulate scenarios/quickstart.yaml\n"
END = "\n\n[then: "


SEARCH = re.compile(r"```console\n\$ build/pipewright ((?:plan|sweep) [^\n]*)\n(.*?)```", re.S)


def searched(text, root, binary):
    """The text with the output of every `plan` and `sweep` block as it is now."""

    def block(found):
        run = started.run([binary, *shlex.split(found[1]), "--time-limit", "600s"], cwd=root, check=True,
                          capture_output=True, text=True, longest=560)
        return f"```console\n$ build/pipewright {found[1]}\n{run.stdout}```"

    return SEARCH.sub(block, text)


TRAINING = re.compile(r"```console\n\$ build/pipewright (simulate [^\n]*)\n.*?```", re.S)


def whole_trainings(text, root, binary):
    """The text with what every `simulate` block says of the whole training as it is now."""

    def block(found):
        run = started.run([binary, *shlex.split(found[1])], cwd=root, check=True, capture_output=True, text=True)
        part = run.stdout[run.stdout.index("\nthe whole training\n") + 1 :].split("\n\n")[0]
        return f"```console\n$ build/pipewright {found[1]}\n[...]\n{part}\n```"

    return TRAINING.sub(block, searched(text, root, binary))


def answers(text, root, binary):
    """The text with the first lines of the answer of every `simulate` block as they are now."""

    def block(found):
        run = started.run([binary, *shlex.split(found[1])], cwd=root, check=True, capture_output=True, text=True)
        lines = run.stdout[run.stdout.index("\nstep time ") + 1 : run.stdout.index("\nspeed-up ")]
        return f"```console\n$ build/pipewright {found[1]}\n{lines}\n```"

    return TRAINING.sub(block, text)


DRAWN = re.compile(r"^build/pipewright (draw (?:[^\n]*\\\n)*[^\n]*)$", re.M)


def pictures(text, root, binary):
    """The pictures that the page's `draw` commands write, as they are now: bytes by path. Each shows the picture, too."""
    drawn = {}
    for found in DRAWN.finditer(text):
        words = shlex.split(found[1].replace("\\\n", " "))
        place = words.index("-o")
        path = words[place + 1]
        assert f"]({pathlib.Path(path).name})" in text, f"{path} is made and not shown"
        run = started.run([binary, *words[:place], *words[place + 2:]], cwd=root, check=True, capture_output=True)
        drawn[root / path] = run.stdout
    return drawn


def main():
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    readme, picture = root / "README.md", root / "docs/quickstart.svg"
    with tempfile.TemporaryDirectory() as folder:
        drawn = pathlib.Path(folder) / "quickstart.svg"
        run = started.run([binary, "simulate", "scenarios/quickstart.yaml", "-o", drawn], cwd=root, check=True,
                          capture_output=True, text=True)
        svg = drawn.read_text(encoding="utf-8")
    page = root / "docs/reference/whole-training.md"
    told = page.read_text(encoding="utf-8")
    now = whole_trainings(told, root, binary)
    schedules = root / "docs/results/schedules.md"
    compared = schedules.read_text(encoding="utf-8")
    swept = searched(compared, root, binary)
    figures = pictures(compared, root, binary)
    bubble = root / "docs/guide/bubble.md"
    shown = bubble.read_text(encoding="utf-8")
    computed = answers(shown, root, binary)
    printed = run.stdout.split("\n\nstages (times")[0].rstrip()  # the first screen: answer and timeline
    text = readme.read_text(encoding="utf-8")
    begin = text.index(BEGIN) + len(BEGIN)
    end = text.index(END, begin)
    if os.environ.get("PIPEWRIGHT_ACCEPT"):
        readme.write_text(searched(text[:begin] + printed + text[end:], root, binary), encoding="utf-8")
        picture.write_text(svg, encoding="utf-8")
        page.write_text(now, encoding="utf-8")
        bubble.write_text(computed, encoding="utf-8")
        schedules.write_text(swept, encoding="utf-8")
        for path, content in figures.items():
            path.write_bytes(content)
        print("wrote the transcripts of README.md, docs/guide/bubble.md, docs/results/schedules.md and docs/reference/whole-training.md, and docs/quickstart.svg")
        return 77
    faults = [] if told == now else ["docs/reference/whole-training.md: a transcript is not what the tool prints"]
    if compared != swept:
        faults.append("docs/results/schedules.md: a transcript is not what the tool prints")
    if not figures:
        faults.append("docs/results/schedules.md: no command draws its picture")
    faults += [f"{path.name} is not what the tool draws" for path, content in figures.items()
               if not path.exists() or path.read_bytes() != content]
    if shown != computed:
        faults.append("docs/guide/bubble.md: a transcript is not what the tool prints")
    if text[begin:end] != printed or searched(text, root, binary) != text:
        faults.append("README.md: a transcript is not what the tool prints")
    if picture.read_text(encoding="utf-8") != svg:
        faults.append("docs/quickstart.svg is not what the tool draws")
    for fault in faults:
        print(fault + "; PIPEWRIGHT_ACCEPT=1 meson test --suite docs writes it anew")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
