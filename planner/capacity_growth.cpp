#include "planner/capacity_growth.hpp"

#include <algorithm>
#include <vector>

namespace pipewright::planner {
namespace {

std::vector<Amount> scratch_memory(const Work& work) {
  std::vector<Amount> amounts;
  for (const Operator& op : work.operators)
    if (op.workspace != Amount{}) amounts.push_back(op.workspace);
  return amounts;
}

// Of the layers' works: what their figures do not show.
bool alike_while_they_run(const Model& x, const Layer& a, const Model& y, const Layer& b) {
  if (a.work < 0 || b.work < 0) return a.work < 0 && b.work < 0;
  const Work &u = x.works[at(a.work)], &v = y.works[at(b.work)];
  return &u == &v || (u.logits == v.logits && scratch_memory(u) == scratch_memory(v));
}

// Whether two layers are alike in everything that takes room; times have no part in it.
bool alike(const Model& x, const Layer& a, const Model& y, const Layer& b) {
  return alike_while_they_run(x, a, y, b) && a.activation == b.activation && a.stash == b.stash &&
         a.stash_selective == b.stash_selective && a.parameters == b.parameters && a.states == b.states &&
         a.parameters_on_device == b.parameters_on_device && a.trained_on_device == b.trained_on_device &&
         a.keeps_output == b.keeps_output && a.block == b.block && (a.tied_to < 0) == (b.tied_to < 0);
}

struct EqualLayersRun {
  LayerId first;
  std::int64_t length;
};

// Runs of equal layers of a chain; empty: it is none.
std::vector<EqualLayersRun> runs_of(const Model& model) {
  std::vector<EqualLayersRun> runs;
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    const Layer& layer = model.layers[i];
    const bool chained = i == 0 ? layer.inputs.empty() : layer.inputs.size() == 1 && layer.inputs.front() == i - 1;
    if (!chained) return {};
    if (i > 0 && alike(model, layer, model, model.layers[i - 1]))
      ++runs.back().length;
    else
      runs.push_back({static_cast<LayerId>(i), 1});
  }
  return runs;
}

// Whether two models are the same, layer by layer, in everything that takes room.
bool same_figures(const Model& a, const Model& b) {
  if (a.layers.size() != b.layers.size() || a.batch != b.batch || a.input != b.input) return false;
  for (LayerId i = 0; i < std::ssize(a.layers); ++i)
    if (!alike(a, a.layers[i], b, b.layers[i]) || a.layers[i].inputs != b.layers[i].inputs) return false;
  return true;
}

// Whether all but layers and samples is the same that a whole number of a scenario can change and that takes room.
bool same_setting(const CapacityTrial& smaller, const CapacityTrial& larger) {
  const Plan &a = smaller.plan(), &b = larger.plan();
  return a.stages == b.stages && a.virtual_stages == b.virtual_stages && a.data_parallel == b.data_parallel &&
         a.tensor_parallel == b.tensor_parallel && a.context_parallel == b.context_parallel &&
         a.expert_parallel == b.expert_parallel && a.expert_tensor_parallel == b.expert_tensor_parallel &&
         a.shard == b.shard && a.units == b.units && a.resharding == b.resharding && a.reduce_each == b.reduce_each &&
         a.offloaded == b.offloaded && a.replicas == b.replicas && a.micro_batches == b.micro_batches &&
         smaller.scenario().training.zero == larger.scenario().training.zero && smaller.room() == larger.room();
}

bool grows_by_layers(const CapacityTrial& smaller, const CapacityTrial& larger) {
  const Plan &a = smaller.plan(), &b = larger.plan();
  return same_setting(smaller, larger) && a.micro_batch_size == b.micro_batch_size &&
         a.last_micro_batch_size == b.last_micro_batch_size &&
         repetition(smaller.scenario().model, larger.scenario().model);
}

bool grows_by_samples(const CapacityTrial& smaller, const CapacityTrial& larger) {
  const Plan &a = smaller.plan(), &b = larger.plan();
  return same_setting(smaller, larger) && a.micro_batch_size <= b.micro_batch_size &&
         a.last_micro_batch_size <= b.last_micro_batch_size &&
         same_figures(smaller.scenario().model, larger.scenario().model);
}

bool recomputes_listed_layers(const CapacityTrial& trial) {
  const auto& modes = trial.scenario().plan.recompute.value;
  return std::ranges::any_of(modes, [&](Recompute mode) {
    return mode == Recompute::Layers || (mode == Recompute::Knapsack && !trial.cut_is_searched());
  });
}

}  // namespace

Growth growth(const CapacityTrial& smaller, const CapacityTrial& larger) {
  if (recomputes_listed_layers(smaller)) return Growth::Unproven;
  const bool searched = smaller.cut_is_searched();
  if (searched && grows_by_layers(smaller, larger)) return Growth::Repetition;
  const bool same_cuts = searched || smaller.cut_is_stated();
  return same_cuts && grows_by_samples(smaller, larger) ? Growth::Samples : Growth::Unproven;
}

bool grows(const CapacityTrial& smaller, const CapacityTrial& larger) {
  return grows_by_layers(smaller, larger) || grows_by_samples(smaller, larger);
}

std::optional<Repetition> repetition(const Model& smaller, const Model& larger) {
  const std::vector<EqualLayersRun> a = runs_of(smaller), b = runs_of(larger);
  if (a.empty() || a.size() != b.size() || smaller.batch != larger.batch || smaller.input != larger.input)
    return std::nullopt;
  std::optional<Repetition> shortest;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Layer& layer = smaller.layers[a[i].first];
    const bool same = alike(smaller, layer, larger, larger.layers[b[i].first]);
    if (!same || a[i].length > b[i].length) return std::nullopt;
    if (a[i].length == b[i].length) continue;
    const Bytes before = a[i].first == 0 ? smaller.input : smaller.layers[a[i].first - 1].activation;
    if (layer.tied_to >= 0 || before > layer.activation) return std::nullopt;
    if (!shortest || a[i].length < shortest->in_smaller) shortest = {a[i].length, b[i].length};
  }
  return shortest;
}

}  // namespace pipewright::planner
