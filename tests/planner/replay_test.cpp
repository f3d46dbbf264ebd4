// recompute_modules: [operators], torchtitan's selective checkpoints: what they repeat, keep, and do not know.
#include <cmath>

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/refusals.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/family_model.hpp"
#include "tests/support/transformer_block.hpp"

namespace pipewright::tests {
namespace {

constexpr double kTokens = 1024, kHidden = 512, kKeys = 128, kInner = 1536, kHeads = 8;

// Two blocks of a decoder between embedding and head, in bf16 on one device (or t): 100 TFLOP/s, and memory so fast that
// products alone take time.
Scenario decoder(TensorParallel split = {}) {
  Scenario scenario = block_scenario({.flash = true}, 1, split.degree, split);
  scenario.model = family_model("decoder", {{"layers", "2"},
                                            {"hidden", "512"},
                                            {"heads", "8"},
                                            {"key_heads", "2"},
                                            {"feed_forward", "1536"},
                                            {"vocabulary", "1024"},
                                            {"sequence_length", "1024"}});
  settle(scenario.model, Bytes{2}, split);
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{100e9}, .latency = Time{1000}};
  scenario.cluster.device.peak[Precision::Bf16] = FlopRate{100e12};
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e21};
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{3, {}};
  scenario.plan.recompute.place = {"s.yaml", 7, 3};
  return scenario;
}

Scenario recomputed(Scenario scenario, Recompute mode) {
  scenario.plan.recompute.value = {mode};
  if (mode == Recompute::Selective) scenario.plan.recompute_modules = {Module::Operators};
  return scenario;
}

double backward(const Scenario& scenario) {
  const CostModel cost(scenario);
  const StepCosts costs = step_costs(find_plan(scenario, cost), cost);
  return static_cast<double>(costs.duration[static_cast<std::size_t>(Kind::BW)].value);
}

double value(Bytes bytes) {
  return static_cast<double>(bytes.value);
}

double ns(double flops) {
  return flops / 100e12 * 1e9;
}

// Of two blocks checkpoints of whole blocks repeat all; by operator not qkv, attention, the gate and `down`.
TEST_CASE("Replay: time of what is not repeated") {
  const Scenario scenario = decoder();
  const double qkv = 2 * kTokens * kHidden * (kHidden + 2 * kKeys), down = 2 * kTokens * kInner * kHidden, gate = down;
  const double attention = 4 * kTokens * (kTokens + 1) / 2 * kHidden;
  const double blocks = backward(recomputed(scenario, Recompute::Blocks)),
               operators = backward(recomputed(scenario, Recompute::Selective));
  CHECK(std::abs(blocks - operators - 2 * ns(qkv + attention + gate + down)) <= 4);
  CHECK(operators - backward(recomputed(scenario, Recompute::None)) > 2 * ns(gate + 2 * kTokens * kHidden * kHidden));
}

// Per block and sample: what replay_bytes counts; once while a backward runs, the rest of what is there at most.
TEST_CASE("Replay: bytes of a stage with three micro-batches in flight") {
  Scenario scenario = recomputed(decoder(), Recompute::Selective);
  scenario.plan.schedule.value = "gpipe";
  const Scenario plain = recomputed(scenario, Recompute::None);
  const auto walk = [](const Scenario& of) {
    const Answer answer = priced(of);
    return peak(answer.memory, answer.schedule, 0).bytes;
  };
  const double qkv = 2 * kTokens * (kHidden + 2 * kKeys), attention = 2 * kTokens * kHidden + 4 * kTokens * kHeads,
               gate = 2 * kTokens * kInner, down = 2 * kTokens * kHidden;
  const double saved = qkv + attention + gate + down;
  // What the operators keep of a block: outputs of two norms and of the sum between, rotated qkv, attention, both halves
  // of the gate and their product.
  const double own = 3 * down + qkv + attention + 2 * gate + gate;
  CHECK(value(walk(plain).stash - walk(scenario).stash) == 3 * 2 * (own - saved));
  CHECK(value(walk(scenario).recompute) == own + down - saved);
  // In half the tokens' tensors half the bytes, but for the whole sums of `down`.
  const auto chunk = [](const Scenario& of) {
    const CostModel cost(of);
    return memory_model(find_plan(of, cost), cost).chunks[0];
  };
  const double halves = value(chunk(recomputed(decoder({2, true}), Recompute::None)).stash[0] -
                              chunk(recomputed(decoder({2, true}), Recompute::Selective)).stash[0]);
  CHECK(halves == 2 * (own / 2 - ((saved - down) / 2 + down + 2 * down / 2)));
}

// All-reduces are repeated, of sequence parallelism only the gathering half; with an early stop not the last one.
TEST_CASE("Replay: exchanges of tensor parallelism") {
  const auto added = [](TensorParallel split, bool stop) {
    Scenario scenario = decoder(split);
    scenario.training.checkpoint_early_stop = stop;
    const auto of_links = [&](Recompute mode) {
      Scenario fast = recomputed(scenario, mode);
      const double with = backward(fast);
      fast.cluster.links.latency = Time{}, fast.cluster.links.bandwidth = Bandwidth{1e21};
      return with - backward(fast);
    };
    return of_links(Recompute::Selective) - of_links(Recompute::None);
  };
  const double whole = added({2, false}, false);
  CHECK(whole > 2 * 2 * 1000);
  CHECK(added({2, false}, true) == doctest::Approx(whole / 2).epsilon(1e-3));
  CHECK(added({2, true}, false) == doctest::Approx(whole / 2).epsilon(1e-3));
  CHECK(added({2, true}, true) == doctest::Approx(whole / 2).epsilon(1e-3));
}

TEST_CASE("Replay: what operators do not know is refused, with the way out") {
  const auto refused = [](const auto& change) {
    Scenario scenario = recomputed(decoder(), Recompute::Selective);
    change(scenario);
    return error_of(scenario);
  };
  const auto says = [](const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; };
  CHECK(refused([](Scenario&) {}) == "no error");
  Scenario low = recomputed(decoder(), Recompute::Selective);
  low.training.low_precision.value = LowPrecision::Mxfp8;
  CHECK(says(operators_refusal(low)->why, "[operators]: which products in fewer bits are saved is not known"));
  CHECK(says(operators_refusal(low)->why, "write recompute: blocks"));
  low.plan.recompute_modules = {Module::AttentionCore};
  CHECK_FALSE(operators_refusal(low));
  CHECK(says(refused([](Scenario& s) { s.training.framework.tensors = FrameworkTensors::Megatron; }),
             "s.yaml:7:3: plan.recompute_modules: [operators]"));
  CHECK(says(refused([](Scenario& s) { s.training.framework.tensors = FrameworkTensors::Megatron; }),
             "not of training.framework"));
  CHECK(says(refused([](Scenario& s) { s.cluster.devices_per_node = 2, s.plan.context_parallel.value = 2; }),
             "over a shared sequence"));
  CHECK(says(refused([](Scenario& s) {
               s.model = family_model("decoder", {{"layers", "2"},
                                                  {"hidden", "512"},
                                                  {"heads", "8"},
                                                  {"feed_forward", "1536"},
                                                  {"experts", "4"},
                                                  {"active_experts", "2"},
                                                  {"expert_feed_forward", "512"}});
               settle(s.model, Bytes{2}, {});
             }),
             "what is saved of experts is not known"));
}

}  // namespace
}  // namespace pipewright::tests
