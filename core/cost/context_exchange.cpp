#include "core/cost/context_exchange.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/cost/tensor_exchange.hpp"
#include "core/plan/mesh.hpp"

namespace pipewright::core {
namespace {

// How many devices a ring has, and how many exchange heads.
struct Levels {
  int ring = 1, inner = 1;
};
Levels levels_of(const PlanRequest& plan) {
  const int c = static_cast<int>(plan.context_parallel.value);
  switch (plan.context_exchange.value) {
    case ContextExchange::Ring: return {c, 1};
    case ContextExchange::AllGather: return {1, 1};
    case ContextExchange::AllToAll: return {1, c};
    case ContextExchange::TwoLevel: {
      const int inner = plan.context_inner ? std::max(1, static_cast<int>(plan.context_inner->value)) : 1;
      return {c / inner, inner};
    }
  }
  return {};
}

}  // namespace

double pairs_of(const AttentionShape& shape, double begin, double end) {
  if (!shape.causal) return (end - begin) * (shape.queries > 0 ? shape.pairs / shape.queries : 0);
  const double before = shape.keys - shape.queries;  // keys that every query sees
  const double window = shape.longest > 0 ? shape.longest : shape.keys;
  // Query p sees min(p + 1 + before, window): growing until `full`, then the window.
  const double full = std::clamp(window - before, begin, end), growing = full - begin;
  return growing * (begin + before) + growing * (growing + 1) / 2 + (end - full) * window;
}

std::vector<double> pairs_by_device(const AttentionShape& shape, int devices, ContextSplit split) {
  std::vector<double> pairs(static_cast<std::size_t>(devices));
  for (int i = 0; i < devices; ++i) {
    double& own = pairs[static_cast<std::size_t>(i)];
    const auto chunk = [&](double index, double of) {
      return pairs_of(shape, shape.queries * index / of, shape.queries * (index + 1) / of);
    };
    own = split == ContextSplit::Contiguous ? chunk(i, devices)
                                            : chunk(i, 2 * devices) + chunk(2 * devices - 1 - i, 2 * devices);
  }
  return pairs;
}

ContextAttention::ContextAttention(const Scenario& scenario, const Topology& topology)
    : degree_(static_cast<int>(scenario.plan.context_parallel.value)),
      tensor_(static_cast<int>(scenario.plan.tensor_parallel.value)),
      kind_(scenario.plan.context_exchange.value),
      split_(scenario.plan.context_split.value),
      imbalance_(scenario.plan.context_imbalance.value) {
  const Levels levels = levels_of(scenario.plan);
  if (degree_ < 2 || degree_ > scenario.cluster.devices() ||
      (kind_ != ContextExchange::AllGather && levels.ring * levels.inner != degree_)) {
    degree_ = 1;  // who makes the plan refuses it
    return;
  }
  ring_ = levels.ring, inner_ = levels.inner;
  add_groups(scenario, topology);
}

// Groups that lie alike count once; c workers of one block of c t devices divide a sequence, whatever lies next to it.
void ContextAttention::add_groups(const Scenario& scenario, const Topology& topology) {
  const std::int64_t devices = scenario.cluster.devices(), block = std::int64_t{degree_} * tensor_;
  if (block > devices) return;  // the plan is refused elsewhere
  std::vector<std::int64_t> leads(static_cast<std::size_t>(degree_));
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&scenario.plan.placement)) {
    // Worker (copy, position), copies of one sequence after one another.
    const std::int64_t workers = static_cast<std::int64_t>(list->size()),
                       copies = scenario.plan.data_parallel.value * degree_;
    const std::int64_t positions = copies > 0 ? workers / copies : 0;
    for (std::int64_t d = 0; d < scenario.plan.data_parallel.value; ++d)
      for (std::int64_t p = 0; p < positions; ++p) {
        for (std::int64_t i = 0; i < degree_; ++i)
          leads[static_cast<std::size_t>(i)] = (*list)[static_cast<std::size_t>((d * degree_ + i) * positions + p)];
        add_group(scenario, topology, leads);
      }
    return;
  }
  for (std::int64_t group = 0; group < different_blocks(scenario.cluster, block); ++group) {
    for (std::int64_t i = 0; i < degree_; ++i)
      leads[static_cast<std::size_t>(i)] = group * block + i * tensor_;
    add_group(scenario, topology, leads);
  }
}

void ContextAttention::add_group(const Scenario& scenario, const Topology& topology,
                                 const std::vector<std::int64_t>& leads) {
  const Cluster& cluster = scenario.cluster;
  std::vector<std::int64_t> in_order = leads;
  std::sort(in_order.begin(), in_order.end());
  for (std::size_t i = 0; i < in_order.size(); ++i)  // what the plan is refused for elsewhere
    if (in_order[i] < 0 || in_order[i] + tensor_ > (i + 1 < in_order.size() ? in_order[i + 1] : cluster.devices()))
      return;
  // All groups of a level at once, those of each tensor member with its heads.
  const Mesh mesh(with_members({leads.begin(), leads.end()}, tensor_),
                  {{Axis::Tensor, tensor_}, {Axis::Inner, inner_}, {Axis::Ring, degree_ / inner_}});
  const auto add = [&](DeviceGroups groups, ExchangeLink& slowest, ExchangeTo to) {
    slowest = slower(slowest, exchange_link(groups, to, topology, cluster));
  };
  if (ring_ > 1) add(mesh.along({Axis::Ring}), hop_, ExchangeTo::Next);
  if (inner_ > 1) add(mesh.along({Axis::Inner}), exchange_, ExchangeTo::All);
  if (kind_ == ContextExchange::AllGather)
    gathers_.push_back(
        AllReduceGroup::at_once(mesh.along({Axis::Inner, Axis::Ring}), topology, cluster.devices_per_node, &cluster));
}

AttentionShape ContextAttention::kernel(const AttentionShape& whole) const {
  AttentionShape one = whole;
  one.heads /= inner_, one.key_heads /= inner_;
  one.queries *= static_cast<double>(inner_) / degree_;
  one.pairs *= flops_share(whole) * inner_;
  if (ring_ > 1) {
    // Zigzag: half the queries see all keys of a step, or all of them half.
    one.keys /= whole.causal && split_ == ContextSplit::Zigzag ? 2 * ring_ : ring_;
    one.longest = std::min(one.longest, one.keys);
    one.causal = false;
  }
  return one;
}

double ContextAttention::flops_share(const AttentionShape& whole) const {
  const int parts = degree_ / inner_;
  double fullest = 1;  // over the mean
  if (parts > 1 && whole.pairs > 0) {
    const std::vector<double> pairs = pairs_by_device(whole, parts, split_);
    const double sum = std::accumulate(pairs.begin(), pairs.end(), 0.0);
    if (sum > 0) fullest = *std::max_element(pairs.begin(), pairs.end()) * parts / sum;
  }
  return fullest * imbalance_ / degree_ / ring_;
}

double ContextAttention::bytes_share(const AttentionShape& whole) const {
  const auto values = [](const AttentionShape& of) { return of.queries * of.heads + of.keys * of.key_heads; };
  return values(kernel(whole)) / values(whole);
}

double ContextAttention::gathered(double own) const {
  Time longest;
  for (const AllReduceGroup& group : gathers_)
    longest = std::max(longest, group.gather(Bytes{std::llround(own * degree_)}));
  return static_cast<double>(longest.value);
}

// All but what stays.
double ContextAttention::exchanged(double bytes) const {
  return inner_ == 1 ? 0 : exchange_.time(bytes * (inner_ - 1) / inner_);
}

double ContextAttention::ring_forward(double step, double send) const {
  return (ring_ - 1) * std::max(step, send) + step;
}

double ContextAttention::ring_backward(double step, double send) const {
  if (ring_ == 1) return step;
  return std::max(step, send) + (ring_ - 2) * std::max(step, 2 * send) + std::max(step, send) + send;
}

double ContextAttention::forward(double kernel, const ContextTensors& own) const {
  if (kind_ == ContextExchange::AllGather) return gathered(own.keys) + kernel;
  // Queries, keys and values out; results back.
  const double moved = exchanged(own.queries / 2 + own.keys) + exchanged(own.queries / 2);
  return moved + ring_forward(kernel, hop_.time(own.keys));
}

double ContextAttention::backward(double kernel, const ContextTensors& own) const {
  if (kind_ == ContextExchange::AllGather) return 2 * gathered(own.keys) + kernel;
  const double moved = exchanged(own.queries / 2) + exchanged(own.queries / 2 + own.keys);
  return moved + ring_backward(kernel, hop_.time(own.keys));
}

int ContextAttention::calls(bool backward) const {
  if (kind_ == ContextExchange::AllGather) return backward ? 2 : 1;
  const int sends = backward ? 2 * ring_ - 1 : ring_ - 1;
  return (inner_ > 1 ? 2 : 0) + (ring_ > 1 ? sends : 0);
}

ContextTensors context_tensors(const Operator& attention, const PlanRequest& plan, double samples, double value_bytes) {
  const AttentionShape& shape = attention.attention;
  const double parts = static_cast<double>(plan.context_parallel.value),
               groups = attention.divided ? static_cast<double>(plan.tensor_parallel.value) : 1;
  const double each = samples * (shape.key_size + shape.value_size) * value_bytes / parts / groups;
  return {each * shape.keys * shape.key_heads, each * shape.queries * shape.heads};
}

Bytes context_part(Bytes whole, const PlanRequest& plan) {
  return {ceil_div(whole.value, std::max<std::int64_t>(1, plan.context_parallel.value))};
}

Bytes slice_part(Bytes whole, const PlanRequest& plan) {
  return {plan.slices ? ceil_div(whole.value, plan.slices->value) : whole.value};
}

double context_workspace(const ContextTensors& own, const PlanRequest& plan, double value_bytes) {
  const double with_gradients = 1 + 4 / value_bytes;  // fp32 over the precision of the values
  if (plan.context_exchange.value == ContextExchange::AllGather)
    return static_cast<double>(plan.context_parallel.value) * own.keys * with_gradients;
  const Levels levels = levels_of(plan);
  return (levels.inner > 1 ? own.queries + own.keys : 0) +
         (levels.ring > 1 ? 2 * own.keys * with_gradients : 0);  // one in use, one on its way
}

}  // namespace pipewright::core
