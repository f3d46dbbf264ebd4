#include "core/model/graph.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>

#include "core/divisors.hpp"
#include "core/folds.hpp"

namespace pipewright::core {
namespace {

// Position of the last layer that uses the output of each layer; -1 where nobody does.
std::vector<LayerId> last_users(const Model& model) {
  std::vector<LayerId> last(model.layers.size(), -1);
  for (LayerId user = 0; user < std::ssize(model.layers); ++user)
    for (const LayerId producer : model.layers[user].inputs) {
      PP_CHECK(producer >= 0 && producer < user);
      last[at(producer)] = user;
    }
  return last;
}

// Walks back along inputs that never became ready; each of those has such an input itself, so the walk must meet a
// layer twice, and what lies between the two visits is a cycle.
[[noreturn]] void refuse_cycle(const std::vector<Layer>& layers, const std::vector<bool>& done) {
  const std::size_t start = static_cast<std::size_t>(std::ranges::find(done, false) - done.begin());
  std::vector<std::size_t> path;
  std::vector<int> visit(layers.size(), -1);
  std::size_t at = start;
  while (visit[at] < 0) {
    visit[at] = static_cast<int>(path.size());
    path.push_back(at);
    const auto& inputs = layers[at].inputs;
    at = static_cast<std::size_t>(
        *std::ranges::find_if(inputs, [&](LayerId i) { return !done[static_cast<std::size_t>(i)]; }));
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

Bytes whole_bytes(double bytes) {
  return {rounded(std::ceil(bytes - 1e-6), "a tensor's size")};  // sums of thirds may be a hair too large
}

// Which layers' outputs are kept for the backward of one of their users.
std::vector<char> kept_by_users(const Model& model) {
  std::vector<char> kept(model.layers.size(), 0);
  for (const Layer& layer : model.layers) {
    const Work* work = layer.work < 0 ? nullptr : &model.works[static_cast<std::size_t>(layer.work)];
    for (std::size_t i = 0; i < layer.inputs.size(); ++i)
      if (!work || i >= work->keeps_input.size() || work->keeps_input[i])
        kept[static_cast<std::size_t>(layer.inputs[i])] = 1;
  }
  return kept;
}

// `asked`: where plan.tensor_parallel is given; "": at the layer that refuses it.
void check_split(const Model& model, int degree, const Place& asked) {
  std::int64_t common = 0;  // of what layers are split into
  const auto refuse = [&](const Place& place, std::string text) {
    throw InputError(asked.file.empty() ? place : asked, "plan.tensor_parallel",
                     std::to_string(degree) + " " + std::move(text));
  };
  bool any = false;
  for (const Layer& layer : model.layers) {
    if (layer.work < 0)
      refuse(layer.place,
             "cannot divide layer \"" + layer.name + "\", whose figures are stated; use a model family, or 1");
    const Work& work = model.works[static_cast<std::size_t>(layer.work)];
    any = any || work.shards > 0 || work.split_vocabulary;
    common = std::gcd(common, work.shards);
  }
  for (const Layer& layer : model.layers) {
    const Work& work = model.works[static_cast<std::size_t>(layer.work)];
    if (work.shards > 0 && work.shards % degree != 0)
      refuse(layer.place,
             "does not divide layer \"" + layer.name + "\", which is split " + std::to_string(work.shards) +
                 " ways at most (the common divisor of its heads, key heads, groups and inner features" +
                 (work.frozen ? ", and of the rank of its adapters" : "") + "); use " + divisors_in_words(common));
  }
  if (!any)
    refuse(model.place, "divides attention and feed-forwards, and model \"" + model.name + "\" has none; use 1");
}

}  // namespace

bool has_any(const Model& model, Modules modules) {
  return std::ranges::any_of(model.works, [&](const Work& work) {
    if (modules.has(Module::Operators)) return !work.replay.empty();
    return std::ranges::any_of(work.operators, [&](const Operator& op) { return rebuilt_with(op, modules); });
  });
}

bool drops_any(const Model& model, Modules modules) {
  if (modules.has(Module::Operators)) return has_any(model, modules);
  return std::ranges::any_of(model.works,
                             [&](const Work& work) { return !(work.kept == kept_without(work, modules)); });
}

bool has_experts(const Model& model) {
  return std::ranges::any_of(model.works, [](const Work& work) { return work.expert_layers > 0; });
}

bool has_shared_experts(const Model& model) {
  return std::ranges::any_of(model.works,
                             [](const Work& work) { return std::ranges::any_of(work.operators, of_shared_expert); });
}

bool has_shareable_sequences(const Model& model) {
  const auto all = [&](const Layer& layer) {
    return layer.work >= 0 && !layer.states_times() &&
           std::ranges::none_of(model.works[static_cast<std::size_t>(layer.work)].operators, needs_whole_sequences);
  };
  return std::ranges::all_of(model.layers, all) && std::ranges::any_of(model.works, [](const Work& work) {
           return std::ranges::any_of(work.operators, [](const Operator& op) { return op.attention.heads > 0; });
         });
}

std::int64_t parameter_count(const Model& model) {
  std::int64_t sum = 0;
  for (const Layer& layer : model.layers)
    sum = checked_sum(sum, layer.parameters, "the number of parameters");
  return sum;
}

std::int64_t trained_count(const Model& model) {
  std::int64_t sum = 0;
  for (const Layer& layer : model.layers) {
    const Work* work = layer.work < 0 ? nullptr : &model.works[static_cast<std::size_t>(layer.work)];
    sum = checked_sum(sum, work != nullptr && work->frozen ? work->adapter_parameters : layer.parameters,
                      "the number of parameters");
  }
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

Model reordered(const Model& model, const std::vector<LayerId>& order) {
  const auto at = [](LayerId layer) { return static_cast<std::size_t>(layer); };
  PP_CHECK(order.size() == model.layers.size());
  std::vector<LayerId> place(order.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    PP_CHECK(order[i] >= 0 && at(order[i]) < order.size() && place[at(order[i])] < 0);
    place[at(order[i])] = static_cast<LayerId>(i);
  }
  Model result = model;
  result.order = order;
  for (LayerId i = 0; i < std::ssize(order); ++i) {
    if (!model.order.empty()) result.order[i] = model.order[at(order[i])];
    Layer& layer = result.layers[i] = model.layers[order[i]];
    for (LayerId& input : layer.inputs) {
      input = place[at(input)];
      PP_CHECK(input < static_cast<LayerId>(i));
    }
    if (layer.tied_to >= 0) layer.tied_to = place[at(layer.tied_to)];
  }
  return result;
}

Model as_given(const Model& model) {
  if (model.order.empty()) return model;
  std::vector<LayerId> back(model.order.size());
  for (std::size_t i = 0; i < back.size(); ++i)
    back[static_cast<std::size_t>(model.order[i])] = static_cast<LayerId>(i);
  Model result = reordered(model, back);
  result.order.clear();
  return result;
}

std::vector<Bytes> bytes_over_cuts(const Model& model) {
  auto tensor = mapped<Bytes>(model.layers, &Layer::activation);
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

void settle(Model& model, Bytes per_value, TensorParallel split, const Place& asked) {
  if (split.degree > 1) check_split(model, split.degree, asked);
  struct Figures {
    Bytes output, kept, kept_selective;
    double flops = 0;
    std::int64_t parameters = 0, of_experts = 0;
  };
  std::vector<Figures> figures(model.works.size());
  for (std::size_t w = 0; w < figures.size(); ++w) {
    const Work& work = model.works[w];
    figures[w] = {whole_bytes(work.output().on_device(per_value, split)),
                  whole_bytes(work.kept.on_device(per_value, split)),
                  whole_bytes(kept_without(work, {Module::AttentionCore}).on_device(per_value, split)),
                  work.product_flops(),
                  parameters_on_device(work, split),
                  expert_parameters_on_device(work, split)};
  }
  const std::vector<char> used = model.works.empty() ? std::vector<char>{} : kept_by_users(model);
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    Layer& layer = model.layers[i];
    if (layer.work < 0) continue;
    const auto w = static_cast<std::size_t>(layer.work);
    const Figures& of = figures[w];
    layer.keeps_output = model.works[w].keeps_output || !used[i];
    const Bytes output = model.works[w].keeps_output || !used[i] ? Bytes{} : of.output;
    layer.activation = of.output;
    layer.stash = checked_sum(of.kept, output);
    layer.stash_selective = checked_sum(of.kept_selective, output);
    layer.flops = Flops{of.flops};
    layer.parameters = model.works[w].parameters;
    layer.parameters_on_device = of.parameters, layer.expert_parameters = of.of_experts;
    if (model.works[w].frozen) layer.trained_on_device = adapters_on_device(model.works[w], split);
  }
  if (!model.works.empty()) model.input = whole_bytes(model.input_amount.on_device(per_value, split));
}

Model::Model() = default;
Model::Model(const Model&) = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(const Model&) = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

}  // namespace pipewright::core
