// torchtitan: a recipe, which is a Python function that returns a configuration.                       [torchtitan26]
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/answers/campaign.hpp"
#include "core/model/families/described.hpp"
#include "io/launch/launch.hpp"
#include "io/read/trained_as.hpp"
#include "io/text/quote.hpp"
#include "io/writers/schedule_csv.hpp"

namespace pipewright::io {
namespace {

constexpr const char* kTorchtitanVersion = "torchtitan 0.3.0 (torchtitan/config/configs.py)";

constexpr const char* kTrain = "-m torchtitan.train --module llama3 --config pipewright_plan 2>&1 | tee train.log";

// Built on llama3_70b: its own configuration computes linear layers in float8, which is another plan.
constexpr const char* k405b = "llama3_405b";

// torchtitan's own Llama 3 configurations, by what tells them apart.
std::string base_of(const Transformer& t) {
  if (t.gated && t.moe.experts == 0 && t.vocabulary == 128256) {
    if (t.layers == 32 && t.hidden == 4096) return "llama3_8b";
    if (t.layers == 80 && t.hidden == 8192) return "llama3_70b";
    if (t.layers == 126 && t.hidden == 16384) return k405b;
  }
  return "";
}

std::string modules_of(const Plan& plan, const Model& model) {
  std::string text = "[\n";
  const auto layers = static_cast<LayerId>(model.layers.size());
  for (const LayerRange& range : plan.uncut()) {
    std::vector<std::string> parts;
    const LayerId first = std::max(range.begin - 1, 0), last = std::min(range.end - 1, layers - 2);
    if (range.begin == 0) parts.emplace_back("[\"tok_embeddings\"]");
    if (last > first) parts.push_back(fmt::format("blocks({}, {})", first, last));
    if (range.end == layers) parts.emplace_back("[\"norm\", \"lm_head\"]");
    text += fmt::format("        {},\n", fmt::join(parts, " + "));
  }
  return text + "    ]";
}

bool torchtitan_recomputes(const Plan& plan, Recompute mode) {
  return std::ranges::find(plan.recompute, mode) != plan.recompute.end();
}

// The class of torchtitan's that checkpoints as the plan does; "": none does.
std::string checkpoints_of(const Plan& plan) {
  if (torchtitan_recomputes(plan, Recompute::Selective)) return "SelectiveAC";
  return torchtitan_recomputes(plan, Recompute::Blocks) || torchtitan_recomputes(plan, Recompute::Layers) ? "FullAC"
                                                                                                          : "";
}

// FullAC wraps every block; what it wraps is known by its name.
std::string wrap_of_some(const Plan& plan) {
  std::vector<LayerId> blocks;
  for (const LayerId layer : plan.rebuilt)
    blocks.push_back(layer - 1);  // behind the embedding
  return fmt::format(
      "\n\nREBUILT = {{f\"layers.{{i}}\" for i in [{}]}}\nWRAP = FullAC._wrap_block\n\n\n"
      "def wrap_rebuilt(self, module, *, base_fqn=None):\n"
      "    return WRAP(self, module, base_fqn=base_fqn) if base_fqn in REBUILT else module\n\n\n"
      "FullAC._wrap_block = wrap_rebuilt\n",
      fmt::join(blocks, ", "));
}

// What puts linear layers and experts into fewer bits, as its configurations list it; the head stays as it is.
struct Converters {
  std::string names, list;  // to be imported; "" where there are none
};
Converters converters_of(const Scenario& scenario, const Transformer& t) {
  const LowPrecision asked = scenario.training.low_precision.value;
  if (asked == LowPrecision::None) return {};
  const std::string kind = asked == LowPrecision::Mxfp8 ? "MXFP8" : "Float8", compiled = "model_compile_enabled=True";
  const std::string which = asked == LowPrecision::Mxfp8 ? "fqns=[\"attention\", \"feed_forward\"]"
                            : t.moe.experts > 0          ? "filter_fqns=[\"lm_head\", \"router.gate\"]"
                                                         : "filter_fqns=[\"lm_head\"]";
  Converters all{kind + "LinearConverter", fmt::format("{}LinearConverter.Config({}, {})", kind, which, compiled)};
  if (t.moe.experts > 0) {
    all.names += fmt::format(", {}GroupedExpertsConverter", kind);
    all.list += fmt::format(", {}GroupedExpertsConverter.Config({})", kind, compiled);
  }
  return all;
}

// As its registry of models calls the base.
std::string flavor_of(const std::string& base) {
  return base == k405b ? "405B" : base == "llama3_8b" ? "8B" : "70B";
}

// Comments at the head: what it needs, where to put it, how to start it.
std::string how_to_run_torchtitan(const LaunchRequest& request, bool traced) {
  const Answer& written = request.written;
  std::string text;
  const NodeShape shape = nodes_of(written);
  if (request.sbatch) {
    text += comment("Submit with: sbatch FILE, in the folder of torchtitan.");
  } else {
    text +=
        comment(
            "In the folder of torchtitan, put this file there as torchtitan/models/llama3/pipewright_plan.py, add to") +
        comment("torchtitan/models/llama3/config_registry.py: from .pipewright_plan import pipewright_plan, then:");
    text +=
        shape.nodes == 1
            ? comment(fmt::format("  NGPU={} MODULE=llama3 CONFIG=pipewright_plan ./run_train.sh 2>&1 | tee train.log",
                                  shape.per_node))
            : run_with(written, torchrun_by_hand(written) + " " + kTrain);
  }
  if (traced)
    text +=
        comment(fmt::format("Or with traces of PIPEWRIGHT_TRACE=$PWD/trace: pipewright validate {} $(printf -- "
                            "'--trace %s ' trace/iteration_10/rank*_trace.json*)",
                            plan_named(request)));
  return text;
}

// The function that torchtitan calls. base: the configuration that it begins with, "" where none is known.
std::string recipe(const Answer& written, const std::string& base, bool traced) {
  const Plan& plan = written.plan;
  const Scenario& scenario = *written.scenario;
  const Transformer t = *described(scenario.model);
  const std::string schedule(plan.facts.pytorch);  // "": its order goes into a file
  std::string text = "def pipewright_plan():\n";
  if (base.empty())
    text +=
        "    raise SystemExit(\"pipewright_plan.py: import the configuration of your model as base, then delete this "
        "line\")\n";
  text += "    config = base()\n";
  const Converters converters = converters_of(scenario, t);
  if (base.empty() && !converters.list.empty())
    text += "    # in the model_registry of your model: converters=[" + converters.list + "]\n";
  else if (base == k405b || !converters.list.empty())
    text += fmt::format("    config.model_spec = model_registry(\"{}\"{})\n", flavor_of(base),
                        converters.list.empty() ? "" : ", converters=[" + converters.list + "]");
  if (base == k405b) text += "    config.hf_assets_path = \"./assets/hf/Llama-3.1-405B\"\n";
  text += "    parallel, training = config.parallelism, config.training\n";
  const auto set = [&](const std::string& key, const auto& value) { text += fmt::format("    {} = {}\n", key, value); };
  set("parallel.tensor_parallel_degree", plan.tensor_parallel);
  if (plan.tensor_parallel > 1) set("parallel.enable_sequence_parallel", plan.sequence_parallel ? "True" : "False");
  // Which the next line needs, and converters.
  const bool overlaps = plan.tensor_overlap.value == TensorOverlap::Ring;
  if (overlaps || !converters.list.empty()) set("config.compile.enable", "True");
  if (plan.tensor_parallel > 1) set("config.compile.enable_async_tensor_parallel", overlaps ? "True" : "False");
  if (plan.context_parallel > 1) set("parallel.context_parallel_degree", plan.context_parallel);
  if (plan.split().sends_tokens()) set("parallel.expert_parallel_degree", plan.expert_parallel);
  const int shard = plan.resharding ? plan.sharded_over(0) / plan.context_parallel : 1;
  set("parallel.data_parallel_replicate_degree", plan.data_parallel / shard);
  set("parallel.data_parallel_shard_degree", shard);
  // By default the last unit is kept; and in a pipeline all of them.                                         [torchtitan26]
  if (plan.resharding)
    set("parallel.fsdp_reshard_after_forward", plan.resharding->always          ? "\"always\""
                                               : plan.resharding->after_forward ? "\"default\""
                                                                                : "\"never\"");
  if (scenario.training.offload_weights.value) set("training.enable_cpu_offload", "True");
  set("parallel.pipeline_parallel_degree", plan.stages);
  if (plan.stages > 1) {
    set("parallel.module_fqns_per_model_part", modules_of(plan, scenario.model));
    if (schedule.empty()) {
      text +=
          "    with tempfile.NamedTemporaryFile(\"w\", suffix=\".csv\", delete=False) as file:\n"
          "        file.write(SCHEDULE)\n";
      // Looked up by name, though the file's class is _PipelineScheduleRuntime, which has none.
      set("parallel.pipeline_parallel_schedule", "\"PipelineScheduleMulti\"");
      set("parallel.pipeline_parallel_schedule_csv", "file.name");
    } else {
      set("parallel.pipeline_parallel_schedule", "\"" + schedule + "\"");
    }
    set("training.disable_cuda_graphs", "True");  // which know no pipelines yet
    set("parallel.pipeline_parallel_microbatch_size", plan.micro_batch_size);
    set("training.local_batch_size", plan.micro_batch_size * plan.micro_batches);
  } else {
    set("training.local_batch_size", plan.micro_batch_size);  // the rest are steps of gradient accumulation
  }
  set("training.global_batch_size", plan.global_batch_size);
  set("training.seq_len", t.sequence_length);
  if (const auto& whole = written.report.campaign; whole != nullptr && whole->steps >= 1)
    set("training.steps", fmt::format("{:.0f}", whole->steps));
  if (scenario.training.clip_grad_norm) set("training.max_norm", *scenario.training.clip_grad_norm);
  set("training.mixed_precision_param",
      scenario.training.precision == Precision::Bf16 ? "\"bfloat16\"" : "\"float32\"");
  const std::string checkpoints = checkpoints_of(plan);
  set("config.activation_checkpoint", checkpoints.empty() ? "None" : checkpoints + ".Config()");
  text += "    profiler = config.profiler\n";
  if (traced)
    text +=
        "    profiler.enable_profiling = \"PIPEWRIGHT_TRACE\" in os.environ  # every tenth step of every rank\n"
        "    if profiler.enable_profiling:\n"
        "        profiler.profile_freq, profiler.save_traces_folder = 10, os.environ[\"PIPEWRIGHT_TRACE\"]\n";
  else
    text += "    profiler.enable_profiling = False  # the base's slows every hundredth step\n";
  if (scenario.training.precision == Precision::Tf32) text += "    torch.set_float32_matmul_precision(\"high\")\n";
  text += "    return config\n";
  return text;
}

}  // namespace

std::vector<std::string> torchtitan_lacks(const Model& model) {
  std::vector<std::string> lacks;
  if (base_of(*described(model)).empty())
    lacks.emplace_back(
        "model: none of its configurations is known to be this one; the recipe ends at once until you import yours as "
        "base");
  return lacks;
}

std::string torchtitan_launch(const LaunchRequest& request) {
  const Answer& written = request.written;
  const Plan& plan = written.plan;
  const Scenario& scenario = *written.scenario;
  const std::string base = base_of(*described(scenario.model));
  const bool to_file = plan.stages > 1 && plan.facts.pytorch.empty();
  // PyTorch's classes for one stage per rank do not name their actions in a trace; what runs lists of actions does.
  const bool traced = plan.stages > 1 && (to_file || plan.facts.takes_chunks);
  std::string text = python_head(request, "torchtitan", kTorchtitanVersion);
  text += how_to_run_torchtitan(request, traced);
  const bool tf32 = scenario.training.precision == Precision::Tf32;
  std::string imports = traced ? "import os\n" : "";
  if (to_file) imports += "import tempfile\n";
  if (!imports.empty()) imports += "\n";
  if (tf32) imports += "import torch\n";
  text += imports;
  if (const std::string checkpoints = checkpoints_of(plan); !checkpoints.empty())
    text += fmt::format("from torchtitan.distributed.activation_checkpoint import {}\n", checkpoints);
  const std::string converters = converters_of(scenario, *described(scenario.model)).names;
  if (!converters.empty()) text += fmt::format("from torchtitan.components.quantization import {}\n", converters);
  if (base.empty())
    text += comment("torchtitan has no configuration that is known to be this model: import yours as base, e.g.") +
            comment("  from torchtitan.models.MODEL.config_registry import CONFIGURATION as base") +
            comment("and delete the line of SystemExit below.");
  else
    text +=
        fmt::format("{}from torchtitan.models.llama3.config_registry import {} as base\n",
                    base == k405b || !converters.empty() ? "from torchtitan.models.llama3 import model_registry\n" : "",
                    base == k405b ? "llama3_70b" : base);
  if (const TrainedAs trained = trained_as(scenario.model); trained != TrainedAs{})
    text += comment(fmt::format("The model is trained with {}.", trained_as_in_words(trained))) +
            comment(base.empty() ? "No time depends on it; your configuration says it."
                                 : "No time depends on it; the base has rope_theta 500000, scaled as Llama 3.1 does, "
                                   "and epsilon 1e-05.");
  if (torchtitan_recomputes(plan, Recompute::Layers)) text += wrap_of_some(plan);
  text +=
      "\n\ndef blocks(first, end):\n"
      "    return [f\"layers.{i}\" for i in range(first, end)]\n\n\n";
  if (to_file) text += fmt::format("SCHEDULE = \"\"\"\\\n{}\"\"\"\n\n\n", schedule_csv(written.schedule));
  text += recipe(written, base, traced);
  if (!request.sbatch) return text;
  return "#!/bin/bash\n" + sbatch_lines(request, 1) + "set -euo pipefail\n" + comment("In the folder of torchtitan.") +
         "cat > torchtitan/models/llama3/pipewright_plan.py <<'PIPEWRIGHT_RECIPE'\n" + text +
         fmt::format(
             "PIPEWRIGHT_RECIPE\ngrep -q pipewright_plan torchtitan/models/llama3/config_registry.py ||\n"
             "  echo 'from .pipewright_plan import pipewright_plan' >> torchtitan/models/llama3/config_registry.py\n"
             "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
             "srun {} {}\n",
             torchrun(written, "\"$SLURM_JOB_ID\"", "\"$head\""), kTrain);
}

}  // namespace pipewright::io
