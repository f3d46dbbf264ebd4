// Contiguous cuts that fit, against brute force over all cuts, and on plans whose bytes are worked out by hand.
#include "planner/partitioners/fitting.hpp"

#include <algorithm>
#include <array>
#include <random>

#include <doctest/doctest.h>

#include "core/cost/buckets.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

std::int64_t time_of(const CutProblem& problem, StageId k, LayerRange range) {
  std::int64_t sum = 0;
  for (LayerId i = range.begin; i < range.end; ++i)
    sum += problem.load[static_cast<std::size_t>(i)].value;
  const std::int64_t r = problem.replicas[static_cast<std::size_t>(k)];
  return (sum + r - 1) / r;
}

std::int64_t bottleneck(const CutProblem& problem, const std::vector<LayerRange>& cut) {
  std::int64_t most = 0;
  for (std::size_t k = 0; k < cut.size(); ++k)
    most = std::max(most, time_of(problem, static_cast<StageId>(k), cut[k]));
  return most;
}

// Least bottleneck over all cuts from stage k on that fit; -1: none.
std::int64_t brute_force(const CutProblem& problem, StageId k, LayerId begin) {
  const auto layers = static_cast<LayerId>(problem.load.size());
  const auto stages = static_cast<StageId>(problem.replicas.size());
  if (k == stages) return begin == layers ? 0 : -1;
  std::int64_t best = -1;
  for (LayerId end = begin + 1; end <= layers; ++end) {
    if (!problem.fits(k, {begin, end})) continue;
    const std::int64_t rest = brute_force(problem, k + 1, end);
    if (rest < 0) continue;
    const std::int64_t all = std::max(rest, time_of(problem, k, {begin, end}));
    if (best < 0 || all < best) best = all;
  }
  return best;
}

// Layers of a chain with kept bytes and an input boundary each; stage k holds K - k micro-batches of both.
struct RandomChain {
  std::vector<std::int64_t> kept, boundary;
  std::int64_t capacity;
  int stages;
  std::int64_t need(StageId k, LayerRange range) const {
    std::int64_t sum = boundary[static_cast<std::size_t>(range.begin)];
    for (LayerId i = range.begin; i < range.end; ++i)
      sum += kept[static_cast<std::size_t>(i)];
    return sum * (stages - k);
  }
  bool fits(StageId k, LayerRange range) const { return need(k, range) <= capacity; }

  // Of all cuts from stage k on, the least that the fullest stage needs.
  std::int64_t least(StageId k, LayerId begin) const {
    const auto layers = static_cast<LayerId>(kept.size());
    if (k + 1 == stages) return need(k, {begin, layers});
    std::int64_t best = kLargest;
    for (LayerId end = begin + 1; end + stages - 1 - k <= layers; ++end)
      best = std::min(best, std::max(need(k, {begin, end}), least(k + 1, end)));
    return best;
  }
};

Scenario scenario_of(const std::string& plan, const std::string& memory, int layers = 8) {
  return read_text(ScenarioText{.model = "{layers: [{name: a, repeat: " + std::to_string(layers) +
                                         ", forward: 1 ms, backward: 2 ms, activation: 1000 B, stash: 1000 B}]}",
                                .cluster = "{node: {devices: 8, device: {memory: " + memory + "}}}",
                                .plan = plan});
}
std::vector<int> sizes(const Plan& plan) {
  std::vector<int> list;
  for (const LayerRange& range : plan.layers)
    list.push_back(range.size());
  return list;
}

}  // namespace

TEST_CASE("The cut fits and has the least bottleneck of all that do, or no cut fits") {
  std::mt19937 random(7);
  const auto up_to = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most)); };
  int found = 0, none = 0;
  for (int round = 0; round < 400; ++round) {
    const int layers = 2 + static_cast<int>(up_to(8));
    RandomChain chain{{}, {}, 10 + up_to(120), 1 + static_cast<int>(up_to(std::min(layers, 4)))};
    CutProblem problem;
    for (int i = 0; i < layers; ++i) {
      chain.kept.push_back(up_to(12));
      chain.boundary.push_back(up_to(12));
      problem.load.push_back(Time{up_to(20)});
    }
    // Half of the rounds with tensors that shrink along the chain: there the fast way must be exact, too.
    problem.later_needs_less = round % 2 == 0;
    if (problem.later_needs_less) std::sort(chain.boundary.rbegin(), chain.boundary.rend());
    for (int k = 0; k < chain.stages; ++k)
      problem.replicas.push_back(1 + static_cast<int>(up_to(3)));
    problem.fits = [&](StageId k, LayerRange range) { return chain.fits(k, range); };
    const auto cut = fitting_cut(problem);
    const std::int64_t best = brute_force(problem, 0, 0);
    CAPTURE(round);
    REQUIRE(cut.has_value() == (best >= 0));
    (cut ? found : none) += 1;
    if (!cut) continue;
    CHECK(bottleneck(problem, *cut) == best);
    LayerId begin = 0;
    for (std::size_t k = 0; k < cut->size(); ++k) {
      CHECK((*cut)[k].begin == begin);
      CHECK((*cut)[k].size() >= 1);
      CHECK(problem.fits(static_cast<StageId>(k), (*cut)[k]));
      begin = (*cut)[k].end;
    }
    CHECK(begin == layers);
  }
  CHECK(found > 50);
  CHECK(none > 50);
}

TEST_CASE("The cut that needs least is the least of all cuts; a most that none keeps to is told, with what is needed") {
  std::mt19937 random(19);
  const auto up_to = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most)); };
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const int layers = 2 + static_cast<int>(up_to(8));
    RandomChain chain{{}, {}, 0, 1 + static_cast<int>(up_to(std::min(layers, 4)))};
    CutProblem problem;
    for (int i = 0; i < layers; ++i) {
      chain.kept.push_back(up_to(12));
      chain.boundary.push_back(up_to(round % 3 == 0 ? 100 : 12));  // at times more than all layers keep
      problem.load.push_back(Time{up_to(20)});
    }
    problem.later_needs_less = round % 2 == 0;
    if (problem.later_needs_less) std::sort(chain.boundary.rbegin(), chain.boundary.rend());
    problem.replicas.assign(static_cast<std::size_t>(chain.stages), 1);
    const StageNeed need = [&](StageId k, LayerRange range) { return Bytes{chain.need(k, range)}; };
    const std::int64_t least = chain.least(0, 0);
    const LeastCut found = least_cut(problem, need, Bytes{1});
    REQUIRE(found.layers.size() == static_cast<std::size_t>(chain.stages));
    CHECK(found.memory == Bytes{least});
    std::int64_t most = 0;
    for (std::size_t k = 0; k < found.layers.size(); ++k)
      most = std::max(most, chain.need(static_cast<StageId>(k), found.layers[k]));
    CHECK(most == least);
    CHECK(least_cut(problem, need, Bytes{1}, Bytes{least}).memory == Bytes{least});
    const LeastCut too_little = least_cut(problem, need, Bytes{1}, Bytes{least - 1});
    CHECK(too_little.layers.empty());
    CHECK(too_little.memory <= Bytes{least});
    CHECK(too_little.memory > Bytes{least - 1});
  }
}

// 1F1B on two stages, M = 4: stage 0 keeps two micro-batches of its layers, stage 1 one of its layers and its input.
// Equal cuts, 4 + 4, need 8000 B on stage 0 and 5000 B on stage 1 (and buffers). With 7 kB, stage 0 has room for 3.
TEST_CASE("Where the balanced cut does not fit, layers move to where there is room") {
  const Scenario roomy = scenario_of("{stages: 2, partition: fitting}", "16 GiB");
  CHECK(sizes(find_plan(roomy, CostModel(roomy))) == std::vector<int>{4, 4});
  const Scenario tight = scenario_of("{stages: 2, partition: fitting}", "7900 B");
  const CostModel cost(tight);
  const Plan plan = find_plan(tight, cost);
  CHECK(sizes(plan) == std::vector<int>{3, 5});
  CHECK(price(plan, cost, Engine::Auto).report.fits);
}

// Stage 0 needs 2000 B a layer, stage 1 1000 B a layer and 1000 B of input: 3 + 5 needs 6000 B at least.
TEST_CASE("Where no cut fits, the nearest miss is priced, and least_memory is what it takes") {
  const Scenario scenario = scenario_of("{stages: 2, partition: fitting}", "5500 B");
  const CostModel cost(scenario);
  Plan plan = find_plan(scenario, cost);
  CHECK(sizes(plan) == std::vector<int>{3, 5});
  CHECK_FALSE(price(plan, cost, Engine::Auto).report.fits);
  const FittingPlan missed = fitting_layers(plan, cost);
  CHECK_FALSE(missed.fits);
  CHECK(missed.least_memory == Bytes{6000});
}

TEST_CASE("fitting is refused where chunks share a device") {
  const Scenario scenario =
      scenario_of("{stages: 2, virtual_stages: 2, schedule: interleaved_1f1b, partition: fitting}", "1 GiB");
  CHECK(message_of([&] { find_plan(scenario, CostModel(scenario)); }).find("fitting is for one chunk per stage") !=
        std::string::npos);
}

// What the search asks for one stage is what the memory model says of it in the whole plan: long skips, every stage.
TEST_CASE("The memory of one stage is that of the stage in its plan") {
  for (const char* skips : {"hop", "direct"}) {
    const Scenario scenario = read_text(
        ScenarioText{.model = "{family: unet, convolutions: 1, channels: 8, image: 64}",
                     .cluster = "{node: {devices: 4, device: {memory: 16 GiB, peak: {fp32: 1 TFLOP/s}, "
                                "memory_bandwidth: 1 TB/s}}}",
                     .training = "{global_batch_size: 10, micro_batch_size: 4, ragged: true}",
                     .plan = std::string("{stages: 4, recompute: [full, none, full, none], skips: ") + skips + "}"});
    const CostModel cost(scenario);
    const Plan plan = find_plan(scenario, cost);
    const Schedule schedule = make_schedule(plan, schedule_shape(plan, scenario.model, scenario.training));
    const MemoryModel whole = memory_model(plan, cost);
    const std::array<LayerCosts, 2> layers = {cost.layers(plan.micro_batch_size),
                                              cost.layers(plan.last_micro_batch_size)};
    for (StageId k = 0; k < 4; ++k) {
      CAPTURE(k);
      const MemoryModel alone = memory_of_stage(plan, cost, layers, k);
      CHECK(peak(alone, schedule, as<PositionId>(k)).bytes == peak(whole, schedule, as<PositionId>(k)).bytes);
      CHECK(peak(alone, schedule, as<PositionId>(k)).bytes.stash > Bytes{});
    }
  }
}
