#include "io/launch/launch.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "core/plan/plan.hpp"
#include "io/read/trained_as.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/quote.hpp"
#include "io/writers/html.hpp"
#include "io/yaml/changes.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

std::string figures(const Report& report) {
  std::string text = fmt::format("step {}, {} samples/s, bubble {}", short_time(report.step_time, 4),
                                 brief(report.samples_per_s), percent(report.bubble_fraction));
  if (const StageReport* stage = fullest(report))
    text += fmt::format(", memory peak {} of {} on stage {}", short_bytes(stage->need.with_reserve),
                        short_bytes(stage->need.capacity), stage->stage);
  return text + (report.fits ? "" : ": DOES NOT FIT");
}

// {"type", "factor", ...} with their values, as the configuration states them.
std::vector<std::pair<std::string, std::string>> parts_of(const RopeScaling& scaling) {
  std::vector<std::pair<std::string, std::string>> parts = {{"type", std::string(name(scaling.type))},
                                                            {"factor", fmt::format("{}", scaling.factor)}};
  if (scaling.original_length)
    parts.emplace_back("original_max_position_embeddings", std::to_string(*scaling.original_length));
  for (const auto& [key, value] :
       {std::pair<const char*, std::optional<double>>{"low_freq_factor", scaling.low_freq_factor},
        {"high_freq_factor", scaling.high_freq_factor},
        {"beta_fast", scaling.beta_fast},
        {"beta_slow", scaling.beta_slow},
        {"mscale", scaling.mscale},
        {"mscale_all_dim", scaling.mscale_all_dim}})
    if (value) parts.emplace_back(key, fmt::format("{}", *value));
  return parts;
}

std::string routing_in_words(const Routing& routing) {
  std::string text = fmt::format("router: {} scores", name(routing.scores));
  if (routing.groups)
    text += fmt::format(", the best {} of {} groups", routing.groups_used.value_or(*routing.groups), *routing.groups);
  if (routing.scale) text += fmt::format(", scaled by {}", *routing.scale);
  return text;
}

Yaml sections(const Scenario& scenario) {
  YamlText text(nullptr, {});
  text.open("training");
  write_training_section(text, scenario.training);
  text.close();
  text.open("plan");
  write_plan_section(text, scenario.plan);
  text.close();
  return parse_yaml(text.text(), "");
}

// Which needs no quotes: "1f1b", which is written with them lest it be taken for a number.
bool is_name(const std::string& text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

}  // namespace

std::vector<std::string> stand_ins(std::string_view target, std::string_view layers_refused) {
  if (target == "torch" && layers_refused.empty())
    return {"data: the file has random samples; replace them with yours"};
  if (target != "torch" && target != "deepspeed") return {};
  return {fmt::format("layers and data are placeholders (width {}); replace them with yours", kMadeUpWidth)};
}

std::string launch_header(const LaunchRequest& request, std::string_view framework, std::string_view version,
                          std::string_view afterwards) {
  const Answer& asked = request.asked;
  const Scenario& scenario = *asked.scenario;
  std::vector<std::string> lines = {
      fmt::format("{}: {} on {}", scenario.name, scenario.model.name, devices_in_words(asked.plan, scenario.cluster)),
      "Plan: " + request.asked_words,
      "Written by: " + request.command,
      "Predicted: " + figures(asked.report),
  };
  if (request.differences.empty()) {
    lines.push_back(fmt::format("{} can express this plan.", framework));
  } else {
    lines.push_back(fmt::format("What {} cannot express, and what stands here instead:", framework));
    for (const std::string& difference : request.differences)
      lines.push_back("  " + difference);
  }
  if (&request.asked != &request.written) {
    const double change = request.written.report.samples_per_s / asked.report.samples_per_s - 1;
    lines.push_back("Plan written: " + request.written_words);
    lines.push_back(
        fmt::format("Predicted for it: {} ({:+.1f} % samples/s)", figures(request.written.report), 100 * change));
  }
  for (const std::string& stand_in : request.stand_ins)
    lines.push_back("Not the model's: " + stand_in);
  if (const std::string tight = tight_memory(request.written.report); !tight.empty()) lines.push_back(tight);
  if (!version.empty()) lines.push_back(fmt::format("Settings as of {}.", version));
  if (!afterwards.empty()) lines.push_back(fmt::format("Afterwards: {}", afterwards));
  if (!request.set_says_all)
    lines.push_back("  (which compares with another plan than this: no --set says all that stands here instead)");
  std::string text;
  for (const std::string& line : lines)
    text += comment(line);
  return text;
}

NodeShape nodes_of(const Answer& answer) {
  const Cluster& cluster = answer.scenario->cluster;
  const std::map<int, int> taken = devices_by_node(answer.plan, cluster);
  std::vector<int> counts;
  for (const auto& [node, count] : taken)
    counts.push_back(count);
  const int node = cluster.devices_per_node, all = answer.plan.devices(), down = all / node * node;
  if (std::ranges::adjacent_find(counts, std::not_equal_to<>()) != counts.end())
    throw InputError(
        answer.scenario->plan.place, "plan",
        fmt::format("{} devices do not fill {} nodes of {} alike ({}), and a launcher starts as many ranks on "
                    "each; plan for {}{} devices, or list devices in plan.placement, as many of each node",
                    all, counts.size(), node, fmt::join(counts, ", "), down > 0 ? fmt::format("{} or ", down) : "",
                    down + node));
  return {static_cast<int>(counts.size()), counts.front()};
}

std::string torchrun(const Answer& answer, std::string_view id, std::string_view head) {
  const NodeShape shape = nodes_of(answer);
  return fmt::format(
      "torchrun --nnodes={} --nproc-per-node={} --rdzv-id={} --rdzv-backend=c10d --rdzv-endpoint={}:29500", shape.nodes,
      shape.per_node, id, head);
}

std::string torchrun_by_hand(const Answer& answer) {
  const NodeShape shape = nodes_of(answer);
  return shape.nodes > 1 ? torchrun(answer, "1", "HEAD_NODE")
                         : fmt::format("torchrun --nproc-per-node={}", shape.per_node);
}

std::string run_with(const Answer& answer, const std::string& command, std::string_view more) {
  const bool several = nodes_of(answer).nodes > 1;
  std::string text = comment("Run with: " + command);
  if (!more.empty()) text += comment(fmt::format("  {}", more));
  if (several && command.find("HEAD_NODE") != std::string::npos)
    text += comment("  on every node; HEAD_NODE: the name or address of one of them, the same everywhere");
  return text;
}

std::string plan_named(const LaunchRequest& request) {
  std::string text = shell_path(request.plan_path);
  for (const std::string& change : request.set)
    text += " --set " + shell_word(change);
  return text;
}

bool copies_first(const Plan& plan) {
  if (plan.data_parallel == 1 || plan.positions() == 1) return false;
  return plan.device[plan.positions() * plan.context_parallel] < plan.device[1];
}

std::string sbatch_lines(const LaunchRequest& request, int tasks_per_node) {
  const Answer& written = request.written;
  const NodeShape shape = nodes_of(written);
  std::string name;
  for (const char c : written.scenario->name.substr(0, 64))
    name += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '-';
  return fmt::format(
      "#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n#SBATCH --gpus-per-node={}\n"
      "#SBATCH --exclusive\n#SBATCH --output=%x-%j.log\n",
      name.empty() ? "pipewright" : name, shape.nodes, tasks_per_node, shape.per_node);
}

std::string torchrun_job(const LaunchRequest& request, const std::string& program, const std::string& file) {
  return "#!/bin/bash\n" + sbatch_lines(request, 1) + comment("Submit with: sbatch FILE") +
         fmt::format(
             "set -euo pipefail\ncat > {0} <<'PIPEWRIGHT_PROGRAM'\n{1}PIPEWRIGHT_PROGRAM\n"
             "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
             "srun {2} {0} 2>&1 | tee train.log\n",
             file, program, torchrun(request.written, "\"$SLURM_JOB_ID\"", "\"$head\""));
}

std::string python_head(const LaunchRequest& request, std::string_view framework, std::string_view version) {
  return comment("-*- coding: utf-8 -*-") +
         launch_header(request, framework, version,
                       fmt::format("pipewright validate {} --log train.log", plan_named(request)));
}

std::string python_trained_as(const Model& model) {
  const TrainedAs trained = trained_as(model);
  std::string text;
  if (trained.rope_theta) text += fmt::format("ROPE_THETA = {}\n", *trained.rope_theta);
  if (trained.rope_scaling) {
    std::vector<std::string> items;
    for (const auto& [key, value] : parts_of(*trained.rope_scaling))
      items.push_back(fmt::format("\"{}\": {}", key, key == "type" ? "\"" + value + "\"" : value));
    text += fmt::format("ROPE_SCALING = {{{}}}\n", fmt::join(items, ", "));
  }
  if (!trained.rope_scaling_not_kept.empty())
    text += comment(fmt::format("rope_scaling of type {} is not kept: take it from the model's own configuration.",
                                trained.rope_scaling_not_kept));
  if (trained.norm_epsilon) text += fmt::format("NORM_EPSILON = {}\n", *trained.norm_epsilon);
  if (trained.routing) text += comment(routing_in_words(*trained.routing));
  return text.empty() ? "" : comment("As the model is trained, for the layers that you put here.") + text;
}

std::string trained_as_in_words(const TrainedAs& trained) {
  std::vector<std::string> words;
  if (trained.rope_theta) words.push_back(fmt::format("rope_theta {}", *trained.rope_theta));
  if (!trained.rope_scaling_not_kept.empty())
    words.push_back(fmt::format("rope_scaling of type {} (not kept: see the model's own configuration)",
                                trained.rope_scaling_not_kept));
  else if (trained.rope_theta && !trained.rope_scaling)
    words.emplace_back("no rope_scaling");
  if (trained.rope_scaling) {
    std::string text = "rope_scaling";
    for (const auto& [key, value] : parts_of(*trained.rope_scaling))
      text += key == "type" ? " " + value : fmt::format(" {} {}", key, value);
    words.push_back(text);
  }
  if (trained.norm_epsilon) words.push_back(fmt::format("norm epsilon {}", *trained.norm_epsilon));
  if (trained.routing) words.push_back(routing_in_words(*trained.routing));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::vector<std::string> changed_keys(const Scenario& from, const Scenario& to) {
  std::vector<std::string> changes;
  const Yaml before = sections(from), after = sections(to);
  for (const char* section : {"training", "plan"}) {
    const Yaml &was = *before.find(section), &is = *after.find(section);
    const std::string prefix = std::string(section) + ".";
    for (const auto& [key, value] : was.map)
      if (!is.find(key.text)) changes.push_back(prefix + key.text + "=null");
    for (const auto& [key, value] : is.map) {
      const Yaml* old = was.find(key.text);
      const std::string text = flow_text(value);
      if (old && flow_text(*old) == text) continue;
      const bool name = value.is(Yaml::Type::Scalar) && is_name(value.scalar);
      changes.push_back(prefix + key.text + "=" + (name ? value.scalar : text));
    }
  }
  return changes;
}

}  // namespace pipewright::io
