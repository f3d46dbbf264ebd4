"""The frameworks' own readers take what `launch` writes, of every shipped scenario that can be launched for them.

usage: frameworks_test.py PIPEWRIGHT SOURCE

torchtitan: its ConfigManager reads the recipe. Megatron-LM: megatron-core reads the layout of the layers; the flags are
read by megatron/training/arguments.py, which no package on PyPI has. DeepSpeed: its DeepSpeedConfig reads CONFIG.
"""
import ast
import concurrent.futures
import contextlib
import io
import os
import pathlib
import re
import sys
import tempfile
import types
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[0] / "support")]
import torch_python

torch_python.use("torch")

import started

PIPEWRIGHT, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
os.environ["DS_ACCELERATOR"] = "cpu"
warnings.simplefilter("ignore")


def launched(scenario, target):
    """The file, or None where this scenario cannot be launched."""
    done = started.run([PIPEWRIGHT, "launch", str(scenario), "--for", target], capture_output=True, text=True)
    assert done.returncode in (0, 1, 2), done.stderr
    return done.stdout if done.returncode < 2 else None


class Torchtitan:
    """The recipe is imported and read as `torchtitan.train --module ... --config pipewright_plan` would."""
    package, what, number = "torchtitan", "the recipe", 0
    OWN = "    raise SystemExit(\"pipewright_plan.py: import the configuration of your model as base, then delete this line\")\n"

    def __init__(self, folder):
        from torchtitan.config import ConfigManager
        self.manager, self.folder = ConfigManager, folder
        sys.path.insert(0, str(folder))

    def read(self, text):
        self.number += 1
        if self.OWN in text:  # the configuration that a user imports: any will do, the recipe replaces what it says
            text = text.replace(self.OWN, "    from torchtitan.models.llama3.config_registry import llama3_8b as base\n")
        (self.folder / f"recipe_{self.number}.py").write_text(text, encoding="utf-8")
        config = self.manager().parse_args([f"--module=recipe_{self.number}", "--config=pipewright_plan"])
        assert config.parallelism.module_fqns_per_model_part or config.parallelism.pipeline_parallel_degree == 1
        for key, value in re.findall(r"^    parallel\.(\w+_degree) = (\d+)$", text, re.M):
            assert getattr(config.parallelism, key) == int(value), (key, value)
        return True


class Megatron:
    package, what = "megatron-core", "the layout"

    def __init__(self, _):
        from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
        self.layout = PipelineParallelLayerLayout

    def read(self, text):
        def flag(name):
            found = re.search(rf"--{name} '?([^\s']+)", text)
            return found and found[1]
        layout = flag("pipeline-model-parallel-layout")
        if layout:
            read = self.layout(layout, int(flag("pipeline-model-parallel-size") or 1))
            read.validate_layer_layout(int(flag("num-layers")), int(flag("mtp-num-layers") or 0))
        return layout is not None


class DeepSpeed:
    package, what = "deepspeed", "CONFIG"

    def __init__(self, _):
        from deepspeed.runtime import config
        config.dist = types.SimpleNamespace(get_rank=lambda: 0)  # no processes here: else it takes the copies to be one
        self.config = config.DeepSpeedConfig

    def read(self, text):
        config = next(ast.literal_eval(node.value) for node in ast.parse(text).body
                      if isinstance(node, ast.Assign) and node.targets[0].id == "CONFIG")
        copies = config["train_batch_size"] // (
            config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"])
        read = self.config(config, mpu=types.SimpleNamespace(get_data_parallel_world_size=lambda: copies))
        assert read.train_batch_size == config["train_batch_size"]
        assert read.zero_optimization_stage == config["zero_optimization"]["stage"]
        return True


FRAMEWORKS = {"torchtitan": Torchtitan, "megatron": Megatron, "deepspeed": DeepSpeed}

scenarios = sorted((SOURCE / "scenarios").rglob("*.yaml"))
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    files = {target: list(pool.map(launched, scenarios, [target] * len(scenarios))) for target in FRAMEWORKS}

faults = []
for target, framework in FRAMEWORKS.items():
    version = torch_python.installed(framework.package)
    if version != torch_python.PINNED[framework.package]:
        print(f"{target}: not run, {framework.package} {torch_python.PINNED[framework.package]} is not installed")
        continue
    with tempfile.TemporaryDirectory() as folder:
        try:
            reader = framework(pathlib.Path(folder))
        except ImportError as error:
            print(f"{target}: not run, {framework.package} {version} does not import: {error}")
            continue
        written, taken = 0, 0
        for scenario, text in zip(scenarios, files[target]):
            if text is None:
                continue
            written += 1
            said = io.StringIO()
            try:
                with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                    taken += reader.read(text)
            except (Exception, SystemExit) as error:
                faults.append(f"{target}: {scenario.relative_to(SOURCE)}: {type(error).__name__}: {error}\n{said.getvalue()[-600:]}")
    print(f"{target}: {written} scenarios written, {framework.package} {version} reads {framework.what} of {taken}", flush=True)
if faults:
    raise SystemExit("\n".join(faults))
