// A preset from what was measured; every figure here is made up.
#include "calibrate/device_preset.hpp"

#include <doctest/doctest.h>

#include "core/check.hpp"

using namespace pipewright::tests;

namespace {

MeasuredSeries series(const char* operation, Precision precision, int virtual_devices,
                      std::vector<MeasuredSize> sizes) {
  MeasuredSeries s;
  s.operation = operation, s.precision = precision, s.virtual_devices = virtual_devices, s.sizes = std::move(sizes);
  return s;
}
MeasuredSize size(OperationSize of, double ns) {
  return {of, ns, 0, 0, 0, 1, 10, 0};
}

MeasuredDevice made_up() {
  MeasuredDevice m;
  m.gpu = "made up", m.date = "2026-01-01";
  m.series = {
      series("linear", Precision::Bf16, 1,
             {size({1, 100, 100, 100, 1}, 100), size({1, 100, 100, 100, 1}, 50), size({1, 100, 100, 100, 1}, 40)}),
      series("linear", Precision::Bf16, 2, {size({1, 100, 100, 100, 1}, 1)}),  // not of the whole GPU
      series("copy", Precision::Fp32, 1, {size({1, 500, 1, 0, 1000}, 40), size({1, 50, 1, 0, 100}, 40)}),
      series("launch", Precision::Fp32, 1, {size({1, 0, 1, 0, 0}, 2'500)}),
      // Neither a launch that waits for the one before, nor anything that moves values on the device.
      series("launch by graph", Precision::Fp32, 1, {size({1, 4, 1, 0, 4}, 9'000)}),
      series("copy pageable to host", Precision::Fp32, 1, {size({1, 500, 1, 0, 500}, 90)}),
      series("gelu", Precision::Bf16, 1, {size({1, 500, 1, 0, 1000}, 40)}),
  };
  return m;
}

}  // namespace

TEST_CASE("Peaks of a preset are the fastest product and copy of the whole GPU, shares their medians") {
  const Device device = preset_of(made_up(), "made-up", Bytes{1 << 30});
  CHECK(device.peak.size() == 1);
  CHECK(device.peak.at(Precision::Bf16).value == doctest::Approx(2e6 / 40 * 1e9));
  CHECK(device.memory_bandwidth->value == doctest::Approx(4'000.0 / 40 * 1e9));
  CHECK(device.launch_overhead == Time{2'500});
  const auto& products = device.efficiency[static_cast<std::size_t>(OperatorKind::MatrixProduct)];
  CHECK(products->curve.front().second == doctest::Approx(0.8));  // of 0.4, 0.8, 1
  CHECK(products->provenance == Provenance::Measured);
  // 2000 B in 40 ns of 100 B/ns.
  CHECK(device.efficiency[static_cast<std::size_t>(OperatorKind::Memory)]->curve.front().second ==
        doctest::Approx(0.5));
  CHECK(device.efficiency[static_cast<std::size_t>(OperatorKind::Recurrent)]->provenance == Provenance::Assumed);
  CHECK(device.provenances.at("memory") == Provenance::Measured);
  CHECK(device.provenances.at("reserve") == Provenance::Assumed);
  CHECK(device.reserve == Bytes{1 << 27});  // an eighth of so small a memory
  CHECK(preset_of(made_up(), "large", Bytes{std::int64_t{80} << 30}).reserve == Bytes{std::int64_t{3} << 29});
  CHECK(device.sources.at("peak.bf16") == "the fastest product measured on made up, 2026-01-01");
  CHECK(*device.measured == made_up());
}

TEST_CASE("Without a product or a copy of the whole GPU there is no preset") {
  MeasuredDevice m = made_up();
  MeasuredDevice halves;  // the whole GPU was not asked for
  halves.series = {m.series[1]};
  CHECK_THROWS_WITH_AS(preset_of(halves, "x", Bytes{1}), doctest::Contains("; add 1 to --virtual-devices"), InputError);
  m.series.erase(m.series.begin() + 2);  // it was, and the copy failed
  CHECK_THROWS_WITH_AS(preset_of(m, "x", Bytes{1}), doctest::Contains("from which a preset has its peaks"), InputError);
  try {
    preset_of(m, "x", Bytes{1});
  } catch (const InputError& error) {
    CHECK(std::string(error.what()).find("--virtual-devices") == std::string::npos);
  }
  m.left_out = {"fp32, cudaMalloc: out of memory: copy (1)", "2", "3", "4"};
  CHECK_THROWS_WITH_AS(preset_of(m, "x", Bytes{1}),
                       doctest::Contains(". Left out: fp32, cudaMalloc: out of memory: copy (1); 2; 3; ..."),
                       InputError);
}
