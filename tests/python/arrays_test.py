#!/usr/bin/env python3
"""Timelines, memory and orders as numpy arrays: their values, and whose memory they look at."""
import gc
import unittest

import needs
import pipewright as pw


class Timelines(unittest.TestCase):
    def setUp(self):
        self.result = pw.simulate(needs.QUICKSTART)

    def test_ops_are_those_of_the_report(self):
        timeline = self.result.timeline
        self.assertEqual(len(timeline), len(timeline.kind))
        self.assertEqual(round(self.result.makespan * 1e9), timeline.end_ns.max())
        for worker in self.result.workers:
            mine = (timeline.worker == worker["worker"]) & (timeline.stream == 0)
            busy = (timeline.end_ns[mine] - timeline.start_ns[mine]).sum()
            self.assertEqual(round(worker["busy_s"] * 1e9), busy)
            start, end = timeline.start_ns[mine], timeline.end_ns[mine]
            self.assertTrue((start[1:] >= end[:-1]).all())
        forwards = timeline.kind == timeline.kinds.index("F")
        self.assertEqual(forwards.sum(), 4 * 8)
        self.assertEqual(set(timeline.micro_batch[forwards].tolist()), set(range(8)))
        self.assertTrue((timeline.chunk[forwards] == timeline.stage[forwards]).all())

    def test_transfers_follow_their_producers(self):
        transfers = self.result.timeline.transfers
        self.assertEqual(len(transfers.bytes), 2 * 3 * 8)
        self.assertTrue((transfers.posted_ns <= transfers.start_ns).all())
        self.assertTrue((transfers.sent_ns <= transfers.arrived_ns).all())
        self.assertEqual(set(zip(transfers.from_worker.tolist(), transfers.to_worker.tolist())),
                         {(0, 1), (1, 2), (2, 3), (1, 0), (2, 1), (3, 2)})

    def test_arrays_look_at_one_buffer_and_keep_it(self):
        timeline = self.result.timeline
        first, second = timeline.start_ns, timeline.start_ns
        self.assertEqual(first.__array_interface__["data"][0], second.__array_interface__["data"][0])
        self.assertFalse(first.flags.owndata)
        with self.assertRaises(ValueError):
            first[0] = 1
        kept = first.copy()
        point = self.result.memory[1].bytes
        peak = point.copy()
        del timeline, second, self.result
        gc.collect()
        pw.simulate(needs.QUICKSTART, set={"training.micro_batches": 64}).timeline.start_ns.sum()  # takes memory
        self.assertTrue((first == kept).all())
        self.assertTrue((point == peak).all())

    def test_all_copies(self):
        result = pw.simulate(needs.QUICKSTART, set={"cluster.nodes": 2, "plan.data_parallel": 2, "cluster.network":
                                                    {"bandwidth": "10 GB/s", "latency": "5 us"}})
        workers = len(result.workers)
        self.assertEqual(workers, 8)
        self.assertEqual(len(set(result.timeline_of_all.worker.tolist())), workers)
        self.assertLessEqual(len(set(result.timeline.worker.tolist())), workers)

    def test_memory_is_that_of_the_report(self):
        for curve, worker in zip(self.result.memory, self.result.workers):
            self.assertEqual(curve.total.max(), worker["memory_bytes"]["peak"])
            self.assertTrue((curve.at_ns[1:] >= curve.at_ns[:-1]).all())
            self.assertEqual(curve.bytes.shape, (len(curve.at_ns), len(curve.categories)))
            where = curve.total.argmax()
            for name in ("weights", "stash", "reserve"):
                self.assertEqual(curve.bytes[where, curve.categories.index(name)], worker["memory_bytes"][name])


class Problems(unittest.TestCase):
    def test_the_textbook(self):
        """1F1B: (M + K - 1) (f + b), GPipe likewise."""
        for name in ("1f1b", "gpipe"):
            problem = pw.Problem(pw.Order.of_schedule(name, stages=4, micro_batches=8))
            self.assertEqual(problem.columns, ("F0", "F1", "F2", "F3", "BW0", "BW1", "BW2", "BW3", "hop0", "hop1", "hop2"))
            rows = [[f] * 4 + [b] * 4 + [0] * 3 for f, b in ((3, 6), (1, 2), (1000, 1000))]
            self.assertEqual(problem.makespans(rows).tolist(), [(8 + 4 - 1) * (row[0] + row[4]) for row in rows])

    def test_a_row_of_every_hop(self):
        order = [["0F0", "0B0"], ["1F0", "1B0"]]
        problem = pw.Problem(order)
        self.assertEqual((problem.stages, problem.chunks, problem.micro_batches), (2, 2, 1))
        self.assertEqual(problem.makespans([[3, 4, 5, 6, 10]]).tolist(), [3 + 10 + 4 + 6 + 10 + 5])
        timeline = problem.timeline([3, 4, 5, 6, 10])
        self.assertEqual(timeline.end_ns[timeline.stage == 1].max(), 3 + 10 + 4 + 6)

    def test_the_makespan_is_the_end_of_the_timeline(self):
        import numpy as np

        random = np.random.default_rng(1)
        for name, stages, chunks in (("zb_h1", 4, 1), ("interleaved_1f1b", 4, 2), ("zbv", 4, 2), ("chimera", 4, 1), ("dualpipe", 4, 1)):
            with self.subTest(name):
                problem = pw.Problem(pw.Order.of_schedule(name, stages=stages, micro_batches=8, virtual_stages=chunks))
                costs = random.integers(0, 1000, (20, len(problem.columns)))
                for row, end in zip(costs, problem.makespans(costs)):
                    timeline = problem.timeline(row)
                    self.assertEqual(timeline.end_ns.max(), end)

    def test_all_kinds_of_numbers(self):
        import numpy as np

        problem = pw.Problem([["0F0", "0B0"]])
        for costs in ([[1, 2]], np.array([[1, 2]], dtype=np.uint8), np.array([[1.2, 1.9]]), np.array([[1, 2, 3, 4]])[:, :2],
                      np.asfortranarray([[1, 2], [1, 2]])):
            self.assertEqual(problem.makespans(costs)[0], 3)
        self.assertEqual(problem.makespans(np.zeros((0, 2), dtype=np.int64)).tolist(), [])

    def test_costs_that_are_none(self):
        problem = pw.Problem([["0F0", "0B0"]])
        for costs in ([1, 2], [[1]], [[1, 2, 3]], [[float("nan"), 1]], [[float("inf"), 1]], [[-1, 1]], [["a", "b"]], [[2**63, 1]],
                      [[2**62, 2**62]], None, [[1, 2], [3]], [[None, None]], [[1e300, 1]]):
            with self.subTest(costs), self.assertRaises(pw.InputError) as caught:
                problem.makespans(costs)
            self.assertEqual(caught.exception.key, "costs")


if __name__ == "__main__":
    needs.main("numpy")
