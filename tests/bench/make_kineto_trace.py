#!/usr/bin/env python3
"""Makes up a trace in the form of PyTorch's profiler, of a stated size, to measure how fast one is read. Nothing in it
was measured: around the forward and backward of eight micro-batches there are kernels and operators, as a trace has
them.

usage: make_kineto_trace.py FILE MEGABYTES
"""
import sys

HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "made up", "totalGlobalMem": 85017493504, "computeMajor": 9, "computeMinor": 0}
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 4},
  "traceEvents": [
"""
KERNEL = """  {
    "ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1ul> >(int, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1ul>)", "pid": 0, "tid": 7,
    "ts": %s, "dur": 10.368,
    "args": {
      "External id": %d,"queued": 0, "device": 0, "context": 1,"stream": 7, "correlation": %d,"registers per thread": 20,"shared memory": 0,"blocks per SM": 7.757576,"warps per SM": 31.030304,"grid": [1024, 1, 1],"block": [128, 1, 1],"est. achieved occupancy %%": 48
    }
  },
"""
OPERATOR = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1234, "tid": 1234,
    "ts": %s, "dur": 25.101,
    "args": {
      "External id": %d,"Record function id": 0, "Concrete Inputs": ["", "", ""], "Input Dims": [[8192, 8192], [8192, 8192], []], "Ev Idx": %d
    }
  },
"""
ACTION = '  {"ph": "X", "cat": "gpu_user_annotation", "name": "PP:0%s%d", "pid": 0, "tid": 7, "ts": %s, "dur": %s},\n'
TAIL = '  {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}\n  ],\n  "traceName": "made-up.json"\n}\n'


def microseconds(ns):
    return "%d.%03d" % (ns // 1000, ns % 1000)


def step(ts, number):
    """The text of one step, and when it ends."""
    text = []
    for kind in "FB":
        for m in range(8):
            start = ts
            for _ in range(60):
                ts += 12345
                number += 1
                text.append(KERNEL % (microseconds(ts), number, number))
                text.append(OPERATOR % (microseconds(ts), number, number))
            text.append(ACTION % (kind, m, microseconds(start), microseconds(ts - start)))
    return "".join(text), ts, number


def main():
    path, size = sys.argv[1], float(sys.argv[2]) * 1e6
    ts, number = 1_700_000_000_000_000_000, 0
    with open(path, "w") as out:
        out.write(HEAD)
        while out.tell() < size:
            text, ts, number = step(ts, number)
            out.write(text)
        out.write(TAIL)


if __name__ == "__main__":
    main()
