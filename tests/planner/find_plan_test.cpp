
#include <string>

#include <doctest/doctest.h>

#include "tests/planner/plan_of.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

TEST_CASE("balanced gives eight equal layers on four stages two each, one device per stage") {
  const Plan plan = plan_of(uniform_scenario());
  CHECK(plan.layers == std::vector<LayerRange>{{0, 2}, {2, 4}, {4, 6}, {6, 8}});
  CHECK(plan.device == std::vector<DeviceId>{0, 1, 2, 3});
  CHECK(plan.replicas == std::vector<int>{1, 1, 1, 1});
  CHECK(plan.global_batch_size == 8);
}

TEST_CASE("balanced weighs forward plus backward of a layer") {
  Scenario scenario = uniform_scenario({.layers = 4, .stages = 2});
  scenario.model.layers[3].backward = Time{9'000'000};  // 3 3 3 10: nine before ten
  CHECK(plan_of(scenario).layers == std::vector<LayerRange>{{0, 3}, {3, 4}});
}

TEST_CASE("balanced divides an interleaved model into stages x virtual stages") {
  Scenario scenario = uniform_scenario();
  scenario.plan.schedule.value = "interleaved_1f1b";
  scenario.plan.virtual_stages.value = 2;
  const Plan plan = plan_of(scenario);
  CHECK(plan.layers.size() == 8);
  CHECK(plan.layers[5] == LayerRange{5, 6});
}

TEST_CASE("A partition is taken as layer counts or as the first layers of the stages behind the first") {
  Scenario scenario = uniform_scenario();
  const std::vector<LayerRange> expected = {{0, 1}, {1, 4}, {4, 6}, {6, 8}};
  scenario.plan.partition.value = LayerCounts{{1, 3, 2, 2}};
  CHECK(plan_of(scenario).layers == expected);
  scenario.plan.partition.value = CutLayers{{1, 4, 6}};
  CHECK(plan_of(scenario).layers == expected);
}

TEST_CASE("Copies take consecutive devices; in data order the copies of one stage do") {
  Scenario scenario = uniform_scenario({.stages = 2});
  scenario.plan.data_parallel.value = 3;
  CHECK(plan_of(scenario).device == std::vector<DeviceId>{0, 1, 2, 3, 4, 5});
  scenario.plan.placement = PlacementOrder::Data;
  CHECK(plan_of(scenario).device == std::vector<DeviceId>{0, 3, 1, 4, 2, 5});
  scenario.plan.placement = std::vector<std::int64_t>{7, 6, 5, 4, 3, 2};
  CHECK(plan_of(scenario).device == std::vector<DeviceId>{7, 6, 5, 4, 3, 2});
}

TEST_CASE("An unknown schedule is named with the nearest one") {
  Scenario scenario = uniform_scenario();
  scenario.plan.schedule.value = "1fb1";
  CHECK(error_of(scenario) ==
        "s.yaml:2:3: plan.schedule: unknown \"1fb1\"; did you mean \"1f1b\"? known: naive, gpipe, 1f1b, eager_1f1b, "
        "bpipe, "
        "seq1f1b, "
        "interleaved_1f1b, moe_overlap_1f1b, looped_bfs, zb_h1, zb_h2, zb_auto, search, interleaved_zb, zbv, zbv_auto, "
        "v_half, "
        "v_min, v_zb, v_1f1b, v_auto, v_search, hanayo, gems, "
        "chimera, dualpipe, "
        "dualpipev, pipedream, pipedream_2bw, data_parallel");
}

TEST_CASE("A name whose beginning is right is completed") {
  Scenario scenario = uniform_scenario();
  scenario.plan.schedule.value = "moe";
  CHECK(error_of(scenario).find("unknown \"moe\"; did you mean \"moe_overlap_1f1b\"? known: ") != std::string::npos);
}

TEST_CASE("More stages than layers are refused with the possible numbers") {
  CHECK(error_of(uniform_scenario({.stages = 9})) ==
        "s.yaml:1:3: plan.stages: 9 stages for 8 layers; every stage holds at least one: use 1..8");
  CHECK(error_of(uniform_scenario({.stages = 0})) == "s.yaml:1:3: plan.stages: 0 is too few; use 1 or more");
  CHECK(error_of(uniform_scenario({.stages = 1'000'000'000'000})) ==
        "s.yaml:1:3: plan.stages: 1000000000000 stages for 8 layers; every stage holds at least one: use 1..8");
}

TEST_CASE("More chunks than layers are refused") {
  Scenario scenario = uniform_scenario();
  scenario.plan.schedule.value = "interleaved_1f1b";
  scenario.plan.virtual_stages = {3, {"s.yaml", 9, 1}};
  CHECK(error_of(scenario) ==
        "s.yaml:9:1: plan.virtual_stages: 3 per stage on 4 stages for 8 layers; every chunk holds at least one: use "
        "1..2");
}

TEST_CASE("More workers than devices are refused") {
  Scenario scenario = uniform_scenario();
  scenario.plan.data_parallel.value = 4;
  CHECK(error_of(scenario) ==
        "s.yaml:8:3: plan: needs 4 x 4 = 16 devices, the cluster has 8; use fewer stages, replicas or copies, or a "
        "larger cluster");
  scenario.plan.data_parallel.value = kLargest;
  CHECK(error_of(scenario).find("devices, the cluster has 8") != std::string::npos);
}

TEST_CASE("Replicas are one number per stage, at least one, no more than devices") {
  Scenario scenario = uniform_scenario({.stages = 2});
  scenario.plan.replicas.value = {3, 1, 1};
  CHECK(error_of(scenario) == "s.yaml:4:3: plan.replicas: 3 entries for 2 stages; give one number per stage");
  scenario.plan.replicas.value = {0, 1};
  CHECK(error_of(scenario) == "s.yaml:4:3: plan.replicas: 0 replicas of stage 0; use 1 or more");
  scenario.plan.replicas.value = {kLargest, 1};
  CHECK(error_of(scenario).find("plan.replicas: stage 0 needs 4611686018427387904 devices, the cluster has 8") !=
        std::string::npos);
}

TEST_CASE("Recompute is one entry for all stages or one each") {
  Scenario scenario = uniform_scenario();
  scenario.plan.recompute.value = {Recompute::Full, Recompute::None};
  CHECK(error_of(scenario) == "s.yaml:7:3: plan.recompute: 2 entries for 4 stages; give one per stage, or one for all");
  scenario.plan.recompute.value = {Recompute::Full};
  CHECK(plan_of(scenario).recompute == std::vector<Recompute>(4, Recompute::Full));
}

TEST_CASE("Layer counts must cover every layer once") {
  Scenario scenario = uniform_scenario();
  const auto error = [&](std::vector<std::int64_t> counts) {
    scenario.plan.partition.value = LayerCounts{std::move(counts)};
    return error_of(scenario);
  };
  CHECK(error({4, 4}) == "s.yaml:5:3: plan.partition: 2 layer counts for 4 stages; give 4");
  CHECK(error({2, 2, 2, 1}) ==
        "s.yaml:5:3: plan.partition: the counts sum to 7 layers, the model has 8; cover every layer once, or write "
        "balanced");
  CHECK(error({0, 4, 2, 2}) == "s.yaml:5:3: plan.partition: 0 layers for stage 0; every one holds at least one");
  CHECK(error({kLargest, kLargest, kLargest, 1}).find("overflows") != std::string::npos);
}

TEST_CASE("Cuts lie inside the model and grow") {
  Scenario scenario = uniform_scenario();
  const auto error = [&](std::vector<std::int64_t> cuts) {
    scenario.plan.partition.value = CutLayers{std::move(cuts)};
    return error_of(scenario);
  };
  CHECK(error({2, 4}) ==
        "s.yaml:5:3: plan.partition: 2 cuts for 4 stages; give 3, the first layer of every stage but the first");
  CHECK(error({2, 4, 8}) == "s.yaml:5:3: plan.partition: cut at layer 8, but a cut lies inside the model: use 1..7");
  CHECK(error({4, 4, 6}) == "s.yaml:5:3: plan.partition: cut at layer 4 after a cut at layer 4; cuts must grow");
  CHECK(error({0, 4, 6}) == "s.yaml:5:3: plan.partition: cut at layer 0, but a cut lies inside the model: use 1..7");
}

TEST_CASE("A placement names one existing device per worker") {
  Scenario scenario = uniform_scenario();
  const auto error = [&](std::vector<std::int64_t> devices) {
    scenario.plan.placement = std::move(devices);
    return error_of(scenario);
  };
  CHECK(error({0, 1}) == "s.yaml:6:3: plan.placement: 2 devices for 4 workers; give one per worker, copy by copy");
  CHECK(error({0, 1, 2, 8}) == "s.yaml:6:3: plan.placement: no device 8; the cluster has 0..7");
  CHECK(error({0, 1, 2, -1}) == "s.yaml:6:3: plan.placement: no device -1; the cluster has 0..7");
  CHECK(error({0, 1, 1, 2}) == "s.yaml:6:3: plan.placement: device 1 is given twice; one worker per device");
}

TEST_CASE("A schedule that cannot be built for the shape says why") {
  Scenario scenario = uniform_scenario({.micro_batches = 10});
  scenario.plan.schedule.value = "interleaved_1f1b";
  scenario.plan.virtual_stages.value = 2;
  const std::string error = error_of(scenario);
  CHECK(error.starts_with("s.yaml:2:3: plan.schedule: interleaved_1f1b"));
  CHECK(error.ends_with("M = 10 is not a multiple of K = 4: use 8 or 12"));
}

TEST_CASE("No micro-batches, or more than can be simulated, are refused") {
  CHECK(error_of(uniform_scenario({.micro_batches = 0})) ==
        "s.yaml:3:3: training.micro_batches: 0; must be at least 1");
  // 2^24 ops; forward, recomputation and backward of each micro-batch on 4 stages: 2^24 / 12 = 1398101.
  CHECK(error_of(uniform_scenario({.micro_batches = 2'000'000})) ==
        "s.yaml:3:3: training.micro_batches: 2000000 on 4 stages and 1 copy are too many to simulate; at most 1398101");
}

// Work 9 and 3, all parameters in the second layer: three workers share the first, and 9/3 = 3/1. Every other plan has
// a stage of 4.5 or more, or sends the 4 GB of gradients of the second layer.
Scenario three_to_one() {
  Scenario scenario = uniform_scenario({.layers = 2, .devices = 4, .stages = 1, .micro_batches = 24});
  scenario.model.layers[0].forward = Time{3'000'000}, scenario.model.layers[0].backward = Time{6'000'000};
  scenario.model.layers[0].parameters = 0, scenario.model.layers[1].parameters = 1'000'000'000;
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{100e9}};
  scenario.plan.schedule.value = "pipedream";
  for (const std::string_view key : kSetByWholePlan)
    scenario.plan.open[std::string(key)] = {};
  return scenario;
}

TEST_CASE("A partition of whole plans chooses stages, replicas and devices, and says so") {
  Scenario scenario = three_to_one();
  scenario.plan.partition.value = SuffixDp{};
  const Plan plan = plan_of(scenario);
  CHECK(plan.stages == 2);
  CHECK(plan.replicas == std::vector<int>{3, 1});
  CHECK(plan.layers == std::vector<LayerRange>{{0, 1}, {1, 2}});
  CHECK(plan.device.size() == 4);
  CHECK(plan.micro_batches == 24);
  CHECK(plan.cut.find(" chose 2 stages with 3-1 replicas") != std::string::npos);
  CHECK_FALSE(needs_search(scenario));
}

TEST_CASE("A partition of whole plans that finds none that fits leaves a cut that tells what is short") {
  Scenario scenario = three_to_one();
  scenario.plan.partition.value = SuffixDp{};
  scenario.cluster.device.memory = Bytes{1'000'000'000};  // the weights of the second layer alone are 4 GB
  const Plan plan = plan_of(scenario);
  CHECK(plan.layers == std::vector<LayerRange>{{0, 1}, {1, 2}});
  CHECK(plan.replicas == std::vector<int>{1, 1});
  CHECK(plan.cut == "partition: suffix_dp found no plan that fits; this is the balanced cut into 2 stages");
}

TEST_CASE("Fields that contradict a partition of whole plans are named with it") {
  Scenario scenario = three_to_one();
  scenario.plan.partition.value = SuffixDp{};
  scenario.plan.open.erase("stages");
  CHECK(error_of(scenario) ==
        "s.yaml:1:3: plan.stages: given, but plan.partition: suffix_dp chooses it; leave plan.stages out or auto, "
        "or write another partition");
  scenario.plan.open.erase("replicas"), scenario.plan.open.erase("placement");
  scenario.plan.data_parallel.value = 2, scenario.plan.virtual_stages.value = 2;
  scenario.plan.schedule.value = "gpipe";
  scenario.plan.recompute.value = {Recompute::Full, Recompute::None};
  const std::string error = error_of(scenario);
  for (const char* line :
       {"s.yaml:1:3: plan.stages: given", "s.yaml:4:3: plan.replicas: given", "s.yaml:6:3: plan.placement: given",
        "plan.virtual_stages: 2, but plan.partition: suffix_dp", "s.yaml:8:3: plan.data_parallel: 2, but",
        "s.yaml:7:3: plan.recompute: 2 entries, but plan.partition: suffix_dp",
        "s.yaml:2:3: plan.schedule: gpipe, but plan.partition: suffix_dp is for pipedream or 1f1b"})
    CHECK(error.find(line) != std::string::npos);
  scenario = three_to_one();
  scenario.plan.partition.value = SuffixDp{};
  scenario.plan.open["stages"].among = {"2"};
  CHECK(error_of(scenario).find("plan.stages: restricted, but plan.partition: suffix_dp chooses among all") !=
        std::string::npos);
  scenario = three_to_one();
  scenario.plan.partition.value = SuffixDp{};
  scenario.training.open["micro_batch_size"] = {};
  CHECK(needs_search(scenario));
  CHECK(error_of(scenario).find("training.micro_batch_size: auto leaves it to `pipewright plan`") != std::string::npos);
}

TEST_CASE("Independent errors are named together, one line each") {
  Scenario scenario = uniform_scenario();
  scenario.plan.schedule.value = "nothing";
  scenario.plan.recompute.value = {Recompute::Full, Recompute::Full};
  scenario.plan.partition.value = LayerCounts{{8}};
  const std::string error = error_of(scenario);
  CHECK(error.find("plan.schedule: unknown") != std::string::npos);
  CHECK(error.find("\ns.yaml:7:3: plan.recompute") != std::string::npos);
  CHECK(error.find("\ns.yaml:5:3: plan.partition") != std::string::npos);
}

}  // namespace
}  // namespace pipewright::tests
