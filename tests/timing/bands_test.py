#!/usr/bin/env python3
"""What timing_test.py says of results that are in their bands, outside one, and of a machine that was not quiet."""
import copy
import unittest

from timing_test import misses

GOOD = {
    "attempts": [{"scenario": f"s{i}", "memory_exact": True} for i in range(7)],
    "summary": {"scenarios": 7, "judged": 7, "withheld": 0, "failed": 0, "with_short_ops": 1, "mean_error": 0.02,
                "largest_error": 0.05, "bubbles_within_2_points": 7},
    "best": [{"of": "a group", "predicted": "s1", "measured": "s1"}],
}


def changed(**summary):
    result = copy.deepcopy(GOOD)
    result["summary"].update(summary)
    return result


class Bands(unittest.TestCase):
    def test_in_all_bands(self):
        self.assertEqual(misses(GOOD), [])

    def test_each_band_can_be_missed(self):
        self.assertIn("mean error 3.5 %", misses(changed(mean_error=0.035))[0])
        self.assertIn("largest error 6.5 %", misses(changed(largest_error=0.065))[0])
        self.assertIn("1 of 7 bubbles", misses(changed(bubbles_within_2_points=6))[0])
        other = copy.deepcopy(GOOD)
        other["best"][0]["measured"] = "s2"
        self.assertIn("predicted s1, measured s2", misses(other)[0])

    def test_memory_and_failures_are_judged_on_a_noisy_machine_too(self):
        noisy = changed(judged=0, with_short_ops=0)
        noisy["attempts"][3]["memory_exact"] = False
        self.assertIn("s3", misses(noisy)[0])
        self.assertIn("1 scenarios failed", misses(changed(failed=1))[0])

    def test_too_few_judged_is_no_verdict(self):
        self.assertIsNone(misses(changed(judged=6)))


if __name__ == "__main__":
    unittest.main()
