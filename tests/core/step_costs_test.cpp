#include "core/cost/step_costs.hpp"

#include <numeric>
#include <tuple>

#include <doctest/doctest.h>

#include "core/cost/collectives.hpp"
#include "core/cost/cost_model.hpp"
#include "sim/event_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/core/skipping_layers.hpp"
#include "tests/support/microseconds.hpp"
#include "tests/support/oracle_engine.hpp"
#include "tests/support/ring_steps.hpp"

using namespace pipewright::tests;

namespace {

Bytes carried(const StepCosts& costs, std::size_t edge) {
  return costs.message(edge, Direction::Forward, 0, 0).bytes;
}

}  // namespace

// 8 MB over 1 us and 100 GB/s, groups of four: 2 MB per device, then an all-gather of 3 hops and 3/4 of 8 MB: 63 us.
TEST_CASE("scatter and gather: each device of a group sends its share, the receivers gather it") {
  Scenario scenario;
  scenario.model.layers = {timed_layer("a", {}, 8'000'000, 10), timed_layer("b", {0}, 0, 10)};
  scenario.cluster.devices_per_node = 8;
  scenario.cluster.links.kind = LinkKind::Nvswitch;
  scenario.cluster.links.bandwidth = Bandwidth{100e9};
  scenario.cluster.links.latency = us(1);
  scenario.plan.tensor_parallel.value = 4;
  Plan plan;
  plan.schedule = "1f1b", plan.stages = 2, plan.tensor_parallel = 4;
  plan.replicas = {1, 1}, plan.recompute.assign(2, Recompute::None);
  plan.layers = {{0, 1}, {1, 2}}, plan.device = {0, 4};
  const CostModel cost(scenario);
  const Message whole = step_costs(plan, cost).message(0, Direction::Forward, 0, 0);
  CHECK(whole.bytes == Bytes{8'000'000});
  CHECK(whole.occupancy == us(80));
  CHECK(whole.latency == us(1));
  plan.scatter_gather = true;
  const Message share = step_costs(plan, cost).message(0, Direction::Forward, 0, 0);
  CHECK(share.bytes == Bytes{2'000'000});
  CHECK(share.occupancy == us(20));
  CHECK(share.latency == us(1 + 63));
}

TEST_CASE("message by size: inside a node by the device's curve, between nodes at the share of a NIC that is reached") {
  Scenario scenario;
  scenario.model.layers = {timed_layer("a", {}, 8'000'000, 10), timed_layer("b", {0}, 0, 10)};
  Cluster& cluster = scenario.cluster;
  cluster.nodes = 2, cluster.devices_per_node = 2;
  cluster.links.kind = LinkKind::Nvswitch;
  cluster.links.bandwidth = Bandwidth{100e9};
  cluster.device.messages = MessageCurve{.start = 10, .small = 0.1, .large = 0.5, .middle = 500};
  cluster.network.emplace();
  cluster.network->bandwidth = Bandwidth{10e9}, cluster.network->latency = us(5);
  Plan plan;
  plan.schedule = "1f1b", plan.stages = 2, plan.replicas = {1, 1}, plan.recompute.assign(2, Recompute::None);
  plan.layers = {{0, 1}, {1, 2}};
  const auto message = [&](std::vector<DeviceId> devices) {
    plan.device = std::move(devices);
    return step_costs(plan, CostModel(scenario)).message(0, Direction::Forward, 0, 0);
  };
  // 8 MB at 100 GB/s: 80 us on the links; by the curve 10 + min(800, 500) = 510 us.
  const Message inside = message({0, 1});
  CHECK(inside.occupancy == us(500));
  CHECK(inside.latency == us(10));
  cluster.links.kind = LinkKind::Mesh;  // not measured over these
  CHECK(message({0, 1}).occupancy == us(80));
  cluster.links.kind = LinkKind::Nvswitch;
  // 800 us on the NIC, 5 us, and the start; at a share of 0.8 its bytes take 1000 us.
  CHECK(message({0, 2}).latency == us(5 + 10));
  cluster.network->share = 0.8;
  CHECK(message({0, 2}).occupancy == us(1000));
  CHECK(message({0, 2}).latency == us(5 + 10));
  // Beside the traffic of others two nodes take 2^1 times as long: 10 + 2 (1000 + 5) us.
  cluster.network->contention = 1;
  CHECK(message({0, 2}).occupancy == us(2 * 1005 - 5));
  CHECK(message({0, 2}).latency == us(5 + 10));
}

TEST_CASE("A stage costs the sum of its layers, and a launch per op") {
  const Scenario scenario = with_skips();
  Plan plan = four_stages();
  plan.stages = 2;
  plan.replicas = {1, 1};
  plan.recompute.assign(2, Recompute::Full);
  plan.layers = {{0, 3}, {3, 4}};
  plan.device = {0, 1};
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  CHECK(costs.time_of({Kind::F, 0, 0, 0}) == us(60 + 1));
  CHECK(costs.time_of({Kind::R, 0, 0, 0}) == us(60 + 1));
  CHECK(costs.time_of({Kind::BW, 0, 0, 0}) == us(120 + 1));
  CHECK(costs.time_of({Kind::B, 0, 0, 0}) == us(60 + 1));
  CHECK(costs.time_of({Kind::W, 0, 0, 0}) == us(60 + 1));
  CHECK(costs.time_of({Kind::B, 1, 0, 0}) == us(80 + 1));  // no parameters: all of it is the input gradient
  CHECK(costs.time_of({Kind::W, 1, 0, 0}) == us(0 + 1));
  CHECK(costs.time_of({Kind::Update, 0, 0, 0}) == Time{0});
}

TEST_CASE("Hop by hop every edge carries all tensors that cross its cut") {
  const Scenario scenario = with_skips();
  const StepCosts costs = step_costs(four_stages(), CostModel(scenario));
  REQUIRE(validate(costs) == "");
  REQUIRE(costs.edges.size() == 3);
  CHECK(carried(costs, 0) == Bytes{1'000});
  CHECK(carried(costs, 1) == Bytes{21'000});
  CHECK(carried(costs, 2) == Bytes{301'000});
}

TEST_CASE("Sent direct, a skipping tensor gets an edge of its own") {
  const Scenario scenario = with_skips();
  Plan plan = four_stages();
  plan.skips = Skips::Direct;
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  REQUIRE(costs.edges.size() == 5);
  CHECK(carried(costs, 0) == Bytes{1'000});
  CHECK(carried(costs, 1) == Bytes{20'000});
  CHECK(carried(costs, 2) == Bytes{300'000});
  CHECK((costs.edges[3].from == 0 && costs.edges[3].to == 2));
  CHECK((costs.edges[4].from == 0 && costs.edges[4].to == 3));
  CHECK(carried(costs, 3) == Bytes{1'000});
  CHECK(carried(costs, 4) == Bytes{1'000});
}

TEST_CASE("Sent direct, a tensor with two users in one stage counts once, and an unused neighbour gets no edge") {
  Scenario scenario = with_skips();
  scenario.model.layers[1].inputs = {};  // b starts a branch of its own
  Plan plan = four_stages();
  plan.skips = Skips::Direct;
  plan.stages = 3;
  plan.replicas = {1, 1, 1};
  plan.recompute.assign(3, Recompute::None);
  plan.layers = {{0, 1}, {1, 2}, {2, 4}};
  plan.device = {0, 1, 2};
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  REQUIRE(costs.edges.size() == 2);  // a and b share nothing
  CHECK((costs.edges[0].from == 1 && costs.edges[0].to == 2));
  CHECK((costs.edges[1].from == 0 && costs.edges[1].to == 2));
  CHECK(carried(costs, 0) == Bytes{20'000});
  CHECK(carried(costs, 1) == Bytes{1'000});  // a -> c and d
}

TEST_CASE("Hop by hop, stages that no tensor joins have no edge; a tensor of no bytes is one and takes its latency") {
  Scenario scenario = with_skips();
  scenario.model.layers = {timed_layer("a", {}, 0, 10), timed_layer("b", {0}, 20'000, 20),
                           timed_layer("c", {}, 300'000, 30), timed_layer("d", {2}, 0, 40)};
  const StepCosts costs = step_costs(four_stages(), CostModel(scenario));
  REQUIRE(validate(costs) == "");
  REQUIRE(costs.edges.size() == 2);
  CHECK((costs.edges[0].from == 0 && costs.edges[0].to == 1));
  CHECK((costs.edges[1].from == 2 && costs.edges[1].to == 3));
  CHECK(carried(costs, 0) == Bytes{0});
  CHECK(costs.message(0, Direction::Forward, 0, 0).occupancy == Time{0});
  CHECK(costs.message(0, Direction::Forward, 0, 0).latency == us(7));
}

// Sources a and b, c <- a, b; 1 + 1 ms each, 1 MB at 1000 GB/s = 1 us a message, 1 ms latency. Forwards of a and b 0-1,
// b's tensor arrives at 2.001: c F 2.001-3.001, B 3.001-4.001, its gradients arrive at 5.002, last backwards end 6.002.
TEST_CASE("Sent direct, two sources run side by side: neither waits for a neighbour that it uses nothing of") {
  Scenario scenario;
  scenario.model.layers = {timed_layer("a", {}, 1'000'000, 1'000), timed_layer("b", {}, 1'000'000, 1'000),
                           timed_layer("c", {0, 1}, 1'000'000, 1'000)};
  for (Layer& each : scenario.model.layers)
    each.backward = each.forward;
  scenario.cluster.devices_per_node = 3;
  scenario.cluster.links.kind = LinkKind::Mesh;
  scenario.cluster.links.bandwidth = Bandwidth{1e12};
  scenario.cluster.links.latency = us(1'000);
  Plan plan = four_stages();
  plan.skips = Skips::Direct;
  plan.stages = 3;
  plan.replicas = {1, 1, 1};
  plan.recompute.assign(3, Recompute::None);
  plan.layers = {{0, 1}, {1, 2}, {2, 3}};
  plan.micro_batches = 1;
  plan.micro_batch_size = plan.last_micro_batch_size = plan.global_batch_size = 1;
  plan.device = {0, 1, 2};
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  const Schedule schedule = find_schedule("gpipe")->generate(costs.shape);
  for (const Timeline& timeline : {static_order(schedule, costs), event_order(schedule, costs)}) {
    CHECK(timeline.workers[1].compute[0] == Span{us(0), us(1'000)});
    CHECK(timeline.workers[2].compute[0] == Span{us(2'001), us(3'001)});
    CHECK(timeline.workers[0].compute[1] == Span{us(5'002), us(6'002)});
    CHECK(timeline.workers[1].compute[1] == Span{us(5'002), us(6'002)});
    CHECK(timeline.makespan == us(6'002));
    CHECK(validate(timeline, schedule, costs) == "");
  }
}

// Two layers of 1 + 2 ms for two samples, 40 MB gradients each, two copies with micro-batches of 2 and 1 samples, a
// bucket per layer: 4 ms each at 10 GB/s.
//     gpipe   F 0-3, B1 3-5, B0 5-9: the upper layer's gradients are complete at 7, all-reduces 7-11-15
//     1f1b    F0 0-2, B0 2-6, F1 6-7, B1 7-9: the lower layer's half backward takes 1 ms, all-reduces 8-12-16
TEST_CASE("Buckets are complete by the times of the micro-batch whose backward is the round's last, smaller or not") {
  Scenario scenario;
  scenario.model.batch = 2;
  scenario.model.layers = {timed_layer("a", {}, 0, 1'000, 10'000'000), timed_layer("b", {0}, 0, 1'000, 10'000'000)};
  scenario.cluster.devices_per_node = 2;
  scenario.cluster.links.kind = LinkKind::Nvswitch;
  scenario.cluster.links.bandwidth = Bandwidth{1e10};
  Plan plan = one_stage({0, 2}, 2);
  plan.micro_batches = 2;
  plan.micro_batch_size = 2;
  plan.last_micro_batch_size = 1;
  plan.global_batch_size = 6;
  plan.device = {0, 1};
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  for (const auto& [name, first, end] : {std::tuple{"gpipe", 7'000, 15'000}, std::tuple{"1f1b", 8'000, 16'000}}) {
    const Schedule schedule = find_schedule(name)->generate(costs.shape);
    for (const Timeline& timeline :
         {static_order(schedule, costs), event_order(schedule, costs), oracle_timeline(schedule, costs)}) {
      CHECK(timeline.workers[1].communication[kReductions][0].start == us(first));
      CHECK(timeline.workers[1].communication[kReductions][1].end == us(end));
      CHECK(timeline.makespan == us(end));
      CHECK(validate(timeline, schedule, costs) == "");
    }
  }
}

TEST_CASE(
    "A message occupies its channel for bytes / bandwidth, then travels for the latency, alike in both directions") {
  const Scenario scenario = with_skips();
  const StepCosts costs = step_costs(four_stages(), CostModel(scenario));
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    const Message& message = costs.message(1, direction, 0, 3);
    CHECK(message.bytes == Bytes{21'000});
    CHECK(message.occupancy == us(21));  // at 1 GB/s
    CHECK(message.latency == us(7));
  }
  CHECK(costs.channels == 6);  // three neighbours, both ways
  CHECK(costs.message(1, Direction::Forward, 0, 0).channel != costs.message(1, Direction::Backward, 0, 0).channel);
  const auto& route = costs.routes[static_cast<std::size_t>(costs.message(1, Direction::Backward, 0, 0).route)];
  CHECK(costs.links[static_cast<std::size_t>(route.links[0])].name == "node 0 device 2 out");
  CHECK(costs.links[static_cast<std::size_t>(route.links[1])].name == "node 0 device 1 in");
}

TEST_CASE("A smaller last micro-batch has smaller messages and times, each rounded once") {
  const Scenario scenario = with_skips();
  Plan plan = four_stages();
  plan.last_micro_batch_size = 1;
  plan.global_batch_size = 29;
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  CHECK(costs.message(0, Direction::Forward, 0, 6).bytes == Bytes{1'000});
  CHECK(costs.message(0, Direction::Forward, 0, 7).bytes == Bytes{250});
  CHECK(costs.message(0, Direction::Forward, 0, 7).occupancy == Time{250});
  CHECK(costs.time_of({Kind::F, 0, 6, 0}) == us(11));
  CHECK(costs.time_of({Kind::F, 0, 7, 0}) == Time{2'500 + 1'000});
  CHECK(costs.time_of({Kind::BW, 3, 7, 0}) == us(20 + 1));
}

TEST_CASE("Copies and replicas are wired by micro-batch, and nothing else has a channel") {
  const Scenario scenario = with_skips();
  Plan plan = four_stages();
  plan.stages = 2;
  plan.data_parallel = 2;
  plan.replicas = {2, 1};
  plan.recompute.assign(2, Recompute::None);
  plan.layers = {{0, 2}, {2, 4}};
  plan.global_batch_size = 64;
  plan.device = {0, 1, 2, 3, 4, 5};  // copy 0: 0 1 | 2, copy 1: 3 4 | 5
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  CHECK(costs.channels == 8);
  const auto ends = [&](CopyId copy, MicroBatchId m) {
    const Message& message = costs.message(0, Direction::Forward, copy, m);
    const auto& links = costs.routes[static_cast<std::size_t>(message.route)].links;
    return costs.links[static_cast<std::size_t>(links[0])].name + ", " +
           costs.links[static_cast<std::size_t>(links[1])].name;
  };
  CHECK(ends(0, 0) == "node 0 device 0 out, node 0 device 2 in");
  CHECK(ends(0, 3) == "node 0 device 1 out, node 0 device 2 in");
  CHECK(ends(1, 4) == "node 0 device 3 out, node 0 device 5 in");
  CHECK(ends(1, 5) == "node 0 device 4 out, node 0 device 5 in");
}

TEST_CASE("Between replica groups only pairs that share a micro-batch are wired") {
  // Replicas 4 and 6: micro-batch m joins m mod 4 and m mod 6, twelve of the twenty-four pairs.
  Scenario scenario = with_skips();
  scenario.cluster.devices_per_node = 10;
  Plan plan = four_stages();
  plan.stages = 2;
  plan.replicas = {4, 6};
  plan.recompute.assign(2, Recompute::None);
  plan.layers = {{0, 2}, {2, 4}};
  plan.micro_batches = 24;
  plan.global_batch_size = 96;
  plan.device = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  CHECK(costs.channels == 2 * 12);
  for (MicroBatchId m = 0; m < 24; ++m)
    CHECK(costs.message(0, Direction::Forward, 0, m).channel >= 0);
}

TEST_CASE("Stages with so many replicas that their pairs fill the memory are refused") {
  Scenario scenario = with_skips();
  scenario.plan.replicas.place = {"s.yaml", 7, 3};
  scenario.cluster.devices_per_node = 8'000;
  Plan plan = four_stages();
  plan.stages = 2;
  plan.replicas = {4'000, 4'000};  // 2 x 16 million
  plan.recompute.assign(2, Recompute::None);
  plan.layers = {{0, 2}, {2, 4}};
  plan.device.resize(8'000);
  std::iota(plan.device.begin(), plan.device.end(), 0);
  CHECK_THROWS_WITH_AS(
      step_costs(plan, CostModel(scenario)),
      "s.yaml:7:3: plan.replicas: neighbouring stages have more than 8388608 pairs of replicas over all "
      "copies; use fewer replicas, e.g. whole copies with plan.data_parallel",
      InputError);
}

TEST_CASE("Chunks on one worker hand over at once; the wrap from the last stage to the first is a message") {
  const Scenario scenario = with_skips();
  Plan plan = four_stages();
  plan.stages = 2;
  plan.virtual_stages = 2;
  plan.replicas = {1, 1};
  plan.recompute.assign(2, Recompute::None);
  plan.device = {0, 1};
  const StepCosts costs = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(costs) == "");
  CHECK(costs.channels == 2);  // chunks 0 1 2 3 on workers 0 1 0 1: edges 0 and 2 share their channels with edge 1
  CHECK(costs.message(0, Direction::Forward, 0, 0).channel == costs.message(2, Direction::Forward, 0, 0).channel);
  CHECK(costs.message(0, Direction::Forward, 0, 0).channel == costs.message(1, Direction::Backward, 0, 0).channel);

  plan.stages = 1;
  plan.virtual_stages = 4;
  plan.replicas = {1};
  plan.recompute.assign(1, Recompute::None);
  plan.device = {0};
  const StepCosts alone = step_costs(plan, CostModel(scenario));
  REQUIRE(validate(alone) == "");
  CHECK(alone.channels == 0);
  CHECK(alone.message(1, Direction::Forward, 0, 0).channel == -1);
  CHECK(alone.message(1, Direction::Forward, 0, 0).occupancy == Time{0});
}

TEST_CASE("A ring played step by step takes the closed form's time on an empty network") {
  // 600 parameters on 8 devices of two nodes: 2400 B, 14 steps of 300 B; a NIC at 1 GB/s and 5 us is the slowest hop.
  Scenario scenario = with_skips();
  scenario.cluster.nodes = 2;
  scenario.cluster.devices_per_node = 4;
  scenario.cluster.network.emplace();
  scenario.cluster.network->bandwidth = Bandwidth{1e9};
  scenario.cluster.network->latency = us(5);
  scenario.cluster.links.latency = us(2);
  Plan plan = one_stage({0, 4}, 8);
  plan.device = {0, 1, 2, 3, 4, 5, 6, 7};
  StepCosts costs = step_costs(plan, CostModel(scenario));
  // The tree would be shorter for so few bytes; this is about the ring.
  const CostModel cost(scenario);
  costs.collectives[0][0] = all_reduce(AllReduce::Ring, plan.device, Bytes{2'400}, cost.topology(), 4);
  CHECK(costs.collectives[0][0].time == Time{14 * (5'000 + 300)});
  const Schedule schedule = find_schedule("data_parallel")->generate(costs.shape);
  const Span reduce = event_order(schedule, costs).workers[0].communication[kReductions][0];
  CHECK(reduce.end - reduce.start == Time{14 * (5'000 + 300)});
  std::vector<Route> hops;
  for (WorkerId i = 0; i < std::ssize(plan.device); ++i)
    hops.push_back(cost.topology().route(plan.device[i], plan.device[(i + 1) % plan.workers()]));
  CHECK(ring_by_steps(hops, costs.links, 2'400) == Time{14 * (5'000 + 300)});
}

TEST_CASE("Plain costs are the textbook's: given times, half a backward each, a hop of pure latency") {
  ScheduleShape shape;
  shape.stages = 3;
  shape.micro_batches = 4;
  shape.data_parallel = 2;
  const StepCosts costs = plain_costs(shape, {us(1), us(2), us(3)}, {us(2), us(4), Time{7}}, Time{50});
  REQUIRE(validate(costs) == "");
  CHECK(costs.time_of({Kind::F, 1, 0, 0}) == us(2));
  CHECK(costs.time_of({Kind::R, 1, 0, 0}) == us(2));
  CHECK(costs.time_of({Kind::BW, 2, 3, 0}) == Time{7});
  CHECK(costs.time_of({Kind::B, 2, 3, 0}) == Time{3});
  CHECK(costs.time_of({Kind::W, 2, 3, 0}) == Time{4});
  CHECK(costs.time_of({Kind::Update, 2, 0, 0}) == Time{0});
  CHECK(costs.channels == 8);
  CHECK(costs.message(1, Direction::Backward, 1, 2).latency == Time{50});
  CHECK(costs.message(1, Direction::Backward, 1, 2).occupancy == Time{0});
  CHECK(costs.message(1, Direction::Backward, 1, 2).route == -1);
  REQUIRE(costs.collectives.size() == 3);
  CHECK(costs.collectives[0].size() == 1);
  CHECK(costs.collectives[0][0].time == Time{0});
}

TEST_CASE("The check of the tables names what was planted") {
  ScheduleShape shape;
  shape.stages = 2;
  shape.data_parallel = 2;
  const StepCosts sound = plain_costs(shape, {us(1), us(1)}, {us(2), us(2)}, Time{50});
  REQUIRE(validate(sound) == "");
  StepCosts costs = sound;
  costs.duration[kKinds] = Time{-1};
  CHECK(validate(costs) == "negative duration of virtual stage 1, kind 0");
  costs = sound;
  costs.slices.assign(2, {costs.duration, costs.ready_before_end});
  CHECK(validate(costs) == "slices: 2 tables for 1");
  costs.shape.slices = 2, costs.shape.micro_batches = 2;
  CHECK(validate(costs) == "");
  costs.slices[1].duration[kKinds] = Time{-1};
  CHECK(validate(costs) == "negative duration of virtual stage 1, kind 0");
  costs.slices[1] = {costs.duration, {}};
  CHECK(validate(costs) == "ready_before_end: one list per virtual stage is needed");
  costs = sound;
  costs.messages[0].channel = costs.channels;
  CHECK(validate(costs) == "edge 0: no such channel");
  costs = sound;
  costs.messages_last[2].route = 0;
  CHECK(validate(costs) == "edge 0: no such route");
  costs = sound;
  costs.messages.pop_back();
  CHECK(validate(costs) == "edge 0: messages are missing");
  costs = sound;
  costs.edges[0].to = 2;
  CHECK(validate(costs) == "edge 0: no such pair of virtual stages");
  costs = sound;
  costs.edges.push_back({0, 1});
  costs.first_message.insert(costs.first_message.end(), {4, 6});
  for (auto* table : {&costs.messages, &costs.messages_last})
    table->insert(table->end(), 4, Message{});
  CHECK(validate(costs) == "edge 1: joins two virtual stages once more");
  costs = sound;
  costs.collectives[1].clear();
  CHECK(validate(costs) == "all-reduce of virtual stage 1: one collective per bucket is needed");
  costs = sound;
  costs.collectives[1][0].time = Time{1};
  CHECK(validate(costs) == "all-reduce of virtual stage 1: time is not the sum of its phases");
  costs = sound;
  costs.gathers.resize(1);
  CHECK(validate(costs) == "gathers: one per virtual stage is needed");
  costs.gathers.assign(costs.collectives.size(), Collective{{1}, Time{2}, {}});
  CHECK(validate(costs) == "all-gather of virtual stage 0: time is not the sum of its phases");
}
