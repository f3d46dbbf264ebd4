#!/usr/bin/env python3
"""The validation set, run for real, against the bands of its targets: opt-in, since its verdict is about this machine, too.

    PIPEWRIGHT_TIMING=1 meson test -C build --suite timing --verbose

Exit status 0: in all bands, 1: outside one, 77: not asked for, or too few scenarios could be judged.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

# docs/results/accuracy-cpu.md says what each of them is about.
SCENARIOS = """two-stage-gpipe two-stage-1f1b two-stage-interleaved one-micro-batch many-micro-batches imbalanced recompute
throttled-5-mb throttled-20-mb throttled-80-mb cnn-1f1b small-ops data-parallel""".split()
JUDGED = 6  # of them at least, else the machine was not quiet
MEAN, LARGEST, BUBBLES_OFF = 0.03, 0.06, 0
SKIPPED = 77


def misses(result):
    """What of a result (accuracy.json) lies outside its band, one sentence each; None where too little was judged."""
    summary = result["summary"]
    long_ops = summary["judged"] - summary["with_short_ops"]
    if summary["failed"]:
        return [f"{summary['failed']} scenarios failed"]
    exact = [a["scenario"] for a in result["attempts"] if not a.get("memory_exact", False)]
    if exact:
        return ["peak memory was not what was counted: " + ", ".join(exact)]
    if long_ops < JUDGED:
        return None
    list_of = []
    if summary["mean_error"] > MEAN:
        list_of.append(f"mean error {100 * summary['mean_error']:.1f} %, at most {100 * MEAN:.0f} % are allowed")
    if summary["largest_error"] > LARGEST:
        list_of.append(f"largest error {100 * summary['largest_error']:.1f} %, at most {100 * LARGEST:.0f} % are allowed")
    off = summary["judged"] - summary["bubbles_within_2_points"]
    if off > BUBBLES_OFF:
        list_of.append(f"{off} of {summary['judged']} bubbles are more than 2 points off")
    for best in result["best"]:
        if best["predicted"] != best["measured"]:
            list_of.append(f"best of {best['of']}: predicted {best['predicted']}, measured {best['measured']}")
    return list_of


def main(pipewright, source):
    if os.environ.get("PIPEWRIGHT_TIMING") != "1":
        print("skipped: times of this machine are judged where PIPEWRIGHT_TIMING=1 asks for it")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        scenarios = [f"scenarios/validation/{name}.yaml" for name in SCENARIOS]
        run = started.run([pipewright, "validate", *scenarios, "-o", folder], cwd=source, text=True,
                          stdout=subprocess.PIPE, check=False, longest=3500)
        print(run.stdout)
        with open(os.path.join(folder, "accuracy.json"), encoding="utf-8") as file:
            found = misses(json.load(file))
    if found is None:
        print(f"skipped: the machine was not quiet: fewer than {JUDGED} scenarios could be judged")
        return SKIPPED
    for miss in found:
        print("outside its band: " + miss)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
