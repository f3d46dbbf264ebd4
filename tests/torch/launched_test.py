"""The program of `launch --for torch` is run by PyTorch, from the weights and on the samples of a run of ours: losses agree
step by step, and so does the order of ops.

usage: launched_test.py PIPEWRIGHT SOURCE PYTHON_PACKAGE

PIPEWRIGHT_TORCH_PYTHON names a Python that has what requirements.txt pins; without it the test is skipped. With
PIPEWRIGHT_TORCH_CASE=NAME one case is run.
"""
import json
import os
import pathlib
import re
import struct
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[0] / "support"), *sys.argv[3:]]
import torch_python

torch_python.use("torch")

import ranks
import runpy
import started
import torch
from torch.distributed.pipelining.schedules import get_schedule_class

try:
    import pipewright as pw
except ImportError:
    pw = None  # built for another Python, or not at all

PIPEWRIGHT, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
DEADLINE = 60  # seconds for which the processes of a case may stand still, on a machine that others use
TOLERANCE = 1e-5  # relative, of the loss of a step
STEPS = 4

CHAIN = SOURCE / "scenarios/learning/base.yaml"
CHUNKS = ["plan.virtual_stages=2"]
WORLDS = {"data_parallel": 1, "zbv_auto": 3, "1f1b": 4, "zb_h2": 4}  # processes; else 2
# The classes that PyTorch has, and the plans with which each is compared.
CLASSES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved_1f1b": "Interleaved1F1B", "looped_bfs": "LoopedBFS",
           "interleaved_zb": "InterleavedZeroBubble", "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}
# ScheduleGPipe runs the backwards of micro-batches from the first to the last, ours from the last to the first.
OTHER_ORDER = {"gpipe"}
# PyTorch's file format has no words for these.
NOT_WRITTEN = {"chimera", "dualpipe", "pipedream", "gems", "pipedream_2bw"}


def command(*words, status=(0,)):
    done = started.run([PIPEWRIGHT, *map(str, words)], capture_output=True, text=True)
    assert done.returncode in status, (words, done.stderr)
    return done


def settings(changes):
    return [word for change in changes for word in ("--set", change)]


def actions(row):
    return ["".join(action) for action in re.findall(r"(\d+)(F|B|I|W)(\d+)", row)]


def losses(ended):
    return [float(loss) for each in ended for loss in re.findall(r"lm loss: (\S+)", each.output)]


def largest_difference(found, wanted):
    assert len(found) == len(wanted) == STEPS, (found, wanted)
    return max(abs(a - b) / abs(b) for a, b in zip(found, wanted))


def exported_losses(file):
    text = file.read_bytes()
    length, = struct.unpack("<Q", text[:8])
    header = json.loads(text[8:8 + length])
    begin, end = header["loss"]["data_offsets"]
    return list(struct.unpack(f"<{header['loss']['shape'][0]}d", text[8 + length + begin:8 + length + end]))


def case(folder, name, scenario, changes, world, of_pytorch=None):
    """One plan: run here, launched there; and with PyTorch's own class in place of the schedule's file."""
    begin = time.monotonic()
    changes = settings(["run.data=synthetic", *changes])
    export, program = folder / f"{name}.safetensors", folder / f"{name}.py"
    command("run", scenario, *changes, "--steps", STEPS, "--warmup", 0, "--export", export)
    command("launch", scenario, *changes, "--for", "torch", "-o", program)
    text = program.read_text(encoding="utf-8")
    assert "torch.distributed.pipelining can express this plan." in text, text[:2000]
    assert "build_layer is yours" not in text, name
    names = runpy.run_path(str(program), run_name="plan")
    rows = [actions(row) for row in names["SCHEDULE"].split()]
    ours = exported_losses(export)
    assert len(set(ours)) == STEPS, ours
    environment = {"PIPEWRIGHT_EXPORT": str(export)}
    ended = ranks.run(program, world, environment, DEADLINE)
    off = largest_difference(losses(ended), ours)
    assert off <= TOLERANCE, f"{name}: a loss is off by {off:.1e} of it: {losses(ended)}, here {ours}"
    copies = world // len(rows)
    position = names["MESH_NAMES"].index("pipeline")
    for rank, each in enumerate(ended):
        row = rows[rank // copies if position == 0 else rank % len(rows)]
        assert each.ran == STEPS * row, f"{name}: rank {rank} ran {each.ran}, not {STEPS} times {row}"
    said = f"{name:<22} {world} processes   loss off by {off:.1e} at most, order as ours"
    if of_pytorch:
        schedule = get_schedule_class(of_pytorch)

        def change(names):
            single = len(names["CHUNKS"]) == len(rows)
            return {"schedule_of": lambda stages: schedule(stages[0] if single else stages, names["MICRO_BATCHES"],
                                                           loss_fn=names["loss_of"])}

        ended = ranks.run(program, world, environment, DEADLINE, change)
        theirs = largest_difference(losses(ended), ours)
        assert theirs <= TOLERANCE, f"{name}: with {of_pytorch} a loss is off by {theirs:.1e} of it"
        other = [rank for rank, each in enumerate(ended) if each.ran != STEPS * rows[rank]]
        assert (other == []) == (name not in OTHER_ORDER), f"{name}: {of_pytorch} runs another order on ranks {other}"
        for rank in other[:1]:
            print(f"  {of_pytorch} runs on rank {rank}: {' '.join(ended[rank].ran[:len(rows[rank])])}\n"
                  f"  ours:                     {' '.join(rows[rank])}")
        said += f"; {of_pytorch}: {theirs:.1e}, order " + (f"other on ranks {other}" if other else "as ours")
    print(f"{said}   ({time.monotonic() - begin:.1f} s)", flush=True)


def every_schedule(folder):
    shown = command("show", "schedules").stdout.split("\n\n")[0].splitlines()[1:]
    names = [line.split()[0] for line in shown]
    assert set(CLASSES) | NOT_WRITTEN <= set(names), names
    for name in names:
        if name in NOT_WRITTEN or not wanted(name):
            continue
        stages = WORLDS.get(name, 2)
        changes = [f"plan.schedule={name}", f"plan.stages={stages}", "training.micro_batches=6"]
        if command("simulate", CHAIN, *settings(changes), status=(0, 2)).returncode == 2:
            changes += CHUNKS
        yield name, CHAIN, changes, stages, CLASSES.get(name)


def wanted(name):
    return os.environ.get("PIPEWRIGHT_TORCH_CASE", name) == name


OTHERS = [
    ("operators", HERE / "operators.yaml", [], 2),
    ("operators in 4 stages", HERE / "operators.yaml", CHUNKS + ["plan.schedule=interleaved_1f1b"], 2),
    ("rmsprop", HERE / "operators.yaml", ["training.optimizer=rmsprop", "run.learning_rate=1e-4", "plan.schedule=zb_h1"], 2),
    ("cnn, momentum", SOURCE / "scenarios/validation/cnn-1f1b.yaml", ["training.micro_batch_size=2"], 2),
    ("experts", SOURCE / "scenarios/validation/experts.yaml", ["plan.expert_parallel=1", "plan.data_parallel=1", "plan.stages=2", "plan.schedule=1f1b", "run.steps=6", "run.warmup=0"], 2),
    ("recompute", CHAIN, ["plan.recompute=full"], 2),
    ("two copies", CHAIN, ["plan.data_parallel=2", "plan.schedule=gpipe"], 4),
    ("two copies, chunks", CHAIN, ["plan.data_parallel=2", "plan.schedule=interleaved_1f1b"] + CHUNKS, 4),
    ("two copies, split", CHAIN, ["plan.data_parallel=2", "plan.schedule=zbv"] + CHUNKS, 4),
]


def a_hang_is_ended(folder):
    """Rank 1 leaves one gradient out: messages are matched in their order, so rank 0 waits for the last of the step."""
    program = folder / "hang.py"
    command("launch", CHAIN, "--for", "torch", "-o", program)

    def change(names):
        def stuck(stages):
            schedule = names["schedule_of"](stages)
            if schedule.rank == 1:
                order = schedule.pipeline_order_with_comms
                order[1] = [action for action in order[1] if str(action) != "1SEND_B2"]
            return schedule
        return {"schedule_of": stuck}

    try:
        ranks.run(program, 2, {}, 8, change)
    except ranks.Hang as hang:
        assert str(hang) == "rank 0 hangs at PP:0B0; rank 1 hangs at PP:1F0", hang
        print(f"a hang was ended: {hang}")
        return
    raise AssertionError("a rank whose gradient is never sent did not hang")


def of_pytorch_itself(names, folder):
    """The same model with the times that its modules take in PyTorch, one thread each, cut alike."""
    torch.set_num_threads(1)
    layers = [names["build_layer"](index) for index in range(names["LAYERS"] - 1)]
    x, labels = names["batch"](names["MICRO_BATCH_SIZE"])
    pw.torch.profile(layers, x, loss=lambda y: names["loss_of"](y, labels), repeats=25, to=folder / "measured.yaml")
    cuts = ", ".join(str(first) for first, _ in names["CHUNKS"][1:])
    return [f"model={{file: {folder / 'measured.yaml'}}}", f"plan.partition={{cuts: [{cuts}]}}"]


def a_trace_comes_back(folder):
    """What PyTorch's profiler has recorded is compared with predictions; the errors are printed, not judged."""
    scenario, profile, program = SOURCE / "scenarios/validation/two-stage-1f1b.yaml", folder / "profile.yaml", folder / "traced.py"
    command("calibrate", scenario, "--budget", "2s", "-o", profile)
    command("launch", scenario, "--for", "torch", "-o", program)
    ranks.run(program, 2, {"PIPEWRIGHT_TRACE": str(folder / "trace")}, DEADLINE)
    traces = [word for rank in range(2) for word in ("--trace", folder / f"trace/rank{rank}.json.gz")]
    prices = {"`calibrate`, our kernels": [f"cost={{profile: {profile}}}"]}
    if pw:
        prices["`pw.torch.profile`"] = of_pytorch_itself(runpy.run_path(str(program), run_name="plan"), folder)
    for what, changes in prices.items():
        compared = command("validate", scenario, *settings(changes), *traces, "--json", status=(0, 1)).stdout
        trace = json.loads(compared)["trace"]
        assert trace["steps"] == 3 and trace["absent"] == 0, trace
        assert sorted(action["name"] for action in trace["actions"]) == sorted(
            f"{stage}{kind}{m}" for stage in range(2) for kind in "FB" for m in range(8)), trace["actions"]
        print(f"trace, priced by {what}: first to last action " + "; ".join(
            f"stage {stage['stage']} {1e3 * stage['measured_span_s']:.0f} ms, predicted {1e3 * stage['predicted_span_s']:.0f} ms "
            f"({stage['predicted_span_s'] / stage['measured_span_s'] - 1:+.0%})" for stage in trace["stages"]), flush=True)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for each in [*every_schedule(folder), *(other for other in OTHERS if wanted(other[0]))]:
        case(folder, *each)
    if wanted("trace"):
        a_trace_comes_back(folder)
    if wanted("hang"):
        a_hang_is_ended(folder)
