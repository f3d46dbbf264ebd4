// Every figure here is made up: no GPU has been measured.
#include "core/cluster/measured_device.hpp"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/cluster/topology.hpp"
#include "core/cost/collectives.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/operation_size.hpp"
#include "core/model/layer_builder.hpp"

using namespace pipewright::tests;

namespace {

const TimeFormula kWaves = {.terms = SizeTerms::Waves,
                            .fixed_ns = 5'000,
                            .per_wave_ns = 1'000,
                            .per_wave_depth_ns = 10,
                            .tile_rows = 128,
                            .tile_columns = 128,
                            .floor_ns_per_value = 0.001};

MeasuredSeries series(const char* operation, MeasuredPass pass, int virtual_devices, int busy) {
  MeasuredSeries s;
  s.operation = operation, s.pass = pass, s.virtual_devices = virtual_devices, s.busy = busy;
  s.sms = 128 / virtual_devices;
  return s;
}

// y = x W, 4 -> 8 features, 16 rows: one layer, and a device on which its three passes took 100, 200 and 300 ns for one
// sample, and twice as long while both of two virtual devices computed.
struct OneLinear {
  OneLinear() {
    LayerBuilder b;
    scenario.model.works = {b.finish({b.linear(b.input({16, 4}), {.features = 8, .bias = false})})};
    Layer layer;
    layer.name = "dense", layer.work = 0;
    scenario.model.layers = {layer};
    scenario.model.input_amount = {.values = 64};
    settle(scenario.model, Bytes{4}, {});
    scenario.cost = CostSourceKind::Roofline;
    Device& device = scenario.cluster.device;
    device.name = "made-up", device.memory = Bytes{1 << 30};
    device.peak[Precision::Fp32] = FlopRate{1e12};
    device.memory_bandwidth = Bandwidth{1e9};
    measured.gpu = "made up", measured.date = "2026-01-01", measured.driver = "13.0";
    const Program& program = *scenario.model.works[0].program.get();
    for (const auto& [devices, busy] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2)}) {
      double ns = 0;
      for (const MeasuredPass pass :
           {MeasuredPass::Forward, MeasuredPass::InputGradient, MeasuredPass::WeightGradient}) {
        MeasuredSeries s = series("linear", pass, devices, busy);
        ns += 100;
        s.sizes = {{*operation_size(program, program.steps[0], 1, pass), ns * busy, 0, 0.01, 0, 1, 10, 0}};
        measured.series.push_back(s);
      }
    }
  }
  CostSource::Passes price(std::int64_t samples, int busy = 0) {
    scenario.cluster.device.measured = std::make_shared<const MeasuredDevice>(measured);
    const CostModel cost(scenario);
    return busy == 0 ? cost.source().price(scenario.model, 0, samples)
                     : cost.source().price_at(scenario.model, 0, samples, busy);
  }
  Scenario scenario;
  MeasuredDevice measured;
};

}  // namespace

TEST_CASE("Alpha and bus bandwidth of what several do together") {
  MeasuredCollective c;
  c.operation = "ring all-reduce", c.members = c.virtual_devices = 4;
  CHECK(bus_bandwidth(c) == 0);  // no formula
  c.formula = TimeFormula{.terms = SizeTerms::Values, .fixed_ns = 30'000, .per_value_ns = 0.01};
  CHECK(alpha_ns(c) == 5'000);                      // of 6 hops
  CHECK(bus_bandwidth(c) == doctest::Approx(150));  // 1.5 of the bytes pass each link
  // As links of a cluster these two make the same ring.
  Cluster cluster;
  cluster.devices_per_node = 4, cluster.links.kind = LinkKind::Nvswitch;
  cluster.links.latency = Time{std::llround(alpha_ns(c))};
  cluster.links.bandwidth = Bandwidth{bus_bandwidth(c) * 1e9};
  for (const std::int64_t bytes : {4'096, 400'000'000}) {
    const Collective ring = all_reduce(AllReduce::Ring, {0, 1, 2, 3}, Bytes{bytes}, Topology(cluster), 4);
    CHECK(static_cast<double>(ring.time.value) ==
          doctest::Approx(30'000 + 0.01 * static_cast<double>(bytes)).epsilon(1e-4));
  }
  c.operation = "nccl all-gather";
  CHECK(alpha_ns(c) == 10'000);
  CHECK(bus_bandwidth(c) == doctest::Approx(75));
  c.operation = "peer copy", c.members = 2;
  CHECK(alpha_ns(c) == 30'000);
  CHECK(bus_bandwidth(c) == doctest::Approx(100));
}

TEST_CASE("A formula of waves counts tiles, waves and depth, and never beats the memory") {
  // 32 x 32 tiles on 132 SMs: 8 waves of 1 us + 1024 * 10 ns.
  const OperationSize size{1, 4096, 4096, 1024, 4096.0 * 4096};
  CHECK(waves(kWaves, size, 132) == 8);
  CHECK(kWaves.at(size, 132) == doctest::Approx(94'920));
  // One row more: 33 tiles down, 1056 = 8 * 132 still eight waves; on 64 SMs 16 become 17.
  CHECK(kWaves.at({1, 4097, 4096, 1024, 1}, 132) == doctest::Approx(94'920));
  CHECK(waves(kWaves, size, 64) == 16);
  CHECK(waves(kWaves, {1, 4097, 4096, 1024, 1}, 64) == 17);
  // Three products of one tile each fit one wave.
  CHECK(waves(kWaves, {3, 100, 100, 10, 1}, 132) == 1);
  CHECK(kWaves.at({1, 1, 1, 1, 1e9}, 132) == 1e6);  // the floor: 0.001 ns per value
}

TEST_CASE("Formulas of work and of values are sums") {
  const TimeFormula work{.terms = SizeTerms::Work, .fixed_ns = 100, .per_flop_ns = 0.5, .per_value_ns = 2};
  CHECK(work.at({2, 3, 5, 7, 11}, 1) == 100 + 0.5 * 2 * 2 * 3 * 5 * 7 + 2 * 11);
  const TimeFormula values{.terms = SizeTerms::Values, .fixed_ns = 100, .per_value_ns = 2};
  CHECK(values.at({1, 3, 5, 0, 11}, 1) == 122);
}

TEST_CASE(
    "A size that was measured takes the measured time; another one what the formula says; beyond them it is less "
    "sure") {
  MeasuredDevice device;
  device.repeat_error = 0.003;
  MeasuredSeries s = series("gelu", MeasuredPass::Forward, 1, 1);
  s.formula = TimeFormula{.terms = SizeTerms::Values, .fixed_ns = 1'000, .per_value_ns = 1};
  s.errors = {0, 0, 0, 0.03, 0.04};
  s.sizes = {{{1, 10, 10, 0, 200}, 1'234, 0, 0.005, 0, 1, 10, 0},
             {{1, 100, 10, 0, 2'000}, 2'900, 0, 0.005, 0, 1, 10, 0}};
  device.series = {s};
  const auto price = [&](double values) {
    return measured_price(device, {"gelu"}, {1, static_cast<std::int64_t>(values / 20), 10, 0, values}).value();
  };
  CHECK(price(200).exact);
  CHECK(price(200).ns == 1'234);
  CHECK(price(200).common == 0.003);
  CHECK(price(200).independent == 0.005);
  CHECK_FALSE(price(1'000).exact);
  CHECK(price(1'000).ns == 2'000);
  CHECK(price(1'000).error() == doctest::Approx(std::hypot(0.03, 0.003, 0.04)));
  CHECK(price(1'000).beyond == 0);
  // Twice and ten times the largest: ln 2 and ln 10 more of the error.
  CHECK(price(4'000).beyond == doctest::Approx(std::log(2)));
  CHECK(price(4'000).error() == doctest::Approx((1 + std::log(2)) * price(1'000).error()));
  CHECK(price(20'000).beyond == doctest::Approx(std::log(10)));
  CHECK(price(20).beyond == doctest::Approx(std::log(10)));
  // The ends of the error bars: of what all times share, and of the operation's own.
  const auto ns = [](const MeasuredDevice& at) { return measured_price(at, {"gelu"}, {1, 50, 10, 0, 1'000})->ns; };
  CHECK(ns(*moved(device, 1.645)) == doctest::Approx(2'000 * std::exp(1.645 * 0.003)));
  CHECK(ns(*moved(device, 1.645, "gelu")) == doctest::Approx(2'000 * std::exp(1.645 * std::hypot(0.03, 0.04))));
  CHECK(ns(*moved(device, 1.645, "relu")) == 2'000);
  CHECK_FALSE(measured_price(device, {"relu"}, {1, 50, 10, 0, 1'000}).has_value());
}

TEST_CASE("Series are looked up by busy groups; in tf32 what only moves values takes as long as in fp32") {
  MeasuredDevice device;
  for (const int busy : {1, 4, 8})
    device.series.push_back(series("gelu", MeasuredPass::Forward, 8, busy));
  device.series.push_back(series("linear", MeasuredPass::Forward, 8, 1));
  device.series.back().sizes = {{{1, 1, 1, 1, 3}, 1, 0, 0, 0, 1, 1, 0}};
  const auto busy = [&](int asked) {
    return find_series(device, {"gelu", MeasuredPass::Forward, Precision::Tf32, 8, asked})->busy;
  };
  CHECK(busy(1) == 1);
  CHECK(busy(2) == 4);
  CHECK(busy(8) == 8);
  CHECK(find_series(device, {"gelu", MeasuredPass::Forward, Precision::Tf32, 4, 1}) == nullptr);
  CHECK(find_series(device, {"gelu", MeasuredPass::Forward, Precision::Bf16, 8, 1}) == nullptr);
  CHECK(find_series(device, {"linear", MeasuredPass::Forward, Precision::Tf32, 8, 1}) == nullptr);
  CHECK(measured_loads(device, 8) == std::vector<int>{1, 4, 8});
  CHECK(measured_splits(device) == std::vector<int>{8});
}

TEST_CASE("The size of a step follows from its shapes") {
  LayerBuilder b;
  const auto x = b.input({64, 128});
  const auto h = b.linear(x, {.features = 384});
  const auto a =
      b.attention({h}, {.heads = 4, .key_heads = 4, .key_size = 32, .value_size = 32, .queries = 64, .keys = 64});
  const Work work = b.finish({b.activation(a, Activation::Gelu)});
  const Program& p = *work.program.get();
  const auto size = [&](std::size_t step, MeasuredPass pass) { return operation_size(p, p.steps[step], 8, pass); };
  using enum MeasuredPass;
  CHECK(size(0, Forward) == OperationSize{1, 512, 384, 128, 311'680});
  CHECK(size(0, InputGradient) == OperationSize{1, 512, 128, 384, 311'680 + 512 * 128});
  CHECK(size(0, WeightGradient) == OperationSize{1, 384, 128, 512, 311'680 + 128 * 384 + 384});
  CHECK(size(1, Forward) == OperationSize{32, 64, 64, 64, 512 * 384 + 512 * 128});
  CHECK_FALSE(size(1, WeightGradient).has_value());
  CHECK(size(2, Forward) == OperationSize{1, 512, 128, 0, 2 * 512 * 128});
  CHECK(size(2, InputGradient) == OperationSize{1, 512, 128, 0, 3 * 512 * 128});

  LayerBuilder image;
  const Work conv = image.finish({image.conv2d(
      image.input({8, 10, 10}), {.channels = 16, .kernel_height = 3, .kernel_width = 3, .stride = 2, .groups = 2})});
  const Program& c = *conv.program.get();  // 8 x 10 x 10 -> 16 x 4 x 4
  CHECK(operation_size(c, c.steps[0], 2, Forward) == OperationSize{2, 32, 8, 36, 2 * 800 + 2 * 256 + 16 * 36});
  CHECK(operation_size(c, c.steps[0], 2, InputGradient)->rows == 200);
  CHECK(operation_size(c, c.steps[0], 2, WeightGradient)->depth == 32);

  LayerBuilder tokens;
  const Work table = tokens.finish({tokens.embedding(tokens.tokens(64), 256, 128)});
  const Program& t = *table.program.get();
  CHECK(operation_size(t, t.steps[0], 1, Forward) == OperationSize{1, 64, 128, 0, 2 * 64 * 128});
  CHECK_FALSE(operation_size(t, t.steps[0], 1, InputGradient).has_value());
}

TEST_CASE("A layer takes what its steps took, by the number of virtual devices and of those that compute") {
  OneLinear one;
  const auto passes = one.price(1);
  CHECK(passes.forward == Time{100});
  CHECK(passes.backward_input == Time{200});
  CHECK(passes.backward_weight == Time{300});
  one.scenario.cluster.device.virtual_devices = 2;
  CHECK(one.price(1).forward == Time{200});
  CHECK(one.price(1, 1).forward == Time{100});
  const CostModel cost(one.scenario);
  CHECK(cost.source().loads() == std::vector<int>{1, 2});
  CHECK(cost.source().caution(one.scenario.model, 1).empty());
  CHECK(cost.source().provenance().starts_with("layer times: operations as measured on made up, one of 2 groups"));
}

TEST_CASE(
    "A layer whose steps were not measured at that size, nor fitted, is priced by FLOPs and bytes, and the report says "
    "so") {
  OneLinear one;
  const auto fallback =
      one.price(2);  // 2 * 2 * 16 * 4 * 8 FLOPs at 1 TFLOP/s; (64 + 128) * 2 + 32 values of 4 B at 1 GB/s
  CHECK(fallback.forward == Time{(192 * 2 + 32) * 4});
  const CostModel cost(one.scenario);
  CHECK(cost.source().caution(one.scenario.model, 2) ==
        "1 layers (\"dense\" first) hold operations that were not measured on made-up: they are priced by FLOPs, bytes "
        "and its efficiencies");
}

TEST_CASE("A layer with a dropout takes what a measured dropout took beside its product") {
  OneLinear one;
  LayerBuilder b;
  one.scenario.model.works = {b.finish({b.dropout(b.linear(b.input({16, 4}), {.features = 8, .bias = false}))})};
  settle(one.scenario.model, Bytes{4}, {});
  CHECK(one.price(1).backward_weight != Time{300});  // by FLOPs and bytes
  const Program& program = *one.scenario.model.works[0].program.get();
  double ns = 0;
  for (const MeasuredPass pass : {MeasuredPass::Forward, MeasuredPass::InputGradient}) {
    MeasuredSeries s = series("dropout", pass, 1, 1);
    s.sizes = {{*operation_size(program, program.steps[1], 1, pass), ns += 7, 0, 0.01, 0, 1, 10, 0}};
    one.measured.series.push_back(s);
  }
  const auto passes = one.price(1);
  CHECK(passes.forward == Time{100 + 7});
  CHECK(passes.backward_input == Time{200 + 14});
  CHECK(passes.backward_weight == Time{300});
}

TEST_CASE("Beyond the measured sizes the report says by how much, and how sure it is") {
  OneLinear one;
  for (MeasuredSeries& s : one.measured.series) {
    s.formula = TimeFormula{.terms = SizeTerms::Waves, .fixed_ns = 10, .per_wave_depth_ns = 1};
    s.errors = {0, 0, 0, 0.03, 0.04};
  }
  CHECK(one.price(4).forward == Time{14});
  const CostModel cost(one.scenario);
  const std::string caution = cost.source().caution(one.scenario.model, 4);
  INFO(caution);
  CHECK(caution.find("1 layers are larger or smaller than what was measured on made-up") == 0);
  CHECK(caution.find("calibrate with --model to know") != std::string::npos);
}

TEST_CASE("A number of virtual devices that was not measured is refused with those that were") {
  OneLinear one;
  one.scenario.cluster.device.virtual_devices = 4;
  CHECK_THROWS_WITH_AS(one.price(1),
                       "device \"made-up\" was not measured as 4 virtual devices, but as: 1, 2; set virtual_devices to "
                       "one of these, or calibrate again with --virtual-devices",
                       InputError);
}

TEST_CASE("The optimizer's step takes what was measured") {
  OneLinear one;
  MeasuredSeries s = series("update sgd", MeasuredPass::Forward, 1, 1);
  s.sizes = {{{1, 32, 1, 0, 32}, 777, 0, 0, 0, 1, 10, 0}};
  one.measured.series.push_back(s);
  static_cast<void>(one.price(1));
  CHECK(CostModel(one.scenario).source().update(32) == Time{777});

  // In 16 bits it also writes the copy that layers read: a series of its own, or without it that of fp32.
  one.scenario.cluster.device.peak[Precision::Bf16] = one.scenario.cluster.device.peak[Precision::Fp32] =
      FlopRate{1e12};
  one.scenario.training.precision = Precision::Bf16;
  CHECK(CostModel(one.scenario).source().update(32) == Time{777});
  s.precision = Precision::Bf16, s.sizes.front().ns = 999;
  one.measured.series.push_back(s);
  one.scenario.cluster.device.measured = std::make_shared<const MeasuredDevice>(one.measured);
  CHECK(CostModel(one.scenario).source().update(32) == Time{999});
  one.scenario.training.precision = Precision::Fp32;
  CHECK(CostModel(one.scenario).source().update(32) == Time{777});
}
