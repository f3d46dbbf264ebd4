// Slices of sequences: what they take and hold, and what is refused.
#include <limits>
#include <variant>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "planner/answer.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/transformer_block.hpp"

namespace pipewright::tests {
namespace {

// Eight blocks in bf16 on four stages; 256 tokens, 8 heads; four micro-batches of two samples.
Scenario sliced(std::int64_t slices) {
  Scenario scenario =
      block_scenario({.sequence = 256, .hidden = 512, .heads = 8, .inner = 2048, .flash = true}, 8, 4, {1, false});
  for (Work& work : scenario.model.works)
    for (Operator& op : work.operators)
      op.causal = op.attention.heads > 0;
  scenario.training.micro_batch_size = Placed<std::int64_t>{2, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{4, {}};
  scenario.plan.stages.value = 4;
  scenario.plan.schedule.value = "seq1f1b";
  scenario.plan.slices = Placed<std::int64_t>{slices, {"s.yaml", 5, 3}};
  return scenario;
}

Answer answered(const Scenario& scenario) {
  return std::get<Answer>(answer(scenario));
}

std::string refused(const Scenario& scenario) {
  try {
    plan_of(scenario);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST_CASE("a slice takes and holds a Q-th of its micro-batch, and one slice is 1F1B to the nanosecond") {
  Scenario whole = sliced(1);
  whole.plan.slices.reset(), whole.plan.schedule.value = "1f1b";
  const Answer by_micro_batch = answered(whole), one = answered(sliced(1)), four = answered(sliced(4));
  CHECK(one.report.makespan == by_micro_batch.report.makespan);
  CHECK(four.schedule.shape.micro_batches == 16);
  const auto time = [](const Answer& of, Kind kind) { return of.costs.duration[static_cast<std::size_t>(kind)].value; };
  for (const Kind kind : {Kind::F, Kind::BW}) {
    CHECK(4 * time(four, kind) >= time(one, kind));
    CHECK(4 * time(four, kind) <= time(one, kind) + 4 * 20);  // rounded up by layer
  }
  CHECK(four.report.makespan < one.report.makespan);
  const auto stash = [](const Answer& of) { return of.memory.chunks.front().stash.front().value; };
  CHECK(4 * stash(four) >= stash(one));
  CHECK(4 * stash(four) <= stash(one) + 4 * 10);
}

TEST_CASE("what cannot be sliced") {
  CHECK(refused(sliced(256)) == "");
  CHECK(refused(sliced(257)) == "s.yaml:5:3: plan.slices: 257 parts of a sequence are too many; at most 256");
  CHECK(refused(sliced(std::numeric_limits<std::int64_t>::max())).find("are too many; at most 256") !=
        std::string::npos);
  Scenario other = sliced(2);
  other.plan.schedule.value = "1f1b";
  CHECK(refused(other) ==
        "s.yaml:5:3: plan.slices: 2 cuts sequences, which 1f1b does not; use schedule: seq1f1b, or leave it out");
  Scenario both_sides = sliced(2);
  for (Work& work : both_sides.model.works)
    for (Operator& op : work.operators)
      op.causal = false;
  CHECK(refused(both_sides).find("plan.slices: 2 cuts sequences, but in \"") != std::string::npos);
  Scenario ragged = sliced(2);
  ragged.training.micro_batches.reset(), ragged.training.global_batch_size = Placed<std::int64_t>{7, {}};
  ragged.training.ragged = true;
  CHECK(refused(ragged).find("plan.slices: 2 cuts micro-batches of equal size; use a global_batch_size that") !=
        std::string::npos);
}

}  // namespace
}  // namespace pipewright::tests
