// torch.distributed.pipelining: a program that runs the plan's very order of ops from a schedule file.  [PyTorchPP26]
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/cost/buckets.hpp"
#include "io/launch/launch.hpp"
#include "io/launch/torch_layers.hpp"
#include "io/text/quote.hpp"
#include "io/writers/schedule_csv.hpp"

namespace pipewright::io {
namespace {

constexpr const char* kTorchVersion = "PyTorch 2.13 (torch/distributed/pipelining/schedules.py)";

constexpr const char* kImports = R"(import contextlib
import json
import math
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

)";

// Layers without operators are the user's.
constexpr const char* kOwnLayers = R"(
WIDTH = {}  # of the layers below; yours have their own


def build_layer(index):
    # Layer `index` of the model, of LAYERS in all: put yours here. It takes what the layers in INPUTS return.
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())


def batch(samples):
    # The input and the target of one copy's share of the global batch: put yours here.
    return torch.randn(samples, WIDTH), torch.randn(samples, WIDTH)


def loss_of(output, target):
    return nn.functional.mse_loss(output.float(), target)
)";

constexpr const char* kModelLayers = R"(

def build_layer(index):
    # Layer `index` of the model, of LAYERS in all. It takes what the layers in INPUTS return.
    return BUILT[index]()


def batch(samples):
    # The input and the labels of one copy's share of the global batch: put yours here.
    return {}, {}


def loss_of(logits, labels):
    # The mean over a micro-batch; the schedule divides gradients by the number of micro-batches.
    return nn.functional.cross_entropy(logits.float().flatten(0, -2), labels.flatten())
)";

// Stands behind the layers: the plan.
constexpr const char* kProgram = R"(

def crossing(cut):
    # Layers before `cut` whose output one at or behind it takes; -1: the model's input.
    producers = {of for index in range(cut, LAYERS) for of in INPUTS[index] or (-1,) if of < cut}
    return sorted(producers) if cut < LAYERS else [LAYERS - 1]


class Chunk(nn.Module):
    def __init__(self, first, end):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): build_layer(i) for i in range(first, end)})
        self.whole = first in WHOLE_CHUNKS
        self.takes, self.returns = crossing(first), crossing(end)

    def run(self, *inputs):
        tensors = dict(zip(self.takes, inputs))
        for name, layer in self.layers.items():
            index = int(name)
            x = [tensors[i] for i in INPUTS[index] or (-1,)]
            tensors[index] = checkpoint(layer, *x, use_reentrant=False) if index in REBUILT else layer(*x)
        outputs = tuple(tensors[i].contiguous() for i in self.returns)  # as messages need it
        return outputs if len(outputs) > 1 else outputs[0]

    def forward(self, *inputs):
        return checkpoint(self.run, *inputs, use_reentrant=False) if self.whole else self.run(*inputs)


class Masters:
    # The optimizer's fp32 weights behind the parameters that compute: one copy of each, updated, then rounded.
    def __init__(self, parameters, copies):
        self.parameters = parameters
        self.weights = [p if p.dtype == torch.float32 else p.detach().float() for p in parameters]
        self.optimizer = OPTIMIZER(self.weights, copies)

    def step(self):
        for weight, parameter in zip(self.weights, self.parameters):
            if weight is not parameter and parameter.grad is not None:
                weight.grad, parameter.grad = parameter.grad.float(), None
        self.optimizer.step()
        with torch.no_grad():
            for weight, parameter in zip(self.weights, self.parameters):
                if weight is not parameter:
                    parameter.copy_(weight)
                weight.grad = parameter.grad = None


SPLIT = "W" in SCHEDULE  # backwards of weights on their own


def add_copies(parameters, group):
    # Behind the last backward: DistributedDataParallel does not see the gradients of split backwards.
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= DATA_PARALLEL


def exported():
    # PIPEWRIGHT_EXPORT=FILE, of `pipewright run PLAN --export FILE`: its weights, samples and number of steps.
    path = os.environ.get("PIPEWRIGHT_EXPORT")
    if not path:
        return {}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        values = bytearray(file.read())
    types = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
    return {name: torch.frombuffer(values, dtype=types[of["dtype"]], count=math.prod(of["shape"]),
                                   offset=of["data_offsets"][0]).view(of["shape"]) for name, of in header.items()}


def profiler():
    # PIPEWRIGHT_TRACE=DIR: DIR/rank0.json.gz and so on, a Kineto trace of three steps per rank.
    folder = os.environ.get("PIPEWRIGHT_TRACE")
    if not folder:
        return contextlib.nullcontext()
    os.makedirs(folder, exist_ok=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(
        activities=activities,
        schedule=torch.profiler.schedule(wait=2, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda trace: trace.export_chrome_trace(f"{folder}/rank{dist.get_rank()}.json.gz"))


def schedule_of(stages):
    schedule = _PipelineScheduleRuntime(stages, MICRO_BATCHES, loss_fn=loss_of)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(SCHEDULE)
        file.flush()
        schedule._load_csv(file.name)
    return schedule


def main():
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    mesh = init_device_mesh(device.type, MESH, mesh_dim_names=MESH_NAMES)
    pipeline, copies = mesh["pipeline"], mesh["data"]
    rank, copy = pipeline.get_local_rank(), copies.get_local_rank()
    given = exported()
    stages = []
    for index, (first, end) in enumerate(CHUNKS):
        if STAGE_TO_RANK[index] != rank:
            continue
        chunk = Chunk(first, end)
        if given:
            chunk.load_state_dict({name: given[name] for name in chunk.state_dict()})
        chunk.to(device=device, dtype=DTYPE)
        if DATA_PARALLEL > 1 and not SPLIT:  # find_unused_parameters: else its buckets count the schedule's trial step, too
            chunk = DistributedDataParallel(chunk, process_group=copies.get_group(), bucket_cap_mb=BUCKET_MB,
                                            find_unused_parameters=True)
        stages.append(PipelineStage(chunk, index, len(CHUNKS), device, group=pipeline.get_group()))
    schedule = schedule_of(stages)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = Masters(parameters, copies)
    first, last = STAGE_TO_RANK[0] == rank, STAGE_TO_RANK[-1] == rank
    share = MICRO_BATCHES * MICRO_BATCH_SIZE
    steps = len(given["loss"]) if given else STEPS
    with profiler() as trace:
        for step in range(steps):
            begin = time.perf_counter()
            if given:
                sample = (step * DATA_PARALLEL + copy) * share
                x, target = given["input"][sample:sample + share], given["labels"][sample:sample + share]
            else:
                x, target = batch(share)
            x = x.to(device=device, dtype=DTYPE if x.is_floating_point() else None)
            losses = []
            schedule.step(*([x] if first else []), target=target.to(device) if last else None,
                          losses=losses if last else None)
            if DATA_PARALLEL > 1 and SPLIT:
                add_copies(parameters, copies.get_group())
            optimizer.step()
            if on_gpu:
                torch.cuda.synchronize()
            elapsed = time.perf_counter() - begin
            if trace is not None:
                trace.step()
            if last:
                loss = torch.stack([loss.detach() for loss in losses]).mean()
                if DATA_PARALLEL > 1:
                    dist.all_reduce(loss, group=copies.get_group())
            if last and copy == 0:  # as Megatron-LM logs it, for validate --log
                print(f" iteration {step + 1}/ {steps} | "
                      f"elapsed time per iteration (ms): {1e3 * elapsed:.3f} | "
                      f"global batch size: {GLOBAL_BATCH} | "
                      f"lm loss: {float(loss) / DATA_PARALLEL:.8E} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
)";

// What `pipewright run` computes: no weight decay, its rates and decays; without a section `run` the rate is the user's.
std::string optimizer_of(const Scenario& scenario, bool divided) {
  const RunRequest& run = scenario.run;
  const std::string rate = fmt::format("lr={}", run.place == Place{} ? 1e-3 : run.learning_rate);
  std::string name = "torch.optim.SGD", settings = rate;
  switch (scenario.training.optimizer) {
    case Optimizer::Sgd: break;
    case Optimizer::Momentum: settings += fmt::format(", momentum={}", run.momentum); break;
    case Optimizer::RmsProp:
      name = "torch.optim.RMSprop", settings += fmt::format(", alpha={}, eps={}", run.betas[1], run.epsilon);
      break;
    case Optimizer::Muon:  // written as adam
    case Optimizer::Adam:
      name = "torch.optim.AdamW";
      settings += fmt::format(", betas=({}, {}), eps={}, weight_decay=0.0", run.betas[0], run.betas[1], run.epsilon);
      break;
  }
  if (!divided) return fmt::format("    return {}(parameters, {})\n", name, settings);
  return fmt::format(
      "    # ZeRO-1: every copy keeps a share of the optimizer's states.\n"
      "    from torch.distributed.optim import ZeroRedundancyOptimizer\n\n"
      "    return ZeroRedundancyOptimizer(parameters, optimizer_class={}, process_group=copies.get_group(), {})\n",
      name, settings);
}

std::string torch_dtype(Precision precision) {
  switch (precision) {
    case Precision::Bf16: return "torch.bfloat16";
    case Precision::Fp16: return "torch.float16";
    case Precision::Fp32:
    case Precision::Tf32:
    case Precision::Fp8:
    case Precision::Fp4: break;
  }
  return "torch.float32";
}

std::string settings_of(const Answer& written) {
  const Plan& plan = written.plan;
  const Training& training = written.scenario->training;
  std::vector<std::string> chunks;
  std::vector<int> ranks;
  std::vector<LayerId> whole, rebuilt = plan.rebuilt;
  for (int v = 0; v < plan.chunks(); ++v) {
    const LayerRange& range = plan.layers[static_cast<std::size_t>(v)];
    const StageId stage = plan.stage_of(v);
    chunks.push_back(fmt::format("({}, {})", range.begin, range.end));
    ranks.push_back(stage);
    if (plan.recompute[static_cast<std::size_t>(stage)] == Recompute::Full) whole.push_back(range.begin);
    if (plan.recompute[static_cast<std::size_t>(stage)] == Recompute::Blocks)
      for (LayerId layer = range.begin; layer < range.end; ++layer)
        if (written.scenario->model.layers[layer].block) rebuilt.push_back(layer);
  }
  // As the devices lie: the innermost dimension counts fastest.
  const bool data_inside = copies_first(plan);
  std::string text = fmt::format("LAYERS = {}\n", written.scenario->model.layers.size());
  text += torch_inputs(written.scenario->model);
  text += fmt::format("CHUNKS = [{}]  # layers of every stage of the schedule: first, end\n", fmt::join(chunks, ", "));
  text += fmt::format("STAGE_TO_RANK = [{}]\n", fmt::join(ranks, ", "));
  text += fmt::format("REBUILT = {{{}}}  # layers that keep their input and repeat their forward\n",
                      rebuilt.empty() ? "*()" : fmt::format("{}", fmt::join(rebuilt, ", ")));
  text += fmt::format("WHOLE_CHUNKS = {{{}}}  # first layers of chunks that do so as one\n",
                      whole.empty() ? "*()" : fmt::format("{}", fmt::join(whole, ", ")));
  // None: DDP's own rule, whose first bucket is smaller.
  const std::int64_t mib = (bucket_limit(plan, 0, written.scenario->training).value + 524288) >> 20;
  text +=
      fmt::format("DATA_PARALLEL = {}\nBUCKET_MB = {}\n", plan.data_parallel,
                  plan.bucket_rule == BucketRule::PyTorch ? "None" : std::to_string(std::max<std::int64_t>(1, mib)));
  if (plan.tensor_parallel > 1)
    text += fmt::format(
        "MESH, MESH_NAMES = ({}, {}, {}), (\"{}\", \"{}\", \"tensor\")  # parallelize_module of "
        "build_layer's layers over mesh[\"tensor\"] is yours\n",
        data_inside ? plan.stages : plan.data_parallel, data_inside ? plan.data_parallel : plan.stages,
        plan.tensor_parallel, data_inside ? "pipeline" : "data", data_inside ? "data" : "pipeline");
  else
    text += fmt::format("MESH, MESH_NAMES = ({}, {}), (\"{}\", \"{}\")\n",
                        data_inside ? plan.stages : plan.data_parallel, data_inside ? plan.data_parallel : plan.stages,
                        data_inside ? "pipeline" : "data", data_inside ? "data" : "pipeline");
  text += fmt::format("MICRO_BATCHES, MICRO_BATCH_SIZE, GLOBAL_BATCH = {}, {}, {}\n", plan.micro_batches,
                      plan.micro_batch_size, plan.global_batch_size);
  text += fmt::format("DTYPE = {}\nSTEPS = 10\n", torch_dtype(training.precision));
  if (training.precision == Precision::Tf32) text += "torch.set_float32_matmul_precision(\"high\")\n";
  text += python_trained_as(written.scenario->model);
  text += fmt::format("SCHEDULE = \"\"\"\\\n{}\"\"\"\n\n\ndef OPTIMIZER(parameters, copies):\n{}",
                      schedule_csv(written.schedule),
                      optimizer_of(*written.scenario, training.zero == 1 && plan.data_parallel > 1));
  return text;
}

}  // namespace

std::string torch_launch(const LaunchRequest& request) {
  const Answer& written = request.written;
  std::string layers = fmt::format(fmt::runtime(kOwnLayers), kMadeUpWidth);
  if (request.layers_refused.empty()) {
    const TorchLayers model = torch_layers(written.scenario->model);
    layers = "\n\n" + model.classes + fmt::format(fmt::runtime(kModelLayers), model.input, model.labels);
  }
  const std::string program = kImports + settings_of(written) + layers + kProgram;
  const std::string head = python_head(request, "torch.distributed.pipelining", kTorchVersion);
  const std::string text =
      head +
      comment(fmt::format("Or with traces of PIPEWRIGHT_TRACE=trace: pipewright validate {} $(printf -- '--trace %s ' "
                          "trace/rank*.json.gz)",
                          plan_named(request))) +
      (request.layers_refused.empty() ? "" : comment("build_layer is yours: " + request.layers_refused)) +
      (request.sbatch ? ""
                      : run_with(written, torchrun_by_hand(written) + " FILE 2>&1 | tee train.log",
                                 "without GPUs it runs on gloo")) +
      program;
  return request.sbatch ? torchrun_job(request, text, "pipewright_plan.py") : text;
}

}  // namespace pipewright::io
