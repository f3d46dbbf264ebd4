// Backwards in two ops, B for the gradient of the input and W, possibly much later, for that of the weights: the order
// in which W stands is the schedule's, what is computed and held is not.
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/plan/op_index.hpp"
#include "runtime/backends/cpu.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "tests/runtime/run_case.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

// Every BW becomes a B, and its W stands behind the B that comes `delay` backwards later (of the stage's updates, none
// comes before its Ws). delay < 0: the number of the stage, the order of ZB-H1 [ZeroBubble23].
Schedule split(Schedule schedule, int delay) {
  for (PositionId p = 0; p < std::ssize(schedule.positions); ++p) {
    const std::size_t behind = at(delay < 0 ? int{schedule.seating().stage_at(p)} : delay);
    std::vector<Op> ops;
    std::deque<Op> waiting;
    const auto weights = [&] { ops.push_back(waiting.front()), waiting.pop_front(); };
    for (Op op : schedule.positions[p].compute) {
      while (op.kind == Kind::Update && !waiting.empty())
        weights();
      if (op.kind != Kind::BW) {
        ops.push_back(op);
        continue;
      }
      op.kind = Kind::B;
      ops.push_back(op);
      op.kind = Kind::W;
      waiting.push_back(op);
      if (waiting.size() > behind) weights();
    }
    schedule.positions[p].compute = std::move(ops);
  }
  return schedule;
}

// A case of run_case.hpp with its schedule's backwards split.
struct SplitCase : RunCase {
  SplitCase(std::vector<std::string> changes, int delay) : RunCase(with_devices(std::move(changes))) {
    const Schedule fused = schedule;
    schedule = split(fused, delay);
    run_plan = pipewright::runtime::run_plan(plan, schedule, scenario.model, scenario.training, *cpu_backend());
  }
  static std::vector<std::string> with_devices(std::vector<std::string> changes) {
    changes.push_back("cluster.node.devices=8");
    return changes;
  }
};

void check(const RunCase& run) {
  REQUIRE(validate(run.schedule) == "");
  const auto workers = run.run(one_step());
  // The reference is one worker with fused backwards, which follows the order of the Ws.
  const auto reference = sequential_gradients(run.run_plan, cpu_backend, *run.data, one_step());
  for (std::size_t v = 0; v < reference.size(); ++v) {
    CAPTURE(v);
    REQUIRE(!reference[v].empty());
    CHECK(differing(gradients_of(workers, v), reference[v]) == 0);
  }
  for (std::size_t w = 0; w < workers.size(); ++w) {
    CAPTURE(w);
    CHECK(workers[w].memory == replayed(run.run_plan, static_cast<PositionId>(w) % run.plan.positions()));
  }
}

}  // namespace

TEST_CASE("A split backward gives the gradients of a fused one, bit by bit, in the memory that was counted") {
  for (const std::string schedule : {"1f1b", "gpipe"})
    for (const int delay : {0, 1, -1, 100})
      for (const std::string recompute : {"none", "full"}) {
        CAPTURE(schedule);
        CAPTURE(delay);
        CAPTURE(recompute);
        check(SplitCase(
            {"plan.schedule=" + schedule, "plan.stages=3", "training.micro_batches=5", "plan.recompute=" + recompute},
            delay));
      }
}

TEST_CASE("Likewise interleaved, ragged, and in copies, whose gradients are complete with the last W") {
  check(SplitCase({"plan.schedule=interleaved_1f1b", "plan.stages=2", "plan.virtual_stages=2"}, 2));
  check(SplitCase({"training.ragged=true", "training.global_batch_size=7", "training.micro_batches=4"}, 1));
  for (const std::string bucket : {"25 MB", "100 kB"})
    check(SplitCase({"plan.data_parallel=2", "plan.bucket=" + bucket}, 2));
}

TEST_CASE("ZB-H1 trains with the gradients of one worker") {
  for (const std::string stages : {"1", "2", "4"})
    for (const std::string recompute : {"none", "full"})
      check(RunCase(SplitCase::with_devices({"plan.schedule=zb_h1", "plan.stages=" + stages, "training.micro_batches=6",
                                             "plan.recompute=" + recompute})));
}

TEST_CASE("The sums are those of a fused run of the same order: gradients, weights and losses are the same bits") {
  for (const std::string schedule : {"1f1b", "pipedream"}) {
    const std::vector<std::string> changes = {"plan.schedule=" + schedule, "plan.stages=2", "training.micro_batches=6"};
    const SplitCase apart(changes, schedule == "1f1b" ? 2 : 0);
    const RunCase fused(SplitCase::with_devices(changes));
    const auto a = apart.run(one_step(3)), b = fused.run(one_step(3));
    for (std::size_t w = 0; w < a.size(); ++w)
      for (std::size_t v = 0; v < a[w].weights.size(); ++v)
        CHECK(differing(a[w].weights[v], b[w].weights[v]) == 0);
    for (std::size_t step = 0; step < 3; ++step)
      CHECK(loss_of(a, step) == loss_of(b, step));
  }
}

TEST_CASE("A W that waits keeps what it reads: the later, the more is held") {
  const std::vector<std::string> changes = {"plan.schedule=1f1b", "plan.stages=2", "training.micro_batches=6"};
  std::vector<std::int64_t> peaks;
  for (const int delay : {0, 1, 3, 100})
    peaks.push_back(replayed(SplitCase(changes, delay).run_plan, 1).live.value);
  CHECK(peaks[0] < peaks[1]);
  CHECK(peaks[1] < peaks[2]);
  CHECK(peaks[2] < peaks[3]);
}

TEST_CASE("What is run is what is priced: with f = b = w = 1 a W delayed by its stage's number fills 1F1B's drain") {
  // M (f + b + w) + (K - 1)(f + b - w) = 8 * 3 + 3 = 27, where 1F1B takes (M + K - 1) * 3 = 33.   [ZeroBubble23]
  const ScheduleShape shape{.stages = 4, .micro_batches = 8};
  const std::vector<Time> one(4, Time{1}), two(4, Time{2});
  const StepCosts costs = plain_costs(shape, one, two, Time{0});
  const Schedule fused = find_schedule("1f1b")->generate(shape);
  CHECK(static_order(fused, costs).makespan == Time{33});
  CHECK(static_order(split(fused, -1), costs).makespan == Time{27});
  CHECK(split(fused, -1).positions[2].compute == find_schedule("zb_h1")->generate(shape).positions[2].compute);
  CHECK(static_order(split(fused, 0), costs).makespan == Time{27 + 3});
}
