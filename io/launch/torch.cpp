// torch.distributed.pipelining: a program that runs the plan's very order of ops from a schedule file.  [PyTorchPP26]
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/launch/launch.hpp"
#include "io/text/quote.hpp"
#include "io/writers/schedule_csv.hpp"

namespace pipewright {
namespace {

constexpr const char* kTorchVersion =
    "PyTorch main of 2026 (torch/distributed/pipelining/schedules.py, commit 00722e648b)";

// Stands on both sides: build_layer is the user's, the rest is the plan.
constexpr const char* kProgram = R"(import contextlib
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

WIDTH = 64  # of the layers below; yours have their own


def build_layer(index):
    # Layer `index` of the model, of LAYERS in all: put yours here. What one returns the next one takes.
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())


def batch(samples, device):
    # The input and the target of one copy's share of the global batch: put yours here.
    return torch.randn(samples, WIDTH, device=device), torch.randn(samples, WIDTH, device=device)


class Chunk(nn.Module):
    def __init__(self, first, end):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): build_layer(i) for i in range(first, end)})
        self.whole = first in WHOLE_CHUNKS

    def run(self, x):
        for index, layer in self.layers.items():
            x = checkpoint(layer, x, use_reentrant=False) if int(index) in REBUILT else layer(x)
        return x

    def forward(self, x):
        return checkpoint(self.run, x, use_reentrant=False) if self.whole else self.run(x)


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


def main():
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    mesh = init_device_mesh(device.type, MESH, mesh_dim_names=MESH_NAMES)
    pipeline, copies = mesh["pipeline"], mesh["data"]
    rank = pipeline.get_local_rank()
    stages = []
    for index, (first, end) in enumerate(CHUNKS):
        if STAGE_TO_RANK[index] != rank:
            continue
        chunk = Chunk(first, end).to(device=device, dtype=DTYPE)
        if DATA_PARALLEL > 1:
            chunk = DistributedDataParallel(chunk, process_group=copies.get_group(), bucket_cap_mb=BUCKET_MB)
        stages.append(PipelineStage(chunk, index, len(CHUNKS), device, group=pipeline.get_group()))
    schedule = _PipelineScheduleRuntime(stages, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(SCHEDULE)
        file.flush()
        schedule._load_csv(file.name)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = Masters(parameters, copies)
    first, last = STAGE_TO_RANK[0] == rank, STAGE_TO_RANK[-1] == rank
    with profiler() as trace:
        for step in range(STEPS):
            begin = time.perf_counter()
            x, target = batch(MICRO_BATCHES * MICRO_BATCH_SIZE, device)
            losses = []
            schedule.step(*([x.to(DTYPE)] if first else []), target=target.to(DTYPE) if last else None,
                          losses=losses if last else None)
            optimizer.step()
            if on_gpu:
                torch.cuda.synchronize()
            elapsed = time.perf_counter() - begin
            if trace is not None:
                trace.step()
            if last and copies.get_local_rank() == 0:  # as Megatron-LM logs it, for validate --log
                print(f" iteration {step + 1}/ {STEPS} | "
                      f"elapsed time per iteration (ms): {1e3 * elapsed:.3f} | "
                      f"global batch size: {GLOBAL_BATCH} | "
                      f"lm loss: {sum(float(loss) for loss in losses) / len(losses):.6E} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
)";

std::string optimizer_of(const Training& training, bool divided) {
  const char* name = training.optimizer == Optimizer::Adam      ? "torch.optim.AdamW"
                     : training.optimizer == Optimizer::RmsProp ? "torch.optim.RMSprop"
                                                                : "torch.optim.SGD";
  const std::string more = training.optimizer == Optimizer::Momentum ? ", momentum=0.9" : "";
  if (!divided) return fmt::format("    return {}(parameters, lr=1e-3{})\n", name, more);
  return fmt::format(
      "    # ZeRO-1: every copy keeps a share of the optimizer's states.\n"
      "    from torch.distributed.optim import ZeroRedundancyOptimizer\n\n"
      "    return ZeroRedundancyOptimizer(parameters, optimizer_class={}, process_group=copies.get_group(), "
      "lr=1e-3{})\n",
      name, more);
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
        if (written.scenario->model.layers[static_cast<std::size_t>(layer)].block) rebuilt.push_back(layer);
  }
  // As the devices lie: the innermost dimension counts fastest.
  const bool data_inside = copies_first(plan);
  std::string text = fmt::format("LAYERS = {}\n", written.scenario->model.layers.size());
  text += fmt::format("CHUNKS = [{}]  # layers of every stage of the schedule: first, end\n", fmt::join(chunks, ", "));
  text += fmt::format("STAGE_TO_RANK = [{}]\n", fmt::join(ranks, ", "));
  text += fmt::format("REBUILT = {{{}}}  # layers that keep their input and repeat their forward\n",
                      rebuilt.empty() ? "*()" : fmt::format("{}", fmt::join(rebuilt, ", ")));
  text += fmt::format("WHOLE_CHUNKS = {{{}}}  # first layers of chunks that do so as one\n",
                      whole.empty() ? "*()" : fmt::format("{}", fmt::join(whole, ", ")));
  text += fmt::format("DATA_PARALLEL = {}\nBUCKET_MB = {}\n", plan.data_parallel,
                      std::max<std::int64_t>(1, (plan.bucket.value + 524288) >> 20));
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
  text +=
      fmt::format("SCHEDULE = \"\"\"\\\n{}\"\"\"\n\n\ndef OPTIMIZER(parameters, copies):\n{}",
                  schedule_csv(written.schedule), optimizer_of(training, training.zero == 1 && plan.data_parallel > 1));
  return text;
}

}  // namespace

std::string torch_launch(const LaunchRequest& request) {
  const Answer& written = request.written;
  std::string program = kProgram;
  const std::string head = python_head(request, "torch.distributed.pipelining", kTorchVersion);
  const std::size_t at = program.find("WIDTH = 64");
  program.insert(at, settings_of(written) + "\n\n");
  const std::string text =
      head +
      comment(fmt::format("Or with traces of PIPEWRIGHT_TRACE=trace: pipewright validate {} $(printf -- '--trace %s ' "
                          "trace/rank*.json.gz)",
                          plan_named(request))) +
      (request.sbatch ? ""
                      : run_with(written, torchrun_by_hand(written) + " FILE 2>&1 | tee train.log",
                                 "without GPUs it runs on gloo")) +
      program;
  return request.sbatch ? torchrun_job(request, text, "pipewright_plan.py") : text;
}

}  // namespace pipewright
