// Workers that are groups of devices: where they stand, what is refused, what the report counts.
#include <algorithm>
#include <variant>

#include <doctest/doctest.h>

#include "planner/answer.hpp"
#include "planner/what_if/speed_range.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/transformer_block.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

// Four blocks in bf16 on 8 devices behind a switch.
Scenario blocks(std::int64_t stages, TensorParallel split) {
  Scenario scenario = block_scenario({.sequence = 256, .hidden = 512, .heads = 8, .inner = 2048}, 4, 8, split);
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{100e9}, .latency = Time{1000}};
  scenario.training.micro_batch_size = Placed<std::int64_t>{2, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{4, {}};
  scenario.plan.stages.value = stages;
  scenario.plan.tensor_parallel.place = {"s.yaml", 5, 3};
  scenario.plan.sequence_parallel.place = {"s.yaml", 6, 3};
  return scenario;
}

Answer answered(const Scenario& scenario) {
  auto found = answer(scenario);
  REQUIRE(std::holds_alternative<Answer>(found));
  return std::get<Answer>(std::move(found));
}

TEST_CASE("a worker takes t consecutive devices, named by the first") {
  Scenario scenario = blocks(2, {2, false});
  scenario.plan.data_parallel.value = 2;
  Plan plan = plan_of(scenario);
  CHECK(plan.device == std::vector<DeviceId>{0, 2, 4, 6});
  CHECK(plan.workers() == 4);
  CHECK(plan.devices() == 8);
  scenario.plan.placement = PlacementOrder::Data;
  CHECK(plan_of(scenario).device == std::vector<DeviceId>{0, 4, 2, 6});
  scenario.plan.placement = std::vector<std::int64_t>{6, 0, 2, 4};
  CHECK(plan_of(scenario).device == std::vector<DeviceId>{6, 0, 2, 4});
}

TEST_CASE("groups that overlap or pass the last device are refused") {
  Scenario scenario = blocks(2, {2, false});
  scenario.plan.placement = std::vector<std::int64_t>{0, 1};
  CHECK(error_of(scenario).find("device 1 belongs to two workers") != std::string::npos);
  scenario.plan.placement = std::vector<std::int64_t>{0, 7};
  CHECK(error_of(scenario).find("cannot begin at device 7") != std::string::npos);
  Plan plan = plan_of(blocks(2, {2, false}));
  plan.device = {0, 1};
  CHECK_THROWS_WITH_AS(validate(plan, scenario.model, scenario.cluster),
                       "plan: workers 0 and 1 are both placed on device 1", InputError);
  plan.device = {0, 7};
  CHECK_THROWS_AS(validate(plan, scenario.model, scenario.cluster), InputError);
}

TEST_CASE("all devices of all groups must be there") {
  CHECK(error_of(blocks(2, {8, false})) ==
        "s.yaml:5:3: plan: needs 2 x 8 (tensor_parallel) = 16 devices, the cluster has 8; use fewer stages, replicas "
        "or copies, a smaller tensor_parallel, or a larger cluster");
}

TEST_CASE("stated layers cannot be shared, and sequence parallelism needs a group") {
  Scenario stated = uniform_scenario();
  stated.plan.tensor_parallel = {2, {"s.yaml", 5, 3}};
  CHECK(error_of(stated).find("s.yaml:5:3: plan.tensor_parallel: 2, but the figures of layer \"layer0\" are stated") !=
        std::string::npos);
  CHECK(error_of(blocks(2, {1, true})).find("s.yaml:6:3: plan.sequence_parallel: true divides the sequence") !=
        std::string::npos);
  Scenario waiting = blocks(2, {2, false});
  waiting.plan.tensor_overlap = {TensorOverlap::Beside, {"s.yaml", 7, 3}};
  CHECK(error_of(waiting) ==
        "s.yaml:7:3: plan.tensor_overlap: true runs beside products what sequence parallelism gathers and scatters; "
        "write "
        "plan.sequence_parallel: true, or leave it out");
  for (const TensorParallel split :
       {TensorParallel{2, false}, TensorParallel{1, false}}) {  // which backward does not want
    const Scenario without = blocks(2, split);
    Scenario beside = without;
    beside.plan.tensor_overlap.value = TensorOverlap::Backward;
    CHECK((answered(beside).report.step_time < answered(without).report.step_time) == (split.degree > 1));
    CHECK(answered(beside).report.step_time <= answered(without).report.step_time);
  }
}

TEST_CASE("exchanges beside gradients of weights count as in parts where those come later") {
  Scenario scenario = blocks(2, {2, true});
  scenario.cluster.links.bandwidth = Bandwidth{1e12}, scenario.cluster.links.latency = {};
  const auto missing = [&](TensorOverlap overlap) {  // of both halves, in a whole backward
    scenario.plan.tensor_overlap.value = overlap;
    const std::vector<Time> times = step_costs(plan_of(scenario), CostModel(scenario)).duration;
    const auto of = [&](Kind kind) { return times[at(static_cast<int>(kind))]; };
    return of(Kind::B) + of(Kind::W) - of(Kind::BW);
  };
  const Time overhead = missing(TensorOverlap::None);
  CHECK(missing(TensorOverlap::Ring) == overhead);
  scenario.plan.tensor_overlap.value = TensorOverlap::Beside;
  const LayerCosts layers = CostModel(scenario).layers(2);
  CHECK(missing(TensorOverlap::Beside) == overhead + layers.apart[0] + layers.apart[1]);
  CHECK(layers.apart[0] > Time{});
  scenario.plan.tensor_overlap.value = TensorOverlap::Backward;  // waited for there
  const LayerCosts waiting = CostModel(scenario).layers(2);
  CHECK(missing(TensorOverlap::Backward) == overhead + waiting.apart[0] + waiting.apart[1]);
  CHECK(waiting.apart[0] > layers.apart[0]);
}

TEST_CASE("what is left beside products shares links, in the passes over weights, too") {
  Scenario scenario = blocks(2, {2, true});
  scenario.cluster.links.bandwidth = Bandwidth{5e9};
  scenario.plan.tensor_overlap.value = TensorOverlap::Beside;
  const StepCosts alone = step_costs(plan_of(scenario), CostModel(scenario));
  scenario.plan.tensor_links.value = TensorLinks::Shared;
  const StepCosts shared = step_costs(plan_of(scenario), CostModel(scenario));
  CHECK((shared.duration == alone.duration));
  CHECK(validate(shared) == "");
  REQUIRE(shared.tensor_flows.has_value());
  for (const Kind kind : {Kind::F, Kind::BW, Kind::W}) {
    const auto& [time, bytes] = shared.tensor_flows->of_full[at(static_cast<int>(kind))];
    CHECK(time > Time{});
    CHECK(bytes <= 5.0 * static_cast<double>(time.value));
  }
  const Answer answer = answered(scenario);
  CHECK(validate(answer.timeline, answer.schedule, answer.costs) == "");
}

TEST_CASE("exchanges that share links are a flow of each op over the ring of its group") {
  Scenario scenario = blocks(2, {2, false});
  const auto costs_of = [](const Scenario& of) { return step_costs(plan_of(of), CostModel(of)); };
  const StepCosts alone = costs_of(scenario);
  CHECK_FALSE(alone.tensor_flows.has_value());
  scenario.plan.tensor_links.value = TensorLinks::Shared;
  const StepCosts shared = costs_of(scenario);
  REQUIRE(shared.tensor_flows.has_value());
  CHECK(validate(shared) == "");
  CHECK((shared.duration == alone.duration));
  // Two all-reduces in each of two blocks: 2 x 256 x 512 values of 2 B at 100 GB/s; their latencies are no bytes.
  for (const VirtualStageId stage : {0, 1})
    for (const Kind kind : {Kind::F, Kind::R, Kind::BW}) {
      const auto& [time, bytes] = shared.tensor_flows->of_full[at(stage) * kKinds + at(static_cast<int>(kind))];
      CHECK(std::abs(time.value - 20'972) <= 2);
      CHECK(bytes == doctest::Approx(4 * 2 * 256 * 512 * 2).epsilon(1e-4));
    }
  CHECK(shared.tensor_flows->of_full[at(static_cast<int>(Kind::W))].time == Time{});
  REQUIRE(shared.tensor_flows->links.size() == 2);
  for (const int worker : {0, 1}) {
    const auto& links = shared.tensor_flows->links[at(worker)];
    CHECK(links.size() == 4);  // both ports of both devices
    for (const auto& [link, weight] : links)
      CHECK(weight == 1);
  }
  // Messages to the other stage pass the first of them, too. The report says what all links carry.
  const Answer answer = answered(scenario);
  CHECK(answer.timeline.makespan > answered(blocks(2, {2, false})).timeline.makespan);
  CHECK(answer.report.links.size() == 8);
}

TEST_CASE("an exchange between nodes gives way to messages that pass the same NIC") {
  Scenario scenario = blocks(2, {4, false});
  scenario.cluster.nodes = 4, scenario.cluster.devices_per_node = 2;
  scenario.cluster.network = Network{.bandwidth = Bandwidth{10e9}, .latency = Time{2000}};
  const Time alone = answered(scenario).timeline.makespan;
  scenario.plan.tensor_links.value = TensorLinks::Shared;
  const Answer shared = answered(scenario);
  CHECK(shared.timeline.engine == EngineRan::EventQueue);
  CHECK(validate(shared.timeline, shared.schedule, shared.costs) == "");
  CHECK(shared.timeline.makespan > alone);
  CHECK(shared.costs.fold == nullptr);
}

TEST_CASE("exchanges that share links: their bytes are those of the group, whatever way they take") {
  const auto sent = [](bool halves, LinkKind kind) {
    Scenario scenario = blocks(1, {4, halves});
    scenario.cluster.links.kind = kind;
    scenario.plan.tensor_links.value = TensorLinks::Shared;
    const StepCosts costs = step_costs(plan_of(scenario), CostModel(scenario));
    return costs.tensor_flows->of_full[at(static_cast<int>(Kind::F))].bytes;
  };
  // 8 all-reduces of 2 x 256 x 512 values of 2 B: 2 x 3/4 of them pass each port.
  constexpr double kPassed = 8 * 1.5 * 2 * 256 * 512 * 2;
  CHECK(sent(false, LinkKind::Nvswitch) == doctest::Approx(kPassed).epsilon(1e-4));
  CHECK(sent(true, LinkKind::Nvswitch) == doctest::Approx(kPassed).epsilon(1e-4));
  CHECK(sent(false, LinkKind::Pcie) == doctest::Approx(kPassed).epsilon(1e-4));
}

TEST_CASE("exchanges that share links: what limits the step is found") {
  Scenario scenario = blocks(2, {2, false});
  scenario.plan.data_parallel.value = 2;
  scenario.plan.tensor_links.value = TensorLinks::Shared;
  const Answer shared = answered(scenario);
  CHECK(shared.timeline.engine == EngineRan::EventQueue);
  Time waiting;
  for (const CriticalPart& part : shared.report.critical_path)
    if (part.kind == CriticalPart::Class::Waiting) waiting += part.time;
  CHECK(10 * waiting < shared.timeline.makespan);
}

TEST_CASE("exchanges that share links: what is refused") {
  const auto refused = [](const auto& change) {
    Scenario scenario = blocks(2, {2, true});
    scenario.plan.tensor_links = {TensorLinks::Shared, {"s.yaml", 8, 3}};
    change(scenario);
    return error_of(scenario);
  };
  // Without a group there is nothing to share, which the answer says.
  Scenario alone = blocks(2, {1, false});
  alone.plan.tensor_links.value = TensorLinks::Shared;
  const std::vector<std::string> warnings = answered(alone).report.warnings;
  CHECK(std::find(
            warnings.begin(), warnings.end(),
            "plan.tensor_links has no effect: no group exchanges anything; it needs plan.tensor_parallel: 2 or more") !=
        warnings.end());
  CHECK(refused([](Scenario& scenario) { scenario.plan.pairs.value = Pairs::Fused; })
            .find("s.yaml:8:3: plan.tensor_links: shared is not simulated with plan.pairs: fused; leave one of the two "
                  "out") != std::string::npos);
  CHECK(refused([](Scenario& scenario) {
          scenario.cluster.device.contention.memory = 1.1;
        }).find("shared is not simulated with device.contention; leave one of the two out") != std::string::npos);
  CHECK(refused([](Scenario& scenario) {
          scenario.cost = CostSourceKind::Uniform;
        }).find("shared needs cost: roofline, which knows what a group exchanges") != std::string::npos);
}

TEST_CASE("devices count for MFU and efficiency, and the references divide no layer") {
  const Answer answer = answered(blocks(2, {2, false}));
  const Report& report = answer.report;
  CHECK(report.workers.size() == 2);
  CHECK(report.scaling_efficiency == doctest::Approx(report.speedup_one_device / 4));
  // One device takes M (F + B) of all four blocks, undivided.
  const Scenario alone = blocks(1, {});
  const LayerCosts layers = CostModel(alone).layers(2);
  Time sum;
  for (std::size_t i = 0; i < 4; ++i)
    sum += layers.forward[i] + layers.backward[i];
  const Time update = CostModel(alone).source().update(parameter_count(alone.model));
  CHECK(*report.references[0].samples_per_s == doctest::Approx(8 / seconds(4 * sum + update)));
  double flops = 0;
  for (const Layer& layer : alone.model.layers)
    flops += 3 * layer.flops->value;
  CHECK(*report.mfu == doctest::Approx(flops * report.samples_per_s / (4 * 312e12)));
}

TEST_CASE("without a band there is no interval, and no share passes 1 at the upper end of its band") {
  Scenario scenario = blocks(2, {});
  CHECK_FALSE(answered(scenario).report.range.has_value());
  const auto efficiency = [](double share, double band) {
    Efficiency each;
    each.curve = {{1.0, share}};
    each.band = band;
    return each;
  };
  auto& all = scenario.cluster.device.efficiency;
  for (auto& each : all)
    each = efficiency(1, 0.3);
  scenario.cluster.links.band = 0;
  const Report report = answered(scenario).report;
  REQUIRE(report.range.has_value());
  CHECK(static_cast<double>(report.range->fastest.value) * (1 + kLeftOut) ==
        doctest::Approx(static_cast<double>(report.step_time.value)));
  CHECK(report.range->samples_per_s_low == doctest::Approx(8 / seconds(report.range->slowest)));
}

TEST_CASE("selective recomputation without attention cores, and ZeRO-1 without partners, are said to have no effect") {
  Scenario scenario = uniform_scenario();
  scenario.plan.recompute.value = {Recompute::Selective};
  scenario.training.zero = 1;
  const auto warned = [](const Scenario& asked, const char* what) {
    const Report report = answered(asked).report;
    return std::any_of(report.warnings.begin(), report.warnings.end(),
                       [&](const std::string& line) { return line.starts_with(what); });
  };
  CHECK(warned(scenario, "plan.recompute: selective has no effect"));
  CHECK(warned(scenario, "training.zero: 1 has no effect"));
  CHECK(answered(scenario).report.step_time == answered(uniform_scenario()).report.step_time);
  Scenario attention = blocks(2, {});
  attention.plan.recompute.value = {Recompute::Selective};
  CHECK_FALSE(warned(attention, "plan.recompute"));
}

TEST_CASE("rounding and fragmentation decide whether a stage fits, as they are part of what it needs") {
  Scenario scenario = blocks(2, {});
  Answer roomy = answered(scenario);
  CHECK(roomy.report.stages[0].need.with_reserve == roomy.report.stages[0].memory.bytes.total());
  Bytes most;
  for (const StageReport& stage : roomy.report.stages)
    most = std::max(most, stage.need.with_reserve);
  scenario.cluster.device.memory = most;
  CHECK(answered(scenario).report.fits);
  scenario.cluster.device.fragmentation = 0.01;
  const auto tight = answer(scenario, {.ignore_memory = true});
  REQUIRE(std::holds_alternative<Answer>(tight));
  CHECK_FALSE(std::get<Answer>(tight).report.fits);
  CHECK(std::get<Answer>(tight).report.shortfall.reason.find("fragmentation") != std::string::npos);
}

}  // namespace
}  // namespace pipewright::tests
