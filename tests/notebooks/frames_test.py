#!/usr/bin/env python3
"""Tables as pandas has them and plots as matplotlib has them: their rows are those of the documents.

usage: frames_test.py, with PYTHONPATH and PIPEWRIGHT_SOURCE set (tests/notebooks/meson.build)
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import needs
import pipewright as pw


class Frames(unittest.TestCase):
    def test_a_simulation_is_a_row_per_worker(self):
        result = pw.simulate(needs.QUICKSTART)
        frame = result.to_pandas()
        self.assertEqual(len(frame), len(result.workers))
        for row, worker in zip(frame.itertuples(), result.workers):
            self.assertEqual((row.worker, row.stage), (worker["worker"], worker["stage"]))
            self.assertAlmostEqual(row.busy_s, worker["busy_s"], places=9)
            self.assertEqual(row.peak_memory_bytes, worker["memory_bytes"]["peak"])

    def test_a_timeline_is_a_row_per_op(self):
        timeline = pw.simulate(needs.QUICKSTART).timeline
        frame = timeline.to_pandas()
        self.assertEqual(len(frame), len(timeline))
        self.assertEqual(list(frame.kind), [timeline.kinds[kind] for kind in timeline.kind.tolist()])
        self.assertEqual(set(frame[frame.kind == "F"].stream), {"compute"})
        self.assertEqual((frame.kind == "F").sum(), 4 * 8)
        self.assertEqual(frame.end_ns.max(), timeline.end_ns.max())

    def test_tables_of_files_are_those_of_arrays(self):
        import io

        import pandas

        result = pw.simulate(needs.QUICKSTART)
        ops = pandas.read_csv(io.StringIO(result.render("timeline.csv")))
        frame = result.timeline.to_pandas()
        self.assertEqual(list(ops.kind), list(frame.kind))
        self.assertEqual(list((ops.start_s * 1e9).round().astype("int64")), list(frame.start_ns))
        held = pandas.read_csv(io.StringIO(result.render("memory.csv")))
        for curve in result.memory:
            mine = held[held.worker == curve.worker]
            self.assertEqual(list(mine.total_bytes), list(curve.total))
            self.assertEqual(list(mine.stash_bytes), list(curve.to_pandas().stash))
        sent = pandas.read_csv(io.StringIO(result.render("messages.csv")))
        self.assertEqual(list(sent.bytes), list(result.timeline.transfers.bytes))

    def test_rankings_sweeps_and_the_others(self):
        plans = pw.plan(needs.QUICKSTART, set={"plan.stages": "auto"}, top=3)
        self.assertEqual(len(plans.to_pandas()), len(plans.plans))
        self.assertEqual(list(plans.to_pandas().schedule), [plan["schedule"] for plan in plans.plans])
        sweep = pw.sweep(needs.QUICKSTART, grid={"training.micro_batches": [4, 8, 16]}, jobs=1)
        self.assertEqual(len(sweep.to_pandas()), 3)
        self.assertTrue(sweep.to_pandas().samples_per_s.is_monotonic_increasing)
        comparison = pw.compare(needs.QUICKSTART, needs.QUICKSTART, set_b={"plan.schedule": "gpipe"})
        self.assertEqual(list(comparison.to_pandas().columns), ["what", "a", "b"])
        capacity = pw.capacity(needs.QUICKSTART, "training.micro_batch_size", at_most=8)
        self.assertEqual(list(capacity.to_pandas().largest), [capacity.largest])
        cells = pw.reproduce("torchgpipe").to_pandas()
        self.assertGreater(len(cells), 10)
        self.assertIn("verdict", cells.columns)


class Plots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import matplotlib

        matplotlib.use("Agg")

    def test_bars_are_the_compute_ops_in_milliseconds(self):
        from matplotlib import pyplot

        result = pw.simulate(needs.QUICKSTART)
        _, mine = pyplot.subplots()
        axes = result.plot(mine)
        self.assertIs(axes, mine)
        timeline = result.timeline
        compute = timeline.stream == 0
        bars = sorted((bar.get_x(), bar.get_width()) for bar in axes.patches)
        expected = sorted(zip(timeline.start_ns[compute] * 1e-6, (timeline.end_ns - timeline.start_ns)[compute] * 1e-6))
        self.assertEqual(len(bars), len(expected))
        for bar, op in zip(bars, expected):
            self.assertAlmostEqual(bar[0], op[0], places=9)
            self.assertAlmostEqual(bar[1], op[1], places=9)
        self.assertEqual({text.get_text() for text in axes.get_legend().get_texts()},
                         {timeline.kinds[kind] for kind in set(timeline.kind[compute].tolist())})
        self.assertTrue(axes.yaxis_inverted())
        pyplot.close("all")

    def test_a_plot_makes_a_figure_of_its_own(self):
        from matplotlib import pyplot

        axes = pw.simulate(needs.QUICKSTART).timeline.plot()
        self.assertEqual(axes.get_xlabel(), "ms")
        pyplot.close("all")


if __name__ == "__main__":
    needs.main("numpy", "pandas", "matplotlib")
