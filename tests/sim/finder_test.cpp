// The finder of orders: its prices against the engine's, its orders beside the published ones. finder_orders_test.cpp has all
// orders of small problems.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/step_costs.hpp"
#include "core/plan/given_schedule.hpp"
#include "sim/finder/find_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "tests/sim/finder_problems.hpp"

namespace pipewright::tests {
namespace {

struct PublishedSetting {
  int stages, micro_batches;
  Passes4 times;
  std::int64_t hidden, heads;
  double one, two;  // published rates of ZB-1p and ZB-2p
};
// [ZeroBubble23] tables 5 and 9; memory as table 1 has it, per layer of 1024 tokens: 34 h + 5 a s, of which W needs 32 h.
constexpr std::array kPublished = {
    PublishedSetting{8, 24, {18522, 18086, 9337, 601}, 2304, 24, .1585, .0433},
    PublishedSetting{8, 32, {18513, 18086, 9331, 626}, 2304, 24, .1242, .0039},
    PublishedSetting{8, 64, {18546, 18097, 9321, 762}, 2304, 24, .0674, .0026},
    PublishedSetting{8, 24, {29718, 29444, 19927, 527}, 4096, 32, .1323, .0029},
    PublishedSetting{8, 32, {29802, 29428, 19530, 577}, 4096, 32, .1045, .0022},
    PublishedSetting{8, 64, {29935, 29621, 19388, 535}, 4096, 32, .0554, .0010},
    PublishedSetting{16, 48, {11347, 11248, 8132, 377}, 5120, 40, .1397, .0066},
    PublishedSetting{16, 64, {11307, 11254, 8101, 379}, 5120, 40, .1088, .0054},
    PublishedSetting{16, 128, {11325, 11308, 8109, 378}, 5120, 40, .0576, .0028},
    PublishedSetting{32, 96, {10419, 10207, 7715, 408}, 6144, 48, .1421, .0038},
    PublishedSetting{32, 128, {10408, 10204, 7703, 408}, 6144, 48, .1106, .0029},
    PublishedSetting{32, 256, {10402, 10248, 7698, 460}, 6144, 48, .0594, .0018},
};

OrderProblem problem_of(const PublishedSetting& setting, int room) {
  const std::int64_t held = 34 * setting.hidden + 5 * setting.heads * 1024;
  return alike(setting.stages, 1, setting.micro_batches, setting.times, held, 32 * setting.hidden,
               room * setting.stages * held);
}

double idle_share(const OrderProblem& problem, std::int64_t span) {
  return 1 - static_cast<double>(problem.work(0)) / static_cast<double>(span);
}

// The order as a file would give it.
Schedule as_from_file(const OrderProblem& problem, const PricedOrder& order) {
  ScheduleShape shape = shape_of_ops(problem);
  auto given = std::make_shared<GivenSchedule>();
  given->stages = shape.stages, given->micro_batches = shape.micro_batches, given->chunk_order = shape.chunk_order;
  given->compute = ops_of(problem, order.codes);
  shape.given = given;
  Schedule schedule = find_schedule("file")->generate(shape);
  REQUIRE(validate(schedule) == "");
  return schedule;
}

// Forwards of 10, hops of 1.
StepCosts four_stages(const ScheduleShape& shape, Time input, Time weights) {
  StepCosts costs = plain_costs(shape, std::vector<Time>(4, Time{10}), std::vector<Time>(4, input + weights), Time{1});
  for (auto* const durations : {&costs.duration, &costs.duration_last})
    for (std::size_t v = 0; v < 4; ++v) {
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::B)] = input;
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::W)] = weights;
    }
  return costs;
}

// One chunk on each stage, K from 2 to 16, times and room by chance; M from K to 2 K, or from there to 64.
OrderProblem stages_that_differ(std::uint64_t seed, bool many) {
  Random chance(seed);
  const auto between = [&](int low, int high) { return static_cast<int>(number_between(chance, low, high)); };
  const int K = between(2, 16), M = many ? between(2 * K + 1, 64) : between(K, 2 * K);
  const int room = K * between(100, 200) / 100, hop = 10 * between(0, 100);
  OrderProblem problem = alike(K, 1, M, {1, 1, 1, hop}, 1, 1, room);
  for (std::size_t k = 0; k < at(K); ++k)
    problem.forward[k] = between(7000, 13000), problem.input[k] = between(7000, 13000),
    problem.weights[k] = between(4000, 10000);
  return problem;
}

// Of the problems whose best order with a name is farther than 0.5 % from the bound.
struct WayClosed {
  int counted = 0, proven = 0;  // proven the best: of all problems
  double closed = 0;            // sum
  double share() const { return counted == 0 ? 1 : closed / counted; }
};

WayClosed way_closed(OrderMeasure measure, bool many, const std::vector<std::uint64_t>& seeds,
                     std::int64_t evaluations) {
  WayClosed all;
  for (const std::uint64_t seed : seeds) {
    OrderProblem problem = stages_that_differ(seed, many);
    problem.measure = measure;
    const FoundOrder found = find_order(problem, {.evaluations = evaluations, .seed = 1});
    check_kept(problem, found);
    std::int64_t named = std::numeric_limits<std::int64_t>::max();
    for (const NamedOrder& each : found.known)
      named = std::min(named, each.order.of(measure));
    const auto bound = static_cast<double>(found.bound.value), best = static_cast<double>(value(found, measure));
    all.proven += value(found, measure) == found.bound.value;
    if (static_cast<double>(named) <= 1.005 * bound) continue;
    ++all.counted, all.closed += (static_cast<double>(named) - best) / (static_cast<double>(named) - bound);
  }
  return all;
}

// What docs/results/finder.md has, of seeds 1000 to 1099; printed.
WayClosed way_closed_at_length(OrderMeasure measure, bool many) {
  std::vector<std::uint64_t> seeds(100);
  std::iota(seeds.begin(), seeds.end(), 1000);
  const WayClosed all = way_closed(measure, many, seeds, 200'000);
  std::printf("%s: %d of 100 farther than 0.5 %%; %.3f of the way closed on average; %d proven to be the best\n",
              measure == OrderMeasure::Span ? "span" : "step", all.counted, all.share(), all.proven);
  return all;
}

}  // namespace

TEST_CASE("finder: an order costs what the engine says, for every schedule with split backwards") {
  int compared = 0;
  for (const ScheduleRule& rule : schedules())
    for (const auto& [M, rebuilt] : {std::pair{8, 0}, {11, 0}, {8, 5}, {11, 40}}) {
      ScheduleShape shape{.stages = 4, .virtual_stages = 1, .micro_batches = M, .chunk_order = rule.chunk_order};
      if (!rule.refusal(shape).empty()) shape.virtual_stages = 2;
      if (!rule.splits_backward || both_ways(rule.chunk_order) || !rule.refusal(shape).empty()) continue;
      OrderProblem problem = alike(4, shape.virtual_stages, M, {10, 12, 8, 3}, 1, 1, 4 * M);
      problem.chunk_order = rule.chunk_order;
      problem.down.clear();
      for (VirtualStageId v = 0; v + 1 < problem.chunks(); ++v)
        problem.down.push_back(problem.seating().stage_of(v) == problem.seating().stage_of(v + 1) ? 0 : 3);
      problem.up = problem.down;
      const Schedule schedule = rule.compute(shape);
      std::vector<std::vector<Op>> ops;
      for (const Lane& lane : schedule.positions)
        ops.push_back(lane.compute);
      const auto whole = [](const Op& op) { return op.kind == Kind::BW; };  // of some of dualpipev's backwards
      if (std::any_of(ops.front().begin(), ops.front().end(), whole)) continue;
      auto codes = codes_of(problem, ops, shape.seating());
      REQUIRE(codes);
      CHECK(ops_of(problem, *codes) == ops);
      PricedOrder order{.codes = std::move(*codes), .begin = {}, .end = {}};
      if (rebuilt > 0) {
        problem.again.assign(at(problem.chunks()), rebuilt), problem.again_count = M;
        shape.recompute.assign(4, true);
      }
      REQUIRE(OrderPricer(problem).price(order));
      Schedule timed = rebuilt > 0 ? rule.generate(shape) : schedule;
      for (Lane& lane : timed.positions)
        std::erase_if(lane.compute, [](const Op& op) { return op.kind == Kind::Update; });
      StepCosts costs = plain_costs(shape, std::vector<Time>(at(shape.chunks()), Time{10}),
                                    std::vector<Time>(at(shape.chunks()), Time{20}), Time{3});
      for (auto* const durations : {&costs.duration, &costs.duration_last})
        for (std::size_t v = 0; v < at(shape.chunks()); ++v) {
          (*durations)[v * kKinds + static_cast<std::size_t>(Kind::B)] = Time{12};
          (*durations)[v * kKinds + static_cast<std::size_t>(Kind::W)] = Time{8};
          (*durations)[v * kKinds + static_cast<std::size_t>(Kind::R)] = Time{rebuilt};
        }
      const Timeline timeline = static_order(timed, costs);
      for (StageId k = 0; k < 4; ++k) {
        CAPTURE(rule.name);
        CHECK(order.begin[at(k)] == timeline.workers[at(k)].compute.front().start.value);
        CHECK(order.end[at(k)] == timeline.workers[at(k)].compute.back().end.value);
      }
      ++compared;
    }
  CHECK(compared >= 10);
}

TEST_CASE("finder: in a loop with little room a micro-batch that has begun finds room to go on") {
  for (const int room : {2, 4, 15}) {
    OrderProblem problem = alike(8, 2, 24, {10, 12, 8, 1}, 1, 1, room);
    problem.chunk_order = ChunkOrder::Loop, problem.measure = OrderMeasure::Step;
    problem.down.assign(at(problem.chunks() - 1), 1), problem.up = problem.down;
    const FoundOrder found = find_order(problem, {.evaluations = 4000, .seed = 1});
    check_kept(problem, found);
    CAPTURE(room);
    CAPTURE(found.order.step());
    CAPTURE(found.bound.value);
    CHECK(100 * found.order.step() <= 120 * found.bound.value);
  }
}

TEST_CASE("finder: a stage ends after the passes of its critical path and their hops") {
  Random chance(77);
  int changes_of_stage = 0;
  for (int i = 0; i < 300; ++i) {
    const int stages = 2 + i % 3;
    const bool with_hops = i % 5 == 0;
    OrderProblem problem = i % 2 == 0 ? by_chance(chance, stages, 4) : two_by_chance(chance, stages, i % 4 == 1, 3);
    if (!with_hops) problem.down.assign(problem.down.size(), 0), problem.up = problem.down;
    if (i % 3 == 0) with_cells(chance, problem, 60);
    PricedOrder order = find_order(problem, {.evaluations = 50, .seed = 1}).order;
    OrderPricer pricer(problem);
    REQUIRE(pricer.price(order));
    const int v = problem.virtual_stages;
    for (StageId k = 0; k < stages; ++k) {
      std::int64_t sum = 0, hops = 0;
      StageId before = k;
      for (const auto [stage, index] : pricer.critical_path(order, k)) {
        const int code = order.codes[at(stage)][at(index)];
        const auto cell = cell_of(code, v);
        const std::size_t chunk = at(pricer.chunk_at(stage, cell ? cell->forward : code % v));
        sum += cell            ? problem.pair[chunk * at(v) + at(cell->backward)]
               : code / v == 0 ? problem.forward[chunk]
               : code / v == 1 ? problem.input[chunk]
                               : problem.weights[chunk];
        hops += stage == before ? 0 : 1;
        before = stage;
      }
      changes_of_stage += static_cast<int>(hops);
      CHECK(sum <= order.end[at(k)]);
      CHECK(sum + (with_hops ? 4 * (hops + stages) : 0) >= order.end[at(k)]);  // a hop is 4 at most; in a V some stay
    }
  }
  CHECK(changes_of_stage > 1000);
}

// As with recomputation: what comes back for W is more than what waited for B.
TEST_CASE("finder: orders keep to their room where a micro-batch holds more from B to W than from F to B") {
  Random chance(7);
  for (int i = 0; i < 40; ++i) {
    OrderProblem problem = by_chance(chance, 2 + i % 3, 6);
    for (std::size_t k = 0; k < problem.held.size(); ++k) {
      problem.kept_after_input[k] = problem.held[k] + number_between(chance, 1, 4);
      problem.cap[k] = 2 * problem.kept_after_input[k] + number_between(chance, 0, 5);
    }
    const FoundOrder found = find_order(problem, {.evaluations = 2000, .seed = 1});
    const OrderPricer pricer(problem);
    for (StageId k = 0; k < problem.stages; ++k)
      CHECK(pricer.peak(k, found.order.codes[at(k)]) <= problem.cap[at(k)]);
  }
}

TEST_CASE("finder: dualpipe's cells cost what its authors say and the engine, and others are better") {
  for (const int stages : {4, 8}) {
    OrderProblem problem = alike(stages, 2, stages, {1, 1, 1, 0}, 1, 1, stages + 1);
    problem.two_ways = true;
    problem.down.assign(at(2 * stages - 1), 0), problem.up = problem.down;
    problem.pair.assign(at(4 * stages), 3);
    const FoundOrder found = find_order(problem, {.evaluations = 10, .seed = 1});
    const auto named = std::find_if(found.known.begin(), found.known.end(),
                                    [](const NamedOrder& each) { return each.name == "dualpipe, split"; });
    REQUIRE(named != found.known.end());
    // (K / 2 - 1) (F&B + B - 3 W) of idle time, B with W: [DeepSeekIII24] the repository's README
    CHECK(named->order.step() == 2 * stages * 3 + (stages / 2 - 1) * (3 + 2 - 3));
  }
  OrderProblem problem = alike(4, 2, 4, {10, 10, 10, 1}, 1, 1, 5);
  problem.two_ways = true;
  problem.down.assign(7, 1), problem.up = problem.down;
  problem.pair.assign(16, 25);
  const FoundOrder found = find_order(problem, {.evaluations = 20'000, .seed = 1});
  check_kept(problem, found);
  std::vector<NamedOrder> orders = found.known;
  orders.push_back({"found", found.order});
  for (const NamedOrder& each : orders) {
    CAPTURE(each.name);
    const Schedule schedule = as_from_file(problem, each.order);
    StepCosts costs = four_stages(schedule.shape, Time{10}, Time{10});
    costs.together = {.parts = {}, .share = 0, .delay_wgrad = false, .pair = Time{25}};
    const Timeline timeline = static_order(schedule, costs);
    for (std::size_t k = 0; k < 4; ++k)
      CHECK(each.order.begin[k] == timeline.workers[k].compute.front().start.value);
    std::int64_t end = 0;
    for (const auto& worker : timeline.workers)
      for (const auto& run : worker.compute)
        end = std::max(end, run.end.value);
    CHECK(each.order.step() == end);
    const auto cells = [](const PassCodes& codes) {
      return std::count_if(codes.begin(), codes.end(), [](int code) { return cell_of(code, 2).has_value(); });
    };
    if (each.name == "dualpipe, split") {
      CHECK(cells(each.order.codes[0]) == 3);  // one {F0,B1} {F1,B0}, one {F1,B0}
      CHECK(found.order.span() < each.order.span());
    }
    if (each.name == "found") CHECK(cells(each.order.codes[0]) + cells(each.order.codes[1]) > 0);
  }
}

TEST_CASE("finder: stages that differ: windows of time prove orders the best that no stage alone does") {
  // Seed 1001 of docs/results/finder.md: K = 3, M = 3, room for all. Stage 1 runs its third F before the first gradient,
  // which stage 0 then gets late, or behind it, which stage 2 then gets late.
  const OrderProblem problem = stages_that_differ(1001, false);
  REQUIRE(problem.micro_batches == 3);
  REQUIRE(problem.forward == std::vector<std::int64_t>{10664, 10542, 8803});
  REQUIRE(problem.input == std::vector<std::int64_t>{10370, 10946, 7600});
  REQUIRE(problem.weights == std::vector<std::int64_t>{5991, 6915, 6210});
  REQUIRE(problem.down == std::vector<std::int64_t>{480, 480});
  CHECK(order_bound(problem).value == 99'642);
  const FoundOrder found = find_order(problem, {.evaluations = 3000, .seed = 1});
  CHECK(found.order.span() == 103'523);
  CHECK(found.bound.value == 103'523);
}

TEST_CASE("finder: in two directions an order costs what the engine says, and beats those with a name") {
  OrderProblem problem = alike(4, 2, 8, {10, 12, 8, 1}, 1, 1, 5);
  problem.two_ways = true;
  problem.down.assign(7, 1), problem.up = problem.down;
  const FoundOrder found = find_order(problem, {.evaluations = 20'000, .seed = 1});
  check_kept(problem, found);
  for (const char* name : {"dualpipe, split", "gems, split"})
    CHECK(
        std::any_of(found.known.begin(), found.known.end(), [&](const NamedOrder& each) { return each.name == name; }));
  std::vector<NamedOrder> orders = found.known;
  orders.push_back({"found", found.order});
  for (const NamedOrder& each : orders) {
    CAPTURE(each.name);
    CHECK(found.order.span() <= each.order.span());
    const Schedule schedule = as_from_file(problem, each.order);
    StepCosts costs = four_stages(schedule.shape, Time{12}, Time{8});
    const Timeline timeline = static_order(schedule, costs);
    for (PositionId k = 0; k < 4; ++k) {
      const auto passes = std::count_if(schedule.positions[k].compute.begin(), schedule.positions[k].compute.end(),
                                        [](const Op& op) { return op.kind != Kind::Update; });
      CHECK(each.order.begin[k] == timeline.workers[k].compute.front().start.value);
      CHECK(each.order.end[k] == timeline.workers[k].compute[at(static_cast<int>(passes) - 1)].end.value);
    }
  }
}

TEST_CASE("finder: published orders that the bound proves optimal: those of ZB-1p, all twelve") {
  for (const PublishedSetting& setting : kPublished) {
    CAPTURE(setting.stages);
    CAPTURE(setting.micro_batches);
    const OrderProblem problem = problem_of(setting, 1);
    const std::int64_t bound = order_bound(problem).value;
    CHECK(std::abs(idle_share(problem, bound) - setting.one) < 5e-5);
    const FoundOrder found = find_order(problem, {.evaluations = 10, .seed = 1});
    CHECK(found.order.span() == bound);
  }
}

TEST_CASE("finder: better orders than the published ones of ZB-2p, for the same times and memory, and none is better") {
  int better = 0, equal = 0;
  for (const PublishedSetting& setting : kPublished) {
    if (setting.stages > 16) continue;  // docs/results/finder.md has the larger ones
    CAPTURE(setting.micro_batches);
    const OrderProblem problem = problem_of(setting, 2);
    const FoundOrder found = find_order(problem, {.evaluations = 20'000, .seed = 1});
    check_kept(problem, found);
    CHECK(found.order.span() == found.bound.value);
    const double idle = idle_share(problem, found.order.span());
    (idle < setting.two - 5e-5 ? better : equal) += 1;
    CHECK(idle < setting.two + 5e-5);
  }
  CHECK(better == 8);
  CHECK(equal == 1);
}

// Minutes: docs/results/finder.md has what they print. Run with --no-skip.
TEST_CASE("finder at length: the published settings" * doctest::skip()) {
  for (const int room : {1, 2})
    for (const PublishedSetting& setting : kPublished) {
      const OrderProblem problem = problem_of(setting, room);
      const FoundOrder found = find_order(problem, {.evaluations = 300'000, .seed = 1});
      check_kept(problem, found);
      const double published = room == 1 ? setting.one : setting.two;
      const double idle = idle_share(problem, found.order.span());
      CHECK(idle < published + 5e-5);
      CHECK(found.order.span() == found.bound.value);
      std::printf("| %d | %d | %d K | %.4f | %.5f | %lld |\n", setting.stages, setting.micro_batches, room, published,
                  idle, static_cast<long long>(found.evaluations));
    }
}

TEST_CASE("finder at length: 100 problems of stages that differ, 85 % of the way to the bound" * doctest::skip()) {
  for (const OrderMeasure measure : {OrderMeasure::Span, OrderMeasure::Step})
    CHECK(way_closed_at_length(measure, false).share() >= 0.85);
}

TEST_CASE("finder at length: likewise with 2 K + 1 to 64 micro-batches" * doctest::skip()) {
  for (const OrderMeasure measure : {OrderMeasure::Span, OrderMeasure::Step})
    CHECK(way_closed_at_length(measure, true).share() >= 0.75);
}

// K from 4 to 7, M from 16 to 29.
TEST_CASE(
    "finder: stages that differ, more than 2 K micro-batches: of the way to the bound, in six of those problems") {
  const std::vector<std::uint64_t> seeds = {1006, 1024, 1040, 1053, 1079, 1086};
  const WayClosed span = way_closed(OrderMeasure::Span, true, seeds, 3000);
  CHECK(span.counted == 6);
  CHECK(span.proven >= 3);
  CHECK(span.share() >= 0.7);
  const WayClosed step = way_closed(OrderMeasure::Step, true, seeds, 3000);
  CHECK(step.counted == 4);
  CHECK(step.proven == 6);
}

TEST_CASE("finder at length: two chunks there and back, K = 8, M = 16: at most 1046 where the heuristic takes 1050" *
          doctest::skip()) {
  const OrderProblem problem = alike(8, 2, 16, {10, 12, 8, 1}, 1, 1, 16);
  for (const std::uint64_t seed : {1, 2, 3}) {
    const FoundOrder found = find_order(problem, {.evaluations = 2'000'000, .seed = seed});
    check_kept(problem, found);
    CHECK(found.order.span() <= 1046);
    std::printf("seed %d: %lld, bound %lld\n", static_cast<int>(seed), static_cast<long long>(found.order.span()),
                static_cast<long long>(found.bound.value));
  }
}

TEST_CASE("finder at length: cells, in two directions and there and back" * doctest::skip()) {
  for (const bool two_ways : {true, false})
    for (const int K : {4, 8}) {
      const int M = two_ways ? K : 2 * K;
      OrderProblem problem = alike(K, 2, M, {10, 10, 10, 1}, 1, 1, two_ways ? K + 1 : 2 * K + 1);
      problem.two_ways = two_ways, problem.measure = OrderMeasure::Step;
      if (two_ways) problem.down.assign(at(2 * K - 1), 1), problem.up = problem.down;
      const FoundOrder without = find_order(problem, {.evaluations = 200'000, .seed = 1});
      problem.pair.assign(at(4 * K), 25);
      const FoundOrder found = find_order(problem, {.evaluations = 200'000, .seed = 1});
      check_kept(problem, found);
      CHECK(found.order.step() <= without.order.step());
      std::printf("%s K %d M %d:", two_ways ? "two ways" : "V", K, two_ways ? 2 * M : M);
      for (const NamedOrder& each : found.known)
        if (each.name.starts_with("dualpipe"))
          std::printf(" %s %d,", each.name.c_str(), static_cast<int>(each.order.step()));
      std::printf(" found %d, bound %d; without cells %d\n", static_cast<int>(found.order.step()),
                  static_cast<int>(found.bound.value), static_cast<int>(without.order.step()));
    }
}

TEST_CASE("finder: two chunks there and back, times 10, 12, 8 and a hop of 1: 512 where the heuristic takes 514") {
  const OrderProblem problem = alike(4, 2, 8, {10, 12, 8, 1}, 1, 1, 8);
  const FoundOrder found = find_order(problem, {.evaluations = 200'000, .seed = 1});
  check_kept(problem, found);
  CHECK(found.order.span() == 512);
  const auto heuristic = std::find_if(found.known.begin(), found.known.end(),
                                      [](const NamedOrder& each) { return each.name == "zbv_auto"; });
  REQUIRE(heuristic != found.known.end());
  CHECK(heuristic->order.span() == 514);
}

TEST_CASE("finder: the same problem, evaluations and seed give the same order; `stop` ends it") {
  const OrderProblem problem = alike(6, 1, 12, {9, 11, 7, 2}, 1, 1, 7);
  const FoundOrder one = find_order(problem, {.evaluations = 4000, .seed = 5});
  const FoundOrder other = find_order(problem, {.evaluations = 4000, .seed = 5});
  CHECK(one.order.codes == other.order.codes);
  CHECK(one.evaluations == other.evaluations);
  CHECK_FALSE(one.stopped);
  REQUIRE(one.order.span() > one.bound.value);
  const FoundOrder stopped = find_order(problem, {.evaluations = 4000, .seed = 5, .stop = [] { return true; }});
  CHECK(stopped.stopped);
  CHECK(stopped.evaluations < 100);
  check_kept(problem, stopped);
}

TEST_CASE("finder: less room than one micro-batch is no order") {
  const OrderProblem problem = alike(2, 1, 4, {1, 1, 1, 0}, 5, 5, 4);
  CHECK(least_cap(problem, 0) == 5);
  CHECK(find_order(problem, {}).order.begin.empty());
}

TEST_CASE("finder: a deadlock, and passes that are not once each, have no price") {
  const OrderProblem problem = alike(2, 1, 2, {1, 1, 1, 0}, 1, 1, 2);
  OrderPricer pricer(problem);
  PricedOrder order;
  order.codes = {{0, 1, 2, 0, 1, 2}, {0, 0, 1, 1, 2, 2}};  // stage 0 waits for B 0, which stage 1 runs behind F 1
  CHECK_FALSE(pricer.price(order));
  order.codes = {{0, 0, 1, 1, 2, 2}, {0, 1, 0, 1, 2, 2}};
  CHECK(pricer.price(order));
  order.codes[1].pop_back();
  CHECK_FALSE(pricer.price(order));
  order.codes[1] = {0, 1, 0, 1, 2, 2, 2};
  CHECK_FALSE(pricer.price(order));
}

}  // namespace pipewright::tests
