#include "planner/graph_cut.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/folds.hpp"

namespace pipewright::planner {
namespace {

constexpr std::int64_t kUnreached = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostLabels = 30'000'000;                // down-sets x stages
constexpr std::array<double, 4> kFolds = {0, 0.01, 0.03, 0.1};  // of a stage's work, tried in this order

// ---- the graph that is cut ------------------------------------------------------------------------------------------

// Nodes of one or more layers with their work, and every tensor with the nodes that use it.
struct Nodes {
  CellGraph graph;
  std::vector<std::int64_t> work;
  std::vector<int> node_of;             // by layer
  std::vector<std::vector<int>> users;  // by layer: nodes that use its output, each once
};

std::vector<std::vector<LayerId>> users_of(const Model& model) {
  std::vector<std::vector<LayerId>> users(model.layers.size());
  for (LayerId i = 0; i < std::ssize(model.layers); ++i)
    for (const LayerId input : model.layers[i].inputs)
      if (users[at(input)].empty() || users[at(input)].back() != i) users[at(input)].push_back(i);
  return users;
}

// Layers that no best cut separates from their only input: no work, and no more bytes behind them than before.
std::vector<bool> joining(const Model& model, const GraphProblem& problem) {
  const auto users = users_of(model);
  std::vector<bool> free(model.layers.size());
  for (LayerId i = 0; i < std::ssize(free); ++i) {
    const auto& inputs = model.layers[i].inputs;
    if (problem.compute[i] != Time{} || inputs.empty()) continue;
    free[i] = problem.tensor.empty() || problem.tensor[i] == Bytes{} ||
              (problem.tensor[i] <= problem.tensor[at(inputs.front())] && users[at(inputs.front())].size() == 1);
  }
  return free;
}

void add_work_and_users(Nodes& nodes, const Model& model, const GraphProblem& problem) {
  nodes.work.assign(at(nodes.graph.size()), 0);
  nodes.node_of.assign(model.layers.size(), 0);
  for (int node = 0; node < nodes.graph.size(); ++node)
    for (const LayerId layer : nodes.graph.members[at(node)]) {
      nodes.node_of[at(layer)] = node;
      nodes.work[at(node)] = checked_sum(nodes.work[at(node)], problem.compute[at(layer)].value, "the work of a node");
    }
  nodes.users.clear();
  for (const auto& users : users_of(model)) {
    auto list = mapped<int>(users, [&](const LayerId user) { return nodes.node_of[at(user)]; });
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
    nodes.users.push_back(std::move(list));
  }
}

// A node joins the one before it where each is the other's only neighbour on that side and both together stay within
// `limit`.
CellGraph folded(const CellGraph& graph, const std::vector<std::int64_t>& work, std::int64_t limit) {
  std::vector<int> users(at(graph.size())), group(at(graph.size()));
  for (const auto& inputs : graph.inputs)
    for (const int input : inputs)
      ++users[at(input)];
  CellGraph result;
  std::vector<std::int64_t> sum;
  for (int node = 0; node < graph.size(); ++node) {
    const auto& inputs = graph.inputs[at(node)];
    const int before = inputs.size() == 1 ? inputs.front() : -1;
    if (before >= 0 && users[at(before)] == 1 && sum[at(group[at(before)])] + work[at(node)] <= limit) {
      group[at(node)] = group[at(before)];
      auto& members = result.members[at(group[at(node)])];
      members.insert(members.end(), graph.members[at(node)].begin(), graph.members[at(node)].end());
      sum[at(group[at(node)])] += work[at(node)];
      continue;
    }
    group[at(node)] = result.size();
    auto groups = mapped<int>(inputs, [&](const int input) { return group[at(input)]; });
    std::ranges::sort(groups);
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    result.inputs.push_back(std::move(groups));
    result.members.push_back(graph.members[at(node)]);
    sum.push_back(work[at(node)]);
  }
  return result;
}

// ---- down-sets ------------------------------------------------------------------------------------------------------

// The down-sets, smaller ones first, and the ways from each to those with one node more. State 0 is the empty one, the
// last one is the whole.
struct Lattice {
  struct Step {
    int from = 0, to = 0, node = 0;
  };
  std::vector<Bytes> bytes;  // of the tensors over the cut behind each
  std::vector<Step> steps;   // by `to`, ascending
  int widest = 1;            // most steps out of one down-set
  std::int64_t states() const { return static_cast<std::int64_t>(bytes.size()); }
};

// Adds the down-sets cell by cell: one cell's begin with all nodes before it.
class Builder {
 public:
  Builder(const Nodes& nodes, const GraphProblem& problem, std::int64_t most)
      : nodes_(nodes), problem_(problem), most_(most) {}

  std::optional<Lattice> lattice() {
    lattice_.bytes.push_back({});
    first_ = 0;
    for (const int last : cell_ends(nodes_.graph)) {
      last_ = last;
      if (!add_cell()) return std::nullopt;
      first_ = last + 1;
    }
    return std::move(lattice_);
  }

 private:
  struct Open {
    NodeSet set;
    int state;
  };

  // Nodes of the cells before are in every set, those of the cells behind in none.
  bool holds(const NodeSet& set, int node) const { return node < first_ || (node <= last_ && has(set, node - first_)); }

  bool add_cell() {
    std::vector<Open> level = {{no_nodes(last_ - first_ + 1), static_cast<int>(lattice_.states()) - 1}};
    const std::int64_t before = lattice_.states();
    for (int size = first_; size <= last_; ++size) {  // level: all down-sets of so many nodes
      std::vector<Open> next;
      std::unordered_map<NodeSet, int, NodeSetHash> known;  // looked up only: its order is nowhere visible
      for (const Open& open : level)
        if (!extend(open, next, known) || lattice_.states() - before > most_) return false;
      level = std::move(next);
    }
    return true;
  }

  bool extend(const Open& open, std::vector<Open>& next, std::unordered_map<NodeSet, int, NodeSetHash>& known) {
    int ready = 0;
    for (int node = first_; node <= last_; ++node) {
      if (holds(open.set, node)) continue;
      const auto& inputs = nodes_.graph.inputs[at(node)];
      if (!std::ranges::all_of(inputs, [&](int input) { return holds(open.set, input); })) continue;
      ++ready;
      NodeSet larger = open.set;
      insert(larger, node - first_);
      const auto [entry, is_new] = known.try_emplace(larger, static_cast<int>(lattice_.states()));
      const int to = entry->second;
      if (is_new) {
        lattice_.bytes.push_back(over_cut(lattice_.bytes[at(open.state)], larger, node));
        next.push_back({std::move(larger), to});
      }
      lattice_.steps.push_back({open.state, to, node});
    }
    lattice_.widest = std::max(lattice_.widest, ready);
    return true;
  }

  // Over the cut behind `set`, which is one with the bytes `before` and `node`.
  Bytes over_cut(Bytes before, const NodeSet& set, int node) const {
    if (problem_.tensor.empty()) return {};
    const auto crosses = [&](LayerId layer) {
      const auto& users = nodes_.users[at(layer)];
      return std::ranges::any_of(users, [&](int user) { return !holds(set, user); });
    };
    for (const LayerId layer : nodes_.graph.members[at(node)])
      if (crosses(layer)) before = checked_sum(before, problem_.tensor[at(layer)]);
    for (const LayerId producer : producers(node))
      if (!crosses(producer)) before -= problem_.tensor[at(producer)];
    return before;
  }

  // Layers of other nodes whose output `node` uses.
  const std::vector<LayerId>& producers(int node) const {
    if (producers_.empty()) {
      producers_.resize(nodes_.work.size());
      for (std::size_t layer = 0; layer < nodes_.users.size(); ++layer)
        for (const int user : nodes_.users[layer])
          if (user != nodes_.node_of[layer]) producers_[at(user)].push_back(static_cast<LayerId>(layer));
    }
    return producers_[at(node)];
  }

  const Nodes& nodes_;
  const GraphProblem& problem_;
  std::int64_t most_;
  int first_ = 0, last_ = 0;  // nodes of the cell
  Lattice lattice_;
  mutable std::vector<std::vector<LayerId>> producers_;
};

// The prefixes of one order alone.
Lattice chain(const Nodes& nodes, const GraphProblem& problem, const std::vector<int>& order) {
  Lattice lattice;
  std::vector<int> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    place[at(order[i])] = static_cast<int>(i);
  std::vector<std::int64_t> change(order.size() + 2);
  for (std::size_t layer = 0; layer < nodes.users.size() && !problem.tensor.empty(); ++layer) {
    int last = place[at(nodes.node_of[layer])];
    const int from = last + 1;
    for (const int user : nodes.users[layer])
      last = std::max(last, place[at(user)]);
    change[at(from)] += problem.tensor[layer].value, change[at(last) + 1] -= problem.tensor[layer].value;
  }
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i <= order.size(); ++i) {
    lattice.bytes.push_back({bytes += change[i]});
    if (i > 0) lattice.steps.push_back({static_cast<int>(i) - 1, static_cast<int>(i), order[i - 1]});
  }
  return lattice;
}

// ---- the cut --------------------------------------------------------------------------------------------------------

// Stage of every node on the best way through a lattice.
struct Way {
  std::vector<int> order;     // nodes
  std::vector<int> stage_of;  // by place in the order
};

class Cutter {
 public:
  Cutter(const Nodes& nodes, const GraphProblem& problem, const Lattice& lattice)
      : nodes_(nodes), lattice_(lattice), replicas_(problem.replicas) {
    for (const Bytes bytes : lattice.bytes)
      message_.push_back(transfer_time(bytes, problem.bandwidth).value);
    first_step_.assign(at(lattice.states()) + 1, 0);
    for (const Lattice::Step& step : lattice.steps)
      ++first_step_[at(step.to) + 1];
    std::partial_sum(first_step_.begin(), first_step_.end(), first_step_.begin());
    by_target_.resize(lattice.steps.size());
    auto next = first_step_;
    for (const Lattice::Step& step : lattice.steps)
      by_target_[at(next[at(step.to)]++)] = step;
  }

  bool possible(std::int64_t bound) {
    const std::size_t stages = replicas_.size();
    least_.assign(at(lattice_.states()) * stages, kUnreached);
    for (std::int64_t state = 1; state < lattice_.states(); ++state)
      for (std::size_t k = 0; k < stages; ++k)
        each_way(state, k, bound, [&](const Lattice::Step&, bool, std::int64_t work) {
          label(state, k) = std::min(label(state, k), work);
        });
    return label(lattice_.states() - 1, stages - 1) != kUnreached;
  }

  // After possible(bound) was true.
  Way way(std::int64_t bound) {
    Way way;
    std::int64_t state = lattice_.states() - 1;
    for (std::size_t k = replicas_.size() - 1; state > 0;) {
      std::optional<std::pair<Lattice::Step, bool>> taken;
      each_way(state, k, bound, [&](const Lattice::Step& step, bool begins, std::int64_t work) {
        if (!taken && work == label(state, k)) taken = {step, begins};
      });
      PP_CHECK(taken.has_value());
      way.order.push_back(taken->first.node), way.stage_of.push_back(static_cast<int>(k));
      state = taken->first.from;
      if (taken->second && k > 0) --k;
    }
    std::ranges::reverse(way.order), std::ranges::reverse(way.stage_of);
    return way;
  }

 private:
  std::int64_t& label(std::int64_t state, std::size_t k) { return least_[at(state) * replicas_.size() + k]; }

  // use(step, whether it begins stage k, work of stage k then) for all ways to reach `state` in stage k within `bound`.
  template <class Use>
  void each_way(std::int64_t state, std::size_t k, std::int64_t bound, const Use& use) {
    const std::int64_t room = bound > kUnreached / replicas_[k] ? kUnreached : bound * replicas_[k];
    for (std::int64_t i = first_step_[at(state)]; i < first_step_[at(state) + 1]; ++i) {
      const Lattice::Step& step = by_target_[at(i)];
      const std::int64_t work = nodes_.work[at(step.node)];
      if (work > room) continue;
      if (step.from == 0) {
        if (k == 0) use(step, true, work);
        continue;
      }
      if (const std::int64_t before = label(step.from, k); before != kUnreached && before <= room - work)
        use(step, false, before + work);
      if (k == 0 || label(step.from, k - 1) == kUnreached) continue;
      const std::int64_t fewer = std::min(replicas_[k - 1], replicas_[k]);
      if (ceil_div(message_[at(step.from)], fewer) <= bound) use(step, true, work);
    }
  }

  const Nodes& nodes_;
  const Lattice& lattice_;
  const std::vector<int>& replicas_;
  std::vector<std::int64_t> message_;  // ns, alone, over the cut behind each state
  std::vector<std::int64_t> first_step_;
  std::vector<Lattice::Step> by_target_;
  std::vector<std::int64_t> least_;  // A_k(state)
};

// The least bound in [low, high] and a way for it; nothing where even `high` is too little.
std::optional<std::pair<std::int64_t, Way>> least_way(Cutter& cutter, std::int64_t low, std::int64_t high) {
  if (!cutter.possible(high)) return std::nullopt;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (cutter.possible(middle))
      high = middle;
    else
      low = middle + 1;
  }
  PP_CHECK(cutter.possible(high));
  return std::pair{high, cutter.way(high)};
}

GraphCut cut_of(const Nodes& nodes, const Way& way) {
  GraphCut cut;
  std::vector<int> count;
  for (std::size_t i = 0; i < way.order.size(); ++i) {
    if (way.stage_of[i] == static_cast<int>(count.size())) count.push_back(0);
    for (const LayerId layer : nodes.graph.members[at(way.order[i])])
      cut.order.push_back(layer), ++count.back();
  }
  LayerId begin = 0;
  for (const int layers : count) {
    cut.layers.push_back({begin, begin + layers});
    begin += layers;
  }
  return cut;
}

// ---- too many down-sets ---------------------------------------------------------------------------------------------

// From each node on to the user that became ready last: branches are followed to their ends.
std::vector<int> depth_first(const CellGraph& graph) {
  std::vector<std::vector<int>> users(at(graph.size()));
  std::vector<int> waits(at(graph.size()));
  std::vector<int> ready, order;
  for (int node = graph.size(); node-- > 0;) {
    waits[at(node)] = static_cast<int>(graph.inputs[at(node)].size());
    for (const int input : graph.inputs[at(node)])
      users[at(input)].push_back(node);
    if (waits[at(node)] == 0) ready.push_back(node);
  }
  while (!ready.empty()) {
    const int node = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (const int user : users[at(node)])
      if (--waits[at(user)] == 0) ready.push_back(user);
  }
  return order;
}

// Nodes at the ends of neighbouring stages change sides as long as the bottleneck falls.
void improve(GraphCut& cut, const Model& model, const GraphProblem& problem) {
  const auto users = users_of(model);
  std::vector<int> stage(model.layers.size());
  for (std::size_t k = 0; k < cut.layers.size(); ++k)
    for (LayerId i = cut.layers[k].begin; i < cut.layers[k].end; ++i)
      stage[at(cut.order[at(i)])] = static_cast<int>(k);
  const auto rebuilt = [&] {
    GraphCut result = cut;
    std::ranges::stable_sort(result.order, [&](LayerId a, LayerId b) { return stage[at(a)] < stage[at(b)]; });
    LayerId begin = 0;
    for (std::size_t k = 0; k < result.layers.size(); ++k) {
      const auto size = static_cast<LayerId>(std::ranges::count(stage, static_cast<int>(k)));
      result.layers[k] = {begin, begin + size};
      begin += size;
    }
    return result;
  };
  constexpr int kMostPasses = 20;
  for (int pass = 0, moved = 1; pass < kMostPasses && moved > 0; ++pass) {
    moved = 0;
    for (LayerId layer = 0; layer < std::ssize(stage); ++layer)
      for (const int by : {-1, 1}) {
        const int now = stage[layer], then = now + by;
        if (then < 0 || then >= static_cast<int>(cut.layers.size()) || cut.layers[at(now)].size() == 1) continue;
        const auto& blocked_by = by < 0 ? model.layers[layer].inputs : users[layer];
        if (std::ranges::any_of(blocked_by, [&](LayerId other) { return stage[at(other)] == now; })) continue;
        stage[layer] = then;
        GraphCut changed = rebuilt();
        changed.bottleneck = bottleneck_of(
            reordered(model, changed.order),
            [&] {
              GraphProblem there = problem;
              for (std::size_t i = 0; i < changed.order.size(); ++i) {
                there.compute[i] = problem.compute[at(changed.order[i])];
                if (!problem.tensor.empty()) there.tensor[i] = problem.tensor[at(changed.order[i])];
              }
              return there;
            }(),
            changed.layers);
        if (changed.bottleneck < cut.bottleneck) {
          cut = std::move(changed);
          ++moved;
        } else {
          stage[layer] = now;
        }
      }
  }
}

}  // namespace

Time bottleneck_of(const Model& model, const GraphProblem& problem, const std::vector<LayerRange>& layers) {
  const std::vector<Bytes> over =
      problem.tensor.empty() ? std::vector<Bytes>(model.layers.size() + 1) : bytes_over_cuts(model, problem.tensor);
  std::int64_t most = 0;
  for (std::size_t k = 0; k < layers.size(); ++k) {
    Time work;
    for (LayerId i = layers[k].begin; i < layers[k].end; ++i)
      work = checked_sum(work, problem.compute[at(i)]);
    most = std::max(most, ceil_div(work.value, problem.replicas[k]));
    if (k == 0) continue;
    const std::int64_t fewer = std::min(problem.replicas[k - 1], problem.replicas[k]);
    most = std::max(most, ceil_div(transfer_time(over[at(layers[k].begin)], problem.bandwidth).value, fewer));
  }
  return {most};
}

std::optional<GraphCut> graph_cut(const Model& model, const GraphProblem& problem) {
  PP_CHECK(problem.compute.size() == model.layers.size() && !problem.replicas.empty());
  PP_CHECK(problem.tensor.empty() || problem.tensor.size() == model.layers.size());
  Nodes nodes{merged(model, joining(model, problem)), {}, {}, {}};
  add_work_and_users(nodes, model, problem);
  const auto stages = static_cast<std::int64_t>(problem.replicas.size());
  if (nodes.graph.size() < stages) return std::nullopt;
  const std::int64_t sum = std::accumulate(nodes.work.begin(), nodes.work.end(), std::int64_t{0});
  const auto workers = std::accumulate(problem.replicas.begin(), problem.replicas.end(), std::int64_t{0});
  const auto widest = *std::ranges::max_element(problem.replicas);
  const std::int64_t least = std::max(ceil_div(sum, workers), ceil_div(*std::ranges::max_element(nodes.work), widest));
  std::int64_t high = sum;  // any cut is within it, but for its messages
  for (const Bytes bytes : problem.tensor)
    high = checked_sum(high, transfer_time(bytes, problem.bandwidth).value, "the time of all messages");

  const std::int64_t most = std::min(problem.most_down_sets, kMostLabels / stages);
  for (const double fold : kFolds) {
    const auto limit = static_cast<std::int64_t>(fold * static_cast<double>(sum) / static_cast<double>(workers));
    Nodes coarse = nodes;
    if (fold > 0) coarse.graph = folded(nodes.graph, nodes.work, limit), add_work_and_users(coarse, model, problem);
    if (coarse.graph.size() < stages) break;
    const std::optional<Lattice> lattice = Builder(coarse, problem, most).lattice();
    if (!lattice || lattice->states() * stages > kMostLabels) continue;
    Cutter cutter(coarse, problem, *lattice);
    const auto found = least_way(cutter, least, high);
    if (!found) return std::nullopt;
    GraphCut cut = cut_of(coarse, found->second);
    cut.bottleneck = {found->first};
    cut.down_sets = lattice->states();
    // A cut through a folded node moves at most its work, and a down-set cuts no more nodes than can come next.
    const auto fewest = *std::ranges::min_element(problem.replicas);
    const bool messages = !problem.tensor.empty();
    cut.lower_bound = fold == 0  ? cut.bottleneck
                      : messages ? Time{least}
                                 : Time{std::max(least, found->first - ceil_div(lattice->widest * limit, fewest))};
    cut.how = fold == 0 ? fmt::format("the least bottleneck of all orders of the layers; {} down-sets", cut.down_sets)
                        : fmt::format("layers in series folded up to {:.0f} % of a stage; {} down-sets", 100 * fold,
                                      cut.down_sets);
    return cut;
  }
  std::vector<int> as_given(at(nodes.graph.size()));
  std::iota(as_given.begin(), as_given.end(), 0);
  std::optional<GraphCut> best;
  for (const std::vector<int>& order : {as_given, depth_first(nodes.graph)}) {
    const Lattice prefixes = chain(nodes, problem, order);
    Cutter cutter(nodes, problem, prefixes);
    const auto found = least_way(cutter, least, high);
    if (!found || (best && best->bottleneck.value <= found->first)) continue;
    best = cut_of(nodes, found->second);
    best->bottleneck = {found->first};
  }
  if (!best) return best;
  improve(*best, model, problem);
  best->lower_bound = {least};
  best->how = fmt::format("heuristic: more than {} down-sets; the better of two orders, layers moved over its cuts",
                          problem.most_down_sets);
  return best;
}

}  // namespace pipewright::planner
