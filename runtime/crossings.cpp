#include "runtime/crossings.hpp"

#include <map>
#include <set>
#include <utility>

namespace pipewright::runtime {
namespace {

std::vector<VirtualStageId> chunk_of_layers(const Plan& plan, std::size_t layers) {
  std::vector<VirtualStageId> chunk(layers);
  for (VirtualStageId v = 0; v < plan.chunks(); ++v)
    for (LayerId i = plan.layers[v].begin; i < plan.layers[v].end; ++i)
      chunk[at(i)] = v;
  return chunk;
}

}  // namespace

std::vector<Crossing> crossings(const Plan& plan, const Model& model) {
  const std::vector<VirtualStageId> chunk = chunk_of_layers(plan, model.layers.size());
  std::map<std::pair<VirtualStageId, VirtualStageId>, std::set<LayerId>> tensors;
  for (LayerId user = 0; user < std::ssize(model.layers); ++user)
    for (const LayerId producer : model.layers[user].inputs) {
      const VirtualStageId from = chunk[at(producer)], to = chunk[user];
      if (from == to) continue;
      if (plan.skips == Skips::Direct)
        tensors[{from, to}].insert(producer);
      else
        for (VirtualStageId v = from; v < to; ++v)
          tensors[{v, v + 1}].insert(producer);
    }
  std::vector<Crossing> all;
  for (const bool skip : {false, true})
    for (const auto& [ends, layers] : tensors)
      if ((ends.second > ends.first + 1) == skip)
        all.push_back({ends.first, ends.second, {layers.begin(), layers.end()}});
  return all;
}

}  // namespace pipewright::runtime
