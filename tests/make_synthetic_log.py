#!/usr/bin/env python3
"""Makes up a training log in Megatron-LM's format, for trying `validate --log` without a run. Nothing in it was measured.

usage: make_synthetic_log.py > scenarios/megatron/llama3-70b-64xh100.synthetic.log

The times are 14.5 s with a spread of 1 %, from a fixed sequence: they were not taken from a prediction, and they prove
nothing about one.
"""
import datetime

STEPS, BATCH, TOKENS, DEVICES = 20, 128, 8192, 64
BEGIN = datetime.datetime(2026, 11, 22, 10, 0, 0)  # of the first step; made up like the rest
FLOP_PER_TOKEN = 449.22e9  # forward and backward of Llama-3 70B at 8192 tokens, as tests/core/flops_test.cpp counts them


def noise(i):
    """Numbers in [-1, 1) that look random: multiples of the golden ratio, cut off."""
    return 2 * ((i * 0.6180339887498949) % 1) - 1


print("# SYNTHETIC: made up by tests/make_synthetic_log.py in Megatron-LM's format. No run made it; it counts in no accuracy table.")
print("using world size: 64, data-parallel size: 4, tensor-model-parallel size: 4, pipeline-model-parallel size: 4")
now = BEGIN
for step in range(1, STEPS + 1):
    seconds = 39.0 if step == 1 else 14.5 * (1 + 0.01 * noise(step))
    now += datetime.timedelta(seconds=seconds)  # Megatron-LM prints when a step is through
    rate = FLOP_PER_TOKEN * BATCH * TOKENS / seconds / DEVICES / 1e12
    loss = 12.2 - 0.18 * (step - 1) + 0.02 * noise(3 * step)
    print(f" [{now:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/{STEPS:8d} | consumed samples: {step * BATCH:12d} |"
          f" elapsed time per iteration (ms): {seconds * 1e3:.1f} | throughput per GPU (TFLOP/s/GPU): {rate:.1f} |"
          f" learning rate: {3e-7 * step:.6E} | global batch size: {BATCH:5d} | lm loss: {loss:.6E} | loss scale: 1.0 |"
          f" grad norm: {1.4 + 0.1 * noise(7 * step):.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |")
    if step == 2:
        for rank, most in ((0, 71500.0), (16, 74800.0), (32, 73100.0), (48, 70900.0)):
            print(f"[Rank {rank}] (after {step} iterations) memory (MB) | allocated: {0.62 * most:.2f} | max allocated: {most:.2f} |"
                  f" reserved: {most + 1900:.2f} | max reserved: {most + 2600:.2f}")
