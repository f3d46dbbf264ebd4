// Weights that each holder updates a part of: their gathers behind updates, and beside the next step's forwards.
#include <doctest/doctest.h>

#include "sim/compiled_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "tests/support/agreed.hpp"

using namespace pipewright::tests;

namespace {

struct Updated {
  Schedule schedule;
  StepCosts costs;
};

// Two copies; forwards of 3, backwards of 6, reductions of 2, updates of 1, gathers of 4 (before a forward 2, beside it 5).
Updated updated(const char* name, ScheduleShape shape, UpdatedParts parts) {
  const ScheduleRule* rule = find_schedule(name);
  shape.data_parallel = 2, shape.chunk_order = rule->chunk_order, shape.updated = parts;
  REQUIRE(rule->refusal(shape) == "");
  Schedule schedule = rule->generate(shape);
  REQUIRE(validate(schedule) == "");
  const auto chunks = at(shape.chunks());
  StepCosts costs =
      plain_costs(schedule.shape, std::vector<Time>(chunks, Time{3}), std::vector<Time>(chunks, Time{6}), {});
  const bool beside = parts == UpdatedParts::BesideForwards;
  costs.gathers.assign(chunks, Collective{{1}, Time{beside ? 2 : 4}, {}});
  if (beside) costs.other_gathers.assign(chunks, Collective{{1}, Time{5}, {}});
  for (VirtualStageId v = 0; v < shape.chunks(); ++v) {
    for (Collective& reduction : costs.collectives[v])
      reduction = Collective{{1}, Time{2}, {}};
    costs.duration[at(v) * kKinds + static_cast<std::size_t>(Kind::Update)] = Time{1};
  }
  return {std::move(schedule), std::move(costs)};
}

std::vector<std::string> names(const Schedule& schedule, PositionId position) {
  std::vector<std::string> all;
  for (const Op& op : schedule.positions[position].communication[kGathers])
    all.push_back(label(op));
  return all;
}

using Names = std::vector<std::string>;

}  // namespace

// F 3, BW 6, reduction 2, update 1, gather 4.
TEST_CASE("Behind an update: 3 + 6 + 2 + 1 + 4") {
  const auto [schedule, costs] = updated("1f1b", {}, UpdatedParts::BehindUpdate);
  CHECK(names(schedule, 0) == Names{"0AG0"});
  const Timeline timeline = agreed_timeline(schedule, costs);
  CHECK(timeline.workers[0].communication[kGathers] == std::vector<Span>{{Time{12}, Time{16}}});
  CHECK(timeline.makespan == Time{16});
  CHECK(CompiledOrder::of(schedule, costs).makespan(costs) == Time{16});
}

// The chunk whose gradients come first is updated first, and gathered while the other is updated.
TEST_CASE("Behind updates of two chunks: one after the other") {
  const auto [schedule, costs] = updated("interleaved_1f1b", {.virtual_stages = 2}, UpdatedParts::BehindUpdate);
  CHECK(names(schedule, 0) == Names{"1AG0", "0AG0"});
  const Timeline timeline = agreed_timeline(schedule, costs);
  // 6 + 12 of passes; chunk 0's reduction ends at 20, its update at 21; chunk 1 is updated before, at 18.
  CHECK(timeline.workers[0].communication[kGathers] == std::vector<Span>{{Time{19}, Time{23}}, {Time{23}, Time{27}}});
  CHECK(CompiledOrder::of(schedule, costs).makespan(costs) == Time{27});
}

// Without a flush the next update of the chunk waits, and nothing else does.
TEST_CASE("Behind the updates of rounds: before the next one") {
  auto [schedule, costs] = updated("pipedream", {.micro_batches = 4}, UpdatedParts::BehindUpdate);
  CHECK(names(schedule, 0) == Names{"0AG0", "0AG1", "0AG2", "0AG3"});
  costs.gathers[0].time = Time{20};
  const Timeline timeline = agreed_timeline(schedule, costs);
  const std::vector<Op>& ops = schedule.positions[0].compute;
  const auto& gathers = timeline.workers[0].communication[kGathers];
  for (std::size_t i = 0, round = 0; i < ops.size(); ++i) {
    if (ops[i].kind != Kind::Update) continue;
    if (round > 0) CHECK(timeline.workers[0].compute[i].start >= gathers[round - 1].end);
    CHECK(gathers[round].start == timeline.workers[0].compute[i].end);
    ++round;
  }
}

// F waits for 2; the 5 beside it end at 7, when the backward behind it begins.
TEST_CASE("Beside a forward: the op behind it waits for the rest") {
  auto [schedule, costs] = updated("1f1b", {}, UpdatedParts::BesideForwards);
  CHECK(names(schedule, 0) == Names{"0AG0", "0AG0+"});
  const Timeline timeline = agreed_timeline(schedule, costs);
  CHECK(timeline.workers[0].compute[0] == Span{Time{2}, Time{5}});
  CHECK(timeline.workers[0].compute[1] == Span{Time{7}, Time{13}});
  CHECK(timeline.makespan == Time{7 + 6 + 2 + 1});
  CHECK(CompiledOrder::of(schedule, costs).makespan(costs) == timeline.makespan);
}

// Four chunks on a worker, gathers of 2 ms that nothing runs beside, forwards of 3: 2 + 4 * 3; gathers of 4: 4 * 4 + 3.
TEST_CASE("Beside forwards: 2 + 4 * 3 where compute limits, 4 * 4 + 3 where gathers do") {
  for (const auto& [gather, forward] : {std::pair{2, 14}, std::pair{4, 19}}) {
    auto [schedule, costs] = updated("interleaved_1f1b", {.virtual_stages = 4}, UpdatedParts::BesideForwards);
    costs.gathers.assign(4, Collective{{1}, Time{gather}, {}});
    costs.other_gathers.assign(4, Collective{});
    const Timeline timeline = agreed_timeline(schedule, costs);
    CHECK(timeline.workers[0].compute[3].end == Time{forward});
  }
}

TEST_CASE("Gathers of updated weights that are missing, or of others, are named") {
  for (const UpdatedParts parts : {UpdatedParts::BehindUpdate, UpdatedParts::BesideForwards}) {
    const auto [good, costs] = updated("interleaved_1f1b", {.virtual_stages = 2}, parts);
    for (const auto& change :
         {+[](std::vector<Op>& ops) { ops.pop_back(); }, +[](std::vector<Op>& ops) { std::swap(ops[0], ops[1]); },
          +[](std::vector<Op>& ops) { ops[0].bucket = 0; }, +[](std::vector<Op>& ops) { ops[1].micro_batch = 1; }}) {
      Schedule schedule = good;
      change(schedule.positions[0].communication[kGathers]);
      CHECK(validate(schedule).find("its weights' stream is not a gather") != std::string::npos);
    }
  }
}

TEST_CASE("A timeline whose weights are gathered before their update, or whose next op does not wait, is refused") {
  const auto [schedule, costs] = updated("1f1b", {}, UpdatedParts::BehindUpdate);
  const auto fault = [](const Updated& of, const auto& change) {
    Timeline timeline = agreed_timeline(of.schedule, of.costs);
    for (LaneTimes& worker : timeline.workers)
      change(worker);
    return validate(timeline, of.schedule, of.costs);
  };
  CHECK(fault({schedule, costs}, [](LaneTimes& worker) {
          worker.communication[kGathers][0].start -= Time{1};
        }).find("starts before its update has ended") != std::string::npos);
  Updated beside = updated("1f1b", {}, UpdatedParts::BesideForwards);
  for (const int part : {0, 1})
    CHECK(fault(beside, [part](LaneTimes& worker) {
            auto& gathers = worker.communication[kGathers];
            gathers[at(part)].end += Time{1};
            if (part == 0) gathers[1].start += Time{1}, gathers[1].end += Time{1};
          }).find("before what it needs has arrived") != std::string::npos);
}
