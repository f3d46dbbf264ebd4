#include "planner/stated_cut.hpp"

#include <string>

#include <fmt/format.h>

#include "planner/plan_errors.hpp"

namespace pipewright {
namespace {

// "stages" or, where a stage holds several, "chunks": what the layers are divided into.
std::string parts_in_words(const Scenario& scenario) {
  const auto stages = scenario.plan.stages.value, per_stage = scenario.plan.virtual_stages.value;
  if (per_stage == 1) return counted(stages, "stage");
  return fmt::format("{} stages x {} virtual stages = {} chunks", stages, per_stage, stages * per_stage);
}

// Layers per chunk -> ranges.
std::vector<LayerRange> ranges_of(const std::vector<std::int64_t>& counts) {
  std::vector<LayerRange> ranges;
  LayerId begin = 0;
  for (const auto count : counts) {
    ranges.push_back({begin, begin + static_cast<LayerId>(count)});
    begin = ranges.back().end;
  }
  return ranges;
}

}  // namespace

std::vector<LayerRange> by_counts(const Scenario& scenario, const std::vector<std::int64_t>& counts) {
  const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
  const auto parts = static_cast<std::size_t>(scenario.plan.stages.value * scenario.plan.virtual_stages.value);
  const Place& place = or_else(scenario.plan.partition.place, scenario.plan.place);
  if (counts.size() != parts)
    throw InputError(place, "plan.partition",
                     fmt::format("{} layer counts for {}; give {}", counts.size(), parts_in_words(scenario), parts));
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 1)
      throw InputError(place, "plan.partition",
                       fmt::format("{} layers for stage {}; every one holds at least one", counts[i], i));
    sum = checked_sum(sum, counts[i], "plan.partition: the sum of the layer counts");
  }
  if (sum != layers)
    throw InputError(
        place, "plan.partition",
        fmt::format("the counts sum to {}, the model has {}; cover every layer once", counted(sum, "layer"), layers));
  return ranges_of(counts);
}

std::vector<LayerRange> by_cuts(const Scenario& scenario, const std::vector<std::int64_t>& first) {
  const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
  const auto parts = static_cast<std::size_t>(scenario.plan.stages.value * scenario.plan.virtual_stages.value);
  const Place& place = or_else(scenario.plan.partition.place, scenario.plan.place);
  if (first.size() + 1 != parts)
    throw InputError(
        place, "plan.partition",
        fmt::format("{} for {}; give {}, the first layer of every stage but the first",
                    counted(static_cast<std::int64_t>(first.size()), "cut"), parts_in_words(scenario), parts - 1));
  std::int64_t before = 0;
  std::vector<std::int64_t> counts;
  for (const auto cut : first) {
    if (cut < 1 || cut >= layers)
      throw InputError(place, "plan.partition",
                       fmt::format("cut at layer {}, but a cut lies inside the model: use 1..{}", cut, layers - 1));
    if (cut <= before)
      throw InputError(place, "plan.partition",
                       fmt::format("cut at layer {} after a cut at layer {}; cuts must grow", cut, before));
    counts.push_back(cut - before);
    before = cut;
  }
  counts.push_back(layers - before);
  return ranges_of(counts);
}

}  // namespace pipewright
