"""Launch files parse as what they are, and the program for PyTorch holds the plan's numbers.

usage: launch_files_test.py PIPEWRIGHT SOURCE
"""

import ast
import json
import os
import pathlib
import re
import shlex
import struct
import sys
import tempfile
import types
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

PIPEWRIGHT, SOURCE = sys.argv[1], sys.argv[2]


def launched(plan, target, *more):
    run = started.run(
        [PIPEWRIGHT, "launch", f"{SOURCE}/scenarios/{plan}", "--for", target, *more],
        capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stderr
    return run.stdout


def parses_as_shell(text):
    return started.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def told(text, beginning):
    return next(line for line in text.splitlines() if line.startswith(beginning))[len(beginning):]


def module_of(text):
    """The program's own names, with stand-ins for what it imports."""
    names = ["torch", "torch.distributed", "torch.distributed.device_mesh", "torch.distributed.pipelining",
             "torch.distributed.pipelining.schedules", "torch.nn", "torch.nn.parallel", "torch.utils",
             "torch.utils.checkpoint"]
    stand_ins = {name: mock.MagicMock(name=name) for name in names}
    stand_ins["torch"].nn = stand_ins["torch.nn"]
    stand_ins["torch.nn"].Module = object
    module = types.ModuleType("plan")
    with mock.patch.dict(sys.modules, stand_ins):
        exec(compile(text, "plan.py", "exec"), module.__dict__)  # __name__ is "plan": main() does not run
    return module


for plan in ["quickstart.yaml", "what_if/1f1b-dp.yaml", "what_if/interleaved.yaml", "what_if/llama3-70b.yaml"]:
    for target in ["torch", "deepspeed"]:
        ast.parse(launched(plan, target))
        job = launched(plan, target, "--sbatch")
        assert parses_as_shell(job) and job.startswith("#!/bin/bash\n#SBATCH "), (plan, target)
ast.parse(launched("what_if/llama3-70b.yaml", "torchtitan"))
ast.parse(launched("what_if/llama3-70b.yaml", "torchtitan", "--set", "plan.schedule=interleaved_1f1b", "--set",
                   "plan.virtual_stages=2", "--set", "plan.partition=balanced"))
zero_bubble = launched("what_if/llama3-70b.yaml", "torchtitan", "--set", "plan.schedule=zb_h1")
ast.parse(zero_bubble)
# A name that PyTorch's get_schedule_class knows: torchtitan looks it up, then runs the file.
assert 'pipeline_parallel_schedule = "PipelineScheduleMulti"\n' in zero_bubble and "\n7F0,7I0," in zero_bubble
for target in ["torchtitan", "megatron"]:
    assert parses_as_shell(launched("what_if/llama3-70b.yaml", target, "--sbatch")), target
assert parses_as_shell(launched("what_if/llama3-70b.yaml", "megatron"))
assert parses_as_shell(launched("validation/two-stage-gpipe.yaml", "slurm"))

program = module_of(launched("quickstart.yaml", "torch"))
rows = program.SCHEDULE.strip().split("\n")
assert len(rows) == len(program.CHUNKS) == 4 and program.STAGE_TO_RANK == [0, 1, 2, 3]
assert program.CHUNKS[0][0] == 0 and program.CHUNKS[-1][1] == program.LAYERS
assert all(before[1] == after[0] for before, after in zip(program.CHUNKS, program.CHUNKS[1:]))
assert program.MESH[0] * program.MESH[1] == 4 and program.MICRO_BATCHES == 8
assert all(row.count("F") == 8 and row.count("B") == 8 for row in rows)


# Layers with operators are written as PyTorch's; what a run exports has their names.
def safetensors(path):
    """Names, shapes and values of the losses."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        values = file.read()
    begin, end = header["loss"]["data_offsets"]
    assert max(of["data_offsets"][1] for of in header.values()) == len(values)
    return {name: of["shape"] for name, of in header.items()}, struct.unpack(f"<{(end - begin) // 8}d", values[begin:end])


assert "# build_layer is yours: layer " in launched("quickstart.yaml", "torch")
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "run.safetensors")
    run = started.run([PIPEWRIGHT, "run", f"{SOURCE}/scenarios/validation/cnn-1f1b.yaml", "--steps", "3", "--warmup", "1",
                       "--export", file], capture_output=True, text=True, check=True)
    assert "(weights, samples and losses)" in run.stderr, run
    shapes, losses = safetensors(file)
    first, last = re.search(r"loss +(\S+) -> (\S+) over 4 steps of 64 samples", run.stdout).groups()
    assert [f"{loss:.4g}" for loss in (losses[0], losses[-1])] == [first, last], (losses, run.stdout)
    assert shapes["input"] == [256, 1, 28, 28] and shapes["labels"] == [256] and shapes["loss"] == [4], shapes
    program = launched("validation/cnn-1f1b.yaml", "torch")
    assert "build_layer is yours" not in program and "momentum=0.9" in program and "lr=0.02" in program
    model = module_of(program)
    assert len(model.BUILT) == model.LAYERS == len(model.INPUTS)
    written = {}
    for index, layer in enumerate(model.BUILT):
        source = program.split(f"class {layer.__name__}(")[1].split("\nclass ")[0]
        for name, kind, sizes in re.findall(r"self\.(\w+) = nn\.(\w+)\((.*)\)\n", source):
            numbers = [int(n) for n in re.findall(r"\d+", sizes)]
            shape = [numbers[1], numbers[0], *numbers[2:4]] if kind == "Conv2d" else [numbers[1], numbers[0]]
            written[f"layers.{index}.{name}.weight"], written[f"layers.{index}.{name}.bias"] = shape, shape[:1]
    assert written == {name: shape for name, shape in shapes.items() if name.startswith("layers.")}, (written, shapes)
    for more, words in [(["--check", "gradients"], "--export writes a run from its first step on; leave it or --check out"),
                        (["--checkpoint", folder, "--resume"], "leave it or --resume out"),
                        (["--synthetic"], "a synthetic run does no arithmetic")]:
        refused = started.run([PIPEWRIGHT, "run", f"{SOURCE}/scenarios/validation/cnn-1f1b.yaml", "--export", file, *more],
                              capture_output=True, text=True, check=False)
        assert refused.returncode == 2 and words in refused.stderr, refused


# What a configuration is trained with stands in the file; what is not known is asked for.
for target in ["torch", "deepspeed"]:  # which print their steps as Megatron-LM does, so that validate reads them
    assert "elapsed time per iteration (ms): " in launched("quickstart.yaml", target)
assert "trace/rank*.json.gz)" in launched("quickstart.yaml", "torch")
titan = launched("what_if/llama3-70b.yaml", "torchtitan", "--set", "campaign.length=1T tokens")
steps = re.search(r"--train-iters (\d+)", launched("what_if/llama3-70b.yaml", "megatron", "--set",
                                                   "campaign.length=1T tokens"))
assert f"training.steps = {steps[1]}\n" in titan, titan
alone = launched("what_if/llama3-70b.yaml", "torchtitan", "--set", "plan.data_parallel=1")
assert "training.steps" not in alone and "profiler.enable_profiling = False" in alone
traced = launched("what_if/llama3-70b.yaml", "torchtitan", "--set", "plan.schedule=zb_h1")
assert "PIPEWRIGHT_TRACE" in traced and "trace/iteration_10/rank*_trace.json*)" in traced
for target in ["megatron", "torchtitan", "torch"]:  # a name that stands for something is explained; a job has none
    by_hand = launched("what_if/llama3-70b.yaml", target)
    assert by_hand.count("HEAD_NODE") >= 2 and "HEAD_NODE: the name or address of one of them" in by_hand, target
    assert "HEAD_NODE" not in launched("what_if/llama3-70b.yaml", target, "--sbatch"), target
llama = launched("what_if/llama3-70b.yaml", "megatron")
assert "--rotary-base 500000\n" in llama and "--norm-epsilon 1e-05\n" in llama and "ROTARY_BASE" not in llama
assert "rope-scaling" not in llama
scaled = launched("what_if/llama3-70b.yaml", "megatron", "--set",
                  "model.trained_as={rope_theta: 5e5, rope_scaling: {type: llama3, factor: 8, original_length: 8192}}")
assert "--use-rope-scaling --rope-scaling-factor 8\n" in scaled and parses_as_shell(scaled)
other = launched("what_if/llama3-70b.yaml", "megatron", "--set", "model.trained_as.rope_theta=12345.5", "--set",
                 "model.trained_as.rope_scaling={type: dynamic, factor: 2}")
assert "the flag takes whole numbers" in other and "# rope_scaling of type dynamic, factor 2: no flag" in other
assert parses_as_shell(other)
with tempfile.TemporaryDirectory() as folder:
    unknown = os.path.join(folder, "unknown.yaml")
    with open(unknown, "w", encoding="utf-8") as file:
        file.write("model: {family: decoder, layers: 4, hidden: 256, heads: 4, feed_forward: 512}\ncluster: dgx-h100x8\n"
                   "training: {global_batch_size: 8, micro_batch_size: 1}\nplan: {stages: 2}\n")
    asked = started.run([PIPEWRIGHT, "launch", unknown, "--for", "megatron"], capture_output=True, text=True,
                        check=False).stdout
    assert "${ROTARY_BASE:?" in asked and "norm-epsilon" not in asked and parses_as_shell(asked)
    assert "  # norm epsilon: not stated by the model; Megatron-LM's default is 1e-5\n" in asked
    # A recipe for a model that torchtitan does not have ends at once, and the header and standard error say so.
    run = started.run([PIPEWRIGHT, "launch", unknown, "--for", "torchtitan", "--set", "training.precision=bf16"],
                      capture_output=True, text=True, check=False)
    lacks = "model: none of its configurations is known to be this one; the recipe ends at once until you import yours"
    assert f"#   {lacks}" in run.stdout and f"not as planned: {lacks}" in run.stderr, run
    assert "can express this plan" not in run.stdout and "debugmodel" not in run.stdout
    recipe = types.ModuleType("recipe")
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in ["torchtitan", "torchtitan.distributed", "torchtitan.distributed.activation_checkpoint"]}):
        exec(compile(run.stdout, "pipewright_plan.py", "exec"), recipe.__dict__)
    try:
        recipe.pipewright_plan()
        ended = ""
    except SystemExit as end:
        ended = str(end)
    assert "import the configuration of your model as base, then delete this line" in ended, ended
    recipe.base = mock.MagicMock()
    without = re.sub(r"\n    raise SystemExit[^\n]*", "", run.stdout)
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in ["torchtitan", "torchtitan.distributed", "torchtitan.distributed.activation_checkpoint"]}):
        exec(compile(without, "pipewright_plan.py", "exec"), recipe.__dict__)
    assert recipe.pipewright_plan() is recipe.base.return_value
    # A type of scaling that is not kept is named, wherever the scaling would stand.
    with open(f"{SOURCE}/configs/models/hf/llama3-8b.json", encoding="utf-8") as file:
        config = json.load(file)
    config["rope_scaling"] = {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    scaled = os.path.join(folder, "scaled.yaml")
    with open(scaled, "w", encoding="utf-8") as file:
        file.write("model: {hf: config.json}\ncluster: dgx-h100x8\nplan: {stages: 8}\n"
                   "training: {global_batch_size: 8, micro_batch_size: 1, precision: bf16}\n")
    for target, words in [("megatron", "  # rope_scaling of type longrope is not kept: set it yourself"),
                          ("torchtitan", "rope_scaling of type longrope (not kept: see"),
                          ("torch", "# rope_scaling of type longrope is not kept: take it from")]:
        text = started.run([PIPEWRIGHT, "launch", scaled, "--for", target], capture_output=True, text=True,
                           check=False).stdout
        assert words in text and "no rope_scaling" not in text, (target, text)
        assert parses_as_shell(text) if target == "megatron" else ast.parse(text)
    checked = started.run([PIPEWRIGHT, "check", scaled], capture_output=True, text=True, check=False).stdout
    assert checked.endswith("; rope_scaling of type longrope is not kept)\n"), checked
# Selective recomputation that repeats nothing has no flag, which would have Megatron-LM repeat fused attention.
assert "--recompute" not in llama and "# plan.recompute: selective repeats nothing" in llama
stored = launched("what_if/llama3-70b.yaml", "megatron", "--set", "model.attention=materialised")
assert "--recompute-granularity selective --recompute-modules core_attn\n" in stored
# Memory that may not be enough is reported in the file and on standard error; the exit status says "fits".
def tight(text):
    reach = re.search(r"Memory is tight: real use may reach ([\d.]+) GiB of 72.0 GiB", text)
    return reach and 72 < float(reach[1]) < 90


run = started.run([PIPEWRIGHT, "launch", f"{SOURCE}/scenarios/what_if/llama3-70b.yaml", "--for", "megatron", "--set",
                   "cluster.node.device.memory=72GiB"], capture_output=True, text=True, check=False)
assert run.returncode == 0 and tight(run.stderr), run
warned = told(run.stdout, "# Memory is tight: ")
assert tight("Memory is tight: " + warned.removeprefix("Memory is tight: ")), warned
trained = module_of(launched("what_if/llama3-70b.yaml", "torch"))
assert trained.ROPE_THETA == 500000 and trained.NORM_EPSILON == 1e-05
deepseek = launched("what_if/llama3-70b.yaml", "megatron", "--set", f"model.hf={SOURCE}/configs/models/hf/deepseek-v3.json",
                    "--set", "plan.recompute=none")
assert "--rope-type yarn --rotary-scaling-factor 40 --mscale 1 --mscale-all-dim 1\n" in deepseek, deepseek
assert ("--moe-router-score-function sigmoid --moe-router-topk-scaling-factor 2.5 --moe-router-enable-expert-bias\n" in deepseek
        and "--moe-router-num-groups 8 --moe-router-group-topk 4\n" in deepseek), deepseek
assert "bias of the router" not in deepseek, deepseek
# Parts of a model that no flag says are named, and only those.
gpt_oss = launched("what_if/llama3-70b.yaml", "megatron", "--set", f"model.hf={SOURCE}/configs/models/hf/gpt-oss-20b.json",
                   "--set", "plan.stages=4")
assert ("no flag above says; add Megatron-LM's own: gate of GELU (--swiglu is SiLU), sliding windows, attention sinks, "
        "biases of the attention or of the feed-forward alone, bias of the router, biases of the experts\n") in gpt_oss
assert parses_as_shell(gpt_oss) and "no flag above says" not in llama
nemotron = launched("what_if/llama3-70b.yaml", "megatron", "--set", f"model.hf={SOURCE}/configs/models/hf/nemotron-4-15b.json",
                    "--set", "plan.stages=4")
assert "  --squared-relu\n" in nemotron and "--rotary-percent 0.5\n" in nemotron, nemotron
assert "no flag above says" not in nemotron
# A hybrid's pattern says how many layers there are and where the pipeline is cut; torchtitan has no such model.
hybrid = ["--set", f"model.hf={SOURCE}/configs/models/hf/nemotron-3-nano-30b-a3b.json", "--set", "plan.stages=4", "--set",
          "plan.tensor_parallel=2"]
nano = launched("what_if/llama3-70b.yaml", "megatron", *hybrid)
assert parses_as_shell(nano)
segments = re.search(r"^  --hybrid-layer-pattern='([M*E|]+)'$", nano, re.M)[1].split("|")
assert len(segments) == 4 and "".join(segments) == "MEMEM*" + 4 * "EMEMEM*" + "EMEMEMEM*EMEMEMEME", segments
# Stages without a block have a segment, too: the embedding alone, nothing between, the head alone.
for layers, blocks in (([1, 53], [0, 52]), ([20, 34], [19, 33]), ([53, 1], [52, 0])):
    cut = launched("what_if/llama3-70b.yaml", "megatron", *hybrid, "--set", "plan.stages=2", "--set", f"plan.partition={{layers: {layers}}}")
    segments = re.search(r"^  --hybrid-layer-pattern='([M*E|]+)'$", cut, re.M)[1].split("|")
    assert [len(segment) for segment in segments] == blocks, (layers, segments)
assert "  --mamba-num-heads 64 --mamba-head-dim 64 --mamba-num-groups 8 --mamba-state-dim 128\n" in nano
assert "  --spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec\n" in nano and "  --squared-relu\n" in nano
assert "\n  pretrain_hybrid.py " in nano and "pretrain_gpt" not in nano
assert "--num-layers" not in nano and "--pipeline-model-parallel-layout" not in nano and "ALiBi" not in nano, nano
# Gated delta nets have a letter and sizes of their own, attention and the shared expert their gates.
gated = launched("what_if/llama3-70b.yaml", "megatron", "--set", f"model.hf={SOURCE}/configs/models/hf/qwen3-next-80b-a3b.json", "--set",
                 "plan.stages=2", "--set", "plan.tensor_parallel=2")
assert parses_as_shell(gated) and "--qk-layernorm" not in gated, gated
assert ("add Megatron-LM's own: norms of queries and keys (hybrid_stack_spec has none: use a spec of yours with q_layernorm and "
        "k_layernorm)\n") in gated, gated
segments = re.search(r"^  --hybrid-layer-pattern='([G*E|]+)'$", gated, re.M)[1].split("|")
assert len(segments) == 2 and "".join(segments) == 12 * "GEGEGE*E", segments
assert ("  --linear-num-value-heads 32 --linear-num-key-heads 16 --linear-value-head-dim 128 --linear-key-head-dim 128 "
        "--linear-conv-kernel-dim 4\n") in gated and "--mamba" not in gated, gated
assert "  --attention-output-gate\n" in gated and "--moe-shared-expert-intermediate-size 512 --moe-shared-expert-gate\n" in gated, gated
assert "--rotary-base 10000000\n" in gated and "--rotary-percent 0.25\n" in gated and "\n  pretrain_hybrid.py " in gated, gated
run = started.run([PIPEWRIGHT, "launch", f"{SOURCE}/scenarios/what_if/llama3-70b.yaml", "--for", "torchtitan", *hybrid],
                  capture_output=True, text=True, check=False)
assert run.returncode == 2 and "is a hybrid stack (model.pattern), of which torchtitan has none; --for megatron has" in run.stderr, run
mpt = launched("what_if/llama3-70b.yaml", "megatron", "--set", f"model.hf={SOURCE}/configs/models/hf/mpt-7b.json",
               "--set", "plan.stages=4")
assert "  --position-embedding-type none\n" in mpt and "--untie-embeddings" not in mpt, mpt
assert "add Megatron-LM's own: layer norms without biases, ALiBi (if its positions are by it)\n" in mpt, mpt


def said_by(words):
    """The command's words for this checkout."""
    assert words[0] == "pipewright", words
    return [PIPEWRIGHT, *words[1:]]


# What is compared afterwards is what was launched: a log of the predicted step is within a narrow tolerance.
for plan, target, more in [
        ("what_if/llama3-70b.yaml", "megatron", []),
        ("what_if/llama3-70b.yaml", "megatron", ["--set", "plan.schedule=gpipe", "--set", "plan.recompute=full"]),
        ("what_if/llama3-70b.yaml", "torchtitan", ["--set", "plan.stages=4"]),
        ("what_if/llama3-70b.yaml", "megatron", ["--set", "plan.tensor_parallel=2", "--set", "plan.data_parallel=2",
                                                 "--set", "plan.stages=3", "--set", "training.optimizer=rmsprop"]),
        ("what_if/llama3-70b.yaml", "deepspeed", ["--set", "plan.stages=6", "--set", "cluster.nodes=6"]),
        ("quickstart.yaml", "deepspeed", ["--set", "plan.schedule=gpipe"]),
        ("quickstart.yaml", "torch", ["--set", "plan.data_parallel=2", "--set", "plan.stages=2", "--set",
                                      "plan.gradient_sync=blocking", "--set", "training.optimizer=rmsprop"])]:
    text = launched(plan, target, *more)
    words = shlex.split(told(text, "# Afterwards: "))
    assert words[1] == "validate" and words[2] == f"{SOURCE}/scenarios/{plan}", words
    changes = words[3:-2]
    predicted = told(text, "# Predicted for it: " if "# Predicted for it: " in text else "# Predicted: ")
    step, unit = re.match(r"step ([0-9.]+) (ms|s),", predicted).groups()  # to four digits
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "train.log")
        with open(log, "w", encoding="utf-8") as file:
            for number in range(1, 7):
                file.write(f" iteration {number}/ 100 | elapsed time per iteration (ms): {float(step) * {'ms': 1, 's': 1e3}[unit]} | "
                           "lm loss: 2.5 |\n")
        check = said_by([*words[:3], *changes, "--log", log, "--tolerance", "0.1%"])
        judged = started.run(check, capture_output=True, text=True, check=False)
        assert judged.returncode == 0 and "within" in judged.stdout, (plan, target, judged.stdout, judged.stderr)
