#include "core/plan/tied_tables.hpp"

#include <algorithm>
#include <map>
#include <utility>

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

std::int64_t table_trained(const Plan& plan, const Model& model, VirtualStageId chunk, LayerId id) {
  const LayerId owner = model.layers[id].tied_to;
  return owner >= 0 && model.layers[owner].trained() > 0 ? table_copied(plan, model, chunk, id) : 0;
}

std::int64_t tables_of(const Plan& plan, const Model& model, VirtualStageId chunk, LayerRange layers,
                       std::int64_t of_layer(const Plan&, const Model&, VirtualStageId, LayerId)) {
  std::int64_t all = 0;
  for (LayerId id = layers.begin; id < layers.end; ++id)
    all = checked_sum(all, of_layer(plan, model, chunk, id), "the parameters");
  return all;
}

std::vector<TiedTable> tied_tables(const Plan& plan, const Model& model) {
  std::map<LayerId, TiedTable> tables;
  for (LayerId id = 0; id < std::ssize(model.layers); ++id) {
    const LayerId owner = model.layers[id].tied_to;
    if (owner < 0) continue;
    const VirtualStageId chunk = chunk_with(plan, id);
    const std::int64_t trained = table_trained(plan, model, chunk, id);
    if (trained == 0) continue;
    TiedTable& table = tables.try_emplace(owner, TiedTable{owner, trained, {chunk_with(plan, owner)}}).first->second;
    table.chunks.push_back(chunk);
  }
  std::vector<TiedTable> all;
  for (auto& [owner, table] : tables) {
    std::ranges::sort(table.chunks);
    all.push_back(std::move(table));
  }
  return all;
}

}  // namespace pipewright::core
