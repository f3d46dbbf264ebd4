#include "core/model/graph.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace pipewright {
namespace {

// Position of the last layer that uses the output of each layer; -1 where nobody does.
std::vector<LayerId> last_users(const Model& model) {
  std::vector<LayerId> last(model.layers.size(), -1);
  for (std::size_t user = 0; user < model.layers.size(); ++user)
    for (const LayerId producer : model.layers[user].inputs) {
      PP_CHECK(producer >= 0 && static_cast<std::size_t>(producer) < user);
      last[static_cast<std::size_t>(producer)] = static_cast<LayerId>(user);
    }
  return last;
}

// Walks back along inputs that never became ready; each of those has such an input itself, so the walk must meet a
// layer twice, and what lies between the two visits is a cycle.
[[noreturn]] void refuse_cycle(const std::vector<Layer>& layers, const std::vector<bool>& done) {
  const std::size_t start = static_cast<std::size_t>(std::find(done.begin(), done.end(), false) - done.begin());
  std::vector<std::size_t> path;
  std::vector<int> visit(layers.size(), -1);
  std::size_t at = start;
  while (visit[at] < 0) {
    visit[at] = static_cast<int>(path.size());
    path.push_back(at);
    const auto& inputs = layers[at].inputs;
    at = static_cast<std::size_t>(
        *std::find_if(inputs.begin(), inputs.end(), [&](LayerId i) { return !done[static_cast<std::size_t>(i)]; }));
  }
  constexpr std::size_t most_named = 8;  // a cycle through thousands of layers still gives a readable line
  std::string names = "\"" + layers[at].name + "\"";
  const std::size_t begin = static_cast<std::size_t>(visit[at]), length = path.size() - begin;
  for (std::size_t i = 1; i < std::min(length, most_named); ++i)
    names += " needs \"" + layers[path[begin + i]].name + "\"";
  if (length > most_named) names += " needs ... (" + std::to_string(length - most_named) + " more)";
  names += " needs \"" + layers[at].name + "\"";
  throw InputError(layers[at].place, "inputs: cycle: " + names + "; remove one of these inputs");
}

}  // namespace

std::int64_t parameter_count(const Model& model) {
  std::int64_t sum = 0;
  for (const Layer& layer : model.layers)
    sum = checked_sum(sum, layer.parameters, "the number of parameters");
  return sum;
}

std::vector<Layer> in_topological_order(std::vector<Layer> layers) {
  const std::size_t count = layers.size();
  std::vector<std::vector<LayerId>> users(count);
  std::vector<std::size_t> missing(count);
  for (std::size_t i = 0; i < count; ++i) {
    missing[i] = layers[i].inputs.size();
    for (const LayerId producer : layers[i].inputs) {
      PP_CHECK(producer >= 0 && static_cast<std::size_t>(producer) < count);
      users[static_cast<std::size_t>(producer)].push_back(static_cast<LayerId>(i));
    }
  }
  std::priority_queue<LayerId, std::vector<LayerId>, std::greater<>> ready;
  for (std::size_t i = 0; i < count; ++i)
    if (missing[i] == 0) ready.push(static_cast<LayerId>(i));
  std::vector<LayerId> new_position(count);
  std::vector<bool> done(count);
  std::vector<Layer> sorted;
  sorted.reserve(count);
  while (!ready.empty()) {
    const auto next = static_cast<std::size_t>(ready.top());
    ready.pop();
    done[next] = true;
    new_position[next] = static_cast<LayerId>(sorted.size());
    sorted.push_back(layers[next]);  // a copy: the names are needed if there is a cycle
    for (const LayerId user : users[next])
      if (--missing[static_cast<std::size_t>(user)] == 0) ready.push(user);
  }
  if (sorted.size() < count) refuse_cycle(layers, done);
  for (Layer& layer : sorted)
    for (LayerId& producer : layer.inputs)
      producer = new_position[static_cast<std::size_t>(producer)];
  return sorted;
}

std::vector<LayerId> tensors_over_cut(const Model& model, LayerId cut) {
  const std::vector<LayerId> last = last_users(model);
  std::vector<LayerId> tensors;
  for (LayerId producer = 0; producer < cut; ++producer)
    if (last[static_cast<std::size_t>(producer)] >= cut) tensors.push_back(producer);
  return tensors;
}

std::vector<Bytes> bytes_over_cuts(const Model& model) {
  std::vector<Bytes> tensor;
  tensor.reserve(model.layers.size());
  for (const Layer& layer : model.layers)
    tensor.push_back(layer.activation);
  return bytes_over_cuts(model, tensor);
}

// The output of layer i crosses the cuts i + 1 ... last user.
std::vector<Bytes> bytes_over_cuts(const Model& model, const std::vector<Bytes>& tensor) {
  const std::size_t count = model.layers.size();
  PP_CHECK(tensor.size() == count);
  const std::vector<LayerId> last = last_users(model);
  std::vector<Bytes> ends(count + 1), over(count + 1);
  Bytes crossing;
  for (std::size_t cut = 1; cut < count; ++cut) {
    crossing -= ends[cut];
    const std::size_t producer = cut - 1;
    if (last[producer] >= 0) {
      crossing = checked_sum(crossing, tensor[producer]);
      ends[static_cast<std::size_t>(last[producer]) + 1] += tensor[producer];  // part of `crossing`: cannot overflow
    }
    over[cut] = crossing;
  }
  return over;
}

}  // namespace pipewright
