// DeepSpeed: PipelineModule and its JSON, in one program.                                              [DeepSpeed26]
#include <algorithm>

#include <fmt/format.h>

#include "core/cost/buckets.hpp"
#include "core/cost/cost_model.hpp"
#include "io/launch/launch.hpp"
#include "io/text/quote.hpp"

namespace pipewright::io {
namespace {

constexpr const char* kDeepspeedVersion =
    "DeepSpeed master of 2026 (deepspeed/runtime/pipe/module.py, commit 12e65a6b11)";

// "uniform" where the cut is that one, else by the blocks.
std::string method_of(const Answer& written) {
  const std::vector<LayerRange> ranges = written.plan.uncut();
  const auto layers = static_cast<std::int64_t>(written.scenario->model.layers.size());
  const auto stages = static_cast<std::int64_t>(ranges.size());
  for (std::int64_t k = 0; k < stages; ++k)
    if (ranges[at(k)].size() != layers / stages + (k < layers % stages ? 1 : 0)) return "type:Block";
  return "uniform";
}

const char* deepspeed_dtype(Precision precision) {
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

// Its ratio is there with stage 3 alone.                                                            [DeepSpeed26]
std::string on_host(const Plan& plan, const Training& training) {
  if (training.offload_optimizer.value <= 0) return "";
  const bool in_part = plan.resharding && training.zero >= kWeightsSharded;
  return fmt::format(
      ", \"offload_optimizer\": {{\"device\": \"cpu\", \"pin_memory\": True{}}}{}",
      in_part ? fmt::format(", \"ratio\": {:.4g}", training.offload_optimizer.value) : "",
      training.offload_weights.value ? ", \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": True}" : "");
}

std::string configuration(const Plan& plan, const Training& training) {
  const bool adam = training.optimizer == Optimizer::Adam;
  return fmt::format(
      R"(
CONFIG = {{
    "train_batch_size": {},
    "train_micro_batch_size_per_gpu": {},
    "gradient_accumulation_steps": {},
    "zero_optimization": {{"stage": {}{}{}}},{}{}
    "bf16": {{"enabled": {}}},
    "fp16": {{"enabled": {}}},
    "data_types": {{"grad_accum_dtype": "{}"}},
    "optimizer": {{"type": "{}", "params": {{"lr": 1e-4{}}}}},
    "steps_per_print": 1,
    "wall_clock_breakdown": True,
}}
WIDTH = {}  # of the layers below; yours have their own


)",
      plan.global_batch_size, plan.micro_batch_size, plan.micro_batches,
      plan.resharding ? training.zero : std::min<std::int64_t>(training.zero, kOptimizerSharded),
      !plan.resharding
          ? ""
          : fmt::format(
                ", \"overlap_comm\": True, \"reduce_bucket_size\": {}{}",
                std::max<std::int64_t>(1, bucket_limit(plan, 0, training).value / gradient_bytes(training).value),
                plan.resharding->over == 0 ? ""
                                           : fmt::format(", \"zero_hpz_partition_size\": {}", plan.resharding->over)),
      on_host(plan, training), training.zero > 0 && !adam ? "\n    \"zero_allow_untested_optimizer\": True," : "",
      training.clip_grad_norm ? fmt::format("\n    \"gradient_clipping\": {},", *training.clip_grad_norm) : "",
      training.precision == Precision::Bf16 ? "True" : "False",
      training.precision == Precision::Fp16 ? "True" : "False",
      deepspeed_dtype(training.gradient_precision.value_or(training.precision)), adam ? "AdamW" : "SGD",
      training.optimizer == Optimizer::Momentum ? ", \"momentum\": 0.9" : "", kMadeUpWidth);
}

bool recomputes(const Plan& plan, Recompute mode) {
  return std::ranges::find(plan.recompute, mode) != plan.recompute.end();
}

// One stage or several, states of the optimizer divided at most: PipelineModule.
std::string engine_of_stages(const Plan& plan, std::size_t layers, const std::string& method) {
  return fmt::format(R"(net = PipelineModule(
    layers=[LayerSpec(layer, WIDTH, WIDTH) for layer in LAYERS],
    loss_fn=torch.nn.functional.mse_loss,
    {},
    partition_method="{}",
    activation_checkpoint_interval={},{}
)
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=[p for p in net.parameters()], config=CONFIG)
)",
                     plan.tensor_parallel > 1
                         ? fmt::format("topology=PipeModelDataParallelTopology(num_pp={}, num_mp={}, num_dp={})",
                                       plan.stages, plan.tensor_parallel, plan.data_parallel)
                         : fmt::format("num_stages={}", plan.stages),
                     method,
                     recomputes(plan, Recompute::Full)     ? layers
                     : recomputes(plan, Recompute::Blocks) ? 1
                                                           : 0,
                     recomputes(plan, Recompute::Blocks) ? "\n    checkpointable_layers=[\"Block\"]," : "");
}

// Gradients and weights are divided by the engine alone: its pipelines refuse these stages of ZeRO.
std::string engine_of_copies(const Plan& plan, const Training& training) {
  std::string run = "layer(x)";
  const std::string again = "torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)";
  if (recomputes(plan, Recompute::Full)) run = again;
  if (recomputes(plan, Recompute::Blocks)) run = again + " if isinstance(layer, Block) else layer(x)";
  const bool sharded = training.zero >= kWeightsSharded;
  return fmt::format(R"(

class Net(torch.nn.ModuleList):
    def forward(self, x):
        for layer in self:
            x = {}
        return x


{}net = Net([layer(WIDTH, WIDTH) for layer in LAYERS])
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=[p for p in net.parameters()], config=CONFIG)


def train_step():
    total = 0.0
    for _ in range(CONFIG["gradient_accumulation_steps"]):
        x, y = (value.to(engine.device, next(net.parameters()).dtype) for value in next(data))
        loss = torch.nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)  # scatters the gradients
        engine.step()  # updates behind the last micro-batch
        total += float(loss.detach())
    return total / CONFIG["gradient_accumulation_steps"]


)",
                     run, sharded ? "with deepspeed.zero.Init(config_dict_or_path=CONFIG):\n    " : "");
}

}  // namespace

std::string deepspeed_launch(const LaunchRequest& request) {
  const Answer& written = request.written;
  const Plan& plan = written.plan;
  const Training& training = written.scenario->training;
  const auto layers = written.scenario->model.layers.size();
  std::string text = python_head(request, "DeepSpeed", kDeepspeedVersion);
  const NodeShape shape = nodes_of(written);
  if (!request.sbatch) text += how_to_run(shape);
  text += "import time\n\nimport deepspeed\nimport torch\n";
  text +=
      plan.resharding ? "import torch.utils.checkpoint\n" : "from deepspeed.pipe import LayerSpec, PipelineModule\n";
  if (plan.tensor_parallel > 1) text += "from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology\n";
  text += configuration(plan, training);
  if (const std::string known = python_trained_as(written.scenario->model); !known.empty()) text += known + "\n\n";
  text +=
      "class Edge(torch.nn.Linear):  # embedding and head: put yours here\n    pass\n\n\n"
      "class Block(torch.nn.Linear):  # put yours here\n    pass\n\n\n";
  const Model& model = written.scenario->model;
  const bool blocks = std::ranges::any_of(model.layers, [](const Layer& l) { return l.block; });
  text += blocks ? fmt::format("LAYERS = [Edge] + [Block] * {} + [Edge]\n", layers - 2)
                 : fmt::format("LAYERS = [Block] * {}\n", layers);
  text += R"(

def samples():
    while True:  # put your data here
        x = torch.randn(CONFIG["train_micro_batch_size_per_gpu"], WIDTH)
        yield x, x


deepspeed.init_distributed()
)";
  if (training.precision == Precision::Tf32) text += "torch.set_float32_matmul_precision(\"high\")\n";
  text += plan.resharding ? engine_of_copies(plan, training) : engine_of_stages(plan, layers, method_of(written));
  text += fmt::format(R"(data = samples()
STEPS = 10
for step in range(STEPS):
    begin = time.perf_counter()
    loss = {}
    if engine.global_rank == 0:  # as Megatron-LM logs it, for validate --log
        print(f" iteration {{step + 1}}/ {{STEPS}} | "
              f"elapsed time per iteration (ms): {{1e3 * (time.perf_counter() - begin):.3f}} | "
              f"global batch size: {{CONFIG['train_batch_size']}} | lm loss: {{loss:.6E}} |", flush=True)
)",
                      plan.resharding ? "train_step()" : "float(engine.train_batch(data_iter=data))");
  return request.sbatch ? torchrun_job(request, text, "pipewright_plan.py") : text;
}

}  // namespace pipewright::io
