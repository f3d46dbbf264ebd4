// `capacity` as a user meets it: table, files, exit statuses, refusals.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

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

TEST_CASE("Where the layers are cut otherwise than the scenario says, what simulate must be told is in every answer") {
  const ScratchFolder folder;
  const std::vector<std::string> question = {"capacity", kQuickstart, "--over", "training.micro_batch_size"};
  const auto asked = [&](std::vector<std::string> more) {
    more.insert(more.begin(), question.begin(), question.end());
    return run_program(more);
  };
  const auto document = nlohmann::json::parse(asked({"--json"}).out);
  const auto set = document.at("rows").at(0).at("set").get<std::vector<std::string>>();
  REQUIRE(set.size() == 2);
  CHECK(set[1] == "plan.partition=fitting");
  const auto simulated = [&](const std::vector<std::string>& changes) {
    std::vector<std::string> line = {"simulate", kQuickstart, "--json"};
    for (const std::string& change : changes)
      line.insert(line.end(), {"--set", change});
    return run_program(line).status;
  };
  CHECK(simulated(set) == 0);
  CHECK(simulated({set[0]}) == 1);  // the scenario's own cut
  const std::string told = "(which does not fit); simulate finds it with: --set " + set[0] + " --set " + set[1];
  CHECK(contains(asked({"--width", "400", "-o", folder.path("a.md"), "-o", folder.path("a.csv")}).out, told));
  CHECK(contains(file_text(folder.path("a.md")), told));
  CHECK(contains(file_text(folder.path("a.csv")), "," + set[0] + " " + set[1] + ",memory\n"));
  // Stated as it is found, there is nothing to tell.
  CHECK_FALSE(contains(asked({"--set", "plan.partition=fitting"}).out, "simulate finds it with"));
}

TEST_CASE("What capacity answers of a run really runs, and one layer more ends with status 1" *
          doctest::test_suite("whole runs")) {
  const std::string tiny = "scenarios/validation/small-ops.yaml", over = "model.layers.1.repeat";
  for (const char* schedule : {"gpipe", "1f1b", "pipedream"}) {
    CAPTURE(schedule);
    const std::vector<std::string> settings = {"--set", "run.memory_cap=2 MiB",
                                               "--set", "training.micro_batches=5",
                                               "--set", std::string("plan.schedule=") + schedule};
    std::vector<std::string> question = {"capacity", tiny, "--over", over, "--json"};
    question.insert(question.end(), settings.begin(), settings.end());
    const ProgramRun answer = run_program(question);
    REQUIRE(answer.status == 0);
    const auto row = nlohmann::json::parse(answer.out).at("rows").at(0);
    const auto largest = row.at("largest").get<std::int64_t>();
    const auto run = [&](std::int64_t layers, const std::vector<std::string>& more = {}) {
      std::vector<std::string> line = {"run", tiny, "--steps", "1", "--warmup", "0"};
      line.insert(line.end(), settings.begin(), settings.end());
      line.insert(line.end(), {"--set", over + "=" + std::to_string(layers)});
      line.insert(line.end(), more.begin(), more.end());
      return run_program(line);
    };
    CHECK(largest > 4);
    CHECK(run(largest).status == 0);
    const ProgramRun next = run(largest + 1);
    CHECK(next.status == 1);
    CHECK(contains(next.out, "infeasible: worker "));
    // The figures are those of the run: with exactly as much it runs, with a byte less it does not.
    const auto peak = row.at("peak_bytes").get<std::int64_t>();
    CHECK(run(largest, {"--memory-cap", std::to_string(peak) + " B"}).status == 0);
    CHECK(run(largest, {"--memory-cap", std::to_string(peak - 1) + " B"}).status == 1);
  }
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

TEST_CASE("Rows are printed and written, whatever became of other variants") {
  const ScratchFolder folder;
  const std::string text = file_text(source_folder() + "/" + kQuickstart) + "\nvary: {plan.stages: [2, 64, 4]}\n";
  const ProgramRun run =
      run_program({"capacity", "-", "--over", "training.micro_batch_size", "-o", folder.path("a.json")},
                  {.folder = {}, .input = text, .output_to = {}, .settings = {}});
  CHECK(run.status == 2);
  CHECK(contains(run.out, "plan.stages=2\n"));
  CHECK(contains(run.out, "plan.stages=4\n"));
  CHECK(contains(run.err, "error: plan.stages=64: "));
  CHECK(contains(run.err, "64 stages for 24 layers"));
  CHECK(nlohmann::json::parse(file_text(folder.path("a.json"))).at("rows").size() == 2);
}

// The balanced cut of several chunks per stage: 13 layers do not fit, 14 do.
TEST_CASE("What is not proven is not told: how far values were tried is") {
  const std::string text =
      "{model: {batch: 1, layers: [{name: l0, repeat: 3, forward: 600 us, backward: 1 ms, activation: 0 B, stash: 800 "
      "kB, parameters: 0}, {name: l1, repeat: 3, forward: 600 us, backward: 1 ms, activation: 0 B, stash: 200 kB, "
      "parameters: 0}]}, cluster: {nodes: 1, node: {devices: 2, device: {name: d, memory: 12 MB}, links: {kind: "
      "ideal}}}, training: {micro_batch_size: 1, micro_batches: 2, precision: fp32, optimizer: sgd}, plan: {stages: 2, "
      "schedule: interleaved_1f1b, partition: balanced, virtual_stages: 2}}";
  const auto asked = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"capacity", "-", "--over", "model.layers.0.repeat", "--width", "400"});
    return run_program(more, {.folder = {}, .input = text, .output_to = {}, .settings = {}}).out;
  };
  const std::string all = asked({});
  CHECK(contains(all, "model.layers.0.repeat = 14: "));
  CHECK(!contains(all, "so what fits with a value fits with every smaller one"));
  const std::string some = asked({"--at-most", "20"});
  CHECK(contains(some, "model.layers.0.repeat = 14: "));
  CHECK(contains(some, "no value from 15 to 20 fits; larger ones were not tried, and one may fit"));
  const auto row = nlohmann::json::parse(asked({"--at-most", "20", "--json"})).at("rows").at(0);
  CHECK(row.at("proven") == false);
  CHECK(row.at("tried_to") == 20);
  CHECK(nlohmann::json::parse(asked({"--json"})).at("rows").at(0).at("tried_to").is_null());
}

TEST_CASE("--at-most bounds the search, --set changes the scenario, and nothing that fits is status 1") {
  CHECK(contains(run_program({"capacity", kQuickstart, "--over", "training.micro_batch_size", "--at-most", "12"}).out,
                 "12 was given"));
  const ProgramRun none = run_program(
      {"capacity", kQuickstart, "--over", "training.micro_batch_size", "--set", "cluster.node.device.memory=10 MB"});
  CHECK(none.status == 1);
  CHECK(contains(none.out, "no value of training.micro_batch_size fits"));
}

TEST_CASE("A value that ends with the scenario, or with the search, is told as no limit of the memory") {
  const ScratchFolder folder;
  const ProgramRun run =
      run_program({"capacity", kQuickstart, "--over", "plan.stages", "--width", "400", "-o", folder.path("a.json")});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "memory is not a limit here: no larger value makes a scenario: "));
  CHECK(contains(run.out, "  none  "));  // in the column `next`
  CHECK(nlohmann::json::parse(file_text(folder.path("a.json"))).at("rows").at(0).at("limited_by") == "scenario");
  const ProgramRun stopped = run_program(
      {"capacity", kQuickstart, "--over", "training.micro_batch_size", "--at-most", "12", "-o", folder.path("b.json")});
  CHECK(contains(stopped.out, "not tried"));
  CHECK(contains(stopped.out, "no limit was found: the search stopped at 12"));
  CHECK(nlohmann::json::parse(file_text(folder.path("b.json"))).at("rows").at(0).at("limited_by") == "search");
}

TEST_CASE("capacity refuses what it cannot grow, with a way out") {
  CHECK(contains(error_of({"capacity", kQuickstart}), "Name a whole number of the scenario, e.g. --over model.layers"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "training.micro_batchs"}),
                 "--over: unknown \"training.micro_batchs\"; did you mean \"training.micro_batches\"? known: "));
  const std::string known =
      "known: model.batch, model.layers.0.repeat, model.layers.0.parameters, model.layers.1.repeat, "
      "model.layers.1.parameters, cluster.nodes, cluster.node.devices, training.micro_batch_size, "
      "training.micro_batches, plan.stages";
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "model.layerz"}),  // which is no model.batch
                 "--over: unknown \"model.layerz\"; " + known));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "foo"}), "--over: unknown \"foo\"; " + known));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan.pp"}),
                 "--over: unknown \"plan.pp\"; use plan.stages;"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "micro_batch_size"}),
                 "--over: unknown \"micro_batch_size\"; did you mean \"training.micro_batch_size\"? " + known));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan.schedule"}),
                 "--over: \"plan.schedule\" cannot grow: "));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan.schedule"}), "plan.schedule"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan..stages"}), "has an empty key"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan.stages", "--at-most", "0"}),
                 "is not a whole number of at least 1; write e.g. --at-most 128"));
  CHECK(
      contains(error_of({"capacity", kQuickstart, "--over", "plan.stages", "-o", "x.svg"}), "known: .json, .csv, .md"));
  CHECK(contains(error_of({"capacity", kQuickstart, "--over", "plan.stages", "-o", kQuickstart}),
                 "is read by this command"));
}

}  // namespace
}  // namespace pipewright::tests
