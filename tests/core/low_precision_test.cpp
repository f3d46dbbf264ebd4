// Linear layers in fp8 and fp4: copies, casts, products and what they keep.
#include "core/cost/low_precision.hpp"

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "core/model/families/transformer.hpp"
#include "core/model/layer_builder.hpp"
#include "tests/core/passes.hpp"

using namespace pipewright::tests;

namespace {

constexpr Time microseconds(double n) {
  return {static_cast<std::int64_t>(n * 1'000)};
}

Training in(LowPrecision recipe, bool weights = false) {
  Training training;
  training.precision = Precision::Bf16;
  training.low_precision.value = recipe, training.low_precision_weights = weights;
  return training;
}

// 10 TFLOP/s in bf16 and 20 in fp8, at 50 %; 100 GB/s at 60 %; 5 us per launch; two devices at 25 GB/s and 1 us.
Scenario of_work(Work work, LowPrecision recipe) {
  Scenario scenario;
  scenario.cost = CostSourceKind::Roofline;
  scenario.training = in(recipe);
  scenario.model.works = {std::move(work)};
  Layer& layer = scenario.model.layers.emplace_back();
  layer.name = "layer", layer.work = 0;
  scenario.cluster.devices_per_node = 2;
  scenario.cluster.links.kind = LinkKind::Nvswitch;
  scenario.cluster.links.bandwidth = Bandwidth{25e9};
  scenario.cluster.links.latency = microseconds(1);
  Device& device = scenario.cluster.device;
  device.name = "X100";
  device.peak = {{Precision::Bf16, FlopRate{10e12}}, {Precision::Fp8, FlopRate{20e12}}};
  device.memory_bandwidth = Bandwidth{100e9};
  device.compute_efficiency = 0.5;
  device.memory_efficiency = 0.6;
  device.launch_overhead = microseconds(5);
  return scenario;
}

// 12 GFLOP a pass: 2.4 ms in bf16, 1.2 ms in fp8.
Work product() {
  LayerBuilder b;
  const auto y = b.linear(b.input({1000, 2000}), {.features = 3000, .bias = false});
  return b.finish({y});
}

// Bytes in 16 bits that linear layers alone read, or not alone.
double by_linear(const Work& work, bool too) {
  double sum = 0;
  for (const KeptTensors& kept : work.kept_tensors)
    sum += (too ? kept.by_linear_too : kept.by_linear).on_device(Bytes{2}, {});
  return sum;
}

}  // namespace

TEST_CASE("weights of linear layers have copies in the fewer bits, or nothing else") {
  const auto billions = [](double count) { return static_cast<std::int64_t>(count * 1e9); };
  Device device;
  const auto bytes = [&](const Training& training) { return weight_bytes(billions(8), billions(7), training, device); };
  CHECK(bytes(in(LowPrecision::None)).held == Bytes{billions(16)});
  CHECK(bytes(in(LowPrecision::None)).copies == Bytes{});
  CHECK(bytes(in(LowPrecision::Mxfp8)).held == Bytes{billions(16)});
  CHECK(bytes(in(LowPrecision::Mxfp8)).copies == Bytes{billions(2 * 7 * 33.0 / 32)});
  CHECK(bytes(in(LowPrecision::Mxfp8, true)).held == Bytes{billions(2 + 7 * 33.0 / 32)});
  CHECK(bytes(in(LowPrecision::Mxfp8, true)).copies == Bytes{billions(7 * 33.0 / 32)});
  CHECK(bytes(in(LowPrecision::Nvfp4)).copies == Bytes{billions(2 * 7 * 9.0 / 16)});
  CHECK(bytes(in(LowPrecision::Fp8Blockwise)).copies == Bytes{billions(2 * 7 * 132.0 / 128)});
  CHECK(bytes(in(LowPrecision::Fp8Delayed)).copies == Bytes{billions(14)});
  device.fp8_any_layout = true;  // one copy serves both products
  CHECK(bytes(in(LowPrecision::Fp8Delayed)).copies == Bytes{billions(7)});
  CHECK(bytes(in(LowPrecision::Fp8Tensorwise, true)).copies == Bytes{});
  CHECK(bytes(in(LowPrecision::Mxfp8)).copies == Bytes{billions(2 * 7 * 33.0 / 32)});
  // Never less than the bound of a search.
  for (const LowPrecision recipe : {LowPrecision::None, LowPrecision::Fp8Delayed, LowPrecision::Nvfp4})
    for (const bool weights : {false, true})
      CHECK(static_cast<double>(bytes(in(recipe, weights)).held.value) >=
            8e9 * least_weight_bytes(in(recipe, weights)));
}

TEST_CASE("a product in fp8 runs at the peak of fp8, and what it reads is cast before") {
  CHECK(price(of_work(product(), LowPrecision::None)).forward == microseconds(2405));
  // Input: 2 M values of 2 B read twice, two copies of 1 B written: 12 MB, 200 us, two kernels.
  const CostSource::Passes tensorwise = price(of_work(product(), LowPrecision::Fp8Tensorwise));
  CHECK(tensorwise.forward == microseconds(1205 + 210));
  CHECK(tensorwise.backward_input == microseconds(1205 + 310));  // the gradient of the output: 3 M values
  CHECK(tensorwise.backward_weight == microseconds(1205));       // both are there
  // Read once, in one kernel: 8 MB.
  CHECK(price(of_work(product(), LowPrecision::Fp8Delayed)).forward == Time{1'205'000 + 138'333});
  Scenario any = of_work(product(), LowPrecision::Fp8Tensorwise);
  any.cluster.device.fp8_any_layout = true;  // one copy: 10 MB
  CHECK(price(any).forward == Time{1'205'000 + 176'667});
  Scenario own = of_work(product(), LowPrecision::Fp8Tensorwise);
  Efficiency share;
  share.curve = {{1.0, 0.25}}, share.fixed = microseconds(1);
  own.cluster.device.efficiency[static_cast<std::size_t>(OperatorKind::Fp8Product)] = share;
  CHECK(price(own).backward_weight == microseconds(2405 + 1));
  CHECK(price(own).forward == microseconds(2406 + 212));
}

TEST_CASE("sequence parallelism gathers what was cast") {
  LayerBuilder b;
  const auto inner = b.linear(b.input({1000, 2000}), {.features = 4000, .bias = false, .split = Split::Columns});
  const auto y = b.linear(inner, {.features = 2000, .bias = false, .split = Split::Rows});
  Scenario scenario = of_work(b.finish({y}), LowPrecision::Fp8Tensorwise);
  scenario.plan.tensor_parallel.value = 2, scenario.plan.sequence_parallel.value = true;
  // Two products of 8 GFLOP; casts of 1 M values (before the gather) and of 2 M; 2 M values reduced, 2 M gathered: half of
  // 4 MB and half of 2 MB leave a device.
  CHECK(price(scenario).forward == microseconds(2 * 805 + 110 + 210 + 2 + 80 + 40));
}

TEST_CASE("a device without the peak, weights cast once per update") {
  Scenario scenario = of_work(product(), LowPrecision::Nvfp4);
  CHECK_THROWS_WITH_AS(CostModel{scenario}, doctest::Contains("has no peak.fp4, which training.low_precision needs"),
                       InputError);
  const Device device;
  CHECK(low_precision_parameters(product(), {}) == 6'000'000);
  CHECK(cast_bytes(6'000'000, in(LowPrecision::Fp8Delayed), device) == 6e6 * (2 + 2));
  CHECK(cast_bytes(6'000'000, in(LowPrecision::Fp8Tensorwise), device) == 6e6 * (4 + 2));
  CHECK(cast_bytes(6'000'000, in(LowPrecision::Fp8Tensorwise, true), device) == 0);
  Training sharded = in(LowPrecision::Fp8Delayed);
  sharded.zero = 3;
  CHECK(cast_bytes(6'000'000, sharded, device) == 0);  // in every pass
  scenario.training = sharded;
  CHECK(price(scenario).forward == Time{1'205'000 + 138'333 + 405'000});  // 6 M values: 24 MB, 400 us
}

TEST_CASE("linear layers keep their inputs in fp8") {
  // Of 34 s h bytes of a GPT block 14 are inputs of linear layers that nobody else reads: 2 + 2 + 2 + 8.
  Transformer t;
  t.layers = 1, t.hidden = 64, t.heads = t.key_heads = 4, t.head_size = 16, t.feed_forward = 256;
  t.sequence_length = 32, t.vocabulary = 100, t.position_rows = 32, t.flash = false;
  const Model model = build(t);
  const Work& block = model.works[static_cast<std::size_t>(model.layers[1].work)];
  const double sh = 32 * 64;
  CHECK(by_linear(block, false) == 14 * sh);
  Scenario scenario = of_work(block, LowPrecision::None);
  settle(scenario.model, Bytes{2}, {});
  const Bytes before = CostModel(scenario).layers(1).stash[0];
  scenario.training = in(LowPrecision::Fp8Tensorwise);
  CHECK(before - CostModel(scenario).layers(1).stash[0] == Bytes{static_cast<std::int64_t>(7 * sh)});
  // What is not kept is dropped in the bytes that it had: of 27 s h the norms' outputs in 1 B, what lies between the
  // products of the feed-forward in 2 and 1 B.
  const auto left = [&](Modules modules) {
    scenario.plan.recompute_modules = modules;
    const LayerCosts costs = CostModel(scenario).layers(1);
    return static_cast<double>((costs.stash[0] - costs.core[0]).value);
  };
  const double whole = left({});
  CHECK(whole - left({Module::FeedForward}) == (8 + 4) * sh);
  CHECK(whole - left({Module::Norm}) == 2 * sh);
  CHECK(whole - left({Module::Norm, Module::FeedForward}) == 14 * sh);
  scenario.plan.recompute_modules = {Module::AttentionCore};
  // Fused attention keeps its output as well: a copy more.
  t.flash = true;
  const Model fused = build(t);
  const Work& of_fused = fused.works[static_cast<std::size_t>(fused.layers[1].work)];
  CHECK(by_linear(of_fused, false) == 12 * sh);
  CHECK(by_linear(of_fused, true) == 2 * sh);
}
