// Slices of sequences: what they take and hold, and what is refused.
#include <limits>
#include <variant>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/question/profile.hpp"
#include "planner/answer.hpp"
#include "planner/refusals.hpp"
#include "planner/what_if/formulas.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/transformer_block.hpp"
#include "tests/support/uniform_scenario.hpp"

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

std::string slices_refused(const Scenario& scenario) {
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

// Two layers on two stages, cost: uniform, 100 ns forward and 200 ns backward: attention over four tokens has 40 of 100
// FLOPs of the forward and 100 of 200 of the backward. Two micro-batches of two slices.
Scenario by_hand(SliceLengths lengths) {
  Scenario scenario = uniform_scenario({.layers = 2, .stages = 2, .micro_batches = 2});
  scenario.cost = CostSourceKind::Uniform;
  scenario.uniform_forward = Time{100}, scenario.uniform_backward = Time{200};
  Work& work = scenario.model.works.emplace_back();
  work.inputs = work.outputs = {Amount{}}, work.keeps_input = {0};
  work.operators = {{.name = "linear", .forward_flops = 60, .input_flops = 100},
                    {.name = "attention", .forward_flops = 40, .input_flops = 80, .rebuilt_flops = 20, .causal = true}};
  work.operators[1].attention = {
      .queries = 4, .keys = 4, .heads = 1, .key_heads = 1, .pairs = 10, .longest = 4, .causal = true};
  for (Layer& layer : scenario.model.layers)
    layer.work = 0, layer.parameters = 0, layer.forward.reset(), layer.backward.reset();
  scenario.plan.schedule.value = "seq1f1b";
  scenario.plan.slices = Placed<std::int64_t>{2, {"s.yaml", 5, 3}};
  scenario.plan.slice_lengths = {lengths, {"s.yaml", 6, 3}};
  return scenario;
}

// The first two tokens see 1 + 2 of 10 pairs: of attention the first slice has 0.3, of all else half.
//     forward    0.6 / 2 + 0.4 * 0.3 = 0.42: 42 and 58 ns;   backward 0.5 / 2 + 0.5 * 0.3 = 0.4: 80 and 120 ns
//     stage 0    F0 0-42  F1 42-100  F2 100-142             B1 278-398  F3 398-456  B0 456-536  B3 634-754  B2 754-834
//     stage 1    F0 42-84  F1 100-158  B1 158-278  F2 278-320  B0 320-400  F3 456-514  B3 514-634  B2 634-714
// Cut by FLOPs all slices take 50 and 100 ns: (M Q + K - 1) (f + b) = 5 * 150 = 750 ns.
TEST_CASE("slices of equal tokens, by hand") {
  const Answer even = priced(by_hand(SliceLengths::Even));
  CHECK(even.costs.time_of({Kind::F, 0, 0}) == Time{42});
  CHECK(even.costs.time_of({Kind::F, 1, 3}) == Time{58});
  CHECK(even.costs.time_of({Kind::BW, 0, 2}) == Time{80});
  CHECK(even.costs.time_of({Kind::BW, 1, 1}) == Time{120});
  CHECK(even.report.makespan == Time{834});
  const std::vector<Span> last = even.timeline.workers[1].compute;
  CHECK(last.front() == Span{Time{42}, Time{84}});
  CHECK(last[7] == Span{Time{634}, Time{714}});
  CHECK(priced(by_hand(SliceLengths::Balanced)).report.makespan == Time{750});
  // What the textbook says of equal slices is not said to be exact here.
  REQUIRE_FALSE(formulas(even).empty());
  CHECK(formulas(even).front().applies.find("slices take unequal times") != std::string::npos);
}

TEST_CASE("slices of equal tokens take their micro-batch's times together, to the nanosecond, and later ones more") {
  for (const std::int64_t slices : {2, 3, 7, 256}) {
    CAPTURE(slices);
    Scenario scenario = sliced(slices);
    scenario.plan.slice_lengths.value = SliceLengths::Even;
    scenario.training.checkpoint_early_stop = slices == 3;
    Scenario whole = scenario;
    whole.plan.slices.reset();
    const CostModel cost(scenario);
    const LayerCosts all = CostModel(whole).layers(2);
    LayerCosts sum = cost.layers(2, 0, 0, 0), before = sum;
    for (int slice = 1; slice < slices; ++slice) {
      const LayerCosts of = cost.layers(2, 0, 0, slice);
      CHECK(of.activation == before.activation);
      CHECK(of.stash == before.stash);
      for (std::size_t i = 0; i < all.forward.size(); ++i) {
        CHECK(of.forward[i].value >= before.forward[i].value - 1);
        CHECK(of.backward[i] == of.backward_input[i] + of.backward_weight[i]);
        sum.forward[i] += of.forward[i], sum.again[i] += of.again[i], sum.rebuild[i] += of.rebuild[i];
        sum.backward_input[i] += of.backward_input[i], sum.backward_weight[i] += of.backward_weight[i];
      }
      before = of;
    }
    CHECK(sum.forward == all.forward);
    CHECK(sum.again == all.again);
    CHECK(sum.rebuild == all.rebuild);
    CHECK(sum.backward_input == all.backward_input);
    CHECK(sum.backward_weight == all.backward_weight);
    CHECK(before.forward[0] > cost.layers(2, 0, 0, 0).forward[0]);
  }
}

// A window of 64 of 256 tokens: pairs of the first 64 queries 64 * 65 / 2 = 2080, of every 64 behind them 4096.
TEST_CASE("with a window all slices but the first attend to as much") {
  Scenario scenario = sliced(4);
  scenario.plan.slice_lengths.value = SliceLengths::Even;
  for (Operator& op : scenario.model.works[0].operators)
    if (op.attention.heads > 0) op.attention.longest = 64, op.attention.pairs = 2080 + 3 * 4096;
  const CostModel cost(scenario);
  const auto forward = [&](int slice) { return static_cast<double>(cost.layers(2, 0, 0, slice).forward[0].value); };
  CHECK(forward(0) < forward(1) - 2);
  CHECK(forward(2) == doctest::Approx(forward(1)).epsilon(1e-3));
  CHECK(forward(3) == doctest::Approx(forward(1)).epsilon(1e-3));
}

TEST_CASE("an engine, a search's prices and a report see the same slices") {
  Scenario scenario = sliced(4);
  scenario.plan.slice_lengths.value = SliceLengths::Even;
  scenario.cluster.devices_per_node = 8, scenario.plan.data_parallel.value = 2;
  const Answer even = answered(scenario);
  REQUIRE(even.costs.slices.size() == 4);
  const CostModel cost(scenario);
  StepPricer pricer(even.plan, cost);
  const StepCosts costs = pricer.costs(even.plan.layers, even.plan.recompute);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(costs.slices[i].duration == even.costs.slices[i].duration);
    CHECK(costs.slices[i].ready_before_end == even.costs.slices[i].ready_before_end);
  }
  scenario.plan.slice_lengths.value = SliceLengths::Balanced;
  const Answer balanced = answered(scenario);
  CHECK(balanced.costs.slices.empty());
  CHECK(even.report.makespan > balanced.report.makespan);
}

// Keys and values are part of what a slice keeps; a backward comes after those of later slices, and these after their
// forwards: on the last stage all Q slices are held at once, on the first K - 1 more.
TEST_CASE("keys and values of earlier slices are held until the last one is done, and lengths change no memory") {
  Scenario scenario = sliced(4);
  const Answer balanced = answered(scenario);
  scenario.plan.slice_lengths.value = SliceLengths::Even;
  const Answer even = answered(scenario);
  for (const Answer* of : {&balanced, &even}) {
    CHECK(of->report.stages.back().in_flight == 4);
    CHECK(of->report.stages.front().in_flight == 7);
    const std::int64_t keys_and_values = std::int64_t{2} * 2 * 256 / 4 * 512 * 2;  // of a slice, a layer, in bf16
    CHECK(of->memory.chunks.front().stash.front().value > 2 * keys_and_values);
  }
  for (std::size_t k = 0; k < 4; ++k)
    CHECK(even.report.stages[k].memory.bytes == balanced.report.stages[k].memory.bytes);
}

// Where the host issues kernels ahead, a slice has as many of them.
TEST_CASE("a slice takes its part of the device, and as much of the host as its micro-batch") {
  const auto duration = [](std::int64_t slices, Time operation, SliceLengths lengths) {
    Scenario scenario = sliced(slices);
    scenario.cluster.device.host.operation = operation;
    scenario.plan.slice_lengths.value = lengths;
    return priced(scenario).costs.time_of({Kind::F, 0, 0}).value;
  };
  for (const SliceLengths lengths : {SliceLengths::Balanced, SliceLengths::Even}) {
    const std::int64_t whole = duration(1, Time{10}, lengths), quarter = duration(4, Time{10}, lengths);
    CHECK(whole > 10'000);
    CHECK(quarter < whole / 3);
    CHECK(quarter > whole / 6);
    const std::int64_t slow = duration(1, Time{1'000'000}, lengths);
    CHECK(duration(4, Time{1'000'000}, lengths) > slow - whole);  // the host's time, and little of the device's
    CHECK(duration(4, Time{1'000'000}, lengths) <= slow);
  }
}

TEST_CASE("one device and data parallelism, which a report compares with, cut no sequence") {
  Scenario whole = sliced(1);
  whole.plan.slices.reset(), whole.plan.schedule.value = "1f1b";
  const Report expected = answered(whole).report, four = answered(sliced(4)).report;
  REQUIRE(four.references.size() == 2);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(four.references[i].samples_per_s == expected.references[i].samples_per_s);
}

TEST_CASE("what slices of equal tokens need to know") {
  const auto even = [](Scenario scenario) {
    scenario.plan.slice_lengths = {SliceLengths::Even, {"s.yaml", 6, 3}};
    return slices_refused(scenario);
  };
  CHECK(even(sliced(4)) == "");
  Scenario stated = sliced(4);
  stated.model.layers[2].work = -1, stated.model.layers[2].forward = stated.model.layers[2].backward = Time{100};
  CHECK(even(stated) ==
        "s.yaml:6:3: plan.slice_lengths: even: the figures of layer \"block2\" are stated, and nothing tells what of "
        "them attention takes; write balanced, or a model built from operators");
  stated.plan.slices->value = 1;
  CHECK(even(stated) == "");
  Scenario stored = sliced(4);
  stored.model.works = {transformer_block({.sequence = 256, .hidden = 512, .heads = 8, .inner = 2048})};
  settle(stored.model, Bytes{2}, {1, false});
  CHECK(slices_refused(stored) == "");
  CHECK(even(stored).find("computes the pairs that its mask leaves out, too, which slices do not; write balanced, or "
                          "model.attention: flash") != std::string::npos);
  Scenario measured = sliced(4);
  measured.cost = CostSourceKind::Profile, measured.profile = std::make_shared<const MachineProfile>();
  const Plan plan = plan_of(sliced(4));
  Plan asked = plan;
  asked.slice_lengths.value = SliceLengths::Even;
  CHECK_FALSE(slices_refusal(measured, plan).has_value());
  REQUIRE(slices_refusal(measured, asked).has_value());
  CHECK(slices_refusal(measured, asked)
            ->why.find("lacks slices of this model's layers; calibrate this scenario, or "
                       "write balanced") != std::string::npos);
  Scenario context = sliced(4);
  context.plan.context_parallel.value = 2, context.cluster.devices_per_node = 8;
  CHECK(even(context).find("plan.slice_lengths: even: which tokens of a slice lie on which device of "
                           "plan.context_parallel is not known; write balanced, or context_parallel: 1") !=
        std::string::npos);
}

TEST_CASE("what cannot be sliced") {
  CHECK(slices_refused(sliced(256)) == "");
  CHECK(slices_refused(sliced(257)) == "s.yaml:5:3: plan.slices: 257 parts of a sequence are too many; at most 256");
  CHECK(slices_refused(sliced(std::numeric_limits<std::int64_t>::max())).find("are too many; at most 256") !=
        std::string::npos);
  Scenario other = sliced(2);
  other.plan.schedule.value = "1f1b";
  CHECK(slices_refused(other) ==
        "s.yaml:5:3: plan.slices: 2 cuts sequences, which 1f1b does not; use schedule: seq1f1b, or leave it out");
  Scenario both_sides = sliced(2);
  for (Work& work : both_sides.model.works)
    for (Operator& op : work.operators)
      op.causal = false;
  CHECK(slices_refused(both_sides).find("plan.slices: 2 cuts sequences, but in \"") != std::string::npos);
  Scenario mixers = sliced(2);
  for (Work& work : mixers.model.works)
    work.operators.push_back({.name = "chunk_scan", .module = Module::StateSpace});
  CHECK(slices_refused(mixers).find("plan.slices: 2 cuts sequences, but \"chunk_scan\" of layer \"") !=
        std::string::npos);
  CHECK(slices_refused(mixers).find(
            "goes on from the state of the tokens before, which is not kept from slice to slice; use 1") !=
        std::string::npos);
  Scenario ragged = sliced(2);
  ragged.training.micro_batches.reset(), ragged.training.global_batch_size = Placed<std::int64_t>{7, {}};
  ragged.training.ragged = true;
  CHECK(slices_refused(ragged).find("plan.slices: 2 cuts micro-batches of equal size; use a global_batch_size that") !=
        std::string::npos);
}

}  // namespace
}  // namespace pipewright::tests
