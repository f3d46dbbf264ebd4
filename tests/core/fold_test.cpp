// What is folded; that a folded run is the whole one is the business of tests/planner/folding_test.cpp.
#include "core/cost/fold.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "planner/find_plan.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

// 16 stages and so many copies, a worker on each node of 8 devices with a NIC each.
struct Large {
  Scenario scenario = uniform_scenario({.layers = 16, .stages = 16});
  Plan plan;
  explicit Large(int copies = 128) {
    Cluster& cluster = scenario.cluster;
    cluster.nodes = 16 * copies, cluster.devices_per_node = 8;
    cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{450e9}, .latency = Time{2000}};
    cluster.network = Network{.bandwidth = Bandwidth{50e9}, .latency = Time{5000}, .per = NicPer::Device};
    scenario.plan.data_parallel.value = copies;
    plan = find_plan(scenario, CostModel(scenario));
    plan.tensor_parallel = 8;
    for (DeviceId& lead : plan.device)
      lead = lead * 8;
  }
  std::shared_ptr<const Fold> fold(Alike alike) const { return fold_copies(plan, CostModel(scenario), alike); }
};

TEST_CASE("128 copies on nodes of their own: alike in time, and on links but for the ends of the two trees") {
  Large large;
  const auto in_time = large.fold(Alike::InTime);
  REQUIRE(in_time != nullptr);
  CHECK(in_time->copies == std::vector<CopyId>{0, 1});
  CHECK(in_time->counts() == std::vector<int>{127, 1});
  CHECK(in_time->links.empty());
  const auto on_links = large.fold(Alike::OnLinks);
  REQUIRE(on_links != nullptr);
  CHECK(on_links->copies == std::vector<CopyId>{0, 1});
  CHECK(on_links->counts() == std::vector<int>{2, 126});
  CHECK(on_links->like.front() == on_links->like.back());
  CHECK(CostModel(large.scenario).topology().link_count() == 65'536);
  CHECK(on_links->links.size() == 64);  // 2 copies x 16 stages, a NIC out and in
  CHECK(simulated_worker(on_links.get(), 127 * 16 + 3, 16) == 3);
  CHECK(simulated_worker(on_links.get(), 99 * 16 + 3, 16) == 16 + 3);
  CHECK(simulated_worker(nullptr, 99, 16) == 99);
}

TEST_CASE("131 072 devices: no more copies and links are kept than of 16 384") {
  Large large(1024);
  REQUIRE(large.scenario.cluster.devices() == 131'072);
  const auto in_time = large.fold(Alike::InTime);
  REQUIRE(in_time != nullptr);
  CHECK(in_time->counts() == std::vector<int>{1023, 1});
  const auto on_links = large.fold(Alike::OnLinks);
  REQUIRE(on_links != nullptr);
  CHECK(on_links->copies == std::vector<CopyId>{0, 1});
  CHECK(on_links->counts() == std::vector<int>{2, 1022});
  CHECK(on_links->links.size() == 64);  // of 524 288
}

TEST_CASE("A fold holds whatever the links' rates are") {
  Large large;
  const auto before = large.fold(Alike::OnLinks);
  large.scenario.cluster.network->bandwidth = Bandwidth{450e9};  // as inside a node
  large.scenario.cluster.network->latency = Time{2000};
  const auto after = large.fold(Alike::OnLinks);
  CHECK(before->like == after->like);
  CHECK(before->link_like == after->link_like);
}

// Two stages on four devices each of 16 copies; the copies of a node share its NIC.
TEST_CASE("Copies that share a link are kept together") {
  Scenario scenario = uniform_scenario({.stages = 2});
  Cluster& cluster = scenario.cluster;
  cluster.nodes = 32, cluster.devices_per_node = 4;
  cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{450e9}};
  cluster.network = Network{.bandwidth = Bandwidth{50e9}, .per = NicPer::Node};
  scenario.plan.data_parallel.value = 64;
  scenario.plan.placement = PlacementOrder::Data;
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  const auto fold = fold_copies(plan, cost, Alike::OnLinks);
  REQUIRE(fold != nullptr);
  CHECK(fold->copies.size() < 64);
  for (const CopyId copy : fold->copies)
    for (CopyId neighbour = copy / 4 * 4; neighbour < copy / 4 * 4 + 4; ++neighbour)
      CHECK(std::binary_search(fold->copies.begin(), fold->copies.end(), neighbour));
  for (CopyId copy = 0; copy < 64; ++copy)  // each runs as the one in its place of a kept node
    CHECK(fold->copies[static_cast<std::size_t>(fold->like[static_cast<std::size_t>(copy)])] % 4 == copy % 4);
}

TEST_CASE("What no proof covers stays whole: two copies, and links that are first come, first served") {
  Large large;
  large.scenario.cluster.sharing = Sharing::Fifo;
  CHECK(large.fold(Alike::OnLinks) == nullptr);
  CHECK(large.fold(Alike::InTime) != nullptr);
  large.scenario.cluster.sharing = Sharing::MaxMin;
  large.plan.data_parallel = 2;
  CHECK(large.fold(Alike::OnLinks) == nullptr);
}

// 12 000 x 12 000 pairs in each of three copies: check_pairs refuses the plan, which must not take long to be found
// out.
TEST_CASE("Thousands of replicas are not looked at pair by pair") {
  Scenario scenario = uniform_scenario({.stages = 2});
  scenario.cluster.nodes = 72'000, scenario.cluster.devices_per_node = 1;
  scenario.cluster.network = Network{.ideal = true};
  scenario.plan.replicas.value = {12'000, 12'000};
  scenario.plan.data_parallel.value = 3;
  scenario.training.micro_batches->value = 12'000;
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  CHECK(fold_copies(plan, cost, Alike::OnLinks) == nullptr);
  CHECK_THROWS_AS(step_costs(plan, cost), InputError);
}

}  // namespace
}  // namespace pipewright::tests
