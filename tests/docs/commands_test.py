#!/usr/bin/env python3
"""Every command that README.md and the pages below show does what a reader expects: it runs, and ends as it should.

usage: commands_test.py SOURCE_ROOT BINARY

Commands are the lines of ```sh blocks, and the lines of ```console blocks that begin with `$ `. They run one after the
other, page by page, in a folder that has scenarios/ and configs/ of the source, so that a command finds what one before it
wrote. A ```yaml or ```csv block that begins with `# NAME.yaml` or `# NAME.csv` is there as that file. A trailing `# exit N` states the status that is expected (0 unless given).
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

PAGES = ["README.md", "docs/guide/bubble.md", "docs/guide/by-task.md", "docs/reference/launch.md", "docs/reference/schedule-csv.md", "docs/reference/figures.md",
         "docs/reference/whole-training.md"]

# Beginnings of commands that are not run here, and why. One that no page shows any more is a fault.
ELSEWHERE = {
    "./setup.sh": "the gate runs it",
    "build/pipewright import pipedream": "needs a file of PipeDream's release",
}

BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```", re.S | re.M)


FILE = re.compile(r"^```(?:yaml|csv)\n# (\S+\.(?:yaml|csv))\n(.*?)^```", re.S | re.M)


def commands(text):
    """(command, expected status, expected output or None) of every command of a page, in order."""
    for block in BLOCK.finditer(text):
        lines = block[2].replace("\\\n", " ").splitlines()
        for line in lines:
            if block[1] == "console":
                if not line.startswith("$ "):
                    continue
                line = line[2:]
            stated = re.search(r"#.*\bexit (\d+)", line)
            command = re.sub(r"\s+#\s.*$", "", line).strip()
            if command and not command.startswith("#"):
                yield command, int(stated[1]) if stated else 0


def main():
    root, binary = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    faults, used, ran = [], set(), 0
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", NO_COLOR="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_btl_vader_single_copy_mechanism="none")
    with_mpi = "MPI: transport mpi" in started.run([binary, "--version"], capture_output=True, text=True).stdout
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for part in ("configs", "scenarios"):
                shutil.copytree(root / part, folder / part)
            (folder / "build").mkdir()
            (folder / "build/pipewright").symlink_to(binary)
            environment["PIPEWRIGHT_PATH"] = str(folder / "configs")
            text = (root / page).read_text(encoding="utf-8")
            for file in FILE.finditer(text):
                (folder / file[1]).write_text(file[2], encoding="utf-8")
            for command, status in commands(text):
                beginning = next((b for b in ELSEWHERE if command.startswith(b)), None)
                if beginning:
                    used.add(beginning)
                    continue
                if command.startswith("mpirun") and (not with_mpi or not shutil.which("mpirun")):
                    continue
                if ".pdf" in command and not shutil.which("rsvg-convert"):
                    continue
                ran += 1
                run = started.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL)
                # A real run on a busy machine may be measured and not judged, or be found slower than predicted; that is
                # what it says it does, and no test's business.
                told = (run.returncode in (1, 2) and re.search(r" validate ", command) and "--log" not in command
                        and re.search(r"^ *verdict", run.stdout, re.M))
                if run.returncode != status and not told:
                    faults.append(f"{page}: {command}\n  ended with {run.returncode}, not {status}\n"
                                  + (run.stdout + run.stderr)[-1500:])
    faults += [f"no page shows a command that begins with {shlex.quote(b)}" for b in sorted(set(ELSEWHERE) - used)]
    if ran < 20:
        faults.append(f"only {ran} commands were found: the pages changed their form")
    for fault in faults:
        print(fault)
    print(f"{ran} commands, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
