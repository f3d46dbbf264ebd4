// A schedule as PyTorch's file: what is written and read again runs as before, and orders of one's own run as both
// engines and the oracle say.
#include "core/plan/given_schedule.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "io/import/schedule_csv.hpp"
#include "io/writers/schedule_csv.hpp"
#include "sim/event_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/oracle_engine.hpp"
#include "tests/support/pictures.hpp"
#include "tests/support/random_costs.hpp"
#include "tests/support/rounds.hpp"

using namespace pipewright::tests;

namespace {

Schedule from_file(const std::string& text, ScheduleShape shape) {
  const auto given = std::make_shared<const GivenSchedule>(parse_schedule_csv(text, "x.csv"));
  shape.given = given;
  shape.chunk_order = given->chunk_order, shape.pipelines = given->pipelines;
  const ScheduleRule* rule = find_schedule("file");
  REQUIRE(rule->refusal(shape) == "");
  return rule->generate(shape);
}

void check_same_gradients(const Timeline& a, const Timeline& b) {
  CHECK(a.makespan == b.makespan);
  REQUIRE(a.workers.size() == b.workers.size());
  for (std::size_t worker = 0; worker < a.workers.size(); ++worker) {
    CHECK((a.workers[worker].compute == b.workers[worker].compute));
    CHECK((a.workers[worker].communication[kReductions] == b.workers[worker].communication[kReductions]));
  }
  CHECK((a.transfers == b.transfers));
}

// Schedules of the table that the format has words for, over a grid of shapes.
std::set<std::string> round_trips(ScheduleShape shape, std::mt19937& random) {
  std::set<std::string> expressed;
  for (const ScheduleRule& rule : schedules()) {
    shape.chunk_order = rule.chunk_order;
    if (shape.pipelines > 2 && !rule.facts.states_pipelines) continue;
    if (!rule.refusal(shape).empty()) continue;
    const Schedule schedule = rule.generate(shape);
    if (!not_in_schedule_csv(schedule).empty()) continue;
    CAPTURE(rule.name);
    CAPTURE(shape.stages);
    CAPTURE(shape.micro_batches);
    expressed.insert(std::string(rule.name));
    const StepCosts costs = random_costs(shape, random);
    const Timeline timeline = static_order(schedule, costs);
    for (const ScheduleActions actions : {ScheduleActions::Compute, ScheduleActions::WithMessages}) {
      const Schedule read = from_file(schedule_csv(schedule, actions), shape);
      REQUIRE(validate(read) == "");
      check_same_gradients(timeline, static_order(read, costs));
    }
  }
  return expressed;
}

}  // namespace

TEST_CASE("every schedule with a flush runs the same after it was written as a file and read again") {
  std::mt19937 random(1);
  std::set<std::string> expressed;
  for (int K = 1; K <= 4; ++K)
    for (int v = 1; v <= 3; ++v)
      for (const int M : {1, K, 2 * K, 3 * K + 1})
        for (const int copies : {1, 2})
          for (const bool recompute : {false, true}) {
            ScheduleShape shape{.stages = K, .virtual_stages = v, .micro_batches = M, .data_parallel = copies};
            shape.recompute.assign(static_cast<std::size_t>(K), recompute);
            shape.recompute_except_last = M % 2 == 1;
            shape.buckets.assign(static_cast<std::size_t>(K * v), 2);
            expressed.merge(round_trips(shape, random));
            if (K < 4 || v > 1) continue;
            shape.pipelines = 4;
            expressed.merge(round_trips(shape, random));
          }
  std::set<std::string> with_flush;
  for (const ScheduleRule& rule : schedules())
    if (rule.flush) with_flush.emplace(rule.name);
  CHECK(expressed == with_flush);
}

TEST_CASE("what the file has no words for says so") {
  const Schedule pipedream = find_schedule("pipedream")->generate({.stages = 2, .micro_batches = 4});
  const Schedule moving = find_schedule("bpipe")->generate({.stages = 4, .micro_batches = 6});
  CHECK(not_in_schedule_csv(moving).find("moves activations to another memory") != std::string::npos);
  CHECK(not_in_schedule_csv(pipedream).find("updates the weights between micro-batches") != std::string::npos);
  const Schedule shared = find_schedule("gpipe")->generate({.stages = 2, .micro_batches = 4, .replicas = {2, 1}});
  CHECK(not_in_schedule_csv(shared).find("a stage runs on one rank") != std::string::npos);
  CHECK_THROWS_AS(schedule_csv(shared), InputError);
}

TEST_CASE("1F1B over two ranks is written as PyTorch writes it") {
  const Schedule schedule = find_schedule("1f1b")->generate({.stages = 2, .micro_batches = 2});
  CHECK(schedule_csv(schedule) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  // A send right behind its op, and the receive where the other list then stands.
  CHECK(schedule_csv(schedule, ScheduleActions::WithMessages) ==
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
  const Schedule split = find_schedule("zb_h1")->generate({.stages = 2, .micro_batches = 2});
  CHECK(schedule_csv(split) == "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
}

TEST_CASE("Actions that stood in one cell of a file stand in one again, their messages behind it") {
  const std::string text =
      "0F0,0F1,0B0,0B1\n"
      "1F0,(1F1;1B0)OVERLAP_F_B,1B1\n";
  const Schedule schedule = from_file(text, {.stages = 2, .micro_batches = 2});
  CHECK(schedule_csv(schedule) == text);
  const std::string with_messages = schedule_csv(schedule, ScheduleActions::WithMessages);
  CHECK(with_messages ==
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1\n");
  CHECK(schedule_csv(from_file(with_messages, {.stages = 2, .micro_batches = 2})) == text);
  // Recomputed forwards come between the two, and are in no cell.
  ScheduleShape recomputing{.stages = 2, .micro_batches = 2};
  recomputing.recompute.assign(2, true);
  CHECK(schedule_csv(from_file(text, recomputing)) == text);
}

// Two ranks, four stages: 0 and 3 on the first, 1 and 2 on the second. F = 1, B = 2, free messages.
TEST_CASE("stages that lie to and fro keep the middle of the way on one rank") {
  const ScheduleShape shape{.stages = 2, .virtual_stages = 2, .micro_batches = 2};
  const Schedule schedule = from_file("0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n", shape);
  CHECK(schedule.shape.chunk_order == ChunkOrder::V);
  REQUIRE(validate(schedule) == "");
  std::mt19937 random(1);
  StepCosts costs = random_costs(schedule.shape, random, Wires::Chain, 1);  // all times zero
  for (std::size_t v = 0; v < 4; ++v) {
    costs.duration[v * kKinds + static_cast<std::size_t>(Kind::F)] = Time{1};
    costs.duration[v * kKinds + static_cast<std::size_t>(Kind::BW)] = Time{2};
  }
  costs.duration_last = costs.duration;
  // 3F0 starts when 2F0 ends at 3, 2B0 when 3B0 ends at 6, and 0B1 when 1B1 ends at 14.
  CHECK(picture(schedule, static_order(schedule, costs), Time{1}) == R"(
01.0aa1bb.aa..bb
.0011.aaaabbbb..
)");
}

// Any order in which the ops can be run, in one piece or in two, on stages in a loop, to and fro, or in pipelines in opposite
// directions among which micro-batches are dealt by chance.
TEST_CASE("both engines and the oracle agree on orders drawn at random") {
  int listed = 0;
  for (unsigned seed = 1; seed <= full_rounds(200U); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t limit) { return static_cast<int>(random() % limit); };
    GivenSchedule given;
    given.stages = 1 + below(4), given.virtual_stages = 1 + below(3), given.micro_batches = 1 + below(4);
    given.chunk_order = given.virtual_stages > 1 && seed % 2 == 0 ? ChunkOrder::V : ChunkOrder::Loop;
    if (seed % 4 == 3) {
      given.stages = 2 + 2 * below(2), given.virtual_stages = 1, given.chunk_order = ChunkOrder::Listed;
      given.pipelines = given.stages == 4 && below(2) == 0 ? 4 : 2;
      given.micro_batches = given.pipelines + below(4);
      std::vector<int> dealt;
      for (int m = 0; m < given.micro_batches; ++m)
        dealt.push_back(m < given.pipelines ? given.pipelines - 1 - m : below(std::size_t(given.pipelines)));
      given.dealing.emplace(dealt, given.pipelines);
    }
    given.compute.resize(static_cast<std::size_t>(given.stages));
    const int chunks = given.stages * given.virtual_stages;
    std::vector<Op> left;
    for (int v = 0; v < chunks; ++v)
      for (int m = 0; m < given.micro_batches; ++m) {
        const auto op = [&](Kind kind) { return Op{kind, std::uint16_t(v), std::uint32_t(m), 0}; };
        left.push_back(op(Kind::F));
        if (below(2) == 0)
          left.push_back(op(Kind::BW));
        else
          left.push_back(op(Kind::B)), left.push_back(op(Kind::W));
      }
    const auto is_left = [&](Kind kind, int v, std::uint32_t m) {
      return std::any_of(left.begin(), left.end(),
                         [&](const Op& op) { return op.kind == kind && op.virtual_stage == v && op.micro_batch == m; });
    };
    const auto backward_is_left = [&](int v, std::uint32_t m) {
      return is_left(Kind::BW, v, m) || is_left(Kind::B, v, m);
    };
    while (!left.empty()) {
      const auto at = left.begin() + below(left.size());
      const int v = at->virtual_stage;
      const std::uint32_t m = at->micro_batch;
      const bool waits = at->kind == Kind::F   ? is_left(Kind::F, v - 1, m)
                         : at->kind == Kind::W ? is_left(Kind::B, v, m)
                                               : is_left(Kind::F, v, m) || backward_is_left(v + 1, m);
      if (waits) continue;
      Op& next = given.compute[std::size_t(given.seating().position_of(v, m))].emplace_back(*at);
      next.virtual_stage = static_cast<std::uint16_t>(given.seating().number_in_file(v, m));
      left.erase(at);
    }
    GivenSchedule settled = given;
    settled.dealing.reset(), settled.pipelines = 2;
    settle(settled);
    CHECK(settled.stages == given.stages);
    CHECK(settled.pipelines == given.pipelines);
    for (int m = 0; m < given.micro_batches; ++m)
      CHECK(settled.seating().position_of(0, m) == given.seating().position_of(0, m));
    CHECK(settled.virtual_stages == given.virtual_stages);
    CHECK(settled.micro_batches == given.micro_batches);
    if (given.stages > 1 && given.pipelines == 2 && !given.dealing) CHECK(settled.chunk_order == given.chunk_order);
    listed += settled.dealing ? 1 : 0;
    ScheduleShape shape{.stages = given.stages,
                        .virtual_stages = given.virtual_stages,
                        .micro_batches = given.micro_batches,
                        .data_parallel = 1 + below(2)};
    shape.recompute.assign(static_cast<std::size_t>(given.stages), seed % 3 == 0);
    shape.chunk_order = settled.chunk_order, shape.pipelines = settled.pipelines;
    shape.given = std::make_shared<const GivenSchedule>(settled);
    const Schedule schedule = find_schedule("file")->generate(shape);
    REQUIRE(validate(schedule) == "");
    const StepCosts costs = random_costs(shape, random);
    const Timeline timeline = event_order(schedule, costs, LinkUse::Private);
    check_same_gradients(timeline, static_order(schedule, costs));
    check_same_gradients(timeline, oracle_timeline(schedule, costs));
    CHECK(validate(timeline, schedule, costs) == "");
  }
  CHECK(listed > 20);
}

TEST_CASE("an order with more in flight than plan.most_in_flight is refused, with the rank that has it") {
  ScheduleShape shape{.stages = 2, .micro_batches = 3};
  shape.given = std::make_shared<const GivenSchedule>(
      parse_schedule_csv("0F0,0F1,0I0,0I1,0F2,0W0,0W1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n", "x.csv"));
  const ScheduleRule* rule = find_schedule("file");
  CHECK(rule->refusal(shape) == "");  // no limit
  for (const int most : {1, 2, 3}) {
    shape.most_in_flight = most;
    const std::string above = most == 1 ? "0F1" : "0F2";
    CHECK(rule->refusal(shape) ==
          (most == 3 ? ""
                     : "x.csv has more in flight than plan.most_in_flight: " + std::to_string(most) + " from " + above +
                           " on rank 0 on; use 3, or find an order with less: pipewright "
                           "schedule --memory-cap"));
  }
}
