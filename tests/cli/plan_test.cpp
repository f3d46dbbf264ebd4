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

const std::string kWhole = R"(version: 1
name: whole
model:
  layers:
    - {name: a, repeat: 3, forward: 1 ms, backward: 2 ms, activation: 1 MB, parameters: 1k}
    - {name: b, forward: 1 ms, backward: 2 ms, activation: 1 MB, parameters: 100M}
cluster: {nodes: 2, node: {devices: 2, device: {memory: 16 GB}, links: {kind: mesh, bandwidth: 10 GB/s}},
          network: {bandwidth: 10 Gb/s}}
training: {micro_batch_size: 1, micro_batches: 24}
plan: {schedule: pipedream, partition: suffix_dp}
)";

TEST_CASE("plan and simulate follow a partition that makes whole plans alike") {
  for (const char* name : {"suffix_dp", "pipedream_sosp", "pipedream_released", "pipedream_ring"}) {
    CAPTURE(name);
    const std::string set = std::string("plan.partition=") + name;
    const ProgramRun simulated = run_program({"simulate", "-", "--json", "--set", set}, {.input = kWhole});
    REQUIRE(simulated.status == 0);
    const auto result = nlohmann::json::parse(simulated.out);
    const ProgramRun planned = plan(kWhole, {"--json", "--set", set});
    REQUIRE(planned.status == 0);
    const auto ranking = nlohmann::json::parse(planned.out);
    CHECK(result["samples_per_s"] == ranking["plans"][0]["samples_per_s"]);
    CHECK(simulated.out.find(std::string("partition: ") + name + " chose ") != std::string::npos);
    CHECK((ranking["bound"] > 0.0) == (std::string(name) == "suffix_dp"));  // a baseline proves nothing
    const ProgramRun checked = run_program({"check", "-", "--set", set}, {.input = kWhole});
    CHECK(checked.status == 0);
  }
}

TEST_CASE("A partition that makes whole plans names what contradicts it, and what does not fit") {
  for (const char* command : {"simulate", "plan", "check"}) {
    CAPTURE(command);
    const ProgramRun fixed = run_program({command, "-", "--set", "plan.stages=1"}, {.input = kWhole});
    CHECK(fixed.status == 2);
    CHECK(fixed.err.find("plan.stages: given, but plan.partition: suffix_dp chooses it") != std::string::npos);
  }
  const ProgramRun half_open =
      run_program({"check", "-", "--set", "plan.data_parallel=2", "--set", "plan.recompute=auto"}, {.input = kWhole});
  CHECK(half_open.status == 2);
  CHECK(half_open.err.find("plan.data_parallel: 2, but plan.partition: suffix_dp") != std::string::npos);
  for (const char* name : {"suffix_dp", "pipedream_sosp"}) {
    const std::vector<std::string> small = {"--set", std::string("plan.partition=") + name, "--set",
                                            "cluster.node.device.memory=100 MB"};
    const ProgramRun planned = plan(kWhole, small);
    CHECK(planned.status == 1);
    CHECK(planned.out.find("nearest miss: ") != std::string::npos);
    std::vector<std::string> simulate = {"simulate", "-"};
    simulate.insert(simulate.end(), small.begin(), small.end());
    const ProgramRun simulated = run_program(simulate, {.input = kWhole});
    CHECK(simulated.status == 1);
    CHECK(simulated.out.find("infeasible: ") != std::string::npos);
    CHECK(simulated.out.find(std::string("partition: ") + name) != std::string::npos);
  }
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
