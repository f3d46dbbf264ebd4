// `capacity` as a user meets it: table, files, exit statuses, refusals.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright {
namespace {

const std::string kQuickstart = "scenarios/quickstart.yaml";

TEST_CASE("What capacity answers, simulate confirms: the largest fits, the next one does not") {
  const ProgramRun run = run_program({"capacity", kQuickstart, "--over", "training.micro_batch_size", "--json"});
  REQUIRE(run.status == 0);
  CHECK(run.err == "");
  const auto document = nlohmann::json::parse(run.out);
  CHECK(document.at("schema") == "pipewright.capacity/1");
  const auto& row = document.at("rows").at(0);
  const auto simulated = [](std::int64_t size) {
    return run_program({"simulate", kQuickstart, "--json", "--set", "plan.partition=fitting", "--set",
                        "training.micro_batch_size=" + std::to_string(size)})
        .status;
  };
  CHECK(simulated(row.at("largest").get<std::int64_t>()) == 0);
  CHECK(simulated(row.at("next").at("value").get<std::int64_t>()) == 1);
  CHECK(row.at("headroom_bytes").get<std::int64_t>() >= 0);
  CHECK(row.at("next").at("need_bytes").get<std::int64_t>() > row.at("device_memory_bytes").get<std::int64_t>());
}

TEST_CASE("vary: gives a row per variant, in the table and in every file") {
  const ScratchFolder folder;
  const std::string text = file_text(source_folder() + "/" + kQuickstart) + "\nvary: {plan.stages: [2, 4]}\n";
  const ProgramRun run = run_program({"capacity", "-", "--over", "training.micro_batch_size", "-o",
                                      folder.path("a.csv"), "-o", folder.path("a.md"), "-o", folder.path("a.json")},
                                     {.folder = {}, .input = text, .output_to = {}, .settings = {}});
  CHECK(run.status == 0);
  CHECK(run.out.starts_with("stages  micro_batch_size"));
  CHECK(contains(run.out, "plan.stages=2\n"));
  CHECK(contains(run.out, "plan.stages=4\n"));
  const std::string csv = file_text(folder.path("a.csv"));
  CHECK(csv.starts_with("plan.stages,over,largest,stages,"));
  CHECK(contains(csv, "\n2,training.micro_batch_size,"));
  CHECK(contains(csv, "\n4,training.micro_batch_size,"));
  CHECK(file_text(folder.path("a.md")).starts_with("| stages | micro_batch_size |"));
  CHECK(nlohmann::json::parse(file_text(folder.path("a.json"))).at("rows").size() == 2);
}

TEST_CASE("--at-most bounds the search, --set changes the scenario, and nothing that fits is status 1") {
  CHECK(contains(run_program({"capacity", kQuickstart, "--over", "training.micro_batch_size", "--at-most", "12"}).out,
                 "12 was given"));
  const ProgramRun none = run_program(
      {"capacity", kQuickstart, "--over", "training.micro_batch_size", "--set", "cluster.node.device.memory=10 MB"});
  CHECK(none.status == 1);
  CHECK(contains(none.out, "no value of training.micro_batch_size fits"));
}

TEST_CASE("capacity refuses what it cannot grow, with a way out") {
  CHECK(contains(error_of({"capacity", kQuickstart}), "Name a whole number of the scenario, e.g. --over model.layers"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "training.micro_batchs"}),
                 "did you mean \"micro_batches\"?"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan.schedule"}), "plan.schedule"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan..stages"}), "has an empty key"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan.stages", "--at-most", "0"}),
                 "is no whole number of at least 1"));
  CHECK(
      contains(error_of({"capacity", kQuickstart, "--over", "plan.stages", "-o", "x.svg"}), "known: .json, .csv, .md"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan.stages", "-o", kQuickstart}),
                 "is read by this command"));
}

}  // namespace
}  // namespace pipewright
