#include "core/plan/tied_tables.hpp"

#include <algorithm>
#include <set>

namespace pipewright::core {
namespace {

VirtualStageId chunk_with(const Plan& plan, LayerId layer) {
  const auto found = std::ranges::upper_bound(plan.layers, layer, {}, &LayerRange::end);
  return static_cast<VirtualStageId>(found - plan.layers.begin());
}

StageId workers_with(const Plan& plan, LayerId layer) {
  return plan.seating().group_of(chunk_with(plan, layer));
}

bool is_apart(const Plan& plan, const Layer& layer, VirtualStageId chunk) {
  return layer.tied_to >= 0 && layer.work >= 0 && workers_with(plan, layer.tied_to) != plan.seating().group_of(chunk);
}

}  // namespace

std::int64_t table_copied(const Plan& plan, const Model& model, VirtualStageId chunk, LayerId id) {
  const Layer& layer = model.layers[id];
  if (!is_apart(plan, layer, chunk)) return 0;
  for (LayerId before = layer.tied_to + 1; before < id; ++before)
    if (model.layers[before].tied_to == layer.tied_to && workers_with(plan, before) == plan.seating().group_of(chunk))
      return 0;
  const std::int64_t table = model.works[at(layer.work)].tied_parameters;
  return (table + plan.tensor_parallel - 1) / plan.tensor_parallel;
}

std::int64_t tables_copied(const Plan& plan, const Model& model, VirtualStageId chunk, LayerRange layers) {
  std::int64_t all = 0;
  for (LayerId id = layers.begin; id < layers.end; ++id)
    all = checked_sum(all, table_copied(plan, model, chunk, id), "the parameters");
  return all;
}

std::vector<VirtualStageId> tied_chunks(const Plan& plan, const Model& model) {
  std::set<VirtualStageId> chunks;
  for (LayerId id = 0; id < std::ssize(model.layers); ++id) {
    const Layer& layer = model.layers[id];
    if (layer.tied_to < 0) continue;
    const VirtualStageId chunk = chunk_with(plan, id);
    if (is_apart(plan, layer, chunk)) chunks.insert({chunk_with(plan, layer.tied_to), chunk});
  }
  return {chunks.begin(), chunks.end()};
}

}  // namespace pipewright::core
