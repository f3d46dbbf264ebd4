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

Time& of(std::vector<Time>& table, VirtualStageId v, Kind kind) {
  return table[static_cast<std::size_t>(v) * kKinds + static_cast<std::size_t>(kind)];
}

// Two stages; a forward of 55 us, of them 25 for tokens under way, a backward of 85, of them likewise 25.
StepCosts with_exchanges() {
  StepCosts costs = plain_costs({.stages = 2, .micro_batches = 4}, {us(55), us(55)}, {us(85), us(85)}, {});
  costs.together = {.computing = costs.duration, .share = 0.15, .pair = std::nullopt};
  for (const VirtualStageId v : {0, 1})
    of(costs.together->computing, v, Kind::F) = us(30), of(costs.together->computing, v, Kind::BW) = us(60);
  return costs;
}

const std::vector<Op> kCell = {{Kind::F, 0, 1, 0, 1}, {Kind::BW, 1, 0}};

Schedule in_order(GivenSchedule given) {
  settle(given);
  return find_schedule(kGivenSchedule)
      ->generate({.stages = given.stages,
                  .micro_batches = given.micro_batches,
                  .given = std::make_shared<const GivenSchedule>(given)});
}

}  // namespace

TEST_CASE("a cell takes what it computes and a share of what is under way, or what is under way") {
  StepCosts costs = with_exchanges();
  CHECK(cell_time(costs, kCell) == Time{97'500});
  CHECK(ends_in_cell(costs, kCell) == std::vector{Time{38'304}, Time{97'500}});  // 55 of 140 parts
  costs.together->share = 0;
  CHECK(cell_time(costs, kCell) == us(90));
  for (const VirtualStageId v : {0, 1})
    of(costs.together->computing, v, Kind::F) = us(10), of(costs.together->computing, v, Kind::BW) = us(20);
  CHECK(cell_time(costs, kCell) == us(110));                 // 45 + 65 under way
  CHECK(cell_time(costs, std::vector{kCell[0]}) == us(55));  // alone
  CHECK(cell_of(costs, kCell).size() == 2);
  costs.together.reset();
  CHECK(cell_of(costs, kCell).size() == 1);
}

TEST_CASE("a stated length is that of a forward with a backward; a recomputation comes on top") {
  StepCosts costs = with_exchanges();
  costs.together->pair = us(100);
  CHECK(cell_time(costs, kCell) == us(100));
  const std::vector<Op> rebuilt = {{Kind::F, 0, 1, 0, 1}, {Kind::R, 1, 0, 0, 1}, {Kind::BW, 1, 0}};
  CHECK(cell_time(costs, rebuilt) == us(155));
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
    costs.together = {.computing = costs.duration, .share = below(2) * 0.2, .pair = std::nullopt};
    for (Time& time : costs.together->computing)
      time = Time{below(static_cast<int>(time.value) + 1)};
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
    costs.together = {.computing = costs.duration, .share = 0, .pair = std::nullopt};
    CHECK_THROWS_WITH_AS(static_order(*schedule, costs), doctest::Contains(op), InputError);
  }
}
