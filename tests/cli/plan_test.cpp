// `plan` as a user runs it.
#include <chrono>
#include <csignal>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.hpp"

using namespace pipewright;

namespace {

const std::string kSmall = R"(version: 1
name: small
model: {layers: [{name: a, repeat: 6, forward: 1 ms, backward: 2 ms, activation: 1 MB, parameters: 1M}]}
cluster: {nodes: 1, node: {devices: 4, device: {memory: 1 GB}, links: {kind: mesh, bandwidth: 10 GB/s}}}
training: {global_batch_size: 8, micro_batch_size: auto}
plan: {stages: auto, data_parallel: auto, schedule: {auto: [1f1b, gpipe]}, recompute: auto}
)";

ProgramRun plan(const std::string& yaml, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"plan", "-"});
  return run_program(more, {.input = yaml});
}

}  // namespace

TEST_CASE("plan: the best plan is a scenario that simulate prices alike") {
  ScratchFolder folder;
  const std::string path = folder.path("plan.yaml");
  const ProgramRun found = plan(kSmall, {"--json", "-o", path});
  CHECK(found.status == 0);
  const auto ranking = nlohmann::json::parse(found.out);
  CHECK(ranking["schema"] == "pipewright.ranking/1");
  REQUIRE(ranking["plans"].size() >= 2);
  const ProgramRun simulated = run_program({"simulate", path, "--json"});
  CHECK(simulated.status == 0);
  const auto result = nlohmann::json::parse(simulated.out);
  CHECK(result["samples_per_s"] == ranking["plans"][0]["samples_per_s"]);
  const std::string yaml = file_text(path);
  CHECK(yaml.starts_with("# Found by: pipewright plan -"));
  CHECK(yaml.find("auto") == std::string::npos);
  CHECK(run_program({"check", path}).status == 0);
}

TEST_CASE("plan: the scenario written tells what was chosen from what is a default") {
  ScratchFolder folder;
  const std::string path = folder.path("plan.yaml");
  CHECK(plan(kSmall, {"-o", path}).status == 0);
  const std::string yaml = file_text(path);
  const auto comment = [&](const std::string& key) {
    const auto begin = yaml.find("\n  " + key + ":");
    REQUIRE(begin != std::string::npos);
    const std::string line = yaml.substr(begin + 1, yaml.find('\n', begin + 1) - begin - 1);
    return line.substr(line.find("# ") + 2);
  };
  CHECK(comment("stages") == "chosen by plan");
  CHECK(comment("micro_batch_size") == "chosen by plan");
  CHECK(comment("bucket") == "default");
}

TEST_CASE("plan: only what can be divided is divided") {
  // own-net has attention inside `ops`, which no group of devices shares; five heads divide by five only.
  CHECK(run_program({"plan", "scenarios/what_if/own-net.yaml", "--set", "plan=auto", "--top", "1"}).status == 0);
  const ProgramRun odd = plan(R"(version: 1
model: {family: gpt, layers: 4, hidden: 320, heads: 5, sequence_length: 128}
cluster: dgx-a100x8
training: {global_batch_size: 64, micro_batch_size: 1, precision: bf16}
plan: {tensor_parallel: auto}
)",
                              {"--set", "cluster.node.devices=10", "--set", "cluster.nodes=1", "--json"});
  CHECK(odd.status == 0);
  CHECK(nlohmann::json::parse(odd.out)["searched"]["layouts"] == 2);  // of 1, 2, 5 and 10 devices: 1 and 5
}

TEST_CASE("plan: costs without a price are device seconds") {
  CHECK(plan(kSmall, {"--objective", "cost"}).out.find(" device seconds per sample") != std::string::npos);
  const ProgramRun priced = plan(kSmall, {"--objective", "cost", "--set", "cluster.node.device.price_per_hour=2"});
  CHECK(priced.status == 0);
  CHECK(priced.out.find("device seconds") == std::string::npos);
}

TEST_CASE("plan: the same bytes every time") {
  for (const char* form : {"--json", "--explain"})
    CHECK(plan(kSmall, {form}).out == plan(kSmall, {form}).out);
}

TEST_CASE("plan: an answer without a plan is exit status 1, with what would help") {
  const ProgramRun none = plan(kSmall, {"--set", "cluster.node.device.memory=30 MB", "--set", "plan.stages=1"});
  CHECK(none.status == 1);
  CHECK(none.out.find("infeasible: no plan fits") != std::string::npos);
  CHECK(none.out.find("nearest miss: ") != std::string::npos);
  CHECK(none.out.find("--set plan.stages=auto") != std::string::npos);
}

TEST_CASE("plan: bad input is named, with a way out") {
  const auto error = [](std::vector<std::string> more, const std::string& yaml = kSmall) {
    const ProgramRun run = plan(yaml, std::move(more));
    CHECK(run.status == 2);
    CHECK(run.out.empty());
    return run.err;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(error({"--top", "0"}), "--top: \"0\" is no whole number from 1 to 1000"));
  CHECK(has(error({"--gap", "1"}), "--gap: \"1\" is no share in percent; write e.g. --gap 1%"));
  CHECK(has(error({"--gap", "-1%"}), "--gap"));
  CHECK(has(error({"--time-limit", "soon"}), "--time-limit: \"soon\" is no time above 0"));
  CHECK(has(error({"--objective", "speed"}), "--objective: unknown \"speed\""));
  CHECK(has(error({"--pareto", "size"}), "--pareto: unknown \"size\""));
  CHECK(has(error({"-o", "x.txt"}), "has no known ending; known: .yaml, .json, .csv, .md"));
  CHECK(has(error({"--set", "plan.stages=9"}), "plan.stages: 9 stages for 6 layers"));
  CHECK(has(error({"--set", "plan.stages=4", "--set", "plan.data_parallel=2"}),
            "plan: 4 stages x 2 copies x 1 (tensor_parallel) need 8 devices, the cluster has 4"));
  CHECK(has(error({"--set", "plan.stages={auto: []}"}), "has no values"));
  CHECK(has(error({"--set", "plan.stages={auto: [2, 2]}"}), "stands here twice"));
  CHECK(has(error({"--set", "plan.stages={auto: [0]}"}), "must be at least 1"));
  CHECK(has(error({"--set", "plan.schedule={auto: [1f1c]}"}), "plan.schedule: unknown \"1f1c\""));
  CHECK(has(error({"--set", "plan.bucket=auto"}), "plan.bucket"));
  CHECK(has(error({"--set", "training.precision=auto"}), "training.precision: unknown \"auto\""));
  CHECK(has(error({"--set", "plan.replicas=auto", "--set", "plan.schedule=gpipe"}),
            "plan.replicas: auto is for schedule pipedream or 1f1b, not for gpipe"));
  CHECK(has(error({"--set", "training.global_batch_size=null"}), "nothing says how many samples a step has"));
  CHECK(has(run_program({"plan", "scenarios/quickstart.yaml"}).err, "plan: nothing is left open; write auto"));
}

TEST_CASE("simulate: a field left open is for plan") {
  const ProgramRun run = run_program({"simulate", "-"}, {.input = kSmall});
  CHECK(run.status == 2);
  CHECK(run.err.find("plan.stages: auto leaves it to `pipewright plan`") != std::string::npos);
  CHECK(run.err.find("training.micro_batch_size: auto leaves it") != std::string::npos);
}

TEST_CASE("check: fields left open are kept, and the layouts counted") {
  const ProgramRun run = run_program({"check", "-", "--resolved"}, {.input = kSmall});
  CHECK(run.status == 0);
  CHECK(run.out.find("schedule: {auto: [") != std::string::npos);
  CHECK(run.out.find("micro_batch_size: auto") != std::string::npos);
  const ProgramRun again = run_program({"check", "-", "--resolved"}, {.input = run.out});
  CHECK(again.status == 0);
  CHECK(again.err.find("layouts to choose from") != std::string::npos);
}

TEST_CASE("plan: a search that is cut short says so, and gap 0 goes on until it is proven") {
  const ProgramRun short_one = plan(kSmall, {"--time-limit", "1ns", "--json"});
  CHECK((short_one.status == 0 || short_one.status == 1));
  CHECK(short_one.out.find("the time limit") != std::string::npos);
  const auto proven = nlohmann::json::parse(plan(kSmall, {"--gap", "0", "--json"}).out);
  CHECK(proven["ended"] == "");
  CHECK(proven["gap"] <= 0.0);
}

TEST_CASE("plan: pareto plans are not beaten in any axis") {
  const auto ranking = nlohmann::json::parse(plan(kSmall, {"--pareto", "memory,cost", "--json"}).out);
  const auto& plans = ranking["pareto"];
  REQUIRE(plans.size() >= 2);
  for (const auto& a : plans)
    for (const auto& b : plans) {
      const double time_a = 1 / a["samples_per_s"].get<double>(), time_b = 1 / b["samples_per_s"].get<double>();
      const double cost_a = time_a * a["devices"].get<int>(), cost_b = time_b * b["devices"].get<int>();
      const bool beaten = time_b < time_a && cost_b < cost_a && b["peak_bytes"] < a["peak_bytes"];
      CHECK_FALSE(beaten);
    }
}
