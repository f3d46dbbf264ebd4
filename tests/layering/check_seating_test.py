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
    # The place of a chunk.
    "const StageId stage = v % stages_;",
    "sum += least[at(chunk / stages_)];",
    "const int place = i % stages;",
    "const int left = first % K;",
    "const int round = id / stages;",
    "const StageId stage = (v / units) % stages;",
    "const int local = v / (stages);",
    "id /= shape.stages;",
    "for (auto i = at(k); i < weight.size(); i += at(stages_)) add(i);",
    "append_forward(lane, chunk * K + k, m);",
    "append_forward(lane, turn.chunk(i) * K + k, m);",
    "append_backward(lane, (v - 1 - chunk(i)) * plan.stages + k, m);",
    "const VirtualStageId chunk = k + round * stages_;",
    "return there ? k : 2 * stages - 1 - k;",
    "return times.held[at(2 * problem.stages - 1 - k)];",
    # Units.
    "const int whole = v / shape.units;",
    "const int unit = op.virtual_stage % units;",
    "for (VirtualStageId v = 0; v < chunks; v += plan.units) add(v);",
    "const VirtualStageId v = whole * plan.units + unit;",
    "return v / plan.units * plan.units;",
    # The replica of a micro-batch, and its round.
    "const int replica = m % at(r);",
    "const int holder = m % seating.holders(v);",
    "const int replica = m % r_[k];",
    "const int replica = m % replicas[at(k)];",
    "const int round = micro_batch / holders;",
    "const int round = micro_batch / seating_.holders(0);",
    "const std::int64_t shift = period / ends.replicas;",
    "const int asked = seen[m] * seating.holders(0) / seating.holders(v);",
    "const int round = (micro_batch - replica) / plan.replicas_of(k);",
    "const bool down = 2 * m < micro_batches;",
    "const bool down = 2 * op.micro_batch < shape.micro_batches;",
    "const bool down = m < (M + 1) / 2;",
    # Whether a stage is reduced.
    "const bool sums = plan.data_parallel.value > 1 || any_of(replicas, [](auto r) { return r > 1; });",
    "if (plan.copies() > 1 || replicas[k] > 1) reduce();",
    "if (copies * r > 1) reduce();",
    "if (plan.copies() * plan.replicas_of(k) != 1) reduce();",
    "if (replicas[k] > 1 || data_parallel > 1) reduce();",
    "if (plan.data_parallel != 1 || plan.replicas[k] != 1) reduce();",
    "if (plan.data_parallel < 2 && all_one(plan.replicas)) return;",
]
HARMLESS = [
    "// chunk v lies on stage v % stages",
    "const std::int64_t size = plan.micro_batch_size / factor;",
    "if (plan.data_parallel > 1 || plan.tensor_parallel > 1) return;",
    "return seating.local(op.virtual_stage, stage);",
    'refuse("a list for stage v % stages");',
    "const double mean = sum / report.stages.size();",
    "block.push_back({2 * K + later + k, 4 * K - k - 1});",
    "const int warm = 2 * (shape.stages - 1 - k);",
    "const std::int64_t size = r.model.hidden / r.model.heads;",
    "workers += shape.replicas_of(k);",
    "const std::int64_t ops = 2 * shape.stages + 1;",
    "const bool first = m < micro_batches;",
]
# A file, what is listed for it, and what is not.
LISTED = ("sim/schedules/chimera.cpp", "const std::int64_t units = M / K + 1;", "const int row = m / K;")


class PlantedSeats(unittest.TestCase):
    def judged(self, code, path="sim/planted.cpp"):
        return check_seating.found_in(path, code + "\n")

    def test_arithmetic_is_found(self):
        for code in FOUND:
            with self.subTest(code=code):
                self.assertEqual(len(self.judged(code)), 1)

    def test_harmless_lines_are_not(self):
        for code in HARMLESS:
            with self.subTest(code=code):
                self.assertEqual(self.judged(code), [])

    def test_what_is_listed_is_harmless_in_its_file_alone(self):
        path, code, beside = LISTED
        self.assertEqual(self.judged(code, path), [])
        self.assertEqual(self.judged(code.replace(" / ", "\n/ "), path), [])
        self.assertEqual(len(self.judged(code)), 1)
        self.assertEqual([found.split(":")[1] for found in self.judged(code + "\n" + beside, path)], ["2"])

    def test_every_room_is_looked_at_and_what_is_listed_must_be_there(self):
        with tempfile.TemporaryDirectory() as folder:
            for room in check_seating.ROOMS:
                file = pathlib.Path(folder) / room / "planted.cpp"
                file.parent.mkdir()
                file.write_text(FOUND[0] + "\n", encoding="utf-8")
            found = check_seating.violations(folder)
        planted = [line.split("/")[0] for line in found if "planted" in line]
        self.assertEqual(sorted(planted), sorted(check_seating.ROOMS))
        self.assertIn("python", planted)
        self.assertEqual(len(found) - len(planted), len(check_seating.HARMLESS))
        self.assertTrue(all("is not there" in line for line in found if "planted" not in line))

    def test_the_owner_may(self):
        self.assertEqual(self.judged(FOUND[0], check_seating.OWNER), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
