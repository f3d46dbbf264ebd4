#include "tests/support/random_costs.hpp"

#include <algorithm>
#include <functional>

#include "tests/support/places.hpp"

namespace pipewright::tests {
namespace {

// std::uniform_int_distribution differs between libraries; a remainder does not.
std::int64_t below(std::int64_t limit, std::mt19937& random) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
}

void add_edge(StepCosts& costs, int from, int to, std::mt19937& random, std::int64_t longest) {
  const ScheduleShape& shape = costs.shape;
  int positions = 0;
  for (int k = 0; k < shape.stages; ++k)
    positions += shape.replicas_of(k);
  const int workers = positions * shape.data_parallel;
  const std::vector<int> of_from = oracle::places(shape, from), of_to = oracle::places(shape, to);
  costs.channels = workers * workers;
  costs.edges.push_back({static_cast<std::uint16_t>(from), static_cast<std::uint16_t>(to)});
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    costs.first_message.push_back(static_cast<std::uint32_t>(costs.messages.size()));
    for (int copy = 0; copy < shape.data_parallel; ++copy)
      for (const int sender : of_from)
        for (const int receiver : of_to) {
          const int a = copy * positions + sender, b = copy * positions + receiver;
          const int channel = a == b ? -1 : direction == Direction::Forward ? a * workers + b : b * workers + a;
          for (auto* table : {&costs.messages, &costs.messages_last})
            table->push_back({{below(longest, random)}, {below(longest, random)}, {1}, channel, -1});
        }
  }
}

// Descending to 0; none where nothing is reduced.
std::vector<Time> random_ready(const ScheduleShape& shape, int v, std::mt19937& random, std::int64_t longest) {
  std::vector<Time> ready;
  if (shape.data_parallel * oracle::places(shape, v).size() == 1) return ready;
  for (int bucket = 0; bucket < shape.buckets_of(v); ++bucket)
    ready.push_back({below(longest, random)});
  std::sort(ready.begin(), ready.end(), std::greater<>());
  ready.back() = Time{0};
  return ready;
}

}  // namespace

StepCosts random_costs(const ScheduleShape& shape, std::mt19937& random, Wires wires, std::int64_t longest) {
  StepCosts costs;
  costs.shape = shape;
  const int chunks = shape.chunks();
  for (auto* table : {&costs.duration, &costs.duration_last})
    for (int i = 0; i < chunks * kKinds; ++i) {
      const auto kind = static_cast<Kind>(i % kKinds);
      table->push_back(kind >= Kind::Fetch ? Time{} : Time{below(longest, random)});
    }
  for (int v = 0; v + 1 < chunks; ++v)
    if (wires == Wires::Chain || below(4, random) > 0) add_edge(costs, v, v + 1, random, longest);
  if (wires == Wires::Skips)
    for (int from = 0; from < chunks; ++from)
      for (int to = from + 2; to < chunks; ++to)
        if (below(3, random) == 0) add_edge(costs, from, to, random, longest);

  for (auto* table : {&costs.ready_before_end, &costs.ready_before_end_last})
    for (int v = 0; v < chunks; ++v)
      table->push_back(random_ready(shape, v, random, longest));
  costs.collectives.resize(static_cast<std::size_t>(chunks));
  for (int v = 0; v < chunks; ++v)
    for (std::size_t bucket = costs.ready_before_end[static_cast<std::size_t>(v)].size(); bucket > 0; --bucket)
      costs.collectives[static_cast<std::size_t>(v)].push_back({{1}, {below(2 * longest, random)}, {}});
  for (int v = 0; v < chunks; ++v)
    costs.gathers.push_back({{1}, {below(2 * longest, random)}, {}});
  if ((shape.resharding && shape.resharding->over > 0) || shape.updated == UpdatedParts::BesideForwards)
    for (const Collective& whole : costs.gathers)
      costs.other_gathers.push_back({{1}, {whole.time.value / 3}, {}});
  for (int i = 0; i < 3 * chunks && shape.weights_on_host(); ++i)
    costs.host_copies.push_back({{1}, {below(2 * longest, random)}, {}});
  for (std::int64_t i = 0; i < std::int64_t{4} * chunks * shape.data_parallel; ++i)
    costs.moves.push_back({{1}, {(7 * i + costs.duration.front().value) % (2 * longest)}, {}});
  for (std::int64_t table = 0; table < std::ssize(shape.tied); ++table)
    costs.tied.push_back({{1}, {(5 + table) * costs.duration.front().value % (2 * longest)}, {}});
  if (shape.norm) costs.norm = {{4}, {(3 * costs.duration.front().value) % (2 * longest)}, {}};
  return costs;
}

void add_slices(StepCosts& costs, std::mt19937& random, std::int64_t longest) {
  for (int i = 0; i < costs.shape.slices; ++i) {
    StepCosts::Slice& slice = costs.slices.emplace_back();
    for (std::size_t row = 0; row < costs.duration.size(); ++row)
      slice.duration.push_back({below(longest, random)});
    for (int v = 0; v < costs.shape.chunks(); ++v)
      slice.ready_before_end.push_back(random_ready(costs.shape, v, random, longest));
  }
}

}  // namespace pipewright::tests
