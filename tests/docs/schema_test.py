#!/usr/bin/env python3
"""What `pipewright schema` prints is JSON Schema by which every shipped file is in order, and broken ones are not.

usage: schema_test.py SOURCE_ROOT BINARY

Skipped (77) where Python has no jsonschema and PyYAML (Debian: python3-jsonschema, python3-yaml).
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

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
KINDS = ["scenario", "sweep", "model", "device", "cluster", "profile"]


def schema(kind):
    return json.loads(subprocess.run([BINARY, "schema", kind], check=True, capture_output=True, text=True).stdout)


def kind_of(document):
    if "plan" in document or "training" in document or ("model" in document and "cluster" in document):
        return "scenario"
    return next((kind for kind in KINDS if kind in document), "scenario")


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schemas = {kind: schema(kind) for kind in KINDS}
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

    def test_an_unknown_kind_is_refused_with_a_suggestion(self):
        run = subprocess.run([BINARY, "schema", "scenaro"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn('did you mean "scenario"?', run.stderr)


if __name__ == "__main__":
    unittest.main()
