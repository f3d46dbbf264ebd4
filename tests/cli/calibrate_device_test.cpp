// The calibration of a device by the command: what it refuses, and a core's from the first reading to a price.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "core/cluster/measured_device.hpp"
#include "io/read/read_scenario.hpp"
#include "tests/cli/refusals.hpp"
#include "tests/io/scratch.hpp"

namespace pipewright::tests {
namespace {

const std::string kScenario =
    std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/scenarios/validation/two-stage-gpipe.yaml";

TEST_CASE("Without a GPU the calibration of one says what is missing and leaves no file") {
  const Scratch folder;
  const std::string file = folder.write("there.txt", "");
  const std::string out = file.substr(0, file.rfind('/')) + "/gpu.yaml";
  const ProgramRun run = run_program({"calibrate", "--backend", "cuda", "--budget", "100 ms", "-o", out});
  if (run.status == 0) return;  // there is one
  CHECK(run.status == 2);
  CHECK(run.out == "");
  CHECK((contains(run.err, "GPU") || contains(run.err, "driver")));
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("What a calibration of a device cannot take is named with a way out") {
  CHECK(contains(error_of({"calibrate", "--backend", "cpu", "--precision", "bf16,int8"}),
                 "--precision: \"bf16,int8\" is not a list of bf16, fp32, fp16, tf32"));
  CHECK(contains(error_of({"calibrate", kScenario, "--precision", "bf16"}),
                 "--precision belongs to the calibration of a device"));
  CHECK(contains(error_of({"calibrate"}), "name a SCENARIO, or give --backend cuda alone"));
  CHECK(contains(error_of({"calibrate", "--backend", "tpu"}), "\"tpu\" is not one"));
  CHECK(contains(error_of({"calibrate", "--backend", "cpu", "--sizes", "1"}),
                 "--sizes belongs to the calibration of a scenario"));
  CHECK(contains(error_of({"calibrate", "--backend", "cpu", "--virtual-devices", "1,x"}),
                 "is not a list of whole numbers"));
  CHECK(contains(error_of({"calibrate", "--backend", "cpu", "--budget", "soon"}),
                 "--budget: \"soon\" is not a time above 0; write e.g. --budget 8min"));
  CHECK(contains(error_of({"calibrate", "--backend", "cpu", "-o", "device.json"}), ".yaml"));
  CHECK(contains(error_of({"calibrate", kScenario, "--model", kScenario}),
                 "--model belongs to the calibration of a device"));
}

TEST_CASE(
    "However short the time, a product and a copy are measured: there is a preset, and what is missing is listed") {
  const ProgramRun run = run_program({"calibrate", "--backend", "cpu", "--budget", "1 ms"});
  INFO(run.err);
  REQUIRE(run.status == 0);
  CHECK(contains(run.out, "memory_bandwidth: "));
  CHECK(contains(run.out, "no time was left"));
  CHECK(contains(run.out, "bf16"));
}

TEST_CASE("With --precision nothing of another precision is on the list") {
  const ProgramRun run = run_program({"calibrate", "--backend", "cpu", "--precision", "fp32", "--budget", "1 ms"});
  INFO(run.err);
  REQUIRE(run.status == 0);
  CHECK(contains(run.out, "memory_bandwidth: "));
  for (const std::string other : {"bf16", "fp16", "tf32"})
    CHECK_FALSE(contains(run.out, other));
}

TEST_CASE("A core is measured, and a scenario priced by what came of it") {
  const Scratch folder;
  const std::string file = folder.write("there.txt", "");
  const std::string at = file.substr(0, file.rfind('/'));
  const ProgramRun run = run_program({"calibrate", "--backend", "cpu", "--model", kScenario, "--budget", "1500 ms",
                                      "-o", at + "/core.yaml", "-o", at + "/fit.svg"});
  INFO(run.err);
  REQUIRE(run.status == 0);
  CHECK(contains(run.out, "left out:"));
  CHECK(contains(run.out, "no time was left"));
  CHECK(std::filesystem::exists(at + "/fit.svg"));
  const Device device = read_device(at + "/core.yaml");
  REQUIRE(device.measured != nullptr);
  CHECK_FALSE(device.measured->series.empty());
  const ProgramRun priced = run_program(
      {"simulate", kScenario, "--set", "cost=roofline", "--set", "cluster.node.device=" + at + "/core.yaml"});
  INFO(priced.err);
  CHECK(priced.status == 0);
  CHECK(contains(priced.out, "operations as measured on one core of"));
}

}  // namespace
}  // namespace pipewright::tests
