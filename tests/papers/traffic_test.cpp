// Traffic, from the scenario to the report: all-reduces step by step against the closed forms, copies through the host.
#include <numeric>

#include <doctest/doctest.h>

#include "core/cost/collectives.hpp"
#include "planner/answer.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

constexpr Time kInside{1'000}, kBetween{5'000};  // latency of a hop

Cluster cluster(int nodes, int per_node) {
  Cluster result;
  result.nodes = nodes;
  result.devices_per_node = per_node;
  result.device.memory = Bytes{std::int64_t{1} << 40};
  result.links.kind = LinkKind::Nvswitch;
  result.links.bandwidth = Bandwidth{100e9};
  result.links.latency = kInside;
  if (nodes > 1) {
    result.network.emplace();
    result.network->bandwidth = Bandwidth{10e9};
    result.network->latency = kBetween;
  }
  return result;
}

std::vector<DeviceId> all(int n) {
  std::vector<DeviceId> members(static_cast<std::size_t>(n));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

}  // namespace

TEST_CASE("a ring sends 2(n-1)/n of the gradients from every worker and pays 2(n-1) latencies") {
  // One layer: its gradients are complete when the backward ends, so nothing overlaps. S = n * 4 MB: each of the
  // 2(n-1) steps sends 4 MB, 40 us at 100 GB/s, and 1 us of latency.
  for (const int n : {2, 3, 4, 7, 8}) {
    Scenario scenario = uniform_scenario({.layers = 1, .stages = 1, .micro_batches = 2});
    scenario.cluster = cluster(1, n);
    scenario.model.layers[0].parameters = std::int64_t{n} * 1'000'000;
    scenario.plan.schedule.value = "data_parallel";
    scenario.plan.data_parallel.value = n;
    const auto found = answer(scenario);
    const Report& report = std::get<Answer>(found).report;
    CHECK(report.step_time == Time{2 * 3'000'000 + 2 * (n - 1) * 41'000});
    REQUIRE(report.links.size() == 2 * static_cast<std::size_t>(n));  // a port out and a port in each
    for (const LinkReport& link : report.links)
      CHECK(link.bytes == Bytes{2 * (n - 1) * std::int64_t{4'000'000}});
  }
}

TEST_CASE("hierarchical all-reduce, summed step by step") {
  // Inside, g - 1 steps of S/g at 100 GB/s, twice. Between, g rings share a NIC of 10 GB/s; each has a share of S/g,
  // cut among p nodes, and takes 2(p-1) steps.
  for (const int p : {2, 3, 4})
    for (const int g : {2, 4, 5}) {
      const std::int64_t piece = 100'000;  // S/(g p) bytes: 10 us at 10 GB/s
      const Cluster c = cluster(p, g);
      Time expected{0};
      for (int pass = 0; pass < 2; ++pass)
        for (int step = 1; step < g; ++step)
          expected += kInside + Time{p * piece / 100};  // 100 B per ns
      for (int step = 0; step < 2 * (p - 1); ++step)
        expected += kBetween + Time{g * piece / 10};  // 10 B per ns, g rings at once
      const Topology topology(c);
      CHECK(all_reduce(AllReduce::Hierarchical, all(p * g), Bytes{g * p * piece}, topology, g).time == expected);
    }
}

TEST_CASE("two trees reach everybody by doubling, up and down, with half the bytes each") {
  // After h hops from the root 2^h members are reached. Both trees fill a port in both directions: S/beta each way.
  for (int n = 3; n <= 40; ++n) {
    int hops = 0;
    for (int reached = 1; reached < n; reached *= 2)
      ++hops;
    const Time each_way = hops * kInside + Time{1'000'000};  // 100 MB at 100 B per ns
    const Topology topology(cluster(1, 40));
    CHECK(all_reduce(AllReduce::Tree, all(n), Bytes{100'000'000}, topology, 40).time == 2 * each_way);
  }
}

TEST_CASE("a copy through host memory takes its two halves one after the other, each at its slower end") {
  // 2 stages, 1 micro-batch, f = b = 1 ms: 4 ms of computing, and 12 MB there and back over ports of 12 GB/s: 1 ms to
  // the host and 1 ms from it each way. Host memory of 24 GB/s is faster than a port, of 6 GB/s it sets the pace: 2
  // + 2.
  for (const auto& [host, hop] : {std::pair{24e9, Time{2'000'000}}, {6e9, Time{4'000'000}}}) {
    Scenario scenario = uniform_scenario({.layers = 2, .stages = 2, .micro_batches = 1, .backward = {1'000'000}});
    for (Layer& layer : scenario.model.layers)
      layer.activation = Bytes{12'000'000};
    scenario.cluster = cluster(1, 2);
    scenario.cluster.links = {.kind = LinkKind::Pcie, .bandwidth = Bandwidth{12e9}, .peer_access = false};
    scenario.cluster.links.host_bandwidth = Bandwidth{host};
    const auto found = answer(scenario);
    CHECK(std::get<Answer>(found).report.step_time == Time{4'000'000} + 2 * hop);
  }
}

}  // namespace pipewright::tests
