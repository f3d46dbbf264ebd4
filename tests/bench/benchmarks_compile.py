"""Every benchmark compiles against the code of today: nothing else builds them before somebody measures.

usage: benchmarks_compile.py BUILD_FOLDER
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def compiled(entry):
    words = [w for w in shlex.split(entry["command"]) if os.path.basename(w) != "ccache"]
    command, skip = [], False
    for word in words:  # no object file, no list of headers
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MQ"):
            skip = True
        elif word not in ("-c", "-MD"):
            command.append(word)
    done = subprocess.run(command + ["-fsyntax-only"], cwd=entry["directory"], capture_output=True, text=True,
                          timeout=500)
    return entry["file"], done.returncode, done.stderr


def main():
    build = pathlib.Path(sys.argv[1])
    entries = [e for e in json.loads((build / "compile_commands.json").read_text()) if "tests/bench/" in e["file"]]
    if not entries:
        sys.exit("no benchmark in compile_commands.json")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(compiled, entries))
    for file, status, said in results:
        if status != 0:
            print(f"{file} does not compile:\n{said}")
    print(f"{len(results)} files of benchmarks")
    sys.exit(any(status != 0 for _, status, _ in results))


main()
