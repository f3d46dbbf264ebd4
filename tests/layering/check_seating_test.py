#!/usr/bin/env python3
"""The test of check_seating.py: arithmetic of seats planted in an empty tree is found, and harmless lines are not.

usage: check_seating_test.py
"""
import pathlib
import sys
import tempfile
import unittest

import check_seating

FOUND = [
    "const int local = op.virtual_stage / shape.stages;",
    "const std::size_t chunk = op.virtual_stage / at(plan_.stages);",
    "stage_[at(c % stages_.stages)] += load;",
    "const int here = static_cast<int>(v) / K;",
    "return first + m % shape.replicas_of(stage);",
    "const int replica = m % r;",
    "const int round = static_cast<int>(op.micro_batch) / replicas;",
    "return flush ? 1 : (micro_batches + r - 1) / r;",
    "if (plan.data_parallel > 1 || plan.replicas[k] > 1) reduce();",
    "if (plan.data_parallel == 1 && all_one(plan.replicas)) return;",
    "for (VirtualStageId v = stage; v < plan.chunks(); v += plan.stages) add(v);",
]
HARMLESS = [
    "// chunk v lies on stage v % stages",
    "if (shape.micro_batches % shape.stages != 0) return refusal();",
    "const std::int64_t size = plan.micro_batch_size / factor;",
    "if (plan.data_parallel > 1 || plan.tensor_parallel > 1) return;",
    "return seating.local(op.virtual_stage, stage);",
]


class PlantedSeats(unittest.TestCase):
    def judged(self, code, path="sim/planted.cpp"):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(code + "\n", encoding="utf-8")
            return check_seating.violations(folder)

    def test_arithmetic_is_found(self):
        for code in FOUND:
            with self.subTest(code=code):
                self.assertEqual(len(self.judged(code)), 1)

    def test_harmless_lines_are_not(self):
        for code in HARMLESS:
            with self.subTest(code=code):
                self.assertEqual(self.judged(code), [])

    def test_the_owner_may(self):
        self.assertEqual(self.judged(FOUND[0], check_seating.OWNER), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
