#include <utility>

#include <doctest/doctest.h>

#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/what_if/explanation.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

std::vector<std::string> lines_without_effect(const Scenario& scenario) {
  return options_without_effect(scenario, find_plan(scenario, CostModel(scenario)));
}

TEST_CASE("A plan whose options all do something gets no warning") {
  CHECK(lines_without_effect(uniform_scenario()).empty());
  Scenario scenario = uniform_scenario();
  scenario.plan.schedule.value = "pipedream";
  scenario.plan.vertical_sync = true;
  CHECK(lines_without_effect(scenario).empty());
  scenario = uniform_scenario();
  scenario.plan.recompute.value = {Recompute::Full};
  scenario.plan.recompute_except_last = true;
  CHECK(lines_without_effect(scenario).empty());
}

TEST_CASE("How kernels are launched and experts computed has no effect where times are stated") {
  Scenario scenario = uniform_scenario();
  scenario.training.execution = Execution::Graphs, scenario.training.expert_products = ExpertProducts::Looped;
  const auto lines = lines_without_effect(scenario);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("training.execution has no effect: "));
  CHECK(lines[1] == "training.expert_products: looped has no effect: the model has no experts");
}

TEST_CASE("A checkpoint that stops early has no effect where nothing is recomputed by blocks or layers") {
  Scenario scenario = uniform_scenario();
  scenario.training.checkpoint_early_stop = true;
  REQUIRE(lines_without_effect(scenario).size() == 1);
  CHECK(lines_without_effect(scenario)[0].starts_with("training.checkpoint_early_stop has no effect: "));
  scenario.model.layers[0].block = true;
  scenario.plan.recompute.value = {Recompute::Blocks};
  CHECK(lines_without_effect(scenario).empty());
}

TEST_CASE("A group of micro-batches has no effect on a schedule that does not go in groups") {
  Scenario scenario = uniform_scenario();
  scenario.plan.micro_batch_group = Placed<std::int64_t>{4, {}};
  CHECK(lines_without_effect(scenario) ==
        std::vector<std::string>{"plan.micro_batch_group has no effect: it belongs to schedule: interleaved_1f1b or "
                                 "moe_overlap_1f1b"});
  scenario.plan.schedule.value = "interleaved_1f1b", scenario.plan.virtual_stages.value = 2;
  CHECK(lines_without_effect(scenario).empty());
}

TEST_CASE("Where slices are cut has no effect without slices") {
  Scenario scenario = uniform_scenario();
  scenario.plan.slice_lengths.value = SliceLengths::Even;
  CHECK(lines_without_effect(scenario) ==
        std::vector<std::string>{"plan.slice_lengths: even has no effect: sequences are not cut; "
                                 "it needs plan.slices: 2 or more"});
}

TEST_CASE("A limit of what is in flight has no effect on an order that is not made for it") {
  Scenario scenario = uniform_scenario();
  scenario.plan.most_in_flight = Placed<std::int64_t>{4, {}};
  CHECK(lines_without_effect(scenario) ==
        std::vector<std::string>{
            "plan.most_in_flight has no effect: it belongs to schedule: bpipe, zb_auto, search, zbv_auto, v_auto, "
            "v_search or hanayo"});
  scenario.plan.schedule.value = "zb_auto";
  CHECK(lines_without_effect(scenario).empty());
}

TEST_CASE("A share that is kept for Ws has no effect on an order that does not count it") {
  Scenario scenario = uniform_scenario();
  scenario.plan.kept_for_weights = Placed<double>{.5, {}};
  REQUIRE(lines_without_effect(scenario).size() == 1);
  CHECK(lines_without_effect(scenario).front().starts_with(
      "plan.kept_for_weights has no effect: it belongs to schedule: zb_h1, zb_h2, zb_auto, search, interleaved_zb, "));
  scenario.plan.schedule.value = "zb_auto";
  CHECK(lines_without_effect(scenario).empty());
}

TEST_CASE("Vertical sync with a flush has no effect") {
  Scenario scenario = uniform_scenario();
  scenario.plan.vertical_sync = true;
  const auto lines = lines_without_effect(scenario);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] ==
        "plan.vertical_sync has no effect: 1f1b flushes, so every stage has one version of its weights; it belongs to "
        "schedule: pipedream or pipedream_2bw");
}

TEST_CASE("An exception from recomputation has no effect where nothing recomputes") {
  Scenario scenario = uniform_scenario();
  scenario.plan.recompute_except_last = true;
  const auto lines = lines_without_effect(scenario);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "plan.recompute_except_last has no effect: no stage recomputes; it needs recompute: full");
}

TEST_CASE("Recomputation of blocks has no effect on a model without blocks") {
  Scenario scenario = uniform_scenario();
  scenario.plan.recompute.value = {Recompute::Blocks};
  const auto lines = lines_without_effect(scenario);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("plan.recompute: blocks has no effect"));
  scenario.model.layers[4].block = true;
  CHECK(lines_without_effect(scenario).empty());
}

TEST_CASE("Scatter and gather has no effect without tensor parallelism") {
  Scenario scenario = uniform_scenario();
  scenario.plan.scatter_gather.value = true;
  const auto lines = lines_without_effect(scenario);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("plan.scatter_gather has no effect"));
}

TEST_CASE("Each of the two bandwidths of a host says where it has no effect, and names the other") {
  Scenario scenario = uniform_scenario();
  Cluster& cluster = scenario.cluster;
  cluster.links = {.kind = LinkKind::Pcie, .bandwidth = Bandwidth{16e9}};
  cluster.devices_per_node = 4;
  cluster.host_bandwidth = Bandwidth{100e9};
  CHECK(lines_without_effect(scenario) ==
        std::vector<std::string>{
            "cluster.node.host_bandwidth has no effect: it limits what is offloaded to the host, and nothing is "
            "(plan.offload_layers, training.offload_optimizer); for copies between devices by way of the host's memory "
            "(peer_access: false) write cluster.node.links.host_bandwidth"});
  cluster.links.peer_access = false;
  REQUIRE(lines_without_effect(scenario).size() == 1);
  CHECK(lines_without_effect(scenario)[0].ends_with(
      "copies between devices, which pass the host's memory here, go by cluster.node.links.host_bandwidth"));
  std::swap(cluster.host_bandwidth, cluster.links.host_bandwidth);
  CHECK(lines_without_effect(scenario).empty());
  cluster.links.peer_access = true;
  CHECK(
      lines_without_effect(scenario) ==
      std::vector<std::string>{
          "cluster.node.links.host_bandwidth has no effect: no copy between devices of a node passes the host's memory "
          "(that needs peer_access: false); for what is offloaded to the host write cluster.node.host_bandwidth"});
  // Of a plan that offloads.
  Plan plan = find_plan(scenario, CostModel(scenario));
  plan.offloaded.assign(at(plan.chunks()), 1);
  cluster.host_bandwidth = Bandwidth{100e9};
  const auto offloading = options_without_effect(scenario, plan);
  REQUIRE(offloading.size() == 1);
  CHECK(offloading[0].ends_with("; what is offloaded to the host goes by cluster.node.host_bandwidth"));
}

// 8 layers on 4 stages, 2 each. Layer 3 (stage 1) -> layer 4 (stage 2) skips nothing, layer 1 (stage 0) -> layer 4
// does.
TEST_CASE("Direct skips have no effect on a chain; a tensor that jumps over a stage gives them one") {
  Scenario scenario = uniform_scenario();
  scenario.plan.skips = Skips::Direct;
  const auto lines = lines_without_effect(scenario);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "plan.skips: direct has no effect: no tensor of this partition skips a stage");
  scenario.model.layers[4].inputs = {1, 3};
  CHECK(lines_without_effect(scenario).empty());
}

}  // namespace
}  // namespace pipewright::tests
