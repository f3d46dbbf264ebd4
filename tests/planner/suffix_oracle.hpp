// Second opinions on planner/partitioners/suffix_dp.hpp: its formulas once more, and random problems.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "planner/partitioners/suffix_dp.hpp"

namespace pipewright::tests {

template <class Unit>
std::vector<Unit> list(const std::vector<std::int64_t>& values) {
  std::vector<Unit> units;
  for (const auto value : values)
    units.push_back({value});
  return units;
}

template <class Unit>
std::int64_t sum(const std::vector<Unit>& values, LayerRange layers) {
  std::int64_t total = 0;
  for (LayerId i = layers.begin; i < layers.end && !values.empty(); ++i)
    total += values[static_cast<std::size_t>(i)].value;
  return total;
}

inline std::int64_t at_or_zero(const std::vector<Bytes>& values, int i) {
  return values.empty() ? 0 : values[static_cast<std::size_t>(i)].value;
}

// The formulas of the header once more, over 1 GB/s: a byte takes a nanosecond.
constexpr Bandwidth kByteANanosecond{1e9};

inline std::int64_t time_of(const SuffixProblem& problem, LayerRange layers, std::int64_t r) {
  const auto share = [&](std::int64_t whole) { return (whole + r - 1) / r; };
  std::int64_t time = share(sum(problem.compute, layers));
  if (std::isinf(problem.bandwidth.value)) return time;
  if (layers.begin > 0) time = std::max(time, share(at_or_zero(problem.boundary, layers.begin - 1)));
  if (layers.end < static_cast<int>(problem.compute.size()))
    time = std::max(time, share(at_or_zero(problem.boundary, layers.end - 1)));
  const std::int64_t moved = 2 * (r - 1) * sum(problem.gradients, layers);
  const std::int64_t apart = r == 1 ? 0 : r * sum(problem.apart, layers);
  return std::max(time, (apart + moved + r * r - 1) / (r * r));
}

inline std::int64_t memory_of(const SuffixProblem& problem, LayerRange layers, int r, int behind) {
  const std::int64_t in_flight = (r + behind + r - 1) / r;
  return sum(problem.resident, layers) +
         in_flight * (sum(problem.stash, layers) + at_or_zero(problem.entry, layers.begin));
}

inline SuffixProblem random_problem(std::mt19937& random, int most_layers, int most_devices) {
  const auto layers = 1 + random() % static_cast<unsigned>(most_layers);
  const auto draw = [&](std::uint32_t span) {
    std::vector<std::int64_t> values(layers);
    for (auto& value : values)
      value = static_cast<std::int64_t>(random() % (span + 1));
    return values;
  };
  const std::uint32_t span = std::vector<std::uint32_t>{2, 10, 1000}[random() % 3];
  SuffixProblem problem{.compute = list<Time>(draw(span))};
  problem.devices = 1 + static_cast<int>(random() % static_cast<unsigned>(most_devices));
  if (random() % 2 == 0) {
    problem.bandwidth = kByteANanosecond;
    problem.gradients = list<Bytes>(draw(span / 2));
    problem.boundary = list<Bytes>(draw(2 * span));
    if (random() % 2 == 0)
      for (const Time compute : problem.compute)
        problem.apart.push_back({compute.value / 3});
  }
  if (random() % 4 != 0) {
    problem.resident = list<Bytes>(draw(20));
    problem.stash = list<Bytes>(draw(10));
    if (random() % 2 == 0) problem.entry = list<Bytes>(draw(6));
    problem.capacity = {static_cast<std::int64_t>(10 + random() % 150)};
  }
  if (random() % 4 == 0) problem.replicas = {1, 2, 4};
  if (random() % 3 == 0) problem.stages = 1 + static_cast<int>(random() % std::min<std::size_t>(layers, 4));
  return problem;
}

// The formulas of the header for two levels, node by node, for stages placed from the last device backwards.
inline double link_time_on_nodes(const SuffixProblem& problem, LayerRange layers, int r, int behind,
                                 Neighbours neighbours = {}) {
  const int g = problem.devices_per_node, first = behind / g, last = (behind + r - 1) / g, p = last - first + 1;
  const double b = problem.inside.value * 1e-9, B = problem.bandwidth.value * 1e-9;
  const double in = layers.begin > 0 ? static_cast<double>(at_or_zero(problem.boundary, layers.begin - 1)) : 0;
  const double out = layers.end < static_cast<int>(problem.compute.size())
                         ? static_cast<double>(at_or_zero(problem.boundary, layers.end - 1))
                         : 0;
  const auto bytes = static_cast<double>(sum(problem.gradients, layers));
  std::vector<int> in_node(static_cast<std::size_t>(last) + 1);
  for (int device = behind; device < behind + r; ++device)
    ++in_node[static_cast<std::size_t>(device / g)];
  const int c = in_node[static_cast<std::size_t>(last)];
  bool equal = p > 1 && c > 1;
  for (int node = first; node <= last; ++node)
    equal = equal && in_node[static_cast<std::size_t>(node)] == c;
  double moved = 2.0 * (r - 1) / r * bytes, alone = moved / (p == 1 ? b : std::min(b, B));
  const double through_device = moved / b;
  double time = (in + out + moved) / b / r;
  if (const double rings = 2.0 * (c - 1) / c * bytes / b + 2.0 * (p - 1) / p * bytes / B; equal && rings < alone)
    alone = rings, moved = 2.0 * (p - 1) / p * bytes;
  time = std::max(time, alone / r);
  if (r > 1 && !problem.apart.empty())
    time = std::max(time, (static_cast<double>(sum(problem.apart, layers)) + std::max(alone, through_device)) / r);
  for (int node = first; node <= last; ++node) {
    const bool others_before = neighbours.in_front && behind + r < (node + 1) * g;
    const bool others_behind = neighbours.behind && behind > node * g;
    const double sent = (others_before ? 0 : in) + (others_behind ? 0 : out);
    const double share = static_cast<double>(in_node[static_cast<std::size_t>(node)]) / r;
    time = std::max(time, (share * sent + (p > 1 ? moved / r : 0)) / B);
  }
  return time;
}

inline SuffixProblem random_on_nodes(std::mt19937& random, int most_layers, int most_devices) {
  SuffixProblem problem = random_problem(random, most_layers, most_devices);
  const auto layers = problem.compute.size();
  for (auto* list : {&problem.gradients, &problem.boundary}) {
    list->clear();
    for (std::size_t i = 0; i < layers; ++i)
      list->push_back({static_cast<std::int64_t>(random() % 2000)});
  }
  problem.devices_per_node = 2 + static_cast<int>(random() % 3);
  problem.bandwidth = Bandwidth{static_cast<double>(1 + random() % 4) * 1e9};
  problem.inside = Bandwidth{static_cast<double>(1 + random() % 16) * 1e9};
  problem.one_link = true;
  return problem;
}

}  // namespace pipewright::tests
