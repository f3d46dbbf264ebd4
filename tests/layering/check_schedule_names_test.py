#!/usr/bin/env python3
"""The test of check_schedule_names.py: names planted in a copy of the tree are found, and what may stand there is not.

usage: check_schedule_names_test.py SOURCE_ROOT
"""
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import check_schedule_names

ROOT = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]

# file, line planted at its end, whether it must be found.
PLANTS = [
    ("planner/planted.cpp", 'bool planted(const Plan& plan) { return plan.schedule == "gpipe"; }', True),
    ("planner/search/space.cpp", 'const std::string planted = "zb_h1";', True),
    ("planner/search/space.cpp", 'constexpr std::array<const char*, 2> planted = {"1f1b", other};', True),
    ("core/plan/plan.hpp", 'if (plan.schedule != "naive") return;', True),
    ("core/question/scenario.hpp", 'if (schedule == "gpipe") return;', True),  # which may name 1f1b only
    ("io/launch/torch.cpp", 'if (schedule.name == "interleaved_1f1b") return;', True),
    ("runtime/run_plan.cpp", 'if (plan.schedule == "data_parallel") return;', True),
    ("runtime/run_plan.cpp", 'find_schedule("file");', True),
    ("planner/find_plan.cpp", 'plan.schedule.value = "data_parallel";', True),
    ("sim/simulate.cpp", 'if (schedule.name == "pipedream") return;', True),
    ("planner/find_plan.cpp", 'throw InputError("this is for gpipe and 1f1b");', True),
    ("planner/find_plan.cpp", "const char quote = '\"'; const auto planted = \"gpipe\";", True),
    ("planner/find_plan.cpp", '// "gpipe" in a comment', False),
    ("planner/find_plan.cpp", 'at_least_one(plan.data_parallel, "data_parallel");', False),
    ("planner/find_plan.cpp", 'json.field("file", name);', False),
    ("cli/run.cpp", '"  pipewright run scenarios/validation/two-stage-gpipe.yaml"', False),
    ("io/read/read_plan.cpp", '"for gpipe and 1f1b"', False),
    ("sim/schedules/gpipe.cpp", 'const char* planted = "1f1b";', False),
]


class PlantedNames(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.copy = pathlib.Path(self.folder.name) / "tree"
        for room in check_schedule_names.ROOMS:
            shutil.copytree(ROOT / room, self.copy / room, ignore=shutil.ignore_patterns("__pycache__"))

    def test_the_names_are_those_of_the_table(self):
        names = check_schedule_names.names_of(self.copy)
        table = (self.copy / "sim/schedules/table.cpp").read_text(encoding="utf-8")
        self.assertEqual(len(names), len(re.findall(r"^ +\w+\(\),", table, re.MULTILINE)))
        self.assertLessEqual({"naive", "gpipe", "1f1b", "zb_h1", "pipedream", "data_parallel"}, names)

    def test_every_plant_is_judged(self):
        self.assertEqual(check_schedule_names.violations(self.copy), [])
        for path, line, must_be_found in PLANTS:
            with self.subTest(path=path, line=line):
                file = self.copy / path
                before = file.read_text(encoding="utf-8") if file.exists() else None
                file.write_text((before or "") + line + "\n", encoding="utf-8")
                found = check_schedule_names.violations(self.copy)
                if before is None:
                    file.unlink()
                else:
                    file.write_text(before, encoding="utf-8")
                self.assertEqual(len(found), 1 if must_be_found else 0, found)
                if must_be_found:
                    self.assertTrue(found[0].startswith(f"{path}:{(before or '').count(chr(10)) + 1}: "), found)

    def test_no_exception_is_left_over(self):
        for path, text in check_schedule_names.ALLOWED:
            self.assertIn(f'"{text}"', (self.copy / path).read_text(encoding="utf-8"), path)
        texts = dict(check_schedule_names.TEXTS)
        self.addCleanup(check_schedule_names.TEXTS.update, texts)
        check_schedule_names.TEXTS.clear()
        found = check_schedule_names.violations(self.copy)
        self.assertEqual({line.split(":")[0] for line in found}, set(texts))


if __name__ == "__main__":
    unittest.main()
