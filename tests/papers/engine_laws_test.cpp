// Laws that hold whatever the prices: traffic of interleaving, GPipe with busy wires, scaling of data parallelism,
// memory after a flush, more bandwidth, other names for the same links. Expected values are derived above each test.
#include <algorithm>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "sim/event_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "tests/support/random_costs.hpp"
#include "tests/support/random_links.hpp"

namespace pipewright::tests {
namespace {

std::vector<Time> random_times(std::size_t count, std::mt19937& random, unsigned longest) {
  std::vector<Time> times;
  for (std::size_t i = 0; i < count; ++i)
    times.push_back({1 + static_cast<std::int64_t>(random() % longest)});
  return times;
}

Time sum(const std::vector<Time>& times) {
  return std::accumulate(times.begin(), times.end(), Time{0});
}

Time largest(const std::vector<Time>& times) {
  return times.empty() ? Time{0} : *std::max_element(times.begin(), times.end());
}

std::vector<std::size_t> shuffled(std::size_t count, std::mt19937& random) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i)
    std::swap(order[i - 1], order[random() % i]);
  return order;
}

}  // namespace

TEST_CASE("interleaving with v chunks sends v times as much over every boundary between neighbours") {
  // 1F1B: an activation there and a gradient back per micro-batch, 2M messages per boundary. With v chunks per worker
  // the pipeline winds around v times: 2Mv, and v - 1 times from the last worker to the first.      [Megatron21] 2.2
  for (int K = 2; K <= 6; ++K)
    for (int v = 2; v <= 4; ++v)
      for (const int M : {K, 3 * K}) {
        const ScheduleShape shape{.stages = K, .virtual_stages = v, .micro_batches = M};
        const std::vector<Time> times(static_cast<std::size_t>(K * v), Time{1});
        const Timeline timeline =
            static_order(find_schedule("interleaved_1f1b")->generate(shape), plain_costs(shape, times, times, Time{1}));
        std::vector<int> over(static_cast<std::size_t>(K), 0);  // [k]: between workers k and k + 1 mod K
        for (const Transfer& transfer : timeline.transfers)
          ++over[static_cast<std::size_t>(transfer.direction == Direction::Forward ? transfer.from : transfer.to)];
        for (int k = 0; k + 1 < K; ++k)
          CHECK(over[static_cast<std::size_t>(k)] == 2 * M * v);
        CHECK(over.back() == 2 * M * (v - 1));
      }
}

TEST_CASE("GPipe with wires that are busy for s: the slowest of stages and wires sets the pace each way") {
  // Stages and wires form one flow line with the same job M times: sum of all of it once, and (M-1) times the slowest.
  // Backwards mirror it: sum(f+b) + 2 sum c + (M-1) (max(max f, max s) + max(max b, max s)), c = s + latency.
  std::mt19937 random(2104'04473);
  for (int run = 0; run < 500; ++run) {
    const int K = 1 + static_cast<int>(random() % 8), M = 1 + static_cast<int>(random() % 32);
    const auto stages = static_cast<std::size_t>(K);
    const auto f = random_times(stages, random, 20), b = random_times(stages, random, 20);
    const auto s = random_times(stages - 1, random, 40);
    const Time latency{static_cast<std::int64_t>(random() % 10)};
    const ScheduleShape shape{.stages = K, .micro_batches = M};
    StepCosts costs = plain_costs(shape, f, b, latency);
    for (std::size_t edge = 0; edge < s.size(); ++edge)
      for (const std::size_t direction : {0, 1})
        for (auto* messages : {&costs.messages, &costs.messages_last})
          (*messages)[costs.first_message[2 * edge + direction]].occupancy = s[edge];
    const Time hops = sum(s) + (K - 1) * latency;
    CHECK(static_order_makespan(find_schedule("gpipe")->generate(shape), costs) ==
          sum(f) + sum(b) + 2 * hops + (M - 1) * (std::max(largest(f), largest(s)) + std::max(largest(b), largest(s))));
  }
}

TEST_CASE("data parallelism scales to C / (C + max(0, AR - overlap)) of the ideal") {
  // B buckets of a ns each; bucket j is complete (B-1-j) b/B before the backward ends. Slow buckets (a >= b/B) follow
  // one another from the first on, so that (B-1) b/B of them is hidden; fast ones each wait for theirs, and all but
  // the last are hidden: overlap = (B-1) min(a, b/B). With one bucket nothing is.
  constexpr Time f{70}, slice{30};  // b = B * slice
  for (const int workers : {2, 4, 16})
    for (const int M : {1, 3})
      for (const int B : {1, 2, 5})
        for (const Time a : {Time{0}, Time{7}, Time{30}, Time{100}}) {
          const ScheduleShape shape{.stages = 1, .micro_batches = M, .data_parallel = workers, .buckets = {B}};
          StepCosts costs = plain_costs(shape, {f}, {B * slice}, Time{0});
          costs.collectives.assign(1, {});
          costs.ready_before_end.assign(1, {});
          for (int j = 0; j < B; ++j) {
            costs.collectives[0].push_back({Bytes{1}, a, {{0, Bandwidth{0}, a, a, {}}}});
            costs.ready_before_end[0].push_back((B - 1 - j) * slice);
          }
          const Time compute = M * (f + B * slice), all_reduce = B * a, overlap = (B - 1) * std::min(a, slice);
          const Schedule schedule = find_schedule("data_parallel")->generate(shape);
          CHECK(static_order_makespan(schedule, costs) == compute + std::max(Time{0}, all_reduce - overlap));
          CHECK(event_order(schedule, costs).makespan == compute + std::max(Time{0}, all_reduce - overlap));
        }
}

TEST_CASE("after every flush a worker holds its weights, gradients and optimizer states, and nothing else") {
  for (const ScheduleRule& rule : schedules())
    for (int K = 1; K <= 5; ++K)
      for (const int M : {1, 2, 5, 20})
        for (const bool recompute : {false, true}) {
          ScheduleShape shape{.stages = K, .micro_batches = M};
          if (rule.facts.takes_chunks && rule.chunks == 0) shape.virtual_stages = 2;
          if (recompute) shape.recompute.assign(static_cast<std::size_t>(K), true);
          if (!rule.refusal(shape).empty()) continue;
          const Schedule schedule = rule.generate(shape);
          if (!schedule.flush) continue;
          MemoryModel memory;
          memory.reserve = {5};
          for (int v = 0; v < shape.chunks(); ++v) {
            const std::int64_t scale = v + 1;  // weights, gradients, optimizer; stash, boundary, working
            memory.chunks.push_back(
                {{1000 * scale}, {200 * scale}, {30 * scale}, {{{9}, {7}}}, {{{4}, {3}}}, {{{5}, {4}}}});
          }
          const auto chunks = static_cast<std::size_t>(shape.chunks());
          StepCosts costs =
              plain_costs(shape, std::vector<Time>(chunks, Time{3}), std::vector<Time>(chunks, Time{5}), Time{2});
          for (auto* messages : {&costs.messages, &costs.messages_last})
            for (Message& message : *messages)
              message.bytes = {11};
          const Timeline timeline = static_order(schedule, costs);
          for (int k = 0; k < K; ++k) {
            std::int64_t chunk_numbers = 0;
            for (int v = k; v < shape.chunks(); v += K)
              chunk_numbers += v + 1;
            const MemoryBytes last = series(memory, schedule, costs, timeline, k).back().bytes;
            CAPTURE(std::string(rule.name));
            CHECK(last == MemoryBytes{.weights = {1000 * chunk_numbers},
                                      .gradients = {200 * chunk_numbers},
                                      .optimizer = {30 * chunk_numbers},
                                      .reserve = {5}});
          }
        }
}

TEST_CASE("more bandwidth never hurts a fixed schedule whose transfers have their wires alone") {
  std::mt19937 random(31);
  for (int run = 0; run < 400; ++run) {
    const Schedule schedule = random_schedule(random);
    StepCosts costs = random_costs(schedule.shape, random, Wires::Skips);
    const Time before = static_order_makespan(schedule, costs);
    for (auto* messages : {&costs.messages, &costs.messages_last})
      for (Message& message : *messages)
        message.occupancy = Time{message.occupancy.value / (1 + static_cast<std::int64_t>(random() % 3))};
    for (auto& buckets : costs.collectives)
      for (Collective& collective : buckets)
        collective.time = Time{collective.time.value / (1 + static_cast<std::int64_t>(random() % 3))};
    CHECK(static_order_makespan(schedule, costs) <= before);
  }
}

TEST_CASE("links, channels and routes under other numbers give the same times") {
  std::mt19937 random(32);
  for (int run = 0; run < 200; ++run) {
    const Schedule schedule = random_schedule(random);
    StepCosts costs = random_costs(schedule.shape, random);
    add_links(costs, random, LinkLayout::Private);
    StepCosts other = costs;
    const auto link = shuffled(costs.links.size(), random), route = shuffled(costs.routes.size(), random);
    const auto channel = shuffled(static_cast<std::size_t>(costs.channels), random);
    for (std::size_t i = 0; i < link.size(); ++i)
      other.links[link[i]] = costs.links[i];
    const auto renamed = [](const std::vector<std::size_t>& names, std::int32_t index) {
      return index < 0 ? index : static_cast<std::int32_t>(names[static_cast<std::size_t>(index)]);
    };
    for (std::size_t i = 0; i < route.size(); ++i) {
      other.routes[route[i]] = costs.routes[i];
      for (int& passed : other.routes[route[i]].links)
        passed = renamed(link, passed);
    }
    for (auto* messages : {&other.messages, &other.messages_last})
      for (Message& message : *messages) {
        message.route = renamed(route, message.route);
        message.channel = renamed(channel, message.channel);
      }
    const auto rename = [&](std::vector<Collective>& collectives) {
      for (Collective& collective : collectives)
        for (CollectivePhase& phase : collective.phases)
          for (auto& [passed, weight] : phase.links)
            passed = renamed(link, passed);
    };
    rename(other.tied);
    rename(other.gathers);
    rename(other.other_gathers);
    for (auto& buckets : other.collectives)
      rename(buckets);
    CAPTURE(schedule.name);
    for (const bool queue : {false, true}) {
      const Timeline a = queue ? event_order(schedule, costs) : static_order(schedule, costs);
      const Timeline b = queue ? event_order(schedule, other) : static_order(schedule, other);
      CHECK(a.workers == b.workers);
      CHECK(a.transfers == b.transfers);
      CHECK(a.makespan == b.makespan);
    }
  }
}

}  // namespace pipewright::tests
