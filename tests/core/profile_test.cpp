#include "core/question/profile.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/slices.hpp"
#include "core/model/each_device.hpp"
#include "core/model/layer_builder.hpp"

using namespace pipewright::tests;

namespace {

Work linear_layer(std::int64_t in, std::int64_t out, bool first) {
  LayerBuilder b;
  return b.finish({b.linear(b.input({in}, !first), {.features = out})});
}

// Two linear layers 4 -> 4 and 4 -> 2 on two cores, one each; 16 B and 8 B per sample.
struct TwoLayers {
  TwoLayers() {
    Model& model = scenario.model;
    model.name = "two";
    model.works = {linear_layer(4, 4, true), linear_layer(4, 2, false)};
    for (int i = 0; i < 2; ++i) {
      Layer layer;
      layer.name = "l" + std::to_string(i), layer.work = i;
      if (i > 0) layer.inputs = {i - 1};
      model.layers.push_back(layer);
    }
    model.input_amount = {.values = 4};
    settle(model, Bytes{4}, {});
    scenario.cluster.devices_per_node = 2;
    scenario.cluster.device.memory = Bytes{1 << 30};
    scenario.cost = CostSourceKind::Profile;
    profile.name = "here";
    profile.layers = {
        {describe(*model.works[0].program.get()), 3, Time{100}, Time{0}, Time{50}, 0.1, 10},
        {describe(*model.works[1].program.get()), 3, Time{200}, Time{70}, Time{30}, 0.1, 10},
    };
    std::sort(profile.layers.begin(), profile.layers.end(),
              [](const LayerTimes& a, const LayerTimes& b) { return a.key < b.key; });
    profile.op_overhead = Time{5};
    profile.send = {10, 0.5};
    profile.first_read = {1, 0.25};
    profile.handoff = Time{40};
    profile.updates = {{Optimizer::Sgd, {7, 2}}};
    plan.schedule = "gpipe", plan.stages = 2, plan.replicas = {1, 1};
    plan.micro_batches = 4, plan.micro_batch_size = plan.last_micro_batch_size = 3, plan.global_batch_size = 12;
    plan.layers = {{0, 1}, {1, 2}}, plan.recompute = {Recompute::None, Recompute::None}, plan.device = {0, 1};
  }
  StepCosts costs() {
    scenario.profile = std::make_shared<const MachineProfile>(profile);
    return step_costs(plan, CostModel(scenario));
  }
  Scenario scenario;
  MachineProfile profile;
  Plan plan;
};

// The same machine, and a model of one layer; fp32 values per sample that it reads.
struct OneLayer : TwoLayers {
  OneLayer(const Work& work, double values) {
    Model& model = scenario.model;
    model = Model();
    model.name = "one", model.works = {work};
    model.layers.emplace_back();
    model.layers[0].name = "layer", model.layers[0].work = 0;
    model.input_amount = {.values = values};
    settle(model, Bytes{4}, {});
    profile.send = {0, 10}, profile.first_read = {0, 1}, profile.handoff = Time{500};
  }
  CostSource::Passes passes() {
    scenario.profile = std::make_shared<const MachineProfile>(profile);
    return CostModel(scenario).source().price(scenario.model, 0, 1);
  }
};

Time of(const StepCosts& costs, int chunk, Kind kind) {
  return costs.duration[static_cast<std::size_t>(chunk) * kKinds + static_cast<std::size_t>(kind)];
}

}  // namespace

TEST_CASE("What a layer computes is told by its operations, shapes and settings") {
  CHECK(describe(*linear_layer(4, 2, false).program.get()) == "linear 4 -> 2 bias");
  CHECK(describe(*linear_layer(4, 2, true).program.get()) == "linear 4! -> 2 bias");
  LayerBuilder b;
  const auto x = b.input({8, 6});
  const Work block = b.finish({b.add(x, b.activation(b.norm(x, {}), Activation::Gelu))});
  CHECK(describe(*block.program.get()) == "layer_norm 8x6 -> 8x6 affine bias; gelu 8x6 -> 8x6; add 8x6 8x6 -> 8x6");
}

TEST_CASE("handing over: ops carry their layers, the overhead, the copies they send and the first reading") {
  const StepCosts costs = TwoLayers().costs();
  // A message of 3 samples x 16 B = 48 B: 10 + 24 ns to send, 1 + 12 ns to read first.
  CHECK(of(costs, 0, Kind::F) == Time{100 + 5 + 34});
  CHECK(of(costs, 1, Kind::F) == Time{200 + 5 + 13});
  CHECK(of(costs, 1, Kind::BW) == Time{100 + 5 + 34});
  CHECK(of(costs, 0, Kind::BW) == Time{50 + 5 + 13});
  CHECK(of(costs, 0, Kind::R) == Time{100 + 5});
  CHECK(of(costs, 1, Kind::W) == Time{30 + 5});
  CHECK(of(costs, 0, Kind::Update) == Time{7 + 2 * 20});
  for (const Message& message : costs.messages)
    CHECK(message.latency == Time{40});
}

TEST_CASE("A layer or a size that was not measured is named, with the sizes that were and a way out") {
  TwoLayers two;
  two.plan.micro_batch_size = two.plan.last_micro_batch_size = 2;
  CHECK_THROWS_WITH_AS(two.costs(), doctest::Contains("micro-batches of 2 samples (measured: 3)"), InputError);
  CHECK_THROWS_WITH_AS(two.costs(), doctest::Contains("pipewright calibrate"), InputError);
}

TEST_CASE("Times in one precision price no run in another") {
  TwoLayers two;
  two.profile.precision = Precision::Bf16;
  CHECK_THROWS_WITH_AS(
      two.costs(), doctest::Contains("holds times in bf16, and training.precision is fp32: they price no run of it"),
      InputError);
  two.scenario.training.precision = Precision::Bf16;
  CHECK_NOTHROW(two.costs());
}

TEST_CASE("A size between two that were measured lies on the line through them") {
  TwoLayers two;
  const auto measured = two.profile.layers;
  for (LayerTimes larger : measured) {
    larger.samples = 7;
    larger.forward = larger.forward + Time{80}, larger.weight_gradient = larger.weight_gradient + Time{10};
    two.profile.layers.push_back(larger);
  }
  std::sort(two.profile.layers.begin(), two.profile.layers.end(), [](const LayerTimes& a, const LayerTimes& b) {
    return std::pair(a.key, a.samples) < std::pair(b.key, b.samples);
  });
  const auto at = [&](std::int64_t samples) {
    two.plan.micro_batch_size = two.plan.last_micro_batch_size = samples;
    return two.costs();
  };
  CHECK(of(at(3), 0, Kind::R) == Time{100 + 5});
  CHECK(of(at(5), 0, Kind::R) == Time{140 + 5});
  CHECK(of(at(5), 1, Kind::W) == Time{35 + 5});
  CHECK(of(at(7), 0, Kind::R) == Time{180 + 5});
}

TEST_CASE("Beyond the sizes that were measured a layer lies on the line through them, and the report warns") {
  TwoLayers two;  // forward of the first: 100 ns at 3 samples, 180 at 7: 40 + 20 s
  const auto measured = two.profile.layers;
  for (LayerTimes larger : measured) {
    larger.samples = 7;
    larger.forward = larger.forward + Time{80}, larger.weight_gradient = larger.weight_gradient + Time{40};
    two.profile.layers.push_back(larger);
  }
  std::sort(two.profile.layers.begin(), two.profile.layers.end(), [](const LayerTimes& a, const LayerTimes& b) {
    return std::pair(a.key, a.samples) < std::pair(b.key, b.samples);
  });
  two.plan.micro_batch_size = two.plan.last_micro_batch_size = 10;
  const StepCosts costs = two.costs();
  CHECK(of(costs, 0, Kind::R) == Time{240 + 5});
  CHECK(of(costs, 1, Kind::W) == Time{100 + 5});
  CHECK(of(costs, 0, Kind::B) == Time{5 + 1 + 40});  // no input gradient: the overhead and the first read of 160 B
  const CostModel cost(two.scenario);
  CHECK(cost.source().caution(two.scenario.model, 5) == "");
  CHECK(cost.source().caution(two.scenario.model, 7) == "");
  const std::string caution = cost.source().caution(two.scenario.model, 10);
  CHECK(caution.starts_with("2 layers were measured for micro-batches of 3 to 7 samples and are priced at 10 by the "));
  two.profile.independent_error = 0.05;
  const double near = beyond_measured(two.profile, two.scenario.model, 8).error;
  const double far = beyond_measured(two.profile, two.scenario.model, 100).error;
  CHECK(near > 0.03);
  CHECK(far > near);
  CHECK(beyond_measured(two.profile, two.scenario.model, 7).layers == 0);
  // Of slices, by the times of slices: this profile has none.
  CHECK(beyond_measured(two.profile, two.scenario.model, 100, 2).layers == 0);
  MachineProfile sliced = two.profile;
  for (LayerTimes& times : sliced.layers)
    times.key = key_of_slice(times.key, 1, 2);
  CHECK(beyond_measured(sliced, two.scenario.model, 100, 2).layers ==
        beyond_measured(two.profile, two.scenario.model, 100).layers);
  CHECK(beyond_measured(sliced, two.scenario.model, 100, 2).error == far);
}

TEST_CASE("fit: a line that was planted is found within 1 %, and its error bar holds what it should") {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise;
  const std::vector<double> sizes = {1, 2, 4, 8, 16, 32};
  const double fixed = 2000, per_sample = 5000, sigma = 0.02, at = 128;
  double mean_fixed = 0, mean_rate = 0;
  int inside = 0;
  constexpr int kTimes = 2000;
  for (int time = 0; time < kTimes; ++time) {
    std::vector<std::pair<double, double>> points;
    for (const double s : sizes)
      points.emplace_back(s, (fixed + per_sample * s) * (1 + sigma * noise(random)));
    const SizeFit fit = fit_sizes(points, sigma);
    mean_fixed += fit.line.fixed_ns / kTimes, mean_rate += fit.line.ns_per_sample / kTimes;
    const double truth = fixed + per_sample * at, half = 1.645 * fit.relative_error(at) * fit.line.at(at);
    inside += std::abs(fit.line.at(at) - truth) <= half ? 1 : 0;
  }
  CHECK(mean_fixed == doctest::Approx(fixed).epsilon(0.01));
  CHECK(mean_rate == doctest::Approx(per_sample).epsilon(0.01));
  CHECK(inside >= 0.88 * kTimes);  // 90 %; sigma is at least the one that is known, so rather more than less
  CHECK(inside <= 0.96 * kTimes);
}

TEST_CASE("fit: no coefficient is negative, and points on a line leave no doubt but that of their measurement") {
  const SizeFit exact = fit_sizes({{2, 3000}, {4, 5000}, {8, 9000}}, 0);
  CHECK(exact.line.fixed_ns == doctest::Approx(1000));
  CHECK(exact.line.ns_per_sample == doctest::Approx(1000));
  CHECK(exact.relative_error(16) < 1e-6);
  const SizeFit from_zero = fit_sizes({{1, 100}, {10, 2000}}, 0.01);
  CHECK(from_zero.line.fixed_ns == 0);
  CHECK(from_zero.relative_error(1000) == doctest::Approx(from_zero.relative_error(10)));
  CHECK(fit_sizes({{1, 100}, {10, 50}}, 0.01).line.ns_per_sample == 0);
}

TEST_CASE("Times at fewer busy workers are prices of their own; layers without them keep those of all") {
  TwoLayers two;
  LayerTimes alone = two.profile.layers.front();
  const bool is_first = alone.key == describe(*two.scenario.model.works[0].program.get());
  alone.active = 1, alone.forward = Time{60};
  two.profile.layers.insert(two.profile.layers.begin() + 1, alone);
  const StepCosts costs = two.costs();
  REQUIRE(costs.loads.size() == 1);
  CHECK(costs.loads[0].active == 1);
  const auto forward = [&](const std::vector<Time>& table, int chunk) {
    return table[static_cast<std::size_t>(chunk) * kKinds + static_cast<std::size_t>(Kind::R)];
  };
  const int changed = is_first ? 0 : 1;
  CHECK(forward(costs.loads[0].duration, changed) == Time{60 + 5});
  CHECK(forward(costs.loads[0].duration, 1 - changed) == forward(costs.duration, 1 - changed));
  CHECK(validate(costs) == "");
}

TEST_CASE("Times without a load of their own are those of the largest run; fewer workers have what lies before it") {
  // Measured with four workers, and alone: a plan of two has the line between them, not the times of four.
  TwoLayers two;
  const std::vector<LayerTimes> all = two.profile.layers;
  const auto at = [&](int active, double share) {
    for (LayerTimes times : all) {
      times.active = active, times.forward = Time{std::llround(share * static_cast<double>(times.forward.value))};
      two.profile.layers.push_back(times);
    }
    std::sort(two.profile.layers.begin(), two.profile.layers.end(), [](const LayerTimes& a, const LayerTimes& b) {
      return std::tie(a.key, a.active) < std::tie(b.key, b.active);
    });
  };
  const auto loads = [](const StepCosts& costs) {
    std::vector<int> list;
    for (const StepCosts::Load& load : costs.loads)
      list.push_back(load.active);
    return list;
  };
  two.profile.active = 4;
  at(1, 0.5);
  const StepCosts far = two.costs();
  CHECK(loads(far) == std::vector<int>{1, 4});
  CHECK(far.loads.back().duration == far.duration);
  CHECK(validate(far) == "");
  at(2, 0.75);
  CHECK(loads(two.costs()) == std::vector<int>{1, 2});
  two.profile.active = 2;  // all of two
  std::erase_if(two.profile.layers, [](const LayerTimes& times) { return times.active == 2; });
  CHECK(loads(two.costs()) == std::vector<int>{1});
}

TEST_CASE("A layer without times at a load has those of the next larger one") {
  TwoLayers two;
  const std::string first = describe(*two.scenario.model.works[0].program.get());
  const std::vector<LayerTimes> all = two.profile.layers;
  for (LayerTimes times : all) {
    times.active = times.key == first ? 2 : 1, times.forward = Time{80};
    two.profile.layers.push_back(times);
  }
  std::sort(two.profile.layers.begin(), two.profile.layers.end(), [](const LayerTimes& a, const LayerTimes& b) {
    return std::tie(a.key, a.active) < std::tie(b.key, b.active);
  });
  two.profile.active = 4;
  two.costs();
  const auto source = measured_profile(two.scenario, 0, Topology(two.scenario.cluster));
  CHECK(source->price_at(two.scenario.model, 0, 3, 1).forward == Time{80});   // of two
  CHECK(source->price_at(two.scenario.model, 1, 3, 2).forward == Time{200});  // of all
}

TEST_CASE("All-reduces take what was measured for as many members") {
  TwoLayers two;
  two.plan.stages = 1, two.plan.data_parallel = 2, two.plan.replicas = {1}, two.plan.layers = {{0, 2}};
  two.plan.recompute = {Recompute::None};
  two.profile.all_reduces = {{2, {1000, 0.5}}, {3, {5000, 0.5}}};
  const StepCosts costs = two.costs();
  REQUIRE(costs.collectives.size() == 1);
  REQUIRE(costs.collectives[0].size() == 1);
  const Collective& sum = costs.collectives[0][0];
  CHECK(sum.time == Time{1000 + sum.bytes.value / 2});
  CHECK(sum.bytes == Bytes{4 * (20 + 10)});
  CHECK(validate(costs) == "");
}

// 32 tokens on two devices, two heads of 4 + 4 values in fp32: each has 1 KiB of keys and values per sample.
TEST_CASE("A ring adds its messages to what attention over parts of sequences was measured at") {
  LayerBuilder b;
  const Work attention = b.finish({b.attention({b.input({32, 24})}, {2, 2, 4, 4, 32, 32, true, 0, true})});
  OneLayer one(attention, 32 * 24);
  one.scenario.plan.context_parallel.value = 2;
  const std::string key = "attention 16x24 -> 16x8 heads 2/2 of 4/4 causal flash in parts 2";
  one.profile.layers = {{key, 1, Time{1000}, Time{2000}, Time{}, 0.1, 10}};
  CHECK(one.passes().forward == Time{1000 + 11264});  // a kernel of 500 ns hides the handoff
  CHECK(one.passes().backward_input == Time{2000 + 23028 + 11764});
  one.profile.handoff = Time{600};
  CHECK(one.passes().forward == Time{1000 + 11264 + 100});
  // A link of 1 GB/s and 2 us: a hop of 1 KiB takes 3024 ns, of 2 KiB 4048.
  one.scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{1e9}, .latency = Time{2000}};
  CHECK(one.passes().forward == Time{1000 + 11264 + 3024 + 600 - 500});
  CHECK(one.passes().backward_input == Time{2000 + 22528 + 4048 + 600 + 11264 + 3024 + 600});
  one.scenario.plan.context_parallel.value = 1;
  CHECK_THROWS_AS(one.passes(), InputError);  // whole sequences were not measured
}

// Eight tokens of 16 values in fp32 with two of four experts each, on two devices: 512 B to the other one, each way.
TEST_CASE("Experts on devices of their own add their messages to what was measured") {
  LayerBuilder b;
  const auto x = b.input({8, 16}), shares = b.input({8, 4});
  const Work experts = b.finish({b.experts(x, shares, {.experts = 4, .active = 2, .hidden = 8})});
  OneLayer one(experts, 8 * 20);
  one.scenario.plan.expert_parallel.value = one.scenario.plan.data_parallel.value = 2;
  const std::string key =
      "dispatch 8x16 -> 16x16 experts 2/4; exchange 16x16 -> 16x16 experts 4 on 2; grouped_linear 16x16 -> 16x16 "
      "groups 2; "
      "gated 16x16 -> 16x8 kind 2; grouped_linear 16x8 -> 16x16 groups 2; exchange 16x16 -> 16x16 experts 4 on 2; "
      "combine "
      "16x16 8x4 -> 8x16 experts 2/4";
  one.profile.layers = {{key, 1, Time{1000}, Time{2000}, Time{3000}, 0.1, 10}};
  CHECK(one.passes().forward == Time{1000 + 2 * (5632 + 500)});
  CHECK(one.passes().backward_input == Time{2000 + 2 * (5632 + 500)});
  CHECK(one.passes().backward_weight == Time{3000});
  one.scenario.cluster.links.kind = LinkKind::Nvswitch;
  one.scenario.cluster.links.bandwidth = Bandwidth{1e9}, one.scenario.cluster.links.latency = Time{2000};
  CHECK(one.passes().forward == Time{1000 + 2 * (5632 + 500 + 2512)});
}

// Causal attention over 8 tokens, two heads of 4: of two slices the first sees 10 of 36 pairs.
TEST_CASE("slices: a layer takes their sum, and what attention has of it follows from how they grow") {
  LayerBuilder b;
  const Work work = b.finish({b.attention({b.input({8, 24})}, {.heads = 2,
                                                               .key_heads = 2,
                                                               .key_size = 4,
                                                               .value_size = 4,
                                                               .queries = 8,
                                                               .keys = 8,
                                                               .causal = true,
                                                               .flash = true})});
  const double first = attention_of_first(work, 0.5);
  CHECK(first >= 0.25);
  CHECK(first <= 10.0 / 36);
  CHECK(attention_share_of(work, {100 * first, 100 * (1 - first)}) == doctest::Approx(1));
  CHECK(attention_share_of(work, {50, 50}) == doctest::Approx(0));
  CHECK(attention_share_of(work, {60 * 0.5 + 40 * first, 60 * 0.5 + 40 * (1 - first)}) == doctest::Approx(0.4));
  CHECK(attention_share_of(work, {80, 20}) == 0);

  OneLayer one(work, 8 * 24);
  const Model halves = of_slices(one.scenario.model, 2);
  const std::string key = describe(*halves.works[0].program.get());
  one.profile.layers = {{key_of_slice(key, 0, 2), 1, Time{40}, Time{80}, Time{0}, 0.1, 10},
                        {key_of_slice(key, 1, 2), 1, Time{60}, Time{160}, Time{0}, 0.1, 10}};
  one.scenario.plan.slices = Placed<std::int64_t>{2, {}};
  one.scenario.plan.slice_lengths.value = SliceLengths::Even;
  CHECK(has_slices(one.profile, halves, 2));
  CHECK_FALSE(has_slices(one.profile, halves, 4));
  CHECK_FALSE(has_layers(one.profile, halves));
  CHECK(one.passes().forward == Time{100});
  CHECK(one.passes().backward_input == Time{240});
  const CostModel cost(one.scenario);
  for (const auto& [slice, forward, backward] : {std::tuple(0, 40, 80), std::tuple(1, 60, 160)}) {
    const LayerCosts costs = cost.layers(1, 0, 0, slice);
    CHECK(costs.forward[0] == Time{forward});
    CHECK(costs.backward_input[0] == Time{backward});
  }
  one.profile.layers.pop_back();
  CHECK_THROWS_WITH_AS(one.passes(), doctest::Contains("was not measured"), InputError);
}
