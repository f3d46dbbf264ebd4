"""Names that would be more than text: no file that holds one runs it, hides it or breaks by it.

usage: hostile_names_test.py PIPEWRIGHT SOURCE

Launch files are compared with those of a harmless name: a Python program must have the same syntax tree, a shell script
is run with stand-ins for what it calls and must call the same. A file MARK that appears tells that a name was executed.
"""
import ast
import csv
import html.parser
import io
import json
import os
import pathlib
import re
import stat
import sys
import tempfile
import unicodedata
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

PIPEWRIGHT, SOURCE = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
CORPUS = SOURCE / "tests/fuzz/corpus"

# Each for Python and for a shell; "/" may not stand in the name of a file.
CODE = "import pathlib; pathlib.Path('MARK').touch()"
HOSTILE_CODE = [
    f"a\n{CODE}\ntouch MARK\n#",
    f"PIPEWRIGHT_PROGRAM\nPIPEWRIGHT_RECIPE\ntouch MARK\n\"\"\"\n{CODE}\n\"\"\"",
    "'; touch MARK; '$(touch MARK)`touch MARK`\"; touch MARK; \"\\",
    "coding: utf-7 +AAo-" + CODE.replace("'", "+ACc-").replace(";", "+ADs-") + "+AAo-",
    f"x\u2028touch MARK\u2029{CODE}\u202E",
]
# What a scenario may not hold, and the name of a file may.
HOSTILE_FILES = [f"a\r{CODE}\rtouch MARK\r", f"a\v{CODE}\ftouch MARK\u0085{CODE}\x1b[2J", "--set=-\n" + CODE]
HOSTILE_TEXT = [
    "<script>alert(1)</script> &lt; <img src=x>", "[click](http://example.com) ![x](y)", "a | b || c", "# a\n# b\n- c\n",
    "=HYPERLINK(\"x\";\"y\")", "+1+2", "-2+3", "@SUM(1,1)", "\t=1", "`code`` *a* _b_ ~~c~~ $d$ \\", "\"];} graph {a; \"\\",
    "exe.\u202Etxt\u2066\u200B\u061C\uFEFF\u00AD", "---\nversion: 2\n---", "it's: {a, [b], 'c'} # d",
]
STAND_INS = ["torchrun", "srun", "scontrol", "pipewright", "deepspeed"]


def run(words, *, cwd, longest=60, env=None):
    done = started.run(list(words), longest=longest, capture_output=True, cwd=cwd, env=env)
    return done.returncode, done.stdout, done.stderr


def pipewright(*words, cwd, accept=(0, 1)):
    status, out, err = run([PIPEWRIGHT, *words], cwd=cwd)
    assert status in accept, (words, status, err)
    check_seen(out, words), check_seen(err, words)
    return out.decode()


def is_seen(character):
    return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp", "Cn")


def check_seen(data, whose):
    hidden = [hex(ord(c)) for c in data.decode() if not is_seen(c)]
    assert not hidden, (whose, hidden[:5])


def no_mark(folder, whose):
    assert "MARK" not in os.listdir(folder), ("executed", whose)


# ---- launch files ---------------------------------------------------------------------------------------------------

PROGRAMS = {"torch": "quickstart.yaml", "deepspeed": "quickstart.yaml", "torchtitan": "what_if/llama3-70b.yaml"}
SCRIPTS = {"megatron": "what_if/llama3-70b.yaml", "slurm": "validation/two-stage-gpipe.yaml"}


def make_stand_ins(folder):
    """Each writes its arguments, and nothing else is to be found but what scripts need."""
    folder.mkdir()
    for name in STAND_INS:
        path = folder / name
        path.write_text(f"#!/bin/bash\nprintf '%s\\0' {name} \"$@\" >> \"$CALLS\"\nprintf '\\n' >> \"$CALLS\"\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    for name in ["bash", "cat", "head", "tee", "grep", "touch"]:
        target = next(f"{p}/{name}" for p in ["/usr/bin", "/bin"] if os.path.exists(f"{p}/{name}"))
        (folder / name).symlink_to(target)


def called_by(script, folder, stand_ins):
    """What a script calls, with the programs that it writes."""
    (folder / "torchtitan/models/llama3").mkdir(parents=True, exist_ok=True)
    (folder / "torchtitan/models/llama3/config_registry.py").write_text("")
    calls, file = folder / "calls", folder / "script"
    calls.write_bytes(b"")
    file.write_bytes(script)
    status, _, err = run(["/bin/bash", "script"], cwd=folder,
                         env={"PATH": str(stand_ins), "CALLS": str(calls), "SLURM_JOB_NODELIST": "n", "SLURM_JOB_ID": "1",
                              "MASTER_ADDR": "n"})
    assert status == 0 and not err, (status, err)
    written = [p for p in [folder / "pipewright_plan.py", folder / "torchtitan/models/llama3/pipewright_plan.py"] if p.exists()]
    trees = [tree(p.read_bytes()) for p in written]
    for path in written:
        path.unlink()
    return calls.read_bytes(), trees


def tree(program):
    return ast.dump(ast.parse(program))  # of bytes, so that a line that names an encoding counts


def launched(path, target, *more, cwd):
    out = pipewright("launch", *more, "--for", target, "--", path, cwd=cwd)
    return out.encode()


def with_names(name):
    words = []
    for key in ["name", "description", "cluster.name"]:
        words += ["--set", f"{key}={json.dumps(name)}"]
    return words


def launch_all(folder, name, words, stand_ins):
    """What every framework's file does: its syntax tree or its calls."""
    found = {}
    for target, scenario in {**PROGRAMS, **SCRIPTS}.items():
        path = f"{name}.yaml"
        (folder / path).write_text((SOURCE / "scenarios" / scenario).read_text())
        more = words if target != "torchtitan" and target != "megatron" else words[:4]  # its cluster is one of configs
        if target in PROGRAMS:
            found[target] = tree(launched(path, target, *more, cwd=folder))
            no_mark(folder, (target, name))
        script = launched(path, target, *more, *(["--sbatch"] if target != "slurm" else []), cwd=folder)
        found[target, "job"] = called_by(script, folder, stand_ins)
        no_mark(folder, (target, name))
        if target == "megatron":
            found[target] = called_by(launched(path, target, *more, cwd=folder), folder, stand_ins)
            no_mark(folder, (target, name))
        os.unlink(folder / path)
    return found


def argument_of_run(found):
    """The path that the job of Slurm gives to pipewright, and all else that it calls."""
    calls, trees = found["slurm", "job"]
    words = calls.split(b"\0")
    at = words.index(b"run") + 1
    return words[at].decode(), words[:at] + [w for w in words[at + 1:] if w != b"--set" and not re.match(rb"[a-z.]+=", w)], trees


def test_launch(folder):
    stand_ins = folder / "stand-ins"
    make_stand_ins(stand_ins)
    work = folder / "work"
    work.mkdir()
    plain = launch_all(work, "plain", with_names("plain"), stand_ins)
    for name, words in [*((n, with_names(n)) for n in HOSTILE_CODE), *((n, []) for n in HOSTILE_FILES)]:
        found = launch_all(work, name, words, stand_ins)
        for key in plain:
            if key != ("slurm", "job"):
                assert found[key] == plain[key], (key, name)
        path, rest, trees = argument_of_run(found)
        assert path in (f"{name}.yaml", f"./{name}.yaml"), (path, name)
        assert (rest, trees) == argument_of_run(plain)[1:], (rest, name)


# ---- reports --------------------------------------------------------------------------------------------------------


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def scenario(name):
    n = quoted(name)
    return f"""version: 1
name: {n}
description: {n}
model: {{name: {n}, layers: [{{name: {n}, forward: 1 ms, backward: 2 ms, activation: 1 MB}}, {{name: {quoted(name + "2")},
  forward: 1 ms, backward: 2 ms}}]}}
cluster: {{name: {n}, node: {{devices: 2, device: {{name: {n}, memory: {{value: 16 GiB, source: {n}}}}}, links: {{kind: ideal}}}}}}
training: {{micro_batch_size: 1, micro_batches: 4}}
plan: {{stages: 2}}
"""


def expectation(name):
    n = quoted(name)
    return f"""expect:
  - table: {n}
    source: {n}
    note: {n}
    rows: [{{name: {n}, quantity: step_time_s, published: 0.015, tolerance: 50 %, reason: {n}}}]
"""


def sweep(name):
    n = quoted(name)
    return f"""version: 1
sweep:
  base: asked.yaml
  description: {n}
  variants: {{{n}: {{}}, other: {{plan.stages: 1}}}}
  grid: {{training.micro_batches: [2, 4], cluster.node.device.name: [{n}, plain]}}
"""


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def handle_starttag(self, tag, attrs):
        self.seen |= {tag} | {name for name, _ in attrs}


def tags_of(page):
    tags = Tags()
    tags.feed(page)
    return tags.seen


def check_markdown(text, whose):
    assert "<script" not in text and "<img" not in text and "](" not in text, (whose, text)
    assert not re.search(r"^(# [ab]|- c|---|version: 2)$", text, re.M), (whose, text)
    bars = None
    for line in text.splitlines():
        count = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert None in (count, bars) or count == bars, (whose, line)
        bars = count


def check_csv(text, whose):
    rows = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in rows}) == 1 and len(rows) == text.count("\n"), (whose, text)
    for cell in sum(rows, []):
        number = re.fullmatch(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?|", cell)
        assert number or cell[0] not in "=+-@\t\r", (whose, cell)


def check_svg(text, whose):
    root = xml.etree.ElementTree.fromstring(text)
    tags = {element.tag.split("}")[1] for element in root.iter()}
    assert "script" not in tags and "img" not in tags, whose


def check_dot(text, whose):
    bare = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    assert re.fullmatch(r"[\w \n=\[\],;{}>\"-]*", bare), (whose, bare)


def test_reports(folder):
    plain = None
    for name in HOSTILE_TEXT + HOSTILE_CODE[:1]:
        (folder / "asked.yaml").write_text(scenario(name))
        (folder / "expected.yaml").write_text(scenario(name) + expectation(name))
        (folder / "swept.yaml").write_text(sweep(name))
        endings = ["md", "csv", "html", "svg", "json", "dot", "trace.json"]
        outputs = sum((["-o", f"r.{ending}"] for ending in endings), [])
        said = pipewright("simulate", "asked.yaml", *outputs, cwd=folder)
        assert not re.search(r"^(# [ab]|- c|---)$", said, re.M), said
        texts = {ending: (folder / f"r.{ending}").read_bytes() for ending in endings}
        for ending, data in texts.items():
            check_seen(data, (ending, name))
        texts = {ending: data.decode() for ending, data in texts.items()}
        check_markdown(texts["md"], name), check_csv(texts["csv"], name), check_svg(texts["svg"], name)
        check_dot(texts["dot"], name)
        document = json.loads(texts["json"])
        assert document["scenario"]["name"] == name and json.loads(texts["trace.json"])["traceEvents"], name
        plain = plain or tags_of(texts["html"])
        assert tags_of(texts["html"]) == plain and "script" not in plain and "img" not in plain, name
        check_markdown(pipewright("reproduce", "expected.yaml", "--md", cwd=folder), name)
        check_csv(pipewright("reproduce", "expected.yaml", "--csv", cwd=folder), name)
        rows = pipewright("sweep", "swept.yaml", "--csv", "-o", "s.html", "-o", "s.json", cwd=folder)
        check_csv(rows, name)
        assert "script" not in tags_of((folder / "s.html").read_text()), name
        check_seen((folder / "s.html").read_bytes(), name), check_seen((folder / "s.json").read_bytes(), name)
        pipewright("compare", "asked.yaml", "asked.yaml", "--set-b", "training.micro_batches=2", "-o", "c.md", cwd=folder)
        check_markdown((folder / "c.md").read_text(), name)
        # What a scenario says is what its resolved text says.
        resolved = pipewright("check", "--resolved", "asked.yaml", cwd=folder)
        (folder / "again.yaml").write_text(resolved)
        again = pipewright("check", "--resolved", "again.yaml", cwd=folder)
        assert [line.split("  # ")[0] for line in again.splitlines()] == \
            [line.split("  # ")[0] for line in resolved.splitlines()], (name, resolved)


# ---- names of files -------------------------------------------------------------------------------------------------


def test_files(folder):
    for name in HOSTILE_CODE + HOSTILE_FILES[:2]:
        path = f"{name}.yaml"
        (folder / path).write_text("".join(line + "\n" for line in scenario("x").splitlines() if not line.startswith("name")))
        pipewright("plan", "--top", "1", "--set", "plan.stages=auto", "-o", "best.yaml", "--", path, cwd=folder)
        resolved = pipewright("check", "--resolved", path, cwd=folder)
        for text in [resolved, (folder / "best.yaml").read_text()]:
            (folder / "again.yaml").write_text(text)
            pipewright("check", "again.yaml", cwd=folder, accept=(0,))
        os.unlink(folder / path)


# ---- import ---------------------------------------------------------------------------------------------------------


def node(number, name, figures="forward_compute_time=2.0, backward_compute_time=4.0, activation_size=8.0, parameter_size=8.0"):
    return f"node{number} -- {name}(1) -- {figures}\n"


def test_import(folder):
    one_line = [n for n in HOSTILE_TEXT + HOSTILE_CODE + HOSTILE_FILES if "\n" not in n and " -- " not in n]
    heads = [n.replace("(", "[").replace("/", "|") for n in one_line]
    graph = folder / "graph.txt"
    graph.write_text("node1 -- Input -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=602112.0, "
                     "parameter_size=0.0\n" + "".join(node(i + 2, name) for i, name in enumerate(heads))
                     + "".join(f"\tnode{i + 1} -- node{i + 2}\n" for i in range(len(heads))), newline="")
    log = folder / "train.log"
    log.write_text("# synthetic \x1b[2J\u0085\u202E\n" + (CORPUS / "log/megatron.log").read_text(), newline="")
    imported = [(["pipedream", "graph.txt", "--batch", "8"], ["check"]),
                (["megatron-log", "train.log"], None)]
    for number, name in enumerate(HOSTILE_CODE + HOSTILE_FILES):
        if name.startswith("-"):
            continue
        models = folder / name
        models.mkdir()
        (models / "config.json").write_bytes((CORPUS / "hf/llama.json").read_bytes())
        imported.append((["hf", f"{name}/config.json"], ["check"]))
    for words, read in imported:
        pipewright("import", *words, "-o", "made.yaml", cwd=folder, accept=(0,))
        check_seen((folder / "made.yaml").read_bytes(), words)
        if read:
            pipewright(*read, "made.yaml", cwd=folder, accept=(0,))
        else:  # a run is read by what compares it
            pipewright("compare", "made.yaml", "made.yaml", cwd=folder, accept=(0,))
    # A file that no scenario could name is refused at once.
    name = "a\u0085.csv"
    (folder / name).write_bytes((CORPUS / "schedule-csv/1f1b.csv").read_bytes())
    status, out, err = run([PIPEWRIGHT, "import", "schedule-csv", name], cwd=folder)
    assert status == 2 and not out and b"holds a character that no scenario can; rename" in err, err


for test in [test_launch, test_reports, test_files, test_import]:
    with tempfile.TemporaryDirectory() as scratch:
        test(pathlib.Path(scratch))
