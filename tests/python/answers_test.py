#!/usr/bin/env python3
"""Answers are those of the command, byte for byte, whichever way the question is put.

usage: answers_test.py, with PYTHONPATH, PIPEWRIGHT_SOURCE and PIPEWRIGHT_BINARY set (tests/python/meson.build)
"""
import json
import pathlib
import tempfile
import unittest

import needs
import pipewright as pw

SIMULATED = ["scenarios/quickstart.yaml", "scenarios/what_if/llama3-405b-128k.yaml", "scenarios/what_if/own-net.yaml",
             "scenarios/megatron/llama3-70b-64xh100-plan.yaml", "scenarios/what_if/hops-gpipe.yaml", "scenarios/what_if/hops-1f1b.yaml"]


class Bytes(unittest.TestCase):
    def test_simulate(self):
        for path in SIMULATED:
            with self.subTest(path):
                result = pw.simulate(path)
                self.assertEqual(result.json, needs.command("simulate", path, "--json"))
                self.assertEqual(result.text(), needs.command("simulate", path))

    def test_simulate_with_changes(self):
        result = pw.simulate(needs.QUICKSTART, set={"training.micro_batches": 16, "plan.schedule": "gpipe"}, engine="event")
        self.assertEqual(result.json, needs.command("simulate", needs.QUICKSTART, "--set", "training.micro_batches=16", "--set",
                                                    "plan.schedule=gpipe", "--engine", "event", "--json"))

    def test_a_plan_that_does_not_fit(self):
        path, changed = "scenarios/what_if/amoebanet-8x8g.yaml", {"plan.recompute": "none"}
        result = pw.simulate(path, set=changed)
        self.assertEqual(result.json, needs.command("simulate", path, "--set", "plan.recompute=none", "--json", status=(1,)))
        self.assertFalse(result.fits)
        with self.assertRaisesRegex(pw.DoesNotFit, "recompute"):
            result.step_time
        anyway = pw.simulate(path, set=changed, ignore_memory=True)
        self.assertFalse(anyway.fits)
        self.assertGreater(anyway.step_time, 0)

    def test_plan(self):
        result = pw.plan(needs.QUICKSTART, set={"plan": "auto"}, top=3)
        self.assertEqual(result.json, needs.command("plan", needs.QUICKSTART, "--set", "plan=auto", "--top", 3, "--json"))
        self.assertEqual(len(result.plans), 3)
        self.assertFalse(result.interrupted)
        again = pw.simulate(result.scenario(1))
        self.assertEqual(again.step_time, result.plans[1]["step_time_s"])
        self.assertEqual(result.simulate(1).data["plan"], again.data["plan"])

    def test_plan_for_a_framework(self):
        result = pw.plan(needs.QUICKSTART, set={"plan": "auto"}, framework="torch", explain=True, pareto=["memory"])
        self.assertEqual(result.json, needs.command("plan", needs.QUICKSTART, "--set", "plan=auto", "--for", "torch", "--explain",
                                                    "--pareto", "memory", "--json"))

    def test_launch(self):
        path = "scenarios/validation/two-stage-1f1b.yaml"
        for framework in ("torch", "deepspeed", "slurm"):
            with self.subTest(framework):
                found = needs.command("launch", path, "--for", framework)
                self.assertEqual(pw.launch(path, framework).program, found)
        order = pw.Order.of_schedule("zb_h1", stages=2, micro_batches=8)
        of_order = pw.launch(path, "torch", schedule=order)
        self.assertTrue(of_order.fits)
        self.assertEqual(of_order.differences, [])
        self.assertIn("0W7", of_order.program)
        with tempfile.TemporaryDirectory() as folder:
            of_order.save(pathlib.Path(folder) / "train.py")
            self.assertEqual((pathlib.Path(folder) / "train.py").read_text(encoding="utf-8"), of_order.program)
        self.assertIn("order.schedule.csv", of_order.notes[-1])
        in_memory = pw.Scenario.from_yaml(pathlib.Path(path).read_text(encoding="utf-8"))
        self.assertIn("pipewright run PLAN", pw.launch(in_memory, "slurm").program)
        quoted = pw.launch(path, "slurm", set={"name": "it's $HOME"}, sbatch=True).program
        self.assertIn("""--set 'name="it'"'"'s $HOME"' --for slurm --sbatch""", quoted)
        with self.assertRaisesRegex(pw.InputError, "megatron, torchtitan"):
            pw.launch(path, "jax")
        with self.assertRaisesRegex(pw.InputError, "auto"):
            pw.launch(path, "torch", set={"plan": "auto"})

    def test_validate(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = str(pathlib.Path(folder) / "quickstart.trace.json.gz")
            pw.simulate(needs.QUICKSTART).save(trace)
            result = pw.validate(needs.QUICKSTART, traces=[trace])
            self.assertEqual(result.json, needs.command("validate", needs.QUICKSTART, "--trace", trace, "--json"))
            self.assertEqual(result.text(), needs.command("validate", needs.QUICKSTART, "--trace", trace))
            self.assertTrue(result.within)
            slower = pw.validate(needs.QUICKSTART, traces=trace, set={"training.micro_batch_size": 1})
            self.assertFalse(slower.within)
            self.assertIn("<html", result.render("html"))
        log = "scenarios/megatron/llama3-70b-64xh100.synthetic.log"
        plan = "scenarios/megatron/llama3-70b-64xh100-plan.yaml"
        self.assertEqual(pw.validate(plan, log=log).json, needs.command("validate", plan, "--log", log, "--json"))
        for wrong in ({}, {"log": ""}, {"traces": [""]}, {"traces": 5}, {"traces": [None]}):
            with self.subTest(wrong), self.assertRaises(pw.InputError):
                pw.validate(plan, **wrong)

    def test_plan_that_is_not_there(self):
        result = pw.plan(needs.QUICKSTART, set={"plan": "auto", "cluster.node.device.memory": "1 GiB"})
        self.assertEqual(result.json, needs.command("plan", needs.QUICKSTART, "--set", "plan=auto", "--set",
                                                    "cluster.node.device.memory=1 GiB", "--json", status=(1,)))
        with self.assertRaises(pw.DoesNotFit):
            result.best

    def test_sweep(self):
        path = "scenarios/what_if/bandwidth.yaml"
        result = pw.sweep(path, jobs=1)
        self.assertEqual(result.json, needs.command("sweep", path, "--json"))
        self.assertEqual(result.render("csv"), needs.command("sweep", path, "--csv"))
        self.assertIn("<svg", result.svg())

    def test_sweep_of_a_scenario_in_memory(self):
        base = pw.Scenario.from_yaml(pathlib.Path(needs.QUICKSTART).read_text(encoding="utf-8"))
        grid = {"training.micro_batches": [4, 8, 16]}
        rows = pw.sweep(base, grid=grid, variants={"other": {"plan.schedule": "gpipe"}}).rows
        self.assertEqual(len(rows), 6)
        self.assertEqual(rows[2]["step_time_s"], pw.simulate(base, set={"training.micro_batches": 16}).step_time)
        self.assertEqual(pw.sweep(needs.QUICKSTART, grid=grid).rows[2]["step_time_s"], rows[2]["step_time_s"])

    def test_capacity(self):
        result = pw.capacity(needs.QUICKSTART, "training.micro_batch_size")
        self.assertEqual(result.json, needs.command("capacity", needs.QUICKSTART, "--over", "training.micro_batch_size", "--json"))
        self.assertEqual(result.largest, result.data["rows"][0]["largest"])

    def test_compare(self):
        result = pw.compare(needs.QUICKSTART, needs.QUICKSTART, set_b={"plan.schedule": "gpipe"})
        self.assertEqual(result.json, needs.command("compare", needs.QUICKSTART, needs.QUICKSTART, "--set-b", "plan.schedule=gpipe",
                                                    "--json"))
        self.assertFalse(result.same)
        self.assertTrue(pw.compare(needs.QUICKSTART, needs.QUICKSTART).same)

    def test_reproduce(self):
        result = pw.reproduce("zero-bubble")
        self.assertEqual(result.json, needs.command("reproduce", "zero-bubble", "--json"))
        self.assertIn("zero-bubble", pw.published_tables())
        self.assertIn("megatron-a100", pw.measured_runs())


class Questions(unittest.TestCase):
    def same(self, scenario):
        """But for the file that it names, the answer is that of the file."""
        got, expected = pw.simulate(scenario).data, pw.simulate(needs.QUICKSTART).data
        for data in (got, expected):
            data["scenario"].pop("file")
        self.assertEqual(got, expected)

    def setUp(self):
        self.text = pathlib.Path(needs.QUICKSTART).read_text(encoding="utf-8")

    def test_a_scenario_as_text(self):
        self.same(pw.Scenario.from_yaml(self.text))

    @unittest.skipUnless(needs.has("yaml"), "no PyYAML")
    def test_a_scenario_as_a_dict_and_by_keywords(self):
        import yaml

        sections = yaml.safe_load(self.text)
        self.same(sections)
        self.same(pw.Scenario(**sections))
        self.same(pw.Scenario.from_dict(sections))

    def test_a_dict_is_the_file_of_the_same_keys(self):
        sections = {"name": "mine", "model": {"hf": "llama3-8b", "sequence_length": 4096},
                    "cluster": {"nodes": 1, "node": {"device": "h100-sxm-80g", "devices": 8,
                                                     "links": {"kind": "nvswitch", "bandwidth": "450 GB/s", "latency": "2 us"}},
                                "network": {"bandwidth": "50 GB/s", "latency": "5 us", "per": "device"}},
                    "training": {"global_batch_size": 64, "micro_batch_size": 1, "precision": "bf16", "optimizer": "adam", "zero": 1},
                    "plan": {"stages": 4, "tensor_parallel": 2, "schedule": "1f1b", "partition": "balanced"}}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "scenario.yaml"
            path.write_text(json.dumps(sections), encoding="utf-8")  # JSON is YAML
            file = pw.simulate(path).data
        mine = pw.simulate(sections).data
        self.assertEqual(mine["scenario"].pop("file"), "scenario")
        file["scenario"].pop("file")
        self.assertEqual(mine, file)

    def test_a_scenario_does_not_change(self):
        scenario = pw.Scenario.from_file(needs.QUICKSTART)
        other = scenario.with_({"plan.schedule": "gpipe"})
        self.assertEqual(pw.simulate(other).plan["schedule"], "gpipe")
        self.assertEqual(pw.simulate(scenario).plan["schedule"], "1f1b")
        self.assertEqual(scenario.resolved(), needs.command("check", "--resolved", needs.QUICKSTART))

    def test_what_is_saved_is_read_back(self):
        with tempfile.TemporaryDirectory() as folder:
            for format in ("json", "svg", "html", "csv", "md", "trace.json", "trace.json.gz", "dot", "schedule.csv"):
                with self.subTest(format):
                    path = pathlib.Path(folder) / f"mine.{format}"
                    pw.simulate(needs.QUICKSTART).save(path)
                    needs.command("simulate", needs.QUICKSTART, "-o", pathlib.Path(folder) / f"its.{format}")
                    self.assertEqual(path.read_bytes(), (pathlib.Path(folder) / f"its.{format}").read_bytes())
            pw.plan(needs.QUICKSTART, set={"plan": "auto"}).save(pathlib.Path(folder) / "best.yaml")
            self.assertTrue(pw.simulate(pathlib.Path(folder) / "best.yaml").fits)

    def test_an_order_of_ones_own_in_a_scenario(self):
        order = pw.Order.of_schedule("1f1b", stages=4, micro_batches=8)
        self.assertEqual(pw.simulate(needs.QUICKSTART, schedule=order).step_time, pw.simulate(needs.QUICKSTART).step_time)
        backwards = pw.Order([[f"{k}F{m}" for m in range(8)] + [f"{k}B{m}" for m in reversed(range(8))] for k in range(4)])
        self.assertEqual(pw.simulate(needs.QUICKSTART, schedule=backwards).step_time,
                         pw.simulate(needs.QUICKSTART, schedule="gpipe").step_time)


if __name__ == "__main__":
    needs.main()
