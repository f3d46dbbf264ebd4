// `show device NAME`: what a preset says of kernels by size, and how far that is off measured points.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

using nlohmann::json;

json shown(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"show", "device"});
  arguments.emplace_back("--json");
  const ProgramRun run = run_program(arguments);
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  const json document = json::parse(run.out);
  CHECK(document["schema"] == "pipewright.show/1");
  CHECK(document["kind"] == "device");
  return document["entries"][0]["document"];
}

json row_of(const json& rows, const json& wanted) {
  for (const json& row : rows) {
    bool same = true;
    for (const auto& [key, value] : wanted.items())
      same = same && row[key] == value;
    if (same) return row;
  }
  FAIL("no such row");
  return {};
}

}  // namespace

// The number is that of core/cluster/kernel_curves.hpp; 2 * 8192^3 FLOP in 1394 us.
TEST_CASE("show device --curve: 8192 x 8192 x 8192 on an H100 takes 1394 us, 788 TFLOP/s") {
  const json h100 = shown({"h100-sxm-80g", "--curve"});
  const json row = row_of(h100["products"]["rows"], {{"m", 8192}, {"n", 8192}, {"k", 8192}});
  CHECK(double(row["us"]) == doctest::Approx(1394).epsilon(5e-4));
  CHECK(double(row["flop_per_s"]) == doctest::Approx(788e12).epsilon(1e-3));
  CHECK(double(row["share"]) == doctest::Approx(788 / 989.4).epsilon(1e-3));
  CHECK(double(h100["products"]["constants"]["sustained"]) == 0.9);
  CHECK(h100["attention"].size() == 9);
  const std::string text = run_program({"show", "device", "h100-sxm-80g", "--curve"}).out;
  CHECK(contains(text, "788.7 (80 %)"));
  CHECK(contains(text, "0.9 of these rates"));
  CHECK(contains(text, "fa3 128 backward"));
  CHECK(contains(text, "links of 450 GB/s (cluster "));
}

// 256 MiB among eight H100: 1093 us, core/cluster/collective_curves.hpp; 7/4 * 2^28 B over it are 95.5 % of 450 GB/s.
TEST_CASE("show device --curve --links: collectives by size, without links their ways") {
  const json rows = shown({"h100-sxm-80g", "--curve", "--links", "450 GB/s"})["collectives"]["rows"];
  const json row = row_of(rows, {{"collective", "all_reduce"}, {"members", 8}, {"bytes", 268435456}});
  CHECK(double(row["us"]) == doctest::Approx(1093).epsilon(1e-3));
  CHECK(double(row["bus_share"]) == doctest::Approx(1.75 * 268435456 / 1093e-6 / 450e9).epsilon(1e-3));
  const json h20 = shown({"h20-sxm-96g", "--curve"})["collectives"];  // which no cluster preset has
  CHECK(h20["links_bytes_per_s"].is_null());
  CHECK(h20["rows"].empty());
  CHECK(!h20["ways"].empty());
  CHECK(contains(run_program({"show", "device", "h20-sxm-96g", "--curve"}).out, "--links \"450 GB/s\""));
  CHECK(contains(error_of({"show", "device", "h100-sxm-80g", "--curve", "--links", "fast"}), "--links: \"fast\""));
  CHECK(contains(error_of({"show", "device", "h100-sxm-80g", "--links", "450 GB/s"}), "--links: is for --curve"));
}

// 64 images of 56 x 56, 64 to 64 channels, 1 x 1: 1568 tiles of 128 x 64 are 20 waves of 80, each 2 * 128 * 64 * 64 FLOP
// at 0.79 * 0.85 of 15.7/80 TFLOP/s, 159.1 us; 102.8 MB at 0.455 of 900 GB/s, 251.0 us; together 260.6, launch 10 us.
TEST_CASE("show device --curve prints convolutions by shape") {
  const json of_v100 = shown({"v100-sxm2-16g", "--curve"})["convolutions"];
  const json row = row_of(of_v100["rows"], {{"channels", 64}, {"kernel", 1}, {"pass", "forward"}});
  CHECK(double(row["us"]) == doctest::Approx(270.6).epsilon(1e-3));
  CHECK(of_v100["provenance"] == "measured");
  CHECK(shown({"p40-pcie-24g", "--curve"})["convolutions"]["provenance"] == "assumed");
  const ProgramRun run = run_program({"show", "device", "v100-sxm2-16g", "--curve"});
  CHECK(contains(run.out, "convolutions of 64 images in fp32"));
  CHECK(contains(run.out, "by shape in fp32, else 0.5"));
}

TEST_CASE("show device of a device without curves says so, and prints its shares") {
  const ProgramRun run = run_program({"show", "device", "tpu-v3-core", "--curve"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "has no curves by size"));
  CHECK(contains(run.out, "matrix_product"));
  CHECK(
      contains(error_of({"show", "device", "v100-sxm2-16g", "--points", "x.csv"}), "has no curve of matrix products"));
  CHECK(contains(error_of({"show", "device", "v100-sxm2-16g", "--curve", "-o", "x.svg"}), "no curves to draw"));
  CHECK(contains(error_of({"show", "device", "v100-sxm2-16"}), "did you mean \"v100-sxm2-16g\"?"));
  CHECK(contains(error_of({"show", "devices", "--curve"}), "is for `show device NAME`"));
  CHECK(contains(error_of({"show", "device", "--names"}), "write pipewright show devices --names"));
}

// The curve takes 1393.5 us: half of the time that is measured in row 0, twice that of row 1, all but that of row 2.
TEST_CASE("show device --points: errors of fitted and judged points, drawn as well") {
  const ScratchFolder folder;
  const std::string points = folder.path("p.csv"), svg = folder.path("p.svg");
  std::ofstream(points) << "# short measurements\ndevice,m,n,k,time_us\nH100,8192,8192,8192,2787\n"
                           "\"H100, SXM\",8192,8192,8192,696.75\nH100,8192,8192,8192,1393.5\n";
  const json errors = shown({"h100-sxm-80g", "--points", points, "--every", "2", "-o", svg})["points"]["errors"];
  const json fitted = row_of(errors, {{"points", "fitted"}, {"large", true}});
  const json judged = row_of(errors, {{"points", "judged"}, {"large", false}});
  CHECK(fitted["number"] == 2);
  CHECK(double(fitted["mean"]) == doctest::Approx(0.25).epsilon(2e-3));
  CHECK(double(fitted["bias"]) == doctest::Approx(-0.25).epsilon(2e-3));
  CHECK(judged["number"] == 1);
  CHECK(double(judged["mean"]) == doctest::Approx(1).epsilon(2e-3));
  CHECK(contains(file_text(svg), "predicted / measured - 1"));
  const std::string text = run_program({"show", "device", "h100-sxm-80g", "--points", points, "--width", "200"}).out;
  CHECK(contains(text, "`sustained` (0.9), which is of long trainings, is left out"));
  CHECK_FALSE(contains(text, "judged"));
  std::ofstream(points) << "m,n,k,time_us\n1,2,3\n";
  CHECK(contains(error_of({"show", "device", "h100-sxm-80g", "--points", points}), "p.csv:2:1: has 3 fields"));
  std::ofstream(points) << "m,n,k,time_us\n1,2,3,-4\n";
  CHECK(contains(error_of({"show", "device", "h100-sxm-80g", "--points", points}), "p.csv:2:7: time_us: \"-4\""));
  std::ofstream(points) << "m,n,k,us\n1,2,3,4\n";
  CHECK(contains(error_of({"show", "device", "h100-sxm-80g", "--points", points}), "has no column \"time_us\""));
  CHECK(contains(error_of({"show", "device", "h100-sxm-80g", "--every", "5"}), "--every: is for --points FILE"));
}

// Mean error over the points that the constants were not found with; in the data folder, where it is there.
TEST_CASE("show device --points: the presets are as far off as they say") {
  const char* set = std::getenv("PIPEWRIGHT_TEST_DATA");
  const std::string data = (set ? std::string(set) : source_folder() + "/../shared/data") + "/curves/";
  if (!std::filesystem::exists(data + "gemm_h100_bf16.csv")) {
    MESSAGE("skipped: no " << data << "gemm_h100_bf16.csv; set PIPEWRIGHT_TEST_DATA to the folder above");
    return;
  }
  struct Judged {
    const char *device, *file;
    double mean;
  };
  for (const Judged& each :
       {Judged{"a100-sxm-80g", "gemm_a100_bf16.csv", 0.039}, Judged{"h100-sxm-80g", "gemm_h100_bf16.csv", 0.039},
        Judged{"h200-sxm-141g", "gemm_h200_bf16.csv", 0.030}, Judged{"b200-sxm-180g", "gemm_b200_bf16.csv", 0.050}}) {
    CAPTURE(each.device);
    const json errors = shown({each.device, "--points", data + each.file, "--every", "5"})["points"]["errors"];
    const json judged = row_of(errors, {{"points", "judged"}, {"large", false}});
    CHECK(double(judged["mean"]) == doctest::Approx(each.mean).epsilon(0.02));
  }
}

}  // namespace pipewright::tests
