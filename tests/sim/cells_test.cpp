// Cells of ops that run at once (core/cost/cells.hpp): their length, and both engines on them.
#include "core/cost/cells.hpp"

#include <random>
#include <string>

#include <doctest/doctest.h>

#include "core/plan/given_schedule.hpp"
#include "sim/event_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/microseconds.hpp"
#include "tests/support/random_costs.hpp"

using namespace pipewright::tests;

namespace {

using Part = StepCosts::Part;

// One layer with experts on each of two stages, as in core/cost/cells.hpp: forwards of 60 us, 40 of them exchanges, backwards
// of 80, and `weights` for gradients of the experts' weights in these.
StepCosts with_exchanges(Time weights = us(10)) {
  const Time backward = us(70) + weights;
  StepCosts costs = plain_costs({.stages = 2, .micro_batches = 4}, {us(60), us(60)}, {backward, backward}, {});
  costs.together = {.parts = std::vector<std::vector<Part>>(costs.duration.size()),
                    .share = 0,
                    .delay_wgrad = false,
                    .pair = std::nullopt};
  for (const VirtualStageId v : {0, 1}) {
    const auto row = static_cast<std::size_t>(v) * kKinds;
    costs.together->parts[row + static_cast<std::size_t>(Kind::F)] = {
        {us(10), {}, us(20)}, {us(10), {}, us(20)}, {{}, {}, {}}};
    costs.together->parts[row + static_cast<std::size_t>(Kind::BW)] = {
        {{}, {}, us(20)}, {us(10) + weights, weights, us(20)}, {us(20), us(10), {}}};
  }
  return costs;
}

const std::vector<Op> kCell = {{Kind::F, 0, 1, 0, 1}, {Kind::BW, 1, 0}};

// Up to four parts that make up an op, exchanges between them; none of every third op.
std::vector<Part> random_parts(Time time, const auto& below) {
  std::vector<Part> parts;
  if (below(3) == 0) return parts;
  const auto some = [&](Time of) { return Time{below(static_cast<int>(of.value) + 1)}; };
  for (int more = below(4); more > 0 && time > Time{1}; --more) {
    const Time computing = some(time - Time{1}), exchange = Time{1} + some(time - Time{1} - computing);
    parts.push_back({computing, some(computing), exchange});
    time -= computing + exchange;
  }
  parts.push_back({time, some(time), {}});
  return parts;
}

Schedule in_order(GivenSchedule given) {
  settle(given);
  return find_schedule(kGivenSchedule)
      ->generate({.stages = given.stages,
                  .micro_batches = given.micro_batches,
                  .given = std::make_shared<const GivenSchedule>(given)});
}

}  // namespace

TEST_CASE("a cell of one layer: both streams in turns, weights' gradients with their part or behind its exchange") {
  StepCosts costs = with_exchanges();
  CHECK(validate(costs) == "");
  CHECK(cell_time(costs, kCell) == us(80));
  CHECK(ends_in_cell(costs, kCell) == std::vector{Time{34'286}, us(80)});  // 60 of 140 parts
  costs.together->delay_wgrad = true;
  CHECK(cell_time(costs, kCell) == us(80));
  StepCosts longer = with_exchanges(us(20));
  CHECK(cell_time(longer, kCell) == us(90));
  longer.together->delay_wgrad = true;
  CHECK(cell_time(longer, kCell) == us(80));
  CHECK(cell_time(longer, std::vector{kCell[0]}) == us(60));  // alone
  CHECK(cell_of(costs, kCell).size() == 2);
  costs.together.reset();
  CHECK(cell_of(costs, kCell).size() == 1);
}

// Forwards of 120 us on a machine that others load: dispatch (F) 20-60, (B) 60-80, combine (F) 80-120.
TEST_CASE("parts of an op that takes longer than they say are longer in proportion") {
  StepCosts costs = with_exchanges();
  for (const VirtualStageId v : {0, 1})
    costs.duration[static_cast<std::size_t>(v) * kKinds + static_cast<std::size_t>(Kind::F)] = us(120);
  costs.duration_last = costs.duration;
  CHECK(validate(costs) == "");
  CHECK(cell_time(costs, kCell) == us(120));
  costs.together->parts[static_cast<std::size_t>(kKinds) + static_cast<std::size_t>(Kind::F)] = {{us(121), {}, {}}};
  CHECK(validate(costs) == "cells: parts take longer than their op");
}

// At half the pace: the forward's attention 0-20 beside combine (B), its dispatch 20-40, the backward's experts 20-50 (10 of
// 20 beside it), its dispatch 50-70, experts 50-70, combine 70-90, the backward's attention 70-100.
TEST_CASE("computing beside an exchange has what is left of the device") {
  StepCosts costs = with_exchanges();
  costs.together->share = 0.5;
  CHECK(cell_time(costs, kCell) == us(100));
  for (const double share : {0.0, 0.15, 0.3, 0.9}) {  // of cells that only compute nothing is taken
    StepCosts none = plain_costs({.stages = 2, .micro_batches = 4}, {us(60), us(60)}, {us(80), us(80)}, {});
    none.together = {.parts = {}, .share = share, .delay_wgrad = false, .pair = std::nullopt};
    CHECK(cell_time(none, kCell) == us(140));
  }
}

TEST_CASE("a stated length is that of a forward with a backward; a recomputation comes on top") {
  StepCosts costs = with_exchanges();
  costs.together->pair = us(100);
  CHECK(cell_time(costs, kCell) == us(100));
  const std::vector<Op> rebuilt = {{Kind::F, 0, 1, 0, 1}, {Kind::R, 1, 0, 0, 1}, {Kind::BW, 1, 0}};
  CHECK(cell_time(costs, rebuilt) == us(160));
}

TEST_CASE("both engines give cells the same times, and the checker finds no fault") {
  std::mt19937 random(7);
  const auto below = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  for (int round = 0; round < 300; ++round) {
    const bool v_shape = round % 2 == 0;
    const int stages = v_shape ? 1 + below(5) : 2 * (1 + below(3));
    ScheduleShape shape{.stages = stages,
                        .virtual_stages = v_shape ? 2 : 1,
                        .micro_batches = 2 * stages + 2 * below(5),
                        .data_parallel = 1 + below(2),
                        .chunk_order = v_shape ? ChunkOrder::V : ChunkOrder::BothWays};
    shape.recompute.assign(static_cast<std::size_t>(stages), below(3) == 0);
    const ScheduleRule& rule = *find_schedule(v_shape ? "dualpipev" : "dualpipe");
    REQUIRE(rule.refusal(shape) == "");
    const Schedule schedule = rule.generate(shape);
    StepCosts costs = random_costs(schedule.shape, random, Wires::Chain, round % 3 == 0 ? 3 : 30);
    costs.duration_last = costs.duration, costs.messages_last = costs.messages;
    costs.together = {.parts = {}, .share = below(2) * 0.2, .delay_wgrad = below(2) == 0, .pair = std::nullopt};
    for (const Time time : costs.duration)
      costs.together->parts.push_back(random_parts(time, below));
    if (below(3) == 0) costs.together->pair = Time{below(60)};
    const Timeline timeline = static_order(schedule, costs);
    CAPTURE(round);
    CHECK(validate(timeline, schedule, costs) == "");
    const Timeline events = event_order(schedule, costs, LinkUse::Private);
    CHECK(events.makespan == timeline.makespan);
    CHECK((events.transfers == timeline.transfers));
    for (std::size_t w = 0; w < timeline.workers.size(); ++w) {
      CHECK((events.workers[w].compute == timeline.workers[w].compute));
      CHECK((events.workers[w].communication == timeline.workers[w].communication));
    }
  }
}

TEST_CASE("cells that wait for themselves or for one another are refused, with the op") {
  // The backward of the last stage follows from its forward.
  const Schedule alone = in_order({.compute = {{{Kind::F, 0, 0, 0, 1}, {Kind::BW, 0, 0}}}});
  // 1F1 waits for 0F1, which ends with 0B0, and that waits for 1B0, which begins with 1F1.
  const Schedule both =
      in_order({.compute = {{{Kind::F, 0, 0}, {Kind::F, 0, 1, 0, 1}, {Kind::BW, 0, 0}, {Kind::BW, 0, 1}},
                            {{Kind::F, 1, 0}, {Kind::F, 1, 1, 0, 1}, {Kind::BW, 1, 0}, {Kind::BW, 1, 1}}}});
  for (const auto& [schedule, op] : {std::pair{&alone, "0F0 on worker 0"}, std::pair{&both, "0F1 on worker 0"}}) {
    const auto stages = static_cast<std::size_t>(schedule->shape.stages);
    StepCosts costs =
        plain_costs(schedule->shape, std::vector<Time>(stages, us(1)), std::vector<Time>(stages, us(2)), {});
    CHECK(static_order(*schedule, costs).makespan > Time{});  // one after the other
    costs.together = {.parts = {}, .share = 0, .delay_wgrad = false, .pair = std::nullopt};
    CHECK_THROWS_WITH_AS(static_order(*schedule, costs), doctest::Contains(op), InputError);
  }
}
