// Every figure here is made up: no GPU has been measured.
#include "core/cluster/measured_device.hpp"

#include <string>

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "io/read/read_scenario.hpp"
#include "io/writers/fit_plot.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

Device example_device() {
  MeasuredDevice m;
  m.gpu = "Made up: 8 SMs", m.driver = "13.0", m.toolkit = "13.0", m.date = "2026-01-01", m.revision = "0.1.0";
  m.sms = 8, m.clock_ghz = 1.98, m.repeat_error = 0.0031;
  m.left_out = {"linear, fp16: 12 sizes, no time was left"};
  MeasuredSeries products;
  products.operation = "linear", products.pass = MeasuredPass::WeightGradient, products.precision = Precision::Bf16;
  products.virtual_devices = 2, products.busy = 2, products.sms = 4;
  products.formula = TimeFormula{.terms = SizeTerms::Waves,
                                 .fixed_ns = 4'321.5,
                                 .per_wave_ns = 0.1,
                                 .per_wave_depth_ns = 1e-7,
                                 .tile_rows = 64,
                                 .tile_columns = 256,
                                 .floor_ns_per_value = 1.0 / 3};
  products.errors = {0.02, 0.05, -0.001, 0.01, 0.015};
  products.covariance = {2'500.25, -1.5, 1.0 / 7, 0.01, -1e-9, 1e-16};
  products.sizes = {{{1, 64, 128, 256, 57'344},
                     12'345.678,
                     11'000.25,
                     0.004,
                     0.02,
                     0.99,
                     57,
                     3,
                     12'300.5,
                     12'340,
                     ProductAlgorithm{1.25, 128, 256, 3}},
                    {{1, 65, 128, 256, 1e9}, 2e7, 0, 0.005, 0.03, 1, 10, 0}};
  MeasuredSeries copies;
  copies.operation = "copy to host", copies.sms = 8;
  copies.sizes = {{{1, 1024, 1, 0, 1024}, 900.5, 0, 0.001, 0, 1, 10, 0}};
  m.series = {products, copies};
  MeasuredPair pair;
  pair.operation = "linear", pair.beside = "copy to host", pair.precision = Precision::Bf16;
  pair.virtual_devices = 2, pair.sms = 4;
  pair.size = {1, 2048, 4096, 1024, 1.5e7}, pair.beside_size = {1, 4'194'304, 1, 0, 4'194'304};
  pair.alone_ns = 29'876.5, pair.slowdown = 1.0 + 1.0 / 12, pair.error = 0.004, pair.spread = 0.021;
  pair.alone_spread = 0.011, pair.clock = 0.97, pair.readings = 41, pair.discarded = 2;
  MeasuredPair fewer = pair;
  fewer.virtual_devices = 4, fewer.others = 1;
  m.interference = {pair, fewer};
  MeasuredCollective ring;
  ring.operation = "ring all-reduce", ring.members = ring.virtual_devices = 4;
  ring.formula = TimeFormula{.terms = SizeTerms::Values, .fixed_ns = 30'000, .per_value_ns = 0.01};
  ring.errors = {0.01, 0.02, -0.003, 0, 0.011};
  ring.covariance = {1e6, -0.001, 1e-9};
  ring.sizes = {{{1, 4096, 1, 0, 4096}, 30'041.25, 0, 0.003, 0.01, 0.98, 23, 1, 29'990.5, 30'033}};
  MeasuredCollective copy;
  copy.operation = "peer copy", copy.from = 1, copy.to = 0;
  copy.sizes = {{{1, 16'384, 1, 0, 16'384}, 9'000.5, 0, 0.002, 0.03, 1, 10, 0, 8'999, 9'001}};
  m.collectives = {ring, copy};
  Device device;
  device.name = "made-up", device.memory = Bytes{1 << 30}, device.virtual_devices = 2;
  device.peak[Precision::Bf16] = FlopRate{1e12};
  device.sources["peak.bf16"] = "the fastest product measured";
  device.measured = std::make_shared<const MeasuredDevice>(m);
  return device;
}

std::string written_device(const std::string& text) {
  static const Scratch folder;
  return folder.write("made-up.yaml", text);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("A measured device that is written and read again is the same device") {
  const std::string text = device_yaml(example_device());
  const Device read = read_device(written_device(text));
  REQUIRE(read.measured != nullptr);
  CHECK(*read.measured == *example_device().measured);
  CHECK(read.virtual_devices == 2);
  CHECK(read.sources == example_device().sources);
  CHECK(device_yaml(read) == text);
}

TEST_CASE("A measured device without pairs is read as before there were any, and written as then") {
  Device device = example_device();
  auto older = std::make_shared<MeasuredDevice>(*device.measured);
  older->interference.clear(), older->collectives.clear();
  older->series[0].sizes[0].algorithm.reset();
  device.measured = older;
  const std::string text = device_yaml(device);
  for (const char* block : {"interference", "collective", "algorithms"})
    CHECK(text.find(block) == std::string::npos);
  const Device read = read_device(written_device(text));
  CHECK(*read.measured == *older);
}

TEST_CASE("Sizes without the least and the median reading are read as before these were kept, and written as then") {
  const std::string text = device_yaml(example_device());
  CHECK(text.find("57, 3, 12300.5, 12340]") != std::string::npos);
  CHECK(text.find("10, 0]") != std::string::npos);
  const Device read = read_device(written_device(replaced(text, ", 12300.5, 12340]", "]")));
  CHECK(read.measured->series[0].sizes[0].median_ns == 0);
  CHECK(device_yaml(read).find("57, 3]") != std::string::npos);
}

TEST_CASE("What is wrong in a measured device is named with its place") {
  const std::string text = device_yaml(example_device());
  const auto message = [&](const std::string& from, const std::string& to) -> std::string {
    try {
      read_device(written_device(replaced(text, from, to)));
      return "";
    } catch (const InputError& error) {
      return error.what();
    }
  };
  CHECK(message("busy: 2", "busy: 3").find("series.0.busy: \"3\" is more than virtual_devices") != std::string::npos);
  CHECK(message("[1, 1, 1024", "[2, 1, 1024").find("sizes.2: needs 13 or 15 numbers") != std::string::npos);
  CHECK(message("900.5", "-900.5").find("made-up.yaml:") != std::string::npos);
  CHECK(message("900.5, 0,", "900.5,").find("sizes.2: needs 13 or 15 numbers of 0 or more: the series (of 2") !=
        std::string::npos);
  CHECK(message("covariance: [2500.25, ", "covariance: [").find("needs 6 numbers after `formula`") !=
        std::string::npos);
  CHECK(message("terms: waves", "terms: waaves").find("did you mean \"waves\"") != std::string::npos);
  CHECK(message("gpu:", "gpo:").find("gpo") != std::string::npos);
  CHECK(message("slowdown: 1", "slowdown: -1").find("made-up.yaml:") != std::string::npos);
  CHECK(message("alone_ns: 29876.5", "alone_ns: 0").find("interference.0.alone_ns: \"0\" must be more than 0") !=
        std::string::npos);
  CHECK(message("size: [1, 2048, ", "size: [2048, ").find("needs five numbers of 0 or more") != std::string::npos);
  CHECK(message("[0, 1, 64, 128, 256, 57344, 1.25", "[0, 1, 63, 128, 256, 57344, 1.25")
            .find("algorithms.0: needs 10 numbers of 0 or more, the first six of a size in `sizes`") !=
        std::string::npos);
  CHECK(message("[1, 16384, 9000.5", "[2, 16384, 9000.5").find("collective_sizes.1: needs 10 numbers") !=
        std::string::npos);
  CHECK(message("from: 0", "from: -1").find("is negative") != std::string::npos);
  CHECK(message("to: 0", "to: -1").find("is negative") != std::string::npos);
  CHECK(message("others: 1", "others: -1").find("is negative") != std::string::npos);
  CHECK(message("members: 4", "members: 1").find("must be at least 2") != std::string::npos);
  CHECK(message("beside: copy to host, ", "").find("beside") != std::string::npos);
}

TEST_CASE("A scenario that names a measured device is priced by it") {
  Device device = example_device();
  auto measured = std::make_shared<MeasuredDevice>(*device.measured);
  for (MeasuredSeries& series : measured->series)
    series.virtual_devices = 1, series.busy = 1;
  const MeasuredPass passes[] = {MeasuredPass::Forward, MeasuredPass::InputGradient, MeasuredPass::WeightGradient};
  for (const MeasuredPass pass : passes) {  // relu, dense: 64 samples of 16 values
    MeasuredSeries dense;
    dense.operation = "linear", dense.pass = pass, dense.precision = Precision::Bf16, dense.sms = 8;
    dense.formula =
        TimeFormula{.terms = SizeTerms::Waves, .fixed_ns = 1'000, .per_wave_ns = 2'000, .per_wave_depth_ns = 10};
    MeasuredSeries relu;
    relu.operation = "relu", relu.pass = pass, relu.precision = Precision::Bf16, relu.sms = 8;
    relu.formula = TimeFormula{.terms = SizeTerms::Values, .fixed_ns = 500, .per_value_ns = 1};
    measured->series.push_back(dense);
    measured->series.push_back(relu);
  }
  measured->series.front().operation = "other";
  device.measured = measured, device.virtual_devices = 1;
  device.memory_bandwidth = Bandwidth{1e9};
  static const Scratch folder;
  const std::string file = folder.write("priced.yaml", device_yaml(device));
  const Scenario scenario = read_scenario(folder.write("scenario.yaml", R"(version: 1
model: {input_shape: [16], layers: [{name: l, ops: [{op: linear, features: 8}, {op: relu}]}]}
cluster: {node: {devices: 1, device: ./priced.yaml}}
training: {micro_batch_size: 64, micro_batches: 1, precision: bf16, optimizer: sgd}
plan: {stages: 1, schedule: gpipe}
cost: roofline
)"));
  const CostModel cost(scenario);
  const auto priced = cost.source().price(scenario.model, 0, 64);
  // linear {64, 16} x {16, 8}: one wave, 1000 + 2000 + 160; relu: 512 values read and written, 500 + 1024.
  CHECK(priced.forward == Time{3'160 + 1'524});
  // The model's input needs no gradient: relu's alone, 3 x 512 values.
  CHECK(priced.backward_input == Time{500 + 1'536});
  CHECK(priced.backward_weight == Time{3'000 + 640});
}

TEST_CASE("How near formulas come is told in a table and drawn") {
  const MeasuredDevice device = *example_device().measured;
  const std::string table = fit_table(device);
  INFO(table);
  CHECK(table.find("Made up: 8 SMs: formula against measurement") == 0);
  CHECK(table.find("linear d weight bf16                        2 sizes  [") != std::string::npos);
  CHECK(table.find("mean  2.0 %  p95  5.0 %  bias -0.1 %") != std::string::npos);
  CHECK(table.find("copy to host forward fp32                   1 sizes  too few for a formula") != std::string::npos);
  CHECK(table.find("measured again and again: +- 0.3 %") != std::string::npos);
  CHECK(table.find(
            "linear bf16 beside copy to host fp32         1 of 2 virtual devices      1.083 ± 0.4 %, spread 2.1 %\n") !=
        std::string::npos);
  CHECK(table.find("1 of 4, 1 other busy        1.083") != std::string::npos);
  CHECK(table.find("    linear d weight bf16, 4 SMs: 128 x 256 in 3 parts of the depth (1)\n") != std::string::npos);
  CHECK(table.find("    ring all-reduce              4 virtual devices     1 sizes  5.000 us, 150.0 GB/s, 1.0 %\n") !=
        std::string::npos);
  CHECK(table.find("    peer copy                    GPU 1 to 0            1 sizes  too few for a formula\n") !=
        std::string::npos);
  CHECK(table.find("launches by the host") == std::string::npos);  // none was measured
  MeasuredDevice more = device;
  MeasuredSeries launches;
  launches.operation = "launch by graph", launches.sms = 8;
  launches.formula = TimeFormula{.terms = SizeTerms::Values, .fixed_ns = 6'000, .per_value_ns = 912.5};
  launches.sizes = {{{1, 1, 1, 0, 1}, 6'912.5, 0, 0.001, 0, 1, 10, 0}};
  more.series.push_back(launches);
  more.interference[0].virtual_devices = 1;
  const std::string told = fit_table(more);
  INFO(told);
  CHECK(told.find("    launch by graph                           0.912 us each,    6.000 us once\n") !=
        std::string::npos);
  CHECK(told.find("two streams of the whole    1.083") != std::string::npos);
  CHECK(table.find("left out:\n    linear, fp16: 12 sizes, no time was left\n") != std::string::npos);
  const std::string svg = fit_svg(device);
  CHECK(svg.find("linear: 2 sizes, cross-validated 2.0 %") != std::string::npos);
  CHECK(svg.find("copy to host") == std::string::npos);  // no formula
  std::size_t circles = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1))
    ++circles;
  CHECK(circles == 4 + 2);  // four of the legend
}
