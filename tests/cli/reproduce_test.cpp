// `reproduce` as a user meets it: names, files, exit statuses.
#include <string>

#include <doctest/doctest.h>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

// The quickstart with an expect: block; its step takes 34.6 ms (docs/how-it-works/model.md).
ProgramRun with_expectation(const std::string& row) {
  std::string text = file_text(source_folder() + "/scenarios/quickstart.yaml");
  text += "\nexpect: {table: mine, source: me, rows: [" + row + "]}\n";
  return run_program({"reproduce", "-"}, {.folder = {}, .input = text, .output_to = {}, .settings = {}});
}

// (64 + 4096 / M) MiB: the boundary tensors of 64 samples, and a micro-batch of four layers.
TEST_CASE("reproduce --csv writes a row per cell; GPipe's activations are its formula for every M") {
  const ProgramRun run = run_program({"reproduce", "gpipe-memory", "--csv"});
  CHECK(run.status == 0);
  CHECK(run.out.starts_with("table,cell,quantity,published,predicted,unit,error,"));
  CHECK(run.out.find(",M = 4,\"memory.activations, stage 7\",1088,1088,MiB,0,exact") != std::string::npos);
  CHECK(run.out.find(",M = 64,\"memory.activations, stage 7\",128,128,MiB,0,exact") != std::string::npos);
  CHECK(run_program({"reproduce", "gpipe-memory", "--csv", "--md"}).status == 2);
}

TEST_CASE("reproduce lists its tables, and answers one by name") {
  CHECK(contains(run_program({"reproduce"}).out, "zero-bubble"));
  const ProgramRun run = run_program({"reproduce", "zero-bubble"});
  CHECK(run.status == 0);
  CHECK(run.err == "");
  CHECK(contains(run.out, "zero-bubble, table 5: bubble rates"));
  CHECK(contains(run.out, "zero-bubble, table 8: bubble rates"));
  CHECK(contains(run.out, "72 cells count, 0 missed"));
}

// [PipeDream19] table 1: model, servers, cluster.
TEST_CASE("PipeDream's table 1 has all fourteen rows, its fitted ones outside the averages" *
          doctest::test_suite("whole searches")) {
  const ProgramRun run = run_program({"reproduce", "pipedream-table1", "--csv"});
  CHECK(run.status == 0);
  for (const char* row :
       {"VGG-16, 4x4 A: 15-1", "VGG-16, 2x8 B: 15-1", "ResNet-50, 4x4 A: 16", "ResNet-50, 2x8 B: 16",
        "AlexNet, 4x4 A: 15-1", "AlexNet, 2x8 B: 15-1", "GNMT-16, 1x4 A: straight", "GNMT-16, 4x4 A: straight",
        "GNMT-16, 2x8 B: straight", "GNMT-8, 1x4 A: straight", "GNMT-8, 3x4 A: straight", "GNMT-8, 2x8 B: 16",
        "AWD LM, 1x4 A: straight", "S2VT, 4x1 C: 2-1-1", "GNMT-16, 4x4 A: straight, 14 ranks"})
    CHECK_MESSAGE(contains(run.out, std::string("\"") + row + "\""), row);
  const ProgramRun table = run_program({"reproduce", "pipedream-table1", "--width", "300"});
  CHECK(contains(table.out, "2 fitted"));
  CHECK(contains(table.out, "3 by definition"));
  CHECK(contains(table.out, "mean |error| "));
  CHECK(contains(table.out, "intervals hold the published figure"));
  CHECK(contains(table.out, "plans, of 14 published (12 with known inputs): "));
}

TEST_CASE("A cell out of its tolerance makes status 1, one with a status does not") {
  CHECK(with_expectation("{name: a, quantity: step_time_s, unit: ms, published: 34.6, tolerance: 0}").status == 0);
  const std::string miss = "{name: a, quantity: step_time_s, unit: ms, published: 30, tolerance: 5 %, reason: r";
  const ProgramRun missed = with_expectation(miss + "}");
  CHECK(missed.status == 1);
  CHECK(contains(missed.out, "MISSED"));
  CHECK(with_expectation(miss + ", status: known_miss}").status == 0);
}

TEST_CASE("A known miss that hits is reported on standard error") {
  const ProgramRun run = with_expectation(
      "{name: a, quantity: step_time_s, unit: ms, published: 34, tolerance: 5 %, reason: r, status: known_miss}");
  CHECK(run.status == 0);
  CHECK(contains(run.err, "\"a\" is a known miss, and within its tolerance: remove the status"));
}

TEST_CASE("Measured runs need their folder, and are compared alone" * doctest::test_suite("whole searches")) {
  CHECK(contains(error_of({"reproduce", "megatron-a100"}),
                 "name the folder that holds megatron-a100/single_node.csv with --data DIR"));
  CHECK(contains(error_of({"reproduce", "megatron-a100", "--data", "no/such/folder"}), "single_node.csv"));
  CHECK(
      contains(error_of({"reproduce", "runs", "--data", "no/such/folder"}),
               "--data: there is no folder \"no/such/folder\"; name the one that holds megatron-a100/single_node.csv"));
  CHECK(contains(error_of({"reproduce", "runs", "--data", "docs"}), "has no file of any set (megatron-a100, "));
  CHECK(contains(error_of({"reproduce", "runs"}), ", the first of these, compares with runs that do not ship"));
  CHECK(contains(error_of({"reproduce", "runs", "--data", ".", "--fit"}), "--fit is for one set"));
  CHECK(
      contains(error_of({"reproduce", "zero-bubble", "--data", "."}), "--data: is for one scenario with a measured:"));
  CHECK(contains(error_of({"reproduce", "zero-bubble", "--fit"}), "--fit: is for one scenario with a measured:"));
  CHECK(contains(error_of({"reproduce", "megatron-a100", "zero-bubble"}), "are compared apart"));
}

TEST_CASE("What cannot be reproduced is refused with a way out") {
  const auto error = [](const std::vector<std::string>& arguments) {
    const ProgramRun run = run_program(arguments);
    CHECK(run.status == 2);
    CHECK(run.out == "");
    return run.err;
  };
  CHECK(contains(error({"reproduce", "zero-buble"}), "did you mean \"zero-bubble\"?"));
  CHECK(contains(error({"reproduce", "scenarios/quickstart.yaml"}), "has no expect: and no measured: block"));
  CHECK(contains(error({"reproduce", "--all", "zero-bubble"}), "exclude each other"));
  CHECK(contains(error({"reproduce", "none.yaml"}), "none.yaml"));
}

TEST_CASE("--set changes every variant: a faster link shrinks the bubble") {
  const ProgramRun run =
      run_program({"reproduce", "zero-bubble", "--set", "cluster.node.links.latency=0 us", "--width", "200"});
  CHECK(run.status == 1);
  CHECK(contains(run.out, "0.2431    0.22581    -7.1 %"));  // 7/31, the textbook bubble of K = 8, M = 24
}

}  // namespace
}  // namespace pipewright::tests
