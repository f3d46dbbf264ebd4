// Copies that run alike are simulated once: what is unfolded is what a run of every copy gives, to the nanosecond.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>

#include <doctest/doctest.h>

#include "io/writers/writers.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "sim/simulate.hpp"
#include "tests/support/transformer_block.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  std::int64_t roll(std::int64_t low, std::int64_t high) {  // both included
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return roll(1, n) == 1; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return *(values.begin() + roll(0, std::ssize(values) - 1));
  }
  void shuffle(std::vector<std::int64_t>& values) { std::shuffle(values.begin(), values.end(), random_); }

 private:
  std::mt19937_64 random_;
};

// Nodes and links of any kind, with as many devices as `workers` groups of `group` need, and a few more.
void wire(Cluster& cluster, Dice& dice, std::int64_t workers, std::int64_t group) {
  cluster.devices_per_node = static_cast<int>(group * dice.of<std::int64_t>({1, 2, 2, 3, 4, 4, 8}));
  cluster.nodes =
      static_cast<int>((workers * group + cluster.devices_per_node - 1) / cluster.devices_per_node + dice.roll(0, 1));
  NodeLinks& links = cluster.links;
  links.kind = dice.of({LinkKind::Ideal, LinkKind::Mesh, LinkKind::Nvswitch, LinkKind::Nvswitch, LinkKind::Pcie});
  links.bandwidth = Bandwidth{static_cast<double>(dice.roll(1, 40)) * 1e10};
  links.latency = Time{dice.roll(0, 3) * 100};
  links.duplex = dice.of({Duplex::Full, Duplex::Full, Duplex::Half});
  if (links.kind == LinkKind::Pcie && dice.one_in(2)) {
    links.peer_access = false;
    if (dice.one_in(2)) links.host_bandwidth = Bandwidth{static_cast<double>(dice.roll(1, 40)) * 1e10};
  }
  if (cluster.nodes == 1) return;
  Network& network = cluster.network.emplace();
  network.ideal = dice.one_in(8);
  network.bandwidth = Bandwidth{static_cast<double>(dice.roll(1, 20)) * 1e10};
  network.latency = Time{dice.roll(0, 9) * 100};
  network.per = dice.of({NicPer::Node, NicPer::Device});
  network.duplex = dice.of({Duplex::Full, Duplex::Full, Duplex::Half});
  network.nodes_per_switch = static_cast<int>(dice.roll(1, 4));
  network.oversubscription = dice.of({1.0, 1.0, 2.0, 4.0});
  cluster.sharing = dice.of({Sharing::MaxMin, Sharing::MaxMin, Sharing::MaxMin, Sharing::Fifo});
}

void place(Scenario& scenario, Dice& dice, std::int64_t workers, std::int64_t group) {
  scenario.plan.placement = dice.of({PlacementOrder::Pipeline, PlacementOrder::Data});
  if (!dice.one_in(4)) return;
  std::vector<std::int64_t> devices;
  for (std::int64_t lead = 0; lead + group <= scenario.cluster.devices() && std::ssize(devices) < workers;
       lead += group)
    devices.push_back(lead);
  dice.shuffle(devices);
  scenario.plan.placement = devices;
}

// Stated times; every schedule, ragged batches, replicas, tensors that skip stages.
Scenario stated(Dice& dice) {
  Scenario scenario = uniform_scenario({.layers = static_cast<int>(dice.roll(8, 12))});
  for (Layer& layer : scenario.model.layers) {
    layer.forward = Time{dice.roll(1, 90) * 100};
    layer.backward = Time{dice.roll(1, 150) * 100};
    layer.activation = Bytes{dice.roll(0, 3'000'000)};
    layer.parameters = dice.roll(0, 2'000'000);
  }
  PlanRequest& plan = scenario.plan;
  plan.stages.value = dice.roll(1, 4);
  const std::int64_t copies = plan.data_parallel.value = dice.roll(3, 14);
  plan.schedule.value = dice.of<std::string>(
      {"1f1b", "gpipe", "eager_1f1b", "zb_h1", "pipedream", "interleaved_1f1b", "zbv", "dualpipe"});
  if (plan.stages.value == 1) plan.schedule.value = dice.of<std::string>({"1f1b", "data_parallel"});
  std::int64_t workers = plan.stages.value, micro_batches = dice.roll(1, 6);
  if (plan.schedule.value == "interleaved_1f1b") {
    plan.virtual_stages.value = 2;
    micro_batches = plan.stages.value * dice.roll(1, 2);
  } else if (plan.schedule.value == "zbv") {
    plan.virtual_stages.value = 2;
  } else if (plan.schedule.value == "dualpipe") {
    workers = plan.stages.value = 2 * dice.roll(1, 2);
    micro_batches = 2 * (plan.stages.value + dice.roll(0, 2));
  } else if (plan.schedule.value == "1f1b" && plan.stages.value > 1 && dice.one_in(2)) {
    workers = 0;
    for (std::int64_t k = 0; k < plan.stages.value; ++k)
      workers += plan.replicas.value.emplace_back(dice.roll(1, 3));
  }
  wire(scenario.cluster, dice, workers * copies, 1);
  place(scenario, dice, workers * copies, 1);
  scenario.training.micro_batches = Placed<std::int64_t>{micro_batches, {}};
  scenario.training.micro_batch_size = Placed<std::int64_t>{dice.roll(1, 3), {}};
  if (dice.one_in(3)) {  // the last micro-batch of every copy is smaller
    const std::int64_t size = scenario.training.micro_batch_size->value + 1;
    scenario.training.ragged = true;
    scenario.training.micro_batch_size->value = size;
    scenario.training.micro_batches.reset();
    scenario.training.global_batch_size =
        Placed<std::int64_t>{copies * (size * micro_batches - dice.roll(0, size - 1)), {}};
  }
  const bool divides =
      plan.replicas.value.empty() && plan.schedule.value != "pipedream" && plan.schedule.value != "dualpipe";
  scenario.training.zero = dice.roll(0, divides ? 3 : 1);
  if (scenario.training.zero > 0 && dice.one_in(2)) {  // groups of copies that hold the same
    plan.shard = Placed<std::int64_t>{1, {}};
    for (const std::int64_t group : {2, 3, 4, 5})
      if (copies % group == 0 && dice.one_in(2)) plan.shard->value = group;
  }
  if (scenario.training.zero == 3) plan.reshard_after_forward = Placed<bool>{dice.one_in(2), {}};
  plan.recompute.value = {dice.of({Recompute::None, Recompute::None, Recompute::Full})};
  plan.gradient_sync = dice.of({GradientSync::Overlapped, GradientSync::Overlapped, GradientSync::Blocking});
  plan.bucket = Bytes{dice.roll(1, 8) * 1'000'000};
  if (dice.one_in(4)) {
    plan.skips = Skips::Direct;
    scenario.model.layers[6].inputs = {0, 5};
  }
  return scenario;
}

// Activations that go to another stage's memory.
Scenario moving(Dice& dice) {
  Scenario scenario = stated(dice);
  while (scenario.plan.stages.value != 4 || scenario.plan.virtual_stages.value != 1 ||
         !scenario.plan.replicas.value.empty() || scenario.plan.schedule.value == "dualpipe")
    scenario = stated(dice);
  scenario.plan.schedule.value = "bpipe";
  scenario.plan.reshard_after_forward.reset();
  scenario.training.zero = std::min<std::int64_t>(scenario.training.zero, 1);
  if (scenario.training.micro_batches) scenario.training.micro_batches->value += 4;
  for (Layer& layer : scenario.model.layers)
    layer.stash = Bytes{dice.roll(0, 3'000'000)};
  return scenario;
}

// Blocks of a transformer on groups of t devices.
Scenario groups(Dice& dice) {
  const int t = dice.of({2, 2, 3, 4});
  Scenario scenario =
      block_scenario({.sequence = 256, .hidden = 768, .heads = 12, .inner = 2304}, 6, 8, {t, dice.one_in(2)});
  PlanRequest& plan = scenario.plan;
  plan.stages.value = dice.roll(1, 4);
  const std::int64_t workers = plan.stages.value * (plan.data_parallel.value = dice.roll(3, 9));
  wire(scenario.cluster, dice, workers, t);
  place(scenario, dice, workers, t);
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{dice.roll(1, 5), {}};
  plan.scatter_gather.value = dice.one_in(2);
  plan.bucket = Bytes{dice.roll(1, 12) * 1'000'000};
  return scenario;
}

void check_same(const WorkerReport& a, const WorkerReport& b) {
  CHECK(a.id == b.id);
  CHECK(a.copy == b.copy);
  CHECK(a.stage == b.stage);
  CHECK(a.replica == b.replica);
  CHECK(a.device == b.device);
  CHECK(a.busy == b.busy);
  CHECK(a.idle.fill == b.idle.fill);
  CHECK(a.idle.imbalance == b.idle.imbalance);
  CHECK(a.idle.communication == b.idle.communication);
  CHECK(a.idle.drain == b.idle.drain);
  CHECK(a.memory.bytes == b.memory.bytes);
  CHECK(a.memory.owner == b.memory.owner);
  CHECK(a.memory.at == b.memory.at);
  CHECK(a.fits == b.fits);
}

void check_same(const Report& a, const Report& b) {
  CHECK(a.step_time == b.step_time);
  CHECK(a.samples_per_s == b.samples_per_s);
  CHECK(a.bubble_fraction == b.bubble_fraction);
  CHECK(a.bubble_fraction_span == b.bubble_fraction_span);
  CHECK(a.limiting_factor == b.limiting_factor);
  REQUIRE(a.workers.size() == b.workers.size());
  for (std::size_t w = 0; w < a.workers.size(); ++w)
    check_same(a.workers[w], b.workers[w]);
  REQUIRE(a.stages.size() == b.stages.size());
  for (std::size_t k = 0; k < a.stages.size(); ++k) {
    CHECK(a.stages[k].workers == b.stages[k].workers);
    CHECK(a.stages[k].busy == b.stages[k].busy);
    CHECK(a.stages[k].memory.bytes == b.stages[k].memory.bytes);
  }
  REQUIRE(a.links.size() == b.links.size());
  for (std::size_t i = 0; i < a.links.size(); ++i) {
    CHECK(a.links[i].name == b.links[i].name);
    CHECK(a.links[i].bytes == b.links[i].bytes);
    CHECK(a.links[i].bandwidth == b.links[i].bandwidth);
    CHECK(a.links[i].utilization == b.links[i].utilization);
  }
}

// What came of a comparison, so that none is empty.
struct Seen {
  std::map<std::string, int> folded;  // by schedule
  int all = 0, fewer = 0, shared = 0, kept_several = 0, skipped = 0;
};

void compare(const Scenario& scenario, Seen& seen) {
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  for (const Engine engine : {Engine::Auto, Engine::StaticOrder, Engine::EventQueue}) {
    CAPTURE(static_cast<int>(engine));
    const Answer folded = price(plan, cost, engine), each = price(plan, cost, engine, Copies::Each);
    CHECK(validate(folded.timeline, folded.schedule, folded.costs) == "");
    CHECK(folded.timeline.engine_reason == each.timeline.engine_reason);
    const Timeline unfolded = core::unfolded(folded.timeline, plan, folded.costs.fold.get());
    CHECK(unfolded.makespan == each.timeline.makespan);
    CHECK((unfolded.workers == each.timeline.workers));
    CHECK((unfolded.transfers == each.timeline.transfers));
    check_same(folded.report, each.report);
    ++seen.all;
    if (!folded.costs.fold) continue;
    ++seen.fewer;
    ++seen.folded[plan.schedule];
    seen.shared += engine == Engine::Auto && folded.timeline.engine == EngineRan::EventQueue;
    seen.kept_several += folded.costs.fold->copies.size() > 2;
  }
}

void compare_random(Scenario (*make)(Dice&), unsigned from, unsigned until, Seen& seen) {
  for (unsigned seed = from; seed < until; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Scenario scenario = make(dice);
    try {
      compare(scenario, seen);
    } catch (const InputError&) {  // a shape that the schedule refuses
      ++seen.skipped;
    }
  }
}

TEST_CASE("what is folded and unfolded is what every copy simulated by itself gives: stated times" *
          doctest::test_suite("whole searches")) {
  Seen seen;
  compare_random(stated, 1, 301, seen);
  CHECK(seen.skipped < 30);
  CHECK(seen.fewer > seen.all / 3);
  CHECK(seen.shared > 50);
  CHECK(seen.kept_several > 100);
  for (const char* schedule :
       {"1f1b", "gpipe", "eager_1f1b", "zb_h1", "pipedream", "interleaved_1f1b", "zbv", "dualpipe"})
    CHECK(seen.folded[schedule] > 10);
}

TEST_CASE("what is folded and unfolded is what every copy simulated by itself gives: groups of devices") {
  Seen seen;
  compare_random(groups, 1, 101, seen);
  CHECK(seen.skipped < 10);
  CHECK(seen.fewer > seen.all / 3);
  CHECK(seen.shared > 10);
}

TEST_CASE("what is folded and unfolded is what every copy simulated by itself gives: moves to a partner") {
  Seen seen;
  compare_random(moving, 1, 41, seen);
  CHECK(seen.skipped < 5);
  CHECK(seen.folded["bpipe"] > seen.all / 3);
  CHECK(seen.shared > 10);
}

// Drawings and documents speak of every copy, whichever were simulated.
TEST_CASE("every output of a folded answer is that of a run of every copy") {
  int folded_ones = 0, drawn_apart = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Scenario scenario = seed % 4 == 0 ? groups(dice) : stated(dice);
    const CostModel cost(scenario);
    std::optional<Plan> plan;
    try {
      plan = find_plan(scenario, cost);
    } catch (const InputError&) {
      continue;
    }
    const Answer folded = price(*plan, cost, Engine::Auto), each = price(*plan, cost, Engine::Auto, Copies::Each);
    if (!folded.costs.fold) continue;
    ++folded_ones;
    drawn_apart += text_timeline(each, 100).find("run the same") == std::string::npos;
    for (const Writer& writer : writers()) {
      if (writer.ending.ends_with(".gz") || writer.ending.ends_with("schedule.csv")) continue;  // .trace.json; no times
      CAPTURE(writer.ending);
      CHECK(writer.write(folded, "simulate s.yaml") == writer.write(each, "simulate s.yaml"));
    }
    CHECK(terminal_report(folded, {}) == terminal_report(each, {}));
    CHECK(trace_json(folded, each) == trace_json(each, each));
  }
  CHECK(folded_ones > 10);
  CHECK(drawn_apart > 3);
}

TEST_CASE("copies that run the same are drawn as one, and a trace of too many ops to draw is refused") {
  Scenario scenario = uniform_scenario({.layers = 2, .devices = 4096, .stages = 2, .micro_batches = 4096});
  scenario.plan.data_parallel.value = 2048;
  const CostModel cost(scenario);
  const Answer answer = price(find_plan(scenario, cost), cost, Engine::Auto);
  REQUIRE(answer.costs.fold != nullptr);
  CHECK(svg_timeline(answer).find("2 of 4096 workers are drawn; all copies of the pipeline run the same") !=
        std::string::npos);
  CHECK_THROWS_WITH_AS(trace_json(answer), doctest::Contains("are too many to draw; at most 16777216"), InputError);
}

}  // namespace
}  // namespace pipewright::tests
