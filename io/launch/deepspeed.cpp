// DeepSpeed: PipelineModule and its JSON, in one program.                                              [DeepSpeed26]
#include <algorithm>

#include <fmt/format.h>

#include "io/launch/launch.hpp"
#include "io/text/quote.hpp"

namespace pipewright {
namespace {

constexpr const char* kVersion = "DeepSpeed master of 2026 (deepspeed/runtime/pipe/module.py, commit 12e65a6b11)";

// "uniform" where the cut is that one, else by the blocks.
std::string method_of(const Answer& written) {
  const auto& ranges = written.plan.layers;
  const auto layers = static_cast<std::int64_t>(written.scenario->model.layers.size());
  const auto stages = static_cast<std::int64_t>(ranges.size());
  for (std::int64_t k = 0; k < stages; ++k)
    if (ranges[static_cast<std::size_t>(k)].size() != layers / stages + (k < layers % stages ? 1 : 0))
      return "type:Block";
  return "uniform";
}

const char* dtype_of(Precision precision) {
  return precision == Precision::Bf16 ? "bf16" : precision == Precision::Fp16 ? "fp16" : "fp32";
}

std::string how_to_run(const NodeShape& shape) {
  if (shape.nodes == 1)
    return comment(fmt::format("Run with: deepspeed --num_gpus={} FILE 2>&1 | tee train.log", shape.per_node));
  return comment(fmt::format(
             "Run on one node with: deepspeed --hostfile=HOSTS --num_nodes={} --num_gpus={} FILE 2>&1 | tee train.log",
             shape.nodes, shape.per_node)) +
         comment(fmt::format("  HOSTS: a file with a line \"NAME slots={}\" for each node", shape.per_node));
}

std::string configuration(const Plan& plan, const Training& training) {
  const bool adam = training.optimizer == Optimizer::Adam;
  return fmt::format(R"(
CONFIG = {{
    "train_batch_size": {},
    "train_micro_batch_size_per_gpu": {},
    "gradient_accumulation_steps": {},
    "zero_optimization": {{"stage": {}}},{}
    "bf16": {{"enabled": {}}},
    "fp16": {{"enabled": {}}},
    "data_types": {{"grad_accum_dtype": "{}"}},
    "optimizer": {{"type": "{}", "params": {{"lr": 1e-4{}}}}},
    "steps_per_print": 1,
    "wall_clock_breakdown": True,
}}
WIDTH = 64  # of the layers below; yours have their own


)",
                     plan.global_batch_size, plan.micro_batch_size, plan.micro_batches, training.zero,
                     training.zero > 0 && !adam ? "\n    \"zero_allow_untested_optimizer\": True," : "",
                     training.precision == Precision::Bf16 ? "True" : "False",
                     training.precision == Precision::Fp16 ? "True" : "False",
                     dtype_of(training.gradient_precision.value_or(training.precision)), adam ? "AdamW" : "SGD",
                     training.optimizer == Optimizer::Momentum ? ", \"momentum\": 0.9" : "");
}

}  // namespace

std::string deepspeed_launch(const LaunchRequest& request) {
  const Answer& written = request.written;
  const Plan& plan = written.plan;
  const Training& training = written.scenario->training;
  const auto any = [&](Recompute mode) {
    return std::find(plan.recompute.begin(), plan.recompute.end(), mode) != plan.recompute.end();
  };
  const auto layers = written.scenario->model.layers.size();
  std::string text = python_head(request, "DeepSpeed", kVersion);
  const NodeShape shape = nodes_of(written);
  if (!request.sbatch) text += how_to_run(shape);
  text += "import time\n\nimport deepspeed\nimport torch\nfrom deepspeed.pipe import LayerSpec, PipelineModule\n";
  if (plan.tensor_parallel > 1) text += "from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology\n";
  text += configuration(plan, training);
  if (const std::string known = python_trained_as(written.scenario->model); !known.empty()) text += known + "\n\n";
  text +=
      "class Edge(torch.nn.Linear):  # embedding and head: put yours here\n    pass\n\n\n"
      "class Block(torch.nn.Linear):  # put yours here\n    pass\n\n\n";
  const Model& model = written.scenario->model;
  const bool blocks = std::any_of(model.layers.begin(), model.layers.end(), [](const Layer& l) { return l.block; });
  text += blocks ? fmt::format("LAYERS = [Edge] + [Block] * {} + [Edge]\n", layers - 2)
                 : fmt::format("LAYERS = [Block] * {}\n", layers);
  text += fmt::format(R"(

def samples():
    while True:  # put your data here
        x = torch.randn(CONFIG["train_micro_batch_size_per_gpu"], WIDTH)
        yield x, x


deepspeed.init_distributed()
{}net = PipelineModule(
    layers=[LayerSpec(layer, WIDTH, WIDTH) for layer in LAYERS],
    loss_fn=torch.nn.functional.mse_loss,
    {},
    partition_method="{}",
    activation_checkpoint_interval={},{}
)
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=[p for p in net.parameters()], config=CONFIG)
data = samples()
STEPS = 10
for step in range(STEPS):
    begin = time.perf_counter()
    loss = float(engine.train_batch(data_iter=data))
    if engine.global_rank == 0:  # as Megatron-LM logs it, for validate --log
        print(f" iteration {{step + 1}}/ {{STEPS}} | "
              f"elapsed time per iteration (ms): {{1e3 * (time.perf_counter() - begin):.3f}} | "
              f"global batch size: {{CONFIG['train_batch_size']}} | lm loss: {{loss:.6E}} |", flush=True)
)",
                      training.precision == Precision::Tf32 ? "torch.set_float32_matmul_precision(\"high\")\n" : "",
                      plan.tensor_parallel > 1
                          ? fmt::format("topology=PipeModelDataParallelTopology(num_pp={}, num_mp={}, num_dp={})",
                                        plan.stages, plan.tensor_parallel, plan.data_parallel)
                          : fmt::format("num_stages={}", plan.stages),
                      method_of(written),
                      any(Recompute::Full)     ? layers
                      : any(Recompute::Blocks) ? 1
                                               : 0,
                      any(Recompute::Blocks) ? "\n    checkpointable_layers=[\"Block\"]," : "");
  return request.sbatch ? torchrun_job(request, text, "pipewright_plan.py") : text;
}

}  // namespace pipewright
