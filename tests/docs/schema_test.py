#!/usr/bin/env python3
"""What `pipewright schema` prints is JSON Schema by which every shipped file, and every document that the program
writes here, is in order, and broken ones are not.

usage: schema_test.py SOURCE_ROOT BINARY

Skipped (77) where Python has no jsonschema and PyYAML (Debian: python3-jsonschema, python3-yaml).
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

try:
    import jsonschema
    import yaml
except ImportError:
    debian = "/usr/bin/python3"  # Debian's packages are of Debian's Python
    if os.path.exists(debian) and not os.environ.get("PIPEWRIGHT_SECOND_PYTHON"):
        os.environ["PIPEWRIGHT_SECOND_PYTHON"] = "1"
        os.execv(debian, [debian, *sys.argv])
    print("skipped: no jsonschema or no yaml (Debian: python3-jsonschema, python3-yaml)")
    sys.exit(77)

ROOT, BINARY = (pathlib.Path(argument).resolve() for argument in (sys.argv.pop(1), sys.argv.pop(1)))
KINDS = ["scenario", "sweep", "model", "device", "cluster", "profile", "run"]
# By what their key "schema" says; the program also knows each by a name.
DOCUMENTS = {
    "result": "pipewright.result/1", "ranking": "pipewright.ranking/1", "sizing": "pipewright.sizing/1",
    "found-order": "pipewright.found-order/1", "sweep-result": "pipewright.sweep/1",
    "losses": "pipewright.losses/1", "capacity": "pipewright.capacity/1", "comparison": "pipewright.comparison/1",
    "validation": "pipewright.validation/1", "accuracy": "pipewright.accuracy/1", "imported": "pipewright.imported/1",
    "reproduction": "pipewright.reproduction/1", "measured-runs": "pipewright.measured-runs/2",
    "study-summary": "pipewright.study-summary/2", "show": "pipewright.show/1",
}
QUICKSTART = "scenarios/quickstart.yaml"
SMALL = "scenarios/validation/two-stage-gpipe.yaml"
MEGATRON = (" iteration {0}/ 9 | consumed samples: 64 | elapsed time per iteration (ms): 3{0}.0 | global batch size: 64 |"
            " lm loss: 2.5 |\n")
MEASURED = """
measured:
  table: mine
  source: me
  files: [{name: one, file: a.csv}]
  columns: {training.micro_batches: M}
  devices: n
  figures: [{name: time, figure: step_time_s, column: t, unit: ms}]
"""


def schema(kind):
    return json.loads(started.run([BINARY, "schema", kind], check=True, capture_output=True, text=True).stdout)


def kind_of(document):
    if "plan" in document or "training" in document or ("model" in document and "cluster" in document):
        return "scenario"
    return next((kind for kind in KINDS if kind in document), "scenario")


# Keys that a document need not have; the writers state them in `when`.
OPTIONAL = {"campaign", "classes", "shard", "synthetic", "written"}


def written_documents(folder):
    """(command, document) of every command, printed and written to files."""
    documents = []

    def run(*arguments, text=None, statuses=(0,)):
        done = started.run([BINARY, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, input=text,
                           check=False)
        if done.returncode not in statuses:
            raise AssertionError(f"{arguments}: status {done.returncode}: {done.stderr}")
        return done

    def ask(*arguments, **how):
        documents.append((" ".join(map(str, arguments)), json.loads(run(*arguments, "--json", **how).stdout)))

    def file(name, text):
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    ask("simulate", QUICKSTART)
    ask("simulate", QUICKSTART, "--set", "cluster.node.device.memory=1000MiB", statuses=(1,))
    ask("simulate", QUICKSTART, "--set", "cluster.node.device.memory=1000MiB", "--ignore-memory", statuses=(1,))
    ask("simulate", QUICKSTART, "--set", "plan.recompute={layers: [3, 4]}")
    for name in ["pipedream/straight-4", "pipedream/replicated-2-1-1", "what_if/old-and-new", "what_if/data-parallel",
                 "what_if/interleaved", "what_if/llama3-70b", "zero_bubble/1.5b-p8"]:
        ask("simulate", f"scenarios/{name}.yaml", statuses=(0, 1))
    ask("simulate", "scenarios/what_if/gpt2-8x4090.yaml", "--tokens", "1T", "--ask", "spread,energy")
    ask("simulate", "scenarios/what_if/gpt2-8x4090.yaml", "--tokens", "1B", "--price", "3", "--mtbf", "500h",
        "--checkpoint", "60s", "--restart", "10min")
    ask("plan", QUICKSTART, "--set", "plan=auto", "--explain", "--pareto", "memory,cost", "--top", "3")
    ask("plan", QUICKSTART, "--set", "plan=auto", "--for", "torch")
    ask("plan", QUICKSTART, "--set", "plan=auto", "--nodes", "1")
    ask("plan", "scenarios/what_if/gpt2-8x4090.yaml", "--set", "plan=auto", "--nodes", "1,2", "--tokens", "1B",
        "--deadline", "30d", "--set", "cluster.network={bandwidth: 25 GB/s}", statuses=(0, 1))
    ask("plan", "scenarios/what_if/old-and-new.yaml", "--set", "plan={replicas: auto, schedule: auto}")
    ask("plan", QUICKSTART, "--set", "plan=auto", "--time-limit", "1ns", statuses=(0, 1))
    ask("plan", QUICKSTART, "--set", "plan=auto", "--set", "cluster.node.device.memory=10MiB", statuses=(1,))
    ask("schedule", QUICKSTART, "--pareto", "--evaluations", "100")
    ask("sweep", "scenarios/what_if/hardware.yaml")
    ask("sweep", "scenarios/what_if/bandwidth.yaml", "--shard", "1/3")
    ask("sweep", "--run", file("grid.yaml", f"sweep:\n  base: {ROOT}/{SMALL}\n  grid: {{run.seed: [1, 2], plan.stages: "
                               "[2, 50]}\n"), "--set", "run.steps=2")
    ask("capacity", QUICKSTART, "--over", "training.micro_batch_size")
    ask("capacity", QUICKSTART, "--over", "training.micro_batch_size", "--set", "cluster.node.device.memory=10MiB",
        statuses=(0, 1))
    ask("compare", QUICKSTART, QUICKSTART, "--set-b", "training.micro_batches=16")
    ask("compare", QUICKSTART, "scenarios/what_if/interleaved.yaml")
    ask("show", "device", "v100-sxm2-16g")
    points = file("points.csv", "m,n,k,time_us\n8192,8192,8192,1400\n512,256,256,3.2\n")
    ask("show", "device", "h100-sxm-80g", "--curve", "--points", points, "--every", "2", "-o", folder / "h100.svg")
    ask("reproduce", "gpipe-memory", "torchgpipe", statuses=(0, 1))
    ask("reproduce", "zero-bubble", "-o", folder / "page.html")
    file("a.csv", "n,M,t\n4,8,34.6\n4,16,60\n4,32,110\n")
    ask("reproduce", "-", "--data", folder, text=(ROOT / QUICKSTART).read_text(encoding="utf-8") + MEASURED)
    log = file("run.log", "".join(MEGATRON.format(i) for i in range(1, 7)))
    run("simulate", QUICKSTART, "-o", folder / "run.trace.json")
    ask("validate", QUICKSTART, "--log", log, "--trace", folder / "run.trace.json", statuses=(0, 1))
    ask("run", SMALL, "--steps", "2", "--warmup", "0")
    judged = (0, 1, 2)  # quiet or not
    ask("validate", SMALL, "--budget", "50 ms", "--steps", "2", "--warmup", "0", "-o", folder / "one", statuses=judged)
    ask("validate", SMALL, "scenarios/validation/one-micro-batch.yaml", "--budget", "50 ms", "--steps", "2", "--warmup",
        "0", "-o", folder / "two", statuses=judged)
    ask("accuracy", SMALL, "--budget", "50 ms", "--set", "run.steps=2", "--set", "run.warmup=0", "-o", folder / "study",
        statuses=judged)
    for path in sorted([*folder.glob("one/*.json"), *folder.glob("two/**/*.json"), *folder.glob("study/**/*.json")]):
        document = json.loads(path.read_text(encoding="utf-8"))
        if "schema" in document:  # a trace has none
            documents.append((path.name, document))
    for path in sorted(ROOT.glob("tests/golden/*-json.txt")):  # command line, document, status
        text = path.read_text(encoding="utf-8")
        documents.append((path.name, json.loads(text[text.index("\n{"):text.rindex("\n}") + 2])))
    return documents


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schemas = {kind: schema(kind) for kind in [*KINDS, *DOCUMENTS]}
        cls.validators = {kind: jsonschema.Draft7Validator(each) for kind, each in cls.schemas.items()}

    def refused(self, kind, change):
        document = yaml.safe_load((ROOT / "scenarios/quickstart.yaml").read_text(encoding="utf-8"))
        if kind == "sweep":
            document = yaml.safe_load((ROOT / "scenarios/what_if/hardware.yaml").read_text(encoding="utf-8"))
        self.assertTrue(self.validators[kind].is_valid(document))
        change(document)
        return not self.validators[kind].is_valid(document)

    def test_each_is_a_schema(self):
        for kind, each in self.schemas.items():
            with self.subTest(kind):
                jsonschema.Draft7Validator.check_schema(each)

    def test_every_shipped_file_is_in_order(self):
        files = sorted([*ROOT.glob("scenarios/**/*.yaml"), *ROOT.glob("configs/**/*.yaml")])
        self.assertGreater(len(files), 100)
        for file in files:
            document = yaml.safe_load(file.read_text(encoding="utf-8"))
            with self.subTest(str(file.relative_to(ROOT))):
                error = jsonschema.exceptions.best_match(self.validators[kind_of(document)].iter_errors(document))
                self.assertIsNone(error, error and f"{list(error.absolute_path)}: {error.message}"[:600])

    def test_broken_files_are_not(self):
        def set_to(value, *keys):
            def change(document):
                for key in keys[:-1]:
                    document = document[key]
                document[keys[-1]] = value

            return change

        def without(*keys):
            def change(document):
                for key in keys[:-1]:
                    document = document[key]
                del document[keys[-1]]

            return change

        for kind, what, change in [
            ("scenario", "an unknown key", set_to(4, "plan", "stagse")),
            ("scenario", "an unknown section", set_to({}, "plans")),
            ("scenario", "a number that is a text", set_to("many", "plan", "stages")),
            ("scenario", "a number out of bounds", set_to(0, "plan", "stages")),
            ("scenario", "a list where a map is needed", set_to([], "training")),
            ("scenario", "a name that there is not", set_to("adamm", "training", "optimizer")),
            ("scenario", "a section that is missing", without("training")),
            ("scenario", "a family that there is not", set_to({"family": "gtp", "layers": 2}, "model")),
            ("scenario", "a parameter of another family",
             set_to({"family": "gpt", "layers": 2, "hidden": 8, "heads": 2, "filters": 3}, "model")),
            ("sweep", "an unknown key", set_to({}, "sweep", "gird")),
            ("sweep", "a grid that is a list", set_to([], "sweep", "grid")),
            ("sweep", "no base", without("sweep", "base")),
            ("sweep", "a flag that is a text", set_to("perhaps", "sweep", "replan")),
        ]:
            with self.subTest(what):
                self.assertTrue(self.refused(kind, change), what)

    def test_every_kind_has_a_name_everywhere(self):
        names = [*KINDS, *DOCUMENTS]
        for name, title in DOCUMENTS.items():
            self.assertEqual(self.schemas[name]["title"], title)
            self.assertEqual(schema(title), self.schemas[name])
        completion = started.run([BINARY, "completion", "bash"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(re.search(r"^    schema\) .*words='([^']*)'", completion, re.M).group(1).split(), names)
        installed = re.search(r"foreach kind : \[([^\]]*)\]", (ROOT / "meson.build").read_text(encoding="utf-8"))
        self.assertEqual(re.findall(r"'([^']+)'", installed.group(1)), names)

    def test_documents_are_in_order_and_broken_ones_are_not(self):
        with tempfile.TemporaryDirectory() as folder:
            documents = written_documents(pathlib.Path(folder))
        seen = {document["schema"] for _, document in documents}
        self.assertEqual(seen, set(DOCUMENTS.values()))
        for what, document in documents:
            name = next(name for name, title in DOCUMENTS.items() if title == document["schema"])
            validator = self.validators[name]
            with self.subTest(what):
                error = jsonschema.exceptions.best_match(validator.iter_errors(document))
                self.assertIsNone(error, error and f"{list(error.absolute_path)}: {error.message}"[:600])
                self.assertFalse(validator.is_valid({**document, "unknown": 1}), "an unknown key")
                for key in document:
                    if key not in OPTIONAL:
                        without = {other: value for other, value in document.items() if other != key}
                        self.assertFalse(validator.is_valid(without), f"without {key}")
                    self.assertFalse(validator.is_valid({**document, key: object()}), f"{key} is nothing that JSON has")

    def test_broken_parts_of_a_document_are_refused(self):
        text = started.run([BINARY, "simulate", QUICKSTART, "--json"], check=True, capture_output=True, text=True,
                           cwd=ROOT).stdout
        validator = self.validators["result"]
        self.assertTrue(validator.is_valid(json.loads(text)))
        for what, change in [
            ("a time that is a text", lambda d: d.update(step_time_s="0.03")),
            ("a share of a count", lambda d: d["plan"].update(stages=1.5)),
            ("an unknown key deep inside", lambda d: d["stages"][1]["idle"].update(waiting_s=0)),
            ("a missing part", lambda d: d["workers"][0].pop("memory_bytes")),
            ("a list that is a map", lambda d: d.update(links={})),
            ("a word that there is not", lambda d: d["scenario"].update(optimizer="adamm")),
            ("null where nothing can be missing", lambda d: d.update(fits=None)),
            ("another version", lambda d: d.update(schema="pipewright.result/2")),
        ]:
            with self.subTest(what):
                document = json.loads(text)
                change(document)
                self.assertFalse(validator.is_valid(document), what)

    def test_runs_that_were_imported_are_in_order_and_broken_ones_are_not(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "run.log"
            log.write_text("".join(MEGATRON.format(i) for i in range(1, 6)), encoding="utf-8")
            text = started.run([BINARY, "import", "megatron-log", log], check=True, capture_output=True,
                               text=True).stdout
        validator = self.validators["run"]
        error = jsonschema.exceptions.best_match(validator.iter_errors(yaml.safe_load(text)))
        self.assertIsNone(error, error and f"{list(error.absolute_path)}: {error.message}"[:600])
        for what, change in [
            ("an unknown key", lambda d: d["log"].update(step=[])),
            ("no source", lambda d: d.pop("source")),
            ("another version", lambda d: d.update(schema="pipewright.run/2")),
            ("a step without a number", lambda d: d["log"]["steps"][0].pop("number")),
        ]:
            with self.subTest(what):
                document = yaml.safe_load(text)
                change(document)
                self.assertFalse(validator.is_valid(document), what)

    def test_an_unknown_kind_is_refused_with_a_suggestion(self):
        run = started.run([BINARY, "schema", "scenaro"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn('did you mean "scenario"?', run.stderr)


if __name__ == "__main__":
    unittest.main()
