// What training frameworks can say of a plan: the one table that `launch` replaces by and `plan --for` searches in.
//
// A fact about their versions: docs/reference/launch.md lists both.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/answers/ranking.hpp"
#include "core/question/scenario.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {

enum class Framework : std::uint8_t { Megatron, Torchtitan, Torch, DeepSpeed };

struct FrameworkWords {
  std::string_view word, name;
  Framework framework;
  bool (*runs)(const ScheduleRule&);            // of the schedules that `plan` searches; nullptr: all of them
  std::span<const std::string_view> recompute;  // that `plan` may choose
  bool one_recompute;                           // for all stages
  bool chunks;                                  // several of them on a stage
  bool own_cuts;                                // layers are cut by the framework's own methods: equal_layers
  bool pipeline_placement;                      // copies of the pipeline side by side
  std::span<const std::int64_t> zeros;          // stages of ZeRO that it has
  bool zeros_in_pipelines;                      // those above 1 in pipelines, too
  std::optional<GradientSync> gradient_sync;    // of a plan with copies; nothing: either
  std::span<const ContextExchange> context;     // how it shares sequences; none: it does not
  std::optional<bool> stops_early;              // repeated layers (training.checkpoint_early_stop); nothing: it depends
};
std::span<const FrameworkWords> frameworks();
// Of those that `plan` searches, in its order.
std::vector<std::string> schedules_of(const FrameworkWords& words);
const FrameworkWords& words(Framework framework);
std::string_view name(Framework framework);
const FrameworkWords* find_framework(std::string_view word);  // nullptr: none is called so

// What of a layout the framework does not have, for a count of layouts: "context_parallel without zero: 3"; empty:
// nothing. Of the scenario counts what a search leaves alone.
std::string lacks(Framework framework, const Scenario& scenario, const Layout& layout);

// Throws InputError where the framework cannot train the model at all, or not in the order that the plan gives.
void check_model(const Scenario& scenario, Framework framework);

// Optimizer, precisions, shared sequences, ZeRO and the order of gradients become what the framework has; each change is
// reported: "zero: 1 is not there; copies are whole (data_parallel_replicate_degree): 0". `copies`, `stages`: whether the
// plan has, or may have, several.
void settle_training(Scenario& scenario, Framework framework, bool copies, bool stages,
                     const std::function<void(const std::string&)>& differs);

}  // namespace pipewright::planner
