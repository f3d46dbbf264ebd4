// The check of a schedule refuses each fault by name. Every case plants one fault in a schedule that is in order.
#include "core/plan/schedule.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "sim/schedules/table.hpp"
#include "tests/support/op.hpp"

namespace pipewright::tests {
namespace {

Schedule generated(const char* name, const ScheduleShape& shape) {
  Schedule schedule = find_schedule(name)->generate(shape);
  REQUIRE(validate(schedule) == "");
  return schedule;
}

std::size_t index_of(const std::vector<Op>& ops, const Op& wanted) {
  const auto found = std::find(ops.begin(), ops.end(), wanted);
  REQUIRE(found != ops.end());
  return static_cast<std::size_t>(found - ops.begin());
}

void erase(std::vector<Op>& ops, const Op& wanted) {
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(index_of(ops, wanted)));
}

void swap(std::vector<Op>& ops, const Op& a, const Op& b) {
  std::swap(ops[index_of(ops, a)], ops[index_of(ops, b)]);
}

}  // namespace

TEST_CASE("labels are PyTorch's: 0F3, 0B3 for a whole backward, 0I3 and 0W3 for its halves") {
  CHECK(label(op(Kind::F, 0, 3)) == "0F3");
  CHECK(label(op(Kind::BW, 12, 3)) == "12B3");
  CHECK(label(op(Kind::B, 0, 3)) == "0I3");
  CHECK(label(op(Kind::W, 0, 3)) == "0W3");
  CHECK(label(op(Kind::R, 0, 3)) == "0R3");
  CHECK(label(op(Kind::AllReduce, 1, 2, 5)) == "1AR2.5");
  CHECK(label(op(Kind::Update, 1, 2)) == "1U2");
  CHECK(name(Kind::BW) == "BW");
  CHECK(label(op(Kind::AllGather, 1, 2, 1)) == "1AG2.1");
  CHECK(name(static_cast<Kind>(200)) == "?");
}

TEST_CASE("replicas of stage 0 come first, and deal the micro-batches out in turn") {
  const ScheduleShape shape{.stages = 3, .virtual_stages = 2, .micro_batches = 8, .replicas = {3, 1, 2}};
  CHECK(shape.seating().position_of(0, 0) == 0);
  CHECK(shape.seating().position_of(0, 5) == 2);  // 5 mod 3
  CHECK(shape.seating().position_of(1, 7) == 3);
  CHECK(shape.seating().position_of(2, 7) == 5);  // 3 + 1 + 7 mod 2
  CHECK(shape.seating().position_of(5, 7) == 5);  // chunk 5 lies on stage 2
  CHECK(ScheduleShape{.stages = 4, .micro_batches = 8}.seating().position_of(2, 7) == 2);
}

TEST_CASE("an op that stands in the lists twice is refused") {
  Schedule schedule = generated("1f1b", {.stages = 2, .micro_batches = 2});
  schedule.positions[1].compute.insert(schedule.positions[1].compute.begin() + 1, op(Kind::F, 1, 0));
  CHECK(validate(schedule) == "worker 1 (stage 1): 1F0 stands in the lists twice");

  schedule = generated("1f1b", {.stages = 2, .micro_batches = 2});
  schedule.positions[1].compute.push_back(op(Kind::BW, 1, 1));
  CHECK(validate(schedule) == "worker 1 (stage 1): 1B1 stands in the lists twice");
}

TEST_CASE("an op that is missing is refused") {
  Schedule schedule = generated("gpipe", {.stages = 2, .micro_batches = 3});
  erase(schedule.positions[1].compute, op(Kind::BW, 1, 2));
  CHECK(validate(schedule) == "worker 1 (stage 1): 1B2 is missing");

  schedule = generated("gpipe", {.stages = 2, .micro_batches = 3});
  erase(schedule.positions[0].compute, op(Kind::BW, 0, 1)), erase(schedule.positions[0].compute, op(Kind::F, 0, 1));
  CHECK(validate(schedule) == "worker 0 (stage 0): 0F1 is missing");

  schedule = generated("gpipe", {.stages = 2, .micro_batches = 3});
  erase(schedule.positions[1].compute, op(Kind::Update, 1, 0));
  CHECK(validate(schedule) == "worker 1 (stage 1): 1U0 is missing");
}

TEST_CASE("an input gradient without the gradient of the weights is half a backward") {
  Schedule schedule = generated("gpipe", {.stages = 1, .micro_batches = 2});
  auto& ops = schedule.positions[0].compute;
  ops[index_of(ops, op(Kind::BW, 0, 1))].kind = Kind::B;
  CHECK(validate(schedule) == "worker 0 (stage 0): 0W1 is missing");
  ops.insert(ops.begin(), op(Kind::W, 0, 1));
  CHECK(validate(schedule) == "worker 0 (stage 0): 0W1 comes before its input gradient");
}

TEST_CASE("an op on another worker than its own is refused") {
  Schedule schedule = generated("1f1b", {.stages = 2, .micro_batches = 2});
  schedule.positions[0].compute[0] = op(Kind::F, 1, 0);
  CHECK(validate(schedule) == "worker 0 (stage 0): 1F0 belongs to stage 1");

  schedule = generated("1f1b", {.stages = 2, .micro_batches = 4, .replicas = {1, 2}});
  std::swap(schedule.positions[1].compute, schedule.positions[2].compute);
  CHECK(validate(schedule) == "worker 1 (stage 1, replica 0): 1F1 belongs to replica 1");
}

TEST_CASE("a backward before its forward is refused") {
  Schedule schedule = generated("1f1b", {.stages = 2, .micro_batches = 2});
  swap(schedule.positions[1].compute, op(Kind::F, 1, 1), op(Kind::BW, 1, 1));
  CHECK(validate(schedule) == "worker 1 (stage 1): 1B1 comes before its forward");
}

TEST_CASE("numbers that are out of range are refused, not read past the end") {
  const auto with = [](const Op& wrong) {
    Schedule schedule = generated("1f1b", {.stages = 2, .micro_batches = 2});
    schedule.positions[0].compute[0] = wrong;
    return validate(schedule);
  };
  CHECK(with(op(Kind::F, 60'000, 0)) ==
        "worker 0 (stage 0): 60000F0 is of a virtual stage that does not exist: there are 2");
  CHECK(with(op(Kind::F, 0, 2)) == "worker 0 (stage 0): 0F2 is of a micro-batch that does not exist: there are 2");
  CHECK(with(op(Kind::F, 0, -1)) ==
        "worker 0 (stage 0): 0F4294967295 is of a micro-batch that does not exist: there are 2");
  CHECK(with(op(Kind::Update, 0, 1)) ==
        "worker 0 (stage 0): 0U1 updates after a round that does not exist: there are 1");
  CHECK(with(op(static_cast<Kind>(200), 0, 0)) == "worker 0 (stage 0): 0?0 (?) is not an op of a compute stream");
  CHECK(with(op(Kind::AllReduce, 0, 0)) == "worker 0 (stage 0): 0AR0.0 (AllReduce) is not an op of a compute stream");
}

TEST_CASE("a shape that makes no sense is refused before anything is read by it") {
  const auto with = [](auto change) {
    Schedule schedule = generated("1f1b", {.stages = 2, .micro_batches = 2});
    change(schedule);
    return validate(schedule);
  };
  CHECK(with([](Schedule& s) { s.shape.micro_batches = 0; }) == "M = 0: no micro-batch to run");
  CHECK(with([](Schedule& s) { s.shape.stages = 0; }) == "the schedule has no stage");
  CHECK(with([](Schedule& s) { s.shape.virtual_stages = 40'000; }) ==
        "80000 virtual stages: at most 65535 have a name in an op");
  CHECK(with([](Schedule& s) { s.shape.micro_batches = 2'000'000'000; }) ==
        "the lists hold 10 ops, too few for a forward and a backward of 2000000000 micro-batches on 2 virtual stages");
  CHECK(with([](Schedule& s) { s.shape.replicas = {1}; }) == "replicas: one number from 1 is needed for each stage");
  CHECK(with([](Schedule& s) { s.shape.replicas = {1, 0}; }) == "replicas: one number from 1 is needed for each stage");
  CHECK(with([](Schedule& s) {
          s.shape.replicas = {2, 1};
        }) == "the schedule lists the ops of 2 workers, its shape has 3");
  CHECK(with([](Schedule& s) { s.shape.recompute = {true}; }) == "recompute: one entry is needed for each stage");
  CHECK(with([](Schedule& s) { s.shape.buckets = {1}; }) ==
        "buckets: one number from 1 is needed for each virtual stage");
  CHECK(with([](Schedule& s) { s.positions.clear(); }) == "the schedule lists the ops of 0 workers, its shape has 2");
  CHECK(with([](Schedule& s) { s.positions[1] = {}; }) ==
        "the lists hold 5 ops, too few for a forward and a backward of 2 micro-batches on 2 virtual stages");
}

TEST_CASE("a recomputation stands between its forward and its backward, where the stage recomputes and only there") {
  const ScheduleShape shape{.stages = 2, .micro_batches = 2, .recompute = {true, false}, .recompute_except_last = true};
  Schedule schedule = generated("gpipe", shape);
  CHECK(schedule.positions[0].compute == std::vector<Op>{op(Kind::F, 0, 0), op(Kind::F, 0, 1), op(Kind::BW, 0, 1),
                                                         op(Kind::R, 0, 0), op(Kind::BW, 0, 0),
                                                         op(Kind::Update, 0, 0)});
  auto& ops = schedule.positions[0].compute;
  swap(ops, op(Kind::R, 0, 0), op(Kind::BW, 0, 0));
  CHECK(validate(schedule) == "worker 0 (stage 0): 0B0 needs the recomputation 0R0 before it");
  swap(ops, op(Kind::R, 0, 0), op(Kind::BW, 0, 0));
  swap(ops, op(Kind::R, 0, 0), op(Kind::F, 0, 0));
  CHECK(validate(schedule) == "worker 0 (stage 0): 0R0 recomputes a forward that has not run");
  swap(ops, op(Kind::R, 0, 0), op(Kind::F, 0, 0));
  schedule.positions[1].compute.insert(schedule.positions[1].compute.begin() + 1, op(Kind::R, 1, 0));
  CHECK(validate(schedule) == "worker 1 (stage 1): 1R0 recomputes what its stage keeps");
}

TEST_CASE("an update before the backward that it needs is refused") {
  Schedule schedule = generated("pipedream", {.stages = 1, .micro_batches = 2});
  swap(schedule.positions[0].compute, op(Kind::Update, 0, 0), op(Kind::BW, 0, 0));
  CHECK(validate(schedule) == "worker 0 (stage 0): 0B0 comes after the update that needs it");
  schedule = generated("pipedream", {.stages = 1, .micro_batches = 2});
  swap(schedule.positions[0].compute, op(Kind::Update, 0, 0), op(Kind::Update, 0, 1));
  CHECK(validate(schedule) == "worker 0 (stage 0): 0U1 comes before the update of round 0 of its stage");
}

TEST_CASE("members of an all-reduce must agree on the order") {
  Schedule schedule = generated("pipedream", {.stages = 1, .micro_batches = 4, .replicas = {2}, .buckets = {2}});
  std::swap(schedule.positions[1].communication[kReductions][1], schedule.positions[1].communication[kReductions][2]);
  CHECK(validate(schedule) ==
        "worker 1 (stage 0, replica 1): all-reduce 1 of its list is 0AR1.0, but worker 0 (stage 0, replica 0) has "
        "0AR0.1: all members of an all-reduce must agree on the order");
  schedule.positions[1].communication[kReductions].resize(1);
  CHECK(validate(schedule) ==
        "worker 1 (stage 0, replica 1): all-reduce 1 of its list is nothing more, but worker 0 (stage 0, replica 0) "
        "has 0AR0.1: all members of an all-reduce must agree on the order");
}

TEST_CASE("every bucket of every round is reduced once, where there is somebody to reduce with") {
  const auto with = [](auto change) {
    Schedule schedule = generated("1f1b", {.stages = 1, .micro_batches = 2, .data_parallel = 2, .buckets = {2}});
    change(schedule.positions[0].communication[kReductions]);
    return validate(schedule);
  };
  CHECK(with([](auto& ops) { ops.pop_back(); }) == "worker 0 (stage 0): 1 all-reduces for 2 buckets of all rounds");
  CHECK(with([](auto& ops) { ops[1] = ops[0]; }) == "worker 0 (stage 0): 0AR0.0 stands in the list twice");
  CHECK(with([](auto& ops) { ops[1].bucket = 7; }) ==
        "worker 0 (stage 0): 0AR0.7 reduces a stage, round or bucket that is not its own");
  CHECK(with([](auto& ops) { ops[1].kind = Kind::F; }) ==
        "worker 0 (stage 0): 0F0 (F) is not an op of the gradients' stream");

  Schedule alone = generated("1f1b", {.stages = 1, .micro_batches = 2});
  alone.positions[0].communication[kReductions] = {op(Kind::AllReduce, 0, 0)};
  CHECK(validate(alone) == "worker 0 (stage 0): 0AR0.0 has no other worker to reduce with");
}

TEST_CASE("a deadlock is told as the circle of who waits for whom") {
  // Stage 0 wants the gradient of micro-batch 0 before it sends micro-batch 1; stage 1 wants both before it turns back.
  Schedule schedule = generated("naive", {.stages = 2, .micro_batches = 2});
  schedule.positions[1] = generated("gpipe", schedule.shape).positions[1];
  CHECK(validate(schedule) ==
        "worker 0 (stage 0): 0B0 waits for 1B0, which worker 1 runs after 1F1, which waits for 0F1, which worker 0 "
        "runs after 0B0: deadlock");
}

TEST_CASE("workers that wait for the circle from outside are not blamed for it") {
  // Workers 0 and 1 stand still as well; the fault lies between 2 and 3.
  Schedule schedule = generated("1f1b", {.stages = 4, .micro_batches = 8});
  swap(schedule.positions[3].compute, op(Kind::BW, 3, 1), op(Kind::F, 3, 5));
  CHECK(validate(schedule) ==
        "worker 2 (stage 2): 2B1 waits for 3B1, which worker 3 runs after 3F5, which waits for 2F5, which worker 2 "
        "runs after 2B1: deadlock");
}

TEST_CASE("an op that is next on its worker waits itself: the circle goes on through it") {
  // Worker 0 wants its second chunk first. Nobody can begin.
  Schedule schedule = generated("interleaved_1f1b", {.stages = 3, .virtual_stages = 2, .micro_batches = 3});
  swap(schedule.positions[0].compute, op(Kind::F, 0, 0), op(Kind::F, 3, 0));
  CHECK(validate(schedule) ==
        "worker 0 (stage 0): 3F0 waits for 2F0, which waits for 1F0, which waits for 0F0, which worker 0 runs after "
        "3F0: deadlock");
}

TEST_CASE("a long circle is cut short") {
  Schedule schedule = generated("interleaved_1f1b", {.stages = 6, .virtual_stages = 2, .micro_batches = 6});
  swap(schedule.positions[0].compute, op(Kind::F, 0, 0), op(Kind::F, 6, 0));
  CHECK(validate(schedule) ==
        "worker 0 (stage 0): 6F0 waits for 5F0, which waits for 4F0, which waits for 3F0, which waits for 2F0, which "
        "waits for 1F0, and so on back to worker 0: deadlock");
}

TEST_CASE("an all-reduce that waits for a backward behind its own update is a deadlock") {
  // Round 1 stands before round 0 on every member, so U0, which stands before B1, waits for B1.
  Schedule schedule =
      generated("pipedream", {.stages = 1, .micro_batches = 2, .data_parallel = 2, .blocking_sync = true});
  std::swap(schedule.positions[0].communication[kReductions][0], schedule.positions[0].communication[kReductions][1]);
  CHECK(validate(schedule) ==
        "worker 0 (stage 0): 0U0 waits for 0AR0.0, which needs a backward of worker 0 that stands after 0U0: deadlock");
}

TEST_CASE("a split backward is named by its half") {
  Schedule schedule = generated("naive", {.stages = 2, .micro_batches = 2});
  schedule.positions[1].compute = {op(Kind::F, 1, 0), op(Kind::F, 1, 1), op(Kind::B, 1, 0),     op(Kind::W, 1, 0),
                                   op(Kind::B, 1, 1), op(Kind::W, 1, 1), op(Kind::Update, 1, 0)};
  CHECK(validate(schedule) ==
        "worker 0 (stage 0): 0B0 waits for 1I0, which worker 1 runs after 1F1, which waits for 0F1, which worker 0 "
        "runs after 0B0: deadlock");
}

}  // namespace pipewright::tests
