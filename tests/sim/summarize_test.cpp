// The summary of a timeline: idle time and its causes, the critical path, bubbles, links, speed, and whether it fits.
// Timelines are small enough to be drawn by hand above each test.
#include "sim/summarize.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "core/answers/report.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "sim/waiting.hpp"

namespace pipewright::tests {
namespace {

constexpr Time ns(std::int64_t value) {
  return {value};
}

// One layer per stage; the memory of every chunk is 100 B of weights and 10 B per micro-batch in flight.
struct World {
  Scenario scenario;
  Plan plan;
  Schedule schedule;
  StepCosts costs;
  MemoryModel memory;
  Timeline timeline;

  World(std::string_view name, const ScheduleShape& shape, std::int64_t forward, std::int64_t backward,
        std::int64_t hop)
      : schedule(find_schedule(name)->generate(shape)) {
    const auto chunks = static_cast<std::size_t>(shape.chunks());
    costs =
        plain_costs(shape, std::vector<Time>(chunks, ns(forward)), std::vector<Time>(chunks, ns(backward)), ns(hop));
    scenario.model.layers.resize(chunks);
    for (Layer& layer : scenario.model.layers)
      layer.parameters = 7;
    plan.schedule = std::string(name);
    plan.stages = shape.stages;
    plan.virtual_stages = shape.virtual_stages;
    plan.data_parallel = shape.data_parallel;
    plan.micro_batches = shape.micro_batches;
    plan.micro_batch_size = plan.last_micro_batch_size = 4;
    plan.global_batch_size = 4 * shape.micro_batches * shape.data_parallel;
    for (int k = 0; k < shape.stages; ++k)
      plan.replicas.push_back(shape.replicas_of(k));
    for (int v = 0; v < shape.chunks(); ++v)
      plan.layers.push_back({v, v + 1});
    for (int worker = 0; worker < plan.data_parallel * static_cast<int>(schedule.positions.size()); ++worker)
      plan.device.push_back(worker);
    const ChunkMemory chunk{.weights = {100},
                            .gradients = {},
                            .optimizer = {},
                            .stash = {Bytes{10}, Bytes{10}},
                            .boundary = {Bytes{3}, Bytes{3}},
                            .working = {Bytes{7}, Bytes{7}}};
    memory = {.chunks = std::vector<ChunkMemory>(chunks, chunk), .reserve = {}, .capacity = {1000}};
  }

  Report report(const std::optional<SteadyState>& steady = {}) {
    timeline = static_order(schedule, costs);
    return summarize(timeline, schedule, plan, costs, memory, scenario, steady);
  }
};

std::string text(const IdleSplit& idle) {
  return "fill " + std::to_string(idle.fill.value) + ", imbalance " + std::to_string(idle.imbalance.value) +
         ", communication " + std::to_string(idle.communication.value) + ", stall " + std::to_string(idle.stall.value) +
         ", drain " + std::to_string(idle.drain.value);
}

std::string text(const std::vector<CriticalPart>& path) {
  std::string all;
  for (const CriticalPart& part : path)
    all += part.what + " " + std::to_string(part.time.value) + "\n";
  return all;
}

Time total(const std::vector<CriticalPart>& path) {
  Time sum;
  for (const CriticalPart& part : path)
    sum += part.time;
  return sum;
}

}  // namespace

// 1F1B, K = 2, M = 2, f = 10, b = 20, free messages:
//     worker 0   F0 0-10, F1 10-20, BW0 40-60, BW1 70-90       waits for BW0 (until 40) and BW1 (until 70) of worker 1
//     worker 1   F0 10-20, BW0 20-40, F1 40-50, BW1 50-70
TEST_CASE("idle time is imbalance while the producer still computes") {
  World world("1f1b", {.stages = 2, .micro_batches = 2}, 10, 20, 0);
  const Report report = world.report();
  CHECK(report.makespan == ns(90));
  CHECK(text(report.workers[0].idle) == "fill 0, imbalance 30, communication 0, stall 0, drain 0");
  CHECK(text(report.workers[1].idle) == "fill 10, imbalance 0, communication 0, stall 0, drain 20");
  CHECK(report.bubble_fraction == doctest::Approx(1.0 / 3));  // (K-1)/(M+K-1)
}

// The same with hops of 4:
//     worker 0   F0 0-10, F1 10-20, BW0 48-68, BW1 78-98
//     worker 1   F0 14-24, BW0 24-44, F1 44-54, BW1 54-74
TEST_CASE("idle time is communication while the tensor is in transit") {
  World world("1f1b", {.stages = 2, .micro_batches = 2}, 10, 20, 4);
  const Report report = world.report();
  CHECK(report.makespan == ns(98));
  CHECK(text(report.workers[0].idle) == "fill 0, imbalance 30, communication 8, stall 0, drain 0");
  CHECK(text(report.workers[1].idle) == "fill 14, imbalance 0, communication 0, stall 0, drain 24");
}

TEST_CASE("the critical path goes back from the last op through what came last, and sums to the makespan") {
  World world("1f1b", {.stages = 2, .micro_batches = 2}, 10, 20, 4);
  const Report report = world.report();
  // BW1 of worker 0 <- message <- BW1, F1, BW0, F0 of worker 1 <- message <- F0 of worker 0
  CHECK(text(report.critical_path) ==
        "backward of stage 1 40\nforward of stage 1 20\nbackward of stage 0 20\nforward of stage 0 10\n"
        "transfer stage 0 -> 1 4\ntransfer stage 1 -> 0 4\n");
  CHECK(total(report.critical_path) == report.makespan);
}

// The setting of docs/how-it-works/model.md section 13: f = 1 ms, b = 2 ms, hops of 96 + 4 us.
TEST_CASE("the quickstart by hand: 34.6 ms, stage 0 waits 9.9 ms for others and 0.7 ms for gradients in transit") {
  World world("1f1b", {.stages = 4, .micro_batches = 8}, 1'000'000, 2'000'000, 0);
  for (auto* messages : {&world.costs.messages, &world.costs.messages_last})
    for (Message& message : *messages)
      message.occupancy = ns(96'000), message.latency = ns(4'000);
  const Report report = world.report();
  CHECK(report.makespan == ns(34'600'000));
  CHECK(text(report.workers[0].idle) == "fill 0, imbalance 9900000, communication 700000, stall 0, drain 0");
  CHECK(report.bubble_fraction == doctest::Approx(1 - 24 / 34.6));
}

// [ZeroBubble23] tables 5 and 9, 1.5B on 8 workers: T_F = 18.522, T_B + T_W = 18.086 + 9.337, T_comm = 0.601 ms.
TEST_CASE("the span bubble is zero-bubble's: .2431 for 1F1B in its first setting") {
  World world("1f1b", {.stages = 8, .micro_batches = 24}, 18'522'000, 27'423'000, 601'000);
  CHECK(std::abs(world.report().bubble_fraction_span - 0.2431) < 5e-5);
}

// Data parallelism, two workers, f = 10, b = 20, one bucket of 15, update 1:
//     F 0-10, BW 10-30, all-reduce 30-45, Update 45-46
TEST_CASE("a worker that waits for its all-reduce is communicating") {
  World world("data_parallel", {.stages = 1, .micro_batches = 1, .data_parallel = 2}, 10, 20, 0);
  world.costs.collectives = {{Collective{.bytes = {}, .time = ns(15), .phases = {}}}};
  world.costs.duration[static_cast<std::size_t>(Kind::Update)] = ns(1);
  const Report report = world.report();
  CHECK(report.makespan == ns(46));
  CHECK(text(report.workers[1].idle) == "fill 0, imbalance 0, communication 15, stall 0, drain 0");
  CHECK(text(report.critical_path) ==
        "backward of stage 0 20\nall-reduce of stage 0 15\nforward of stage 0 10\nupdate of stage 0 1\n");
  CHECK(report.workers[0].update == ns(1));
  CHECK(report.workers[0].busy == ns(31));
  CHECK(report.bubble_fraction == doctest::Approx(15.0 / 46));
  CHECK(report.bubble_fraction_span == 0);  // no update in it: F and BW follow each other
  CHECK(report.limiting_factor ==
        "compute (65.2 % of the critical path; all-reduces 32.6 %, optimizer updates 2.2 %); its one stage is busy "
        "67.4 % of the "
        "run");
}

// One stage in two copies, F 10, BW 20, Update 1. Two buckets of 15; the gradients of the first are there 8 before the
// end of BW.
World two_buckets() {
  ScheduleShape shape{.stages = 1, .micro_batches = 1, .data_parallel = 2};
  shape.buckets = {2};
  World world("data_parallel", shape, 10, 20, 0);
  const Collective bucket{.bytes = {}, .time = ns(15), .phases = {}};
  world.costs.collectives = {{bucket, bucket}};
  world.costs.ready_before_end = {{ns(8), ns(0)}};
  world.costs.duration[static_cast<std::size_t>(Kind::Update)] = ns(1);
  return world;
}

//     F 0-10, BW 10-30, all-reduces 22-37 and 37-52, Update 52-53
TEST_CASE("the critical path leaves a backward where its first bucket is ready") {
  World world = two_buckets();
  const Report report = world.report();
  CHECK(report.makespan == ns(53));
  CHECK(text(report.workers[0].idle) == "fill 0, imbalance 0, communication 22, stall 0, drain 0");
  CHECK(text(report.critical_path) ==
        "all-reduce of stage 0 30\nbackward of stage 0 12\nforward of stage 0 10\nupdate of stage 0 1\n");
}

// The same with a backward that takes 5 beside fewer workers, which is less than those 8: the first bucket is ready
// when it begins.
//     F 0-10, BW 10-15, all-reduces 10-25 and 25-40, Update 40-41
TEST_CASE("no gradient of a backward is ready before it begins") {
  World world = two_buckets();
  world.costs.duration_last = world.costs.duration;
  world.costs.settled = world.costs.duration;
  world.costs.settled[static_cast<std::size_t>(Kind::BW)] = ns(5);
  const Report report = world.report();
  CHECK(report.makespan == ns(41));
  CHECK(text(report.critical_path) == "all-reduce of stage 0 30\nforward of stage 0 10\nupdate of stage 0 1\n");
}

TEST_CASE("a start that nothing explains is a stall of the worker and waiting on the critical path") {
  World world("1f1b", {.stages = 1, .micro_batches = 1}, 10, 20, 0);
  world.report();
  world.timeline.workers[0].compute[1] = {ns(15), ns(35)};  // as a real run might have it
  world.timeline.workers[0].compute[2] = {ns(35), ns(35)};
  world.timeline.makespan = ns(35);
  const Report report =
      summarize(world.timeline, world.schedule, world.plan, world.costs, world.memory, world.scenario, std::nullopt);
  CHECK(text(report.workers[0].idle) == "fill 0, imbalance 0, communication 0, stall 5, drain 0");
  CHECK(text(report.critical_path) == "backward of stage 0 20\nforward of stage 0 10\nwaiting 5\n");
}

TEST_CASE("idle parts and busy time sum to the makespan, the critical path too, for every schedule") {
  for (const ScheduleRule& rule : schedules())
    for (const int K : {1, 2, 3, 5})
      for (const int M : {1, 4, 15})
        for (const int copies : {1, 2})
          for (const int r : {1, 2}) {
            ScheduleShape shape{.stages = K, .micro_batches = M, .data_parallel = copies};
            if (r > 1) shape.replicas.assign(static_cast<std::size_t>(K), 1), shape.replicas[0] = r;
            if (!rule.refusal(shape).empty()) continue;
            World world(rule.name, shape, 11, 23, 5);
            for (auto& buckets : world.costs.collectives)
              for (Collective& bucket : buckets)
                bucket.time = ns(17);
            const Report report = world.report();
            CAPTURE(rule.name);
            for (const WorkerReport& worker : report.workers) {
              CHECK(worker.busy + worker.idle.total() == report.makespan);
              CHECK(worker.forward + worker.backward + worker.recompute + worker.update == worker.busy);
            }
            CHECK(total(report.critical_path) == report.makespan);
            for (const CriticalPart& part : report.critical_path)
              CHECK(part.what != "waiting");  // an engine starts every op as soon as it can
          }
}

// K = 2, M = 1, no updates: worker 0 spans 0-60, worker 1 10-40: work 30 each.
//     makespan: 1 - 60/120      span: 1 - 30/60, the same, because worker 0 spans the makespan
// With updates of 5, worker 0 ends at 65 and worker 1 at 45: makespan 1 - 70/130, span unchanged.
TEST_CASE("the span bubble leaves updates out, the makespan bubble counts them as work") {
  World world("gpipe", {.stages = 2, .micro_batches = 1}, 10, 20, 0);
  CHECK(world.report().bubble_fraction == doctest::Approx(0.5));
  CHECK(world.report().bubble_fraction_span == doctest::Approx(0.5));
  for (const std::size_t chunk : {0u, 1u})
    world.costs.duration[chunk * kKinds + static_cast<std::size_t>(Kind::Update)] = ns(5);
  const Report report = world.report();
  CHECK(report.makespan == ns(65));
  CHECK(report.bubble_fraction == doctest::Approx(1.0 - 70.0 / 130));
  CHECK(report.bubble_fraction_span == doctest::Approx(0.5));
}

TEST_CASE("a link carries the bytes of every message and all-reduce that passes it, and is left out when idle") {
  World world("1f1b", {.stages = 2, .micro_batches = 3, .data_parallel = 2}, 10, 20, 0);
  world.costs.links = {{"cable", Bandwidth{1e9}}, {"unused", Bandwidth{1e9}}, {"ring", Bandwidth{2e9}}};
  world.costs.routes = {{.links = {0}, .bandwidth = Bandwidth{1e9}, .latency = {}}};
  for (auto* messages : {&world.costs.messages, &world.costs.messages_last})
    for (Message& message : *messages)
      message.route = 0, message.bytes = {100};
  CollectivePhase phase;
  phase.bytes = 40;
  phase.links = {{2, 1.5}};
  world.costs.collectives = {{Collective{.bytes = {40}, .time = ns(7), .phases = {phase, phase}}}, {Collective{}}};
  const Report report = world.report();
  REQUIRE(report.links.size() == 2);
  CHECK(report.links[0].name == "cable");
  CHECK(report.links[0].bytes == Bytes{100 * 3 * 2 * 2});  // 3 micro-batches, there and back, 2 copies
  CHECK(report.links[0].utilization == doctest::Approx(1200 / (1e9 * seconds(report.makespan))));
  CHECK(report.links[1].name == "ring");
  CHECK(report.links[1].bytes == Bytes{120});  // 2 phases of 40 B, 1.5 times each; once for all members
}

// [GPipe19] section 2.3's bubble leaves the speed: 12 samples in 4 steps of (f + b).
TEST_CASE("a flush schedule makes one step per makespan") {
  World world("gpipe", {.stages = 2, .micro_batches = 3}, 1'000'000, 2'000'000, 0);
  world.scenario.training.sequence_length = 10;
  const Report report = world.report();
  CHECK(report.step_time == ns(12'000'000));  // (M + K - 1)(f + b)
  CHECK(report.samples_per_s == doctest::Approx(12 / 12e-3));
  CHECK(*report.tokens_per_s == doctest::Approx(10 * 12 / 12e-3));
  CHECK(!report.mfu.has_value());
  CHECK(!report.steady.has_value());
}

// 2 layers of 5 MFLOP per sample: 30 MFLOP of model work per sample and step. 1000 samples/s on 2 workers of 100
// GFLOP/s.
TEST_CASE("MFU is three forwards per sample over the peak of all workers") {
  World world("gpipe", {.stages = 2, .micro_batches = 3}, 1'000'000, 2'000'000, 0);
  world.scenario.model.batch = 2;
  for (Layer& layer : world.scenario.model.layers)
    layer.flops = Flops{10e6};
  world.scenario.cluster.device.peak[Precision::Fp32] = FlopRate{100e9};
  CHECK(*world.report().mfu == doctest::Approx(30e6 * 1000 / 200e9));
  world.scenario.training.precision = Precision::Fp16;  // the device states no such peak
  CHECK(!world.report().mfu.has_value());
}

TEST_CASE("an asynchronous schedule's speed and bubble are those of one steady period") {
  World world("pipedream", {.stages = 2, .micro_batches = 20}, 10, 20, 0);
  // two micro-batches in 80 ns, 4 samples each; both workers together compute for 120 of 160
  const Report report = world.report(SteadyState{.micro_batches = 2, .growth = ns(80), .busy = ns(120)});
  CHECK(report.samples_per_s == doctest::Approx(8 / 80e-9));
  CHECK(report.step_time == ns(800));  // 80 samples
  CHECK(report.bubble_fraction == doctest::Approx(0.25));
  CHECK(report.bubble_fraction_span == doctest::Approx(0.25));
  CHECK(report.makespan == world.timeline.makespan);
}

TEST_CASE("the limiting stage is the busiest, the earliest of equals") {
  World world("1f1b", {.stages = 3, .micro_batches = 4}, 10, 20, 0);
  CHECK(world.report().limiting_stage == 0);
  world.costs.duration[1 * kKinds + static_cast<std::size_t>(Kind::BW)] = ns(21);
  world.costs.duration_last = world.costs.duration;
  const Report report = world.report();
  CHECK(report.limiting_stage == 1);
  CHECK(report.stages[1].busy == ns(4 * 31));
  CHECK(report.stages[1].forward == ns(10));
  CHECK(report.stages[1].backward == ns(21));
  CHECK(report.stages[1].parameters == 7);
  CHECK(report.stages[1].in_flight == 2);
  CHECK(report.limiting_factor.find("compute (100.0 % of the critical path); the busiest is stage 1, ") == 0);
}

TEST_CASE("with a single micro-batch every stage computes a share of the run only") {
  World world("1f1b", {.stages = 4, .micro_batches = 1}, 10, 20, 0);
  const Report report = world.report();
  CHECK(report.limiting_factor ==
        "compute (100.0 % of the critical path); all stages are equally busy, 25.0 % of the run");
}

TEST_CASE("transfers limit where they make up most of the critical path") {
  World world("1f1b", {.stages = 2, .micro_batches = 1}, 10, 20, 100);
  // F 0-10, transfer to 110, F and BW to 140, transfer to 240, BW to 260
  CHECK(world.report().limiting_factor ==
        "transfers (76.9 % of the critical path; compute 23.1 %); all stages are equally busy, 11.5 % of the run");
}

TEST_CASE("the limiting stage of an asynchronous run has most compute per micro-batch and replica") {
  World world("pipedream", {.stages = 2, .micro_batches = 4, .replicas = {3, 1}}, 10, 20, 0);
  for (const Kind kind : {Kind::F, Kind::BW})
    world.costs.duration[static_cast<std::size_t>(kind)] = {40};  // stage 0: 80 / 3 against 30
  world.costs.duration_last = world.costs.duration;
  // In this short run its first replica has two of the four micro-batches, 160, and stage 1 four of 30, 120.
  CHECK(world.report(SteadyState{.micro_batches = 3, .growth = ns(90), .busy = ns(252)}).limiting_stage == 1);
}

TEST_CASE("a plan fits when every worker's peak is within its device") {
  World world("1f1b", {.stages = 2, .micro_batches = 4}, 10, 20, 0);
  world.memory.capacity = {120};  // stage 0: 100 + 2 stashes of 10
  CHECK(world.report().fits);
  CHECK(world.report().shortfall.reason == "");
  world.memory.capacity = {119};
  const Report report = world.report();
  CHECK(!report.fits);
  CHECK(!report.workers[0].fits);
  CHECK(report.workers[1].fits);
  CHECK(report.shortfall.reason == "stage 0 needs 120 B (weights 100, stash 20) of 119 B");
  CHECK(report.shortfall.details.empty());
  world.memory.capacity = {50};
  CHECK(world.report().shortfall.reason == "2 of 2 stages do not fit into their devices");
  CHECK(world.report().shortfall.details ==
        std::vector<std::string>{"stage 0 needs 120 B (weights 100, stash 20) of 50 B",
                                 "stage 1 needs 110 B (weights 100, stash 10) of 50 B"});
}

TEST_CASE("a shortfall is told in GiB with as many decimals as it takes to see it") {
  World world("1f1b", {.stages = 1, .micro_batches = 1}, 10, 20, 0);
  const std::int64_t gib = std::int64_t{1} << 30;
  world.memory.chunks[0].weights = {16 * gib};
  world.memory.chunks[0].stash = {Bytes{gib / 128}, Bytes{gib / 128}};
  world.memory.capacity = {16 * gib};
  CHECK(world.report().shortfall.reason == "stage 0 needs 16.01 GiB (weights 16.00, stash 0.01) of 16.00 GiB");
  world.memory.capacity = {10 * gib};
  CHECK(world.report().shortfall.reason == "stage 0 needs 16.0 GiB (weights 16.0, stash 0.0) of 10.0 GiB");
}

TEST_CASE("micro-batches far from the model's batch are warned about: below a quarter, above four times") {
  World world("1f1b", {.stages = 1, .micro_batches = 1}, 10, 20, 0);
  world.scenario.model.batch = 16;
  world.scenario.model.batch_stated = true;
  const auto warned = [&](std::int64_t size) {
    world.plan.micro_batch_size = size;
    return !world.report().warnings.empty();
  };
  CHECK(warned(3));
  CHECK(!warned(4));
  CHECK(!warned(64));
  CHECK(warned(65));
  world.scenario.model.batch = 5;
  CHECK(warned(1));  // below 1.25
  CHECK(!warned(2));
}

TEST_CASE("times that name no batch hold for one sample, and the warning says so; FLOPs alone scale exactly") {
  World world("1f1b", {.stages = 1, .micro_batches = 1}, 10, 20, 0);
  Scenario& scenario = world.scenario;
  const auto warnings = [&](std::int64_t size) {
    world.plan.micro_batch_size = size;
    return world.report().warnings;
  };
  for (Layer& layer : scenario.model.layers)
    layer.flops = Flops{1e9};
  CHECK(warnings(64).empty());  // priced from FLOPs: nothing is stated for any batch
  scenario.model.layers.back().forward = Time{10};
  CHECK(warnings(4).empty());
  CHECK(warnings(5) ==
        std::vector<std::string>{
            "micro-batches of 5 samples are far from the 1 sample that the layers' figures hold for (model.batch, 1 "
            "where it is not given): costs are scaled in proportion, which is a guess below a quarter and above four "
            "times of it"});
  scenario.cost = CostSourceKind::Uniform;  // the stated time is not used
  CHECK(warnings(5).empty());
}

TEST_CASE("links that something passes without latency are warned about where times are predicted") {
  World world("1f1b", {.stages = 2, .micro_batches = 1}, 10, 20, 0);  // devices 0 and 1
  Cluster& cluster = world.scenario.cluster;
  cluster.nodes = 2, cluster.devices_per_node = 2;
  cluster.links.kind = LinkKind::Nvswitch;
  cluster.network.emplace();
  const auto warned = [&](const std::string& key) {
    const std::vector<std::string> warnings = world.report().warnings;
    return std::any_of(warnings.begin(), warnings.end(),
                       [&](const std::string& each) { return each.starts_with(key + " is 0"); });
  };
  CHECK(!warned("cluster.node.links.latency"));  // times are stated
  world.scenario.cost = CostSourceKind::Roofline;
  CHECK(warned("cluster.node.links.latency"));
  CHECK(!warned("cluster.network.latency"));  // nothing passes it
  cluster.links.latency = ns(1);
  CHECK(!warned("cluster.node.links.latency"));
  cluster.devices_per_node = 1;
  CHECK(warned("cluster.network.latency"));
  cluster.network->latency = ns(1);
  CHECK(!warned("cluster.network.latency"));
}

TEST_CASE("the step of an asynchronous schedule is its batch over the steady rate") {
  Plan plan;
  plan.micro_batch_size = 3;
  plan.data_parallel = 2;
  plan.global_batch_size = 5;
  const SteadyState steady{.micro_batches = 2, .growth = Time{7}};
  CHECK(step_time(plan, Time{1000}, steady) == Time{3});  // 35/12 ns
  CHECK(samples_per_second(plan, Time{1000}, steady) == doctest::Approx(12 / 7e-9));
  CHECK(step_time(plan, Time{1000}, std::nullopt) == Time{1000});
  CHECK(samples_per_second(plan, Time{1000}, std::nullopt) == doctest::Approx(5 / 1e-6));
  CHECK(samples_per_second(plan, Time{}, std::nullopt) == 0);
}

}  // namespace pipewright::tests
