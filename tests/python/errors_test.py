#!/usr/bin/env python3
"""Whatever is asked, what is wrong is an exception of pipewright's own, which says where and what to do."""
import math
import os
import pathlib
import pickle
import tempfile
import unittest

import needs
import pipewright as pw


class Errors(unittest.TestCase):
    def caught(self, ask):
        with self.assertRaises(pw.InputError) as caught:
            ask()
        self.assertIsInstance(caught.exception, pw.Error)
        self.assertIsInstance(caught.exception, ValueError)
        return caught.exception

    def test_a_file_names_the_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mine.yaml"
            text = pathlib.Path(needs.QUICKSTART).read_text(encoding="utf-8").replace("schedule: 1f1b", "schedule: 1f2b")
            path.write_text(text, encoding="utf-8")
            error = self.caught(lambda: pw.simulate(path))
            self.assertEqual((error.file, error.key), (str(path), "plan.schedule"))
            self.assertIn("1f2b", text.splitlines()[error.line - 1])
            self.assertIn('did you mean "1f1b"', error.way_out)
            self.assertIn(f"{path}:{error.line}:{error.column}: plan.schedule", str(error))

    def test_all_faults_are_told(self):
        error = self.caught(lambda: pw.simulate(needs.QUICKSTART, set={"plan.stages": "x y", "training.micro_batches": -1}))
        self.assertEqual(len(error.faults), 2)
        self.assertEqual(len(str(error).splitlines()), 2)
        self.assertEqual({fault.key for fault in error.faults}, {"plan.stages", "training.micro_batches"})

    def test_errors_survive_pickling(self):
        error = self.caught(lambda: pw.simulate(needs.QUICKSTART, set={"plan.schedule": "1f2b"}))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.faults), (str(error), error.faults))

    def test_no_such_file(self):
        self.assertIn("no-such.yaml", str(self.caught(lambda: pw.simulate("no-such.yaml"))))

    def test_wrong_types(self):
        for ask in (lambda: pw.simulate(None), lambda: pw.simulate(3), lambda: pw.simulate(b"scenarios/quickstart.yaml"),
                    lambda: pw.simulate("model: x\nplan: auto\n"), lambda: pw.simulate([1]), lambda: pw.simulate(""),
                    lambda: pw.simulate("a\0b"), lambda: pw.simulate("\udcff"),
                    lambda: pw.Scenario.from_yaml(b"model: x"), lambda: pw.Scenario.from_dict([1]), lambda: pw.Scenario(model=object()),
                    lambda: pw.Scenario(**{"model": {1: 2}}),
                    lambda: pw.simulate(needs.QUICKSTART, engine="fast"), lambda: pw.simulate(needs.QUICKSTART, set=b"a=b"),
                    lambda: pw.simulate(needs.QUICKSTART, set=[b"a=b"]), lambda: pw.simulate(needs.QUICKSTART, set=3),
                    lambda: pw.simulate(needs.QUICKSTART, set={3: 4}), lambda: pw.simulate(needs.QUICKSTART, set=["plan.stages"]),
                    lambda: pw.plan(needs.QUICKSTART, top=0), lambda: pw.plan(needs.QUICKSTART, top=2.5),
                    lambda: pw.plan(needs.QUICKSTART, time_limit=math.nan), lambda: pw.plan(needs.QUICKSTART, time_limit=0),
                    lambda: pw.plan(needs.QUICKSTART, time_limit="10s"), lambda: pw.plan(needs.QUICKSTART, gap=-1),
                    lambda: pw.plan(needs.QUICKSTART, objective="speed"), lambda: pw.plan(needs.QUICKSTART, framework="keras"),
                    lambda: pw.plan(needs.QUICKSTART, pareto=["time"]), lambda: pw.plan(needs.QUICKSTART),
                    lambda: pw.sweep(needs.QUICKSTART), lambda: pw.sweep(needs.QUICKSTART, grid={}),
                    lambda: pw.sweep(needs.QUICKSTART, grid={"plan.stages": 4}), lambda: pw.sweep(needs.QUICKSTART, grid=[1]),
                    lambda: pw.sweep("scenarios/what_if/bandwidth.yaml", jobs=0),
                    lambda: pw.capacity(needs.QUICKSTART, "model.layerz"), lambda: pw.capacity(needs.QUICKSTART, 3),
                    lambda: pw.capacity(needs.QUICKSTART, "training.micro_batch_size", at_most="many"),
                    lambda: pw.compare(needs.QUICKSTART, None), lambda: pw.reproduce(), lambda: pw.reproduce("zero-bubbles"),
                    lambda: pw.reproduce("zero-bubble", all=True), lambda: pw.reproduce("megatron-a100"),
                    lambda: pw.Order("0F0"), lambda: pw.Order(["0F0"]), lambda: pw.Order([["0F0,0B0"]]), lambda: pw.Order([]),
                    lambda: pw.Order([[3]]), lambda: pw.Problem([["0F0"]]), lambda: pw.Problem([["0B0", "0F0"]]),
                    lambda: pw.Order.of_schedule("1f2b", stages=2, micro_batches=2),
                    lambda: pw.Order.of_schedule("1f1b", stages=60000, micro_batches=2**24),
                    lambda: pw.Order.of_schedule("interleaved_1f1b", stages=4, micro_batches=5, virtual_stages=2),
                    lambda: pw.simulate(needs.QUICKSTART).render("pdf"), lambda: pw.simulate(needs.QUICKSTART).save("x.pdf"),
                    lambda: pw.simulate(needs.QUICKSTART).text(width=3), lambda: pw.simulate(needs.QUICKSTART).text(width="wide")):
            error = self.caught(ask)
            self.assertGreater(len(str(error)), 10)

    def test_values_that_are_none(self):
        loop = []
        loop.append(loop)
        for value in (math.nan, math.inf, b"8", object(), loop, 10**400, {1, 2}, "\ud800", {"a": loop}):
            error = self.caught(lambda value=value: pw.simulate(needs.QUICKSTART, set={"training.micro_batches": value}))
            self.assertIn("training.micro_batches", error.key)

    def test_what_is_huge(self):
        self.caught(lambda: pw.simulate(needs.QUICKSTART, set={"plan.replicas": [1] * 50_000}))
        self.caught(lambda: pw.simulate(needs.QUICKSTART, set={"plan.replicas": [1] * 3_000_000}))
        self.caught(lambda: pw.Scenario.from_yaml("a: " + "x" * (9 << 20)).resolved())
        self.caught(lambda: pw.simulate(needs.QUICKSTART, set={"training.micro_batches": 10**12}))
        self.caught(lambda: pw.simulate(needs.QUICKSTART, set={"training.micro_batches": 2**63}))

    def test_an_order_names_the_cell(self):
        error = self.caught(lambda: pw.Problem([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1X1"]]))
        self.assertEqual((error.file, error.line), ("order", 2))

    def test_a_deadlock_is_told(self):
        error = self.caught(lambda: pw.Problem([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]))
        self.assertIn("wait", str(error))


if needs.has("hypothesis"):
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.gettempdir()  # nothing is kept
    from hypothesis import given, settings, strategies as st

    values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=8),
                          lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
                          max_leaves=8)
    keys = st.sampled_from(["model", "model.layers", "cluster", "cluster.nodes", "cluster.node.device", "training",
                            "training.micro_batches", "training.precision", "plan", "plan.stages", "plan.schedule", "plan.partition",
                            "plan.recompute", "cost", "campaign", "name", "version"]) | st.text(max_size=12)

    class MadeUp(unittest.TestCase):
        @settings(max_examples=250, deadline=None, derandomize=True, database=None)
        @given(keys, values)
        def test_a_value_makes_an_answer_or_an_error(self, key, value):
            try:
                self.assertGreaterEqual(pw.simulate(needs.QUICKSTART, set={key: value}, ignore_memory=True).step_time, 0)
            except pw.InputError as error:
                self.assertTrue(error.faults and all(fault.text for fault in error.faults))

        @settings(max_examples=150, deadline=None, derandomize=True, database=None)
        @given(st.dictionaries(st.sampled_from(["model", "cluster", "training", "plan", "name"]) | st.text(max_size=8), values,
                               max_size=5))
        def test_a_dict_makes_an_answer_or_an_error(self, sections):
            try:
                pw.simulate(sections)
            except pw.InputError as error:
                self.assertTrue(error.faults)

        @settings(max_examples=150, deadline=None, derandomize=True, database=None)
        @given(st.text(max_size=200) | st.binary(max_size=40))
        def test_text_makes_an_answer_or_an_error(self, text):
            with self.assertRaises(pw.InputError):
                pw.simulate(pw.Scenario.from_yaml(text))

        @settings(max_examples=150, deadline=None, derandomize=True, database=None)
        @given(st.lists(st.lists(st.from_regex(r"[0-3][FBIWR][0-3]", fullmatch=True) | st.text(max_size=4), max_size=6), max_size=4))
        def test_an_order_makes_a_problem_or_an_error(self, order):
            try:
                self.assertGreater(len(pw.Problem(order).columns), 0)
            except pw.InputError as error:
                self.assertTrue(error.faults)


if __name__ == "__main__":
    needs.main()
