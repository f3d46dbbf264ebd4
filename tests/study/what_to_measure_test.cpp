// The last line of `calibrate`: what it says of a scenario all of whose operations were measured, and of one without some.
#include "study/what_to_measure.hpp"

#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "core/cluster/measured_device.hpp"
#include "core/cost/operation_size.hpp"
#include "core/model/layer_builder.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

// Two stages of one linear layer each, 4 -> 4 features, on two devices that were measured with its three passes.
Scenario two_stages(MeasuredDevice& measured) {
  Scenario scenario = uniform_scenario({.layers = 2, .devices = 2, .stages = 2, .micro_batches = 2});
  LayerBuilder b;
  scenario.model.works = {b.finish({b.linear(b.input({16, 4}), {.features = 4, .bias = false})})};
  for (Layer& layer : scenario.model.layers)
    layer = {.name = layer.name, .inputs = layer.inputs, .work = 0};
  scenario.model.input_amount = {.values = 64};
  settle(scenario.model, Bytes{4}, {});
  scenario.cost = CostSourceKind::Roofline;
  Device& device = scenario.cluster.device;
  device.peak[Precision::Fp32] = FlopRate{1e12}, device.memory_bandwidth = Bandwidth{1e9};
  scenario.cluster.links.kind = LinkKind::Mesh, scenario.cluster.links.bandwidth = Bandwidth{1e9};
  measured.repeat_error = 0.001;
  const auto add = [&](const char* operation, MeasuredPass pass, const OperationSize& size) {
    MeasuredSeries& series = measured.series.emplace_back();
    series.operation = operation, series.pass = pass, series.sms = 128;
    series.sizes = {{size, 1'000, 0, 0.01, 0, 1, 10, 0}};
  };
  const Program& program = *scenario.model.works[0].program.get();
  for (const MeasuredPass pass : {MeasuredPass::Forward, MeasuredPass::InputGradient, MeasuredPass::WeightGradient})
    add("linear", pass, *operation_size(program, program.steps[0], 1, pass));
  add("update sgd", MeasuredPass::Forward, {1, 16, 1, 0, 16});
  return scenario;
}

std::string told(Scenario scenario, const MeasuredDevice& measured) {
  scenario.cluster.device.measured = std::make_shared<const MeasuredDevice>(measured);
  return what_to_measure(scenario);
}

}  // namespace

TEST_CASE("Where every operation is measured the line says so, and what is the least sure then") {
  MeasuredDevice measured;
  const Scenario scenario = two_stages(measured);
  const std::string all = told(scenario, measured);
  CHECK_MESSAGE(
      all.starts_with("to measure next for uniform: every operation is measured; the least sure: links inside "
                      "a node, by messages by size inside a node (cluster.node.links): the step of "),
      all);
  for (std::size_t left_out : {0U, 3U}) {  // a pass, the update
    MeasuredDevice some = measured;
    some.series.erase(some.series.begin() + static_cast<std::ptrdiff_t>(left_out));
    const std::string line = told(scenario, some);
    CHECK_MESSAGE(line.find("every operation") == std::string::npos, line);
    CHECK_MESSAGE(line.find("90 % within") != std::string::npos, line);
  }
}
