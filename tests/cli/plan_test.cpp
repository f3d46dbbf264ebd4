// `plan` as a user runs it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"
#include "tests/support/run_program.hpp"

using namespace pipewright::tests;

namespace {

const std::string kSmallPlan = R"(version: 1
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

TEST_CASE("plan: a scenario that gives nothing but the global batch is searched over the micro-batches, too") {
  std::string bare = kSmallPlan;
  bare.replace(bare.find(", micro_batch_size: auto"), sizeof(", micro_batch_size: auto") - 1, "");
  const ProgramRun stated = plan(kSmallPlan), found = plan(bare);
  CHECK_MESSAGE(found.status == 0, found.err);
  CHECK(found.out.substr(0, found.out.find(" in ")) == stated.out.substr(0, stated.out.find(" in ")));
  CHECK(found.out.find("micro-batches of") != std::string::npos);
  const ProgramRun simulated = run_program({"simulate", "-"}, {.input = bare});
  CHECK(simulated.status == 2);
  CHECK(simulated.err.find("pipewright plan") != std::string::npos);
  // So does a sweep that plans every point anew.
  const ScratchFolder folder;
  bare.replace(bare.find("plan: "), std::string::npos, "plan: {stages: 1}\n");
  std::ofstream(folder.path("x.yaml")) << bare;
  std::ofstream(folder.path("sweep.yaml"))
      << "sweep: {base: ./x.yaml, replan: true, grid: {training.global_batch_size: [8, 16]}}\n";
  const ProgramRun swept = run_program({"sweep", folder.path("sweep.yaml"), "--json"});
  CHECK_MESSAGE(swept.status == 0, swept.err);
  const auto points = nlohmann::json::parse(swept.out)["rows"];
  REQUIRE(points.size() == 2);
  for (const auto& point : points)
    CHECK(point.at("samples_per_s") > 200);
}

TEST_CASE("plan: what is written of an anchored scenario needs the same memory") {
  const ScratchFolder folder;
  std::string text = kSmallPlan;
  text.replace(text.find("micro_batch_size: auto"), sizeof("micro_batch_size: auto") - 1,
               "micro_batch_size: auto, framework: {anchor: {set: {plan: {stages: 1}, training.micro_batch_size: 1, "
               "model.layers.0.repeat: 2}, held: 17 MB, allocated: 21 MB}}");
  const std::string path = folder.path("plan.yaml");
  const ProgramRun found = plan(text, {"--set", "model.layers.0.repeat=8", "--json", "-o", path});
  CHECK_MESSAGE(found.status == 0, found.err);
  const ProgramRun again = run_program({"simulate", path, "--json"});
  CHECK_MESSAGE(again.status == 0, again.err);
  const auto result = nlohmann::json::parse(again.out);
  std::int64_t peak = 0;
  for (const auto& stage : result.at("stages")) {
    const auto& need = stage.at("memory_need_bytes");
    CHECK(need.at("anchored") != 0);
    peak = std::max(peak, need.at("with_reserve").get<std::int64_t>());
  }
  CHECK(nlohmann::json::parse(found.out).at("plans").at(0).at("peak_bytes") == peak);
}

TEST_CASE("plan: the best plan is a scenario that simulate prices alike") {
  ScratchFolder folder;
  const std::string path = folder.path("plan.yaml");
  const ProgramRun found = plan(kSmallPlan, {"--json", "-o", path});
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
  CHECK(plan(kSmallPlan, {"-o", path}).status == 0);
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

TEST_CASE("plan: only what can be divided is divided" * doctest::test_suite("whole searches")) {
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
  CHECK(plan(kSmallPlan, {"--objective", "cost"}).out.find(" device seconds per sample") != std::string::npos);
  const ProgramRun priced = plan(kSmallPlan, {"--objective", "cost", "--set", "cluster.node.device.price_per_hour=2"});
  CHECK(priced.status == 0);
  CHECK(priced.out.find("device seconds") == std::string::npos);
}

TEST_CASE("plan: the same bytes every time") {
  for (const char* form : {"--json", "--explain"})
    CHECK(plan(kSmallPlan, {form}).out == plan(kSmallPlan, {form}).out);
}

TEST_CASE("plan: an answer without a plan is exit status 1, with what would help") {
  const ProgramRun none = plan(kSmallPlan, {"--set", "cluster.node.device.memory=30 MB", "--set", "plan.stages=1"});
  CHECK(none.status == 1);
  CHECK(none.out.find("infeasible: no plan fits") != std::string::npos);
  CHECK(none.out.find("nearest miss: ") != std::string::npos);
  CHECK(none.out.find("--set plan.stages=auto") != std::string::npos);
  CHECK(none.out.find("warning: ") == std::string::npos);
  const ProgramRun warned = plan(kSmallPlan, {"--set", "cluster.node.device.memory=30 MB", "--set", "plan.stages=1",
                                              "--set", "campaign={price_per_hour: 2}"});
  CHECK(warned.status == 1);
  CHECK(warned.out.find("warning: campaign: has no length") != std::string::npos);
}

TEST_CASE("plan: bad input is named, with a way out") {
  const auto error = [](std::vector<std::string> more, const std::string& yaml = kSmallPlan) {
    const ProgramRun run = plan(yaml, std::move(more));
    CHECK(run.status == 2);
    CHECK(run.out.empty());
    return run.err;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(error({"--top", "0"}), "--top: \"0\" is not a whole number from 1 to 1000; write e.g. --top 5"));
  CHECK(has(error({"--gap", "1"}), "--gap: \"1\" is not a percentage; write e.g. --gap 1%"));
  CHECK(has(error({"--gap", "-1%"}), "--gap"));
  CHECK(has(error({"--time-limit", "soon"}),
            "--time-limit: \"soon\" is not a time above 0; write e.g. --time-limit 10s"));
  CHECK(has(error({"--objective", "speed"}), "--objective: unknown \"speed\""));
  CHECK(has(error({"--pareto", "size"}), "--pareto: unknown \"size\""));
  CHECK(has(error({"-o", "x.txt"}),
            "has no known extension; known: .yaml, .html, .json, .comms.schedule.csv, .schedule.csv, .csv, .md"));
  CHECK(has(error({"--set", "plan.stages=9"}), "plan.stages: 9 stages for 6 layers"));
  CHECK(has(error({"--set", "plan.stages=4", "--set", "plan.data_parallel=2"}),
            "plan: 4 stages x 2 copies x 1 (tensor_parallel) need 8 devices, the cluster has 4"));
  CHECK(has(error({"--set", "plan.stages={auto: []}"}), "has no values"));
  CHECK(has(error({"--set", "plan.stages={auto: [2, 2]}"}), "stands here twice"));
  CHECK(has(error({"--set", "plan.stages={auto: [0]}"}), "must be at least 1"));
  CHECK(has(error({"--set", "plan.schedule={auto: [1f1c]}"}), "plan.schedule: unknown \"1f1c\""));
  CHECK(has(error({"--set", "plan.scatter_gather=auto"}), "plan.scatter_gather"));
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
  const ProgramRun simulated = run_program({"simulate", "-", "--json"}, {.input = kWhole});
  REQUIRE(simulated.status == 0);
  const auto result = nlohmann::json::parse(simulated.out);
  const ProgramRun planned = plan(kWhole, {"--json"});
  REQUIRE(planned.status == 0);
  const auto ranking = nlohmann::json::parse(planned.out);
  CHECK(result["samples_per_s"] == ranking["plans"][0]["samples_per_s"]);
  CHECK(simulated.out.find("partition: suffix_dp chose ") != std::string::npos);
  CHECK(ranking["bound"] > 0.0);
  CHECK(run_program({"check", "-"}, {.input = kWhole}).status == 0);
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
  const ProgramRun planned = plan(kWhole, {"--set", "cluster.node.device.memory=100 MB"});
  CHECK(planned.status == 1);
  CHECK(planned.out.find("nearest miss: ") != std::string::npos);
  const ProgramRun simulated =
      run_program({"simulate", "-", "--set", "cluster.node.device.memory=100 MB"}, {.input = kWhole});
  CHECK(simulated.status == 1);
  CHECK(simulated.out.find("infeasible: ") != std::string::npos);
  CHECK(simulated.out.find("partition: suffix_dp") != std::string::npos);
}

TEST_CASE("simulate: a field left open is for plan") {
  const ProgramRun run = run_program({"simulate", "-"}, {.input = kSmallPlan});
  CHECK(run.status == 2);
  CHECK(run.err.find("plan: auto leaves 5 fields to `pipewright plan`, which writes the scenario of what it finds with "
                     "-o plan.yaml: training.micro_batch_size, plan.data_parallel, plan.recompute, plan.schedule, "
                     "plan.stages; give values here") != std::string::npos);
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  const ProgramRun one =
      run_program({"simulate", "scenarios/quickstart.yaml", "--set", "plan.stages=auto"}, {.input = kSmallPlan});
  CHECK(one.err.find("plan.stages: auto leaves it to `pipewright plan`") != std::string::npos);
}

TEST_CASE("check: fields left open are kept, and the layouts counted") {
  const ProgramRun run = run_program({"check", "-", "--resolved"}, {.input = kSmallPlan});
  CHECK(run.status == 0);
  CHECK(run.out.find("schedule: {auto: [") != std::string::npos);
  CHECK(run.out.find("micro_batch_size: auto") != std::string::npos);
  const ProgramRun again = run_program({"check", "-", "--resolved"}, {.input = run.out});
  CHECK(again.status == 0);
  CHECK(again.err.find("layouts to choose from") != std::string::npos);
}

TEST_CASE("plan: a search that is cut short says so, and gap 0 goes on until it is proven") {
  const ProgramRun short_one = plan(kSmallPlan, {"--time-limit", "1ns", "--json"});
  CHECK(short_one.status == 1);
  const auto none = nlohmann::json::parse(short_one.out);
  CHECK(none["ended"] == "the time limit");
  CHECK(none["plans"].empty());
  CHECK(none["searched"]["not_reached"] == none["searched"]["layouts"]);
  const auto proven = nlohmann::json::parse(plan(kSmallPlan, {"--gap", "0", "--json"}).out);
  CHECK(proven["ended"] == "");
  CHECK(proven["gap"] <= 0.0);
}

TEST_CASE("plan: pareto plans are not beaten in any axis") {
  const auto ranking = nlohmann::json::parse(plan(kSmallPlan, {"--pareto", "memory,cost", "--json"}).out);
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

// With gap 0 its cuts are searched for as long as there is time; on one stage, where weights may be divided, there are none.
const std::vector<std::string> kEndless = {"plan", kLlama, "--set", "training.zero=1", "--gap", "0", "--width", "1000"};

// 240 000 layouts on 4096 GPUs: a quarter of a minute of work on the machine that this was written on.
ProgramRun hard_plan(const std::string& time_limit, const ProgramInput& input = {}) {
  return run_program({"plan", kLlama, "--set", "cluster.nodes=512", "--set", "training.global_batch_size=4096", "--gap",
                      "0", "--top", "50", "--width", "1000", "--time-limit", time_limit},
                     input);
}

bool has(const ProgramRun& run, const char* part) {
  return run.out.find(part) != std::string::npos;
}

TEST_CASE("plan: a bar on the terminal tells of the cuts; Ctrl-C prints the best so far, with exit status 130" *
          doctest::test_suite("whole searches")) {
  std::vector<std::string> arguments = kEndless;
  arguments.insert(arguments.end(), {"--time-limit", "60min"});
  const ProgramRun run = run_program(arguments, {.interrupt_at = "cuts ["});
  CHECK(run.status == 130);
  CHECK(has(run, "optimality    gap "));
  CHECK(has(run, "Ctrl-C or SIGTERM) ended the search"));
  CHECK(run.err.find(" samples/s") != std::string::npos);
}

TEST_CASE("plan: an early Ctrl-C says that no plan is found yet, and not that none fits") {
  const ProgramRun run = hard_plan("60min", {.interrupt_at = "layouts ["});
  CHECK(run.status == 130);
  CHECK(run.err.find("interrupted (SIGINT): what the search had found is printed") != std::string::npos);
  CHECK(has(run, "Ctrl-C or SIGTERM) ended the search"));
  CHECK(has(run, "no plan found yet: ") == !has(run, "best plan "));
  CHECK_FALSE(has(run, "infeasible"));
  CHECK_FALSE(has(run, "no plan fits"));
}

TEST_CASE("plan: a time limit that comes before the first plan says so, and how to go on") {
  const ProgramRun run = plan(kSmallPlan, {"--time-limit", "1ns"});
  CHECK(run.status == 1);
  CHECK(run.out.starts_with("no plan found yet: the time limit ended the search after 0 of "));
  CHECK(has(run, "a longer --time-limit looks further"));
}

TEST_CASE("plan: on a hard question gap 0 goes on to the time limit, and says the gap that is left") {
  const ProgramRun run = hard_plan("1s");
  const bool best = has(run, "optimality    gap ") && has(run, "the time limit ended the search");
  CHECK((best || has(run, "no plan found yet: the time limit ended the search after ")));
}

TEST_CASE(
    "plan: a search that the time limit ends far from its bound is warned of in one line, which says how to go on") {
  const ProgramRun run = run_program({"plan", kLlama, "--gap", "0", "--time-limit", "0.4s"});
  if (!has(run, "optimality    gap ")) return;  // a machine so slow that there is no plan yet
  CHECK(has(run, "the time limit ended the search"));
  CHECK(run.err.find("warning: the time limit of 0.4 s ended the search with ") != std::string::npos);
  CHECK(run.err.find("to search longer: --time-limit 1.6s\n") != std::string::npos);
  CHECK(run_program({"plan", "scenarios/quickstart.yaml", "--set", "plan=auto"}).err.find("warning") ==
        std::string::npos);
}

TEST_CASE("plan --for: launch writes the plan as it is, and the ranking says what was left out" *
          doctest::test_suite("whole searches")) {
  ScratchFolder folder;
  struct Case {
    std::string scenario, framework;
  };
  for (const auto& [scenario, framework] :
       {Case{kLlama, "megatron"}, Case{kLlama, "torchtitan"}, Case{kLlama, "torch"}, Case{kLlama, "deepspeed"},
        Case{"scenarios/quickstart.yaml", "torch"}, Case{"scenarios/quickstart.yaml", "deepspeed"}}) {
    CAPTURE(scenario);
    CAPTURE(framework);
    const std::string path = folder.path(framework + ".yaml");
    const ProgramRun planned = run_program({"plan", scenario, "--set", "plan=auto", "--for", framework, "--top", "1",
                                            "--gap", "20%", "--json", "-o", path});
    REQUIRE(planned.status == 0);
    const auto ranking = nlohmann::json::parse(planned.out);
    CHECK_FALSE(ranking["framework"].get<std::string>().empty());
    CHECK_FALSE(ranking["restricted"].empty());
    const ProgramRun launched = run_program({"launch", path, "--for", framework});
    CHECK(launched.status == 0);
    CHECK(launched.err.find("not as planned") == std::string::npos);
  }
}

TEST_CASE(
    "plan --for: what is not as the scenario states it, and a model that torchtitan does not have, are warnings") {
  const ScratchFolder folder;
  const std::string path = folder.path("muon.yaml");
  std::ofstream(path)
      << "model: {family: gpt, layers: 4, hidden: 256, heads: 4, vocabulary: 1024, sequence_length: 128}\n"
         "cluster: {node: {devices: 2, device: {memory: 16 GiB, peak: {fp32: 10 TFLOP/s}, "
         "memory_bandwidth: 1 TB/s}, links: {kind: nvswitch, bandwidth: 100 GB/s}}}\n"
         "training: {global_batch_size: 8, micro_batch_size: 1, optimizer: muon}\n"
         "plan: {stages: auto}\n";
  const std::string stated = "not as stated, for torchtitan: training.optimizer: muon is not there; adam";
  const std::string model =
      "launch --for torchtitan will say: model: none of its configurations is known to be this one";
  const ProgramRun run = run_program({"plan", path, "--for", "torchtitan", "--width", "1000"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "\nwarning: " + stated + "\n"));
  CHECK(contains(run.out, "\nwarning: " + model));
  const auto warnings =
      nlohmann::json::parse(run_program({"plan", path, "--for", "torchtitan", "--json"}).out).at("warnings");
  REQUIRE(warnings.size() >= 2);
  CHECK(warnings[0] == stated);
  const ProgramRun sizes = run_program({"plan", path, "--for", "torchtitan", "--nodes", "1", "--width", "1000"});
  CHECK(contains(sizes.out, "warning: " + stated));
  const ProgramRun none =
      run_program({"plan", path, "--for", "torchtitan", "--set", "cluster.node.device.memory=1MiB", "--width", "1000"});
  CHECK(none.status == 1);
  CHECK(contains(none.out, "warning: " + stated));
  CHECK_FALSE(has(run_program({"plan", path, "--for", "megatron", "--width", "1000"}), "warning: not as stated"));
}

TEST_CASE("plan --for: the table names the framework, an unknown one is refused, and what does not fit says it, too") {
  const std::vector<std::string> ask = {"plan", "scenarios/quickstart.yaml", "--set", "plan=auto", "--width", "1000"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), ask.begin(), ask.end());
    return run_program(more);
  };
  CHECK(has(with({"--for", "deepspeed"}), "searched for  DeepSpeed alone: schedule: 1f1b"));
  const ProgramRun unknown = with({"--for", "megatorn"});
  CHECK(unknown.status == 2);
  CHECK(unknown.err.find("--for: unknown \"megatorn\"; did you mean \"megatron\"?") != std::string::npos);
  const ProgramRun no_decoder = with({"--for", "megatron"});
  CHECK(no_decoder.status == 2);
  CHECK(no_decoder.err.find("is not a decoder of one stack") != std::string::npos);
  const ProgramRun none = with({"--for", "deepspeed", "--set", "cluster.node.device.memory=20MB"});
  CHECK(none.status == 1);
  CHECK(has(none, "searched for DeepSpeed only: schedule: 1f1b"));
}

TEST_CASE("plan: what cannot be written or drawn is refused before the search") {
  ScratchFolder folder;
  const auto error = [&](std::vector<std::string> more) {
    // Ten minutes of search, were it begun.
    more.insert(more.begin(), {"plan", kLlama, "--gap", "0", "--time-limit", "10min"});
    const ProgramRun run = run_program(more);
    CHECK(run.status == 2);
    CHECK(run.out.empty());
    return run.err;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(error({"-o", folder.path("none/plan.yaml")}), "does not exist: create it first"));
  CHECK(has(error({"-o", "/proc/plan.yaml"}), "/proc/plan.yaml: cannot write: "));
  CHECK(has(error({"--pareto", "memory,size"}), "--pareto: unknown \"size\"; known: memory, cost"));
  CHECK(has(error({"-o", folder.path("a.json"), "-o", folder.path("a.json")}), "is given twice"));
  CHECK(has(error({"-o", kLlama}), "is read by this command; name another file"));
  CHECK(folder.files().empty());  // trying leaves nothing behind
}

TEST_CASE("An output that cannot be written is refused by every command before it works") {
  ScratchFolder folder;
  const std::string quickstart = "scenarios/quickstart.yaml";
  std::filesystem::create_directory(folder.path("x.json"));
  for (const std::vector<std::string>& command : {std::vector<std::string>{"simulate", quickstart},
                                                  {"compare", quickstart, quickstart},
                                                  {"sweep", "scenarios/what_if/bandwidth.yaml"},
                                                  {"capacity", quickstart, "--over", "training.micro_batch_size"}}) {
    CAPTURE(command.front());
    for (const std::string& output : {folder.path("none/x.json"), folder.path("x.json")}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"-o", output});
      const ProgramRun run = run_program(arguments);
      CHECK(run.status == 2);
      CHECK(run.out.empty());
      CHECK(run.err.find("cannot write: ") != std::string::npos);
    }
  }
}

TEST_CASE("plan: fields that contradict one another are named, with a way out") {
  const auto error = [](const std::string& scenario, const std::vector<std::string>& set) {
    std::vector<std::string> arguments = {"plan", scenario};
    for (const std::string& each : set)
      arguments.insert(arguments.end(), {"--set", each});
    const ProgramRun run = run_program(arguments);
    CHECK(run.status == 2);
    return run.err;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const std::string quickstart = "scenarios/quickstart.yaml";
  CHECK(has(error("scenarios/pipedream/vgg16-15-1.yaml", {"plan.replicas=auto"}),
            "plan.partition: gives the cuts, but plan.replicas: auto chooses the stages and their cuts, too; write "
            "partition: auto (--set plan.partition=auto)"));
  CHECK(has(error(quickstart, {"plan.virtual_stages=2", "plan.recompute=auto"}),
            "1 combination: plan.virtual_stages is given, and of the schedules interleaved_1f1b, moe_overlap_1f1b, "
            "looped_bfs, search, "
            "interleaved_zb, zbv, zbv_auto, v_half, v_min, v_zb, v_1f1b, v_auto, v_search, hanayo and "
            "dualpipev "
            "take several"));
  CHECK(has(error(quickstart, {"plan.stages={auto:[2,4]}"}),
            "in braces a space follows a colon: --set 'plan.stages={auto: [2,4]}'"));
  CHECK(has(error(quickstart, {"plan.recompute=auto", "plan.stages=25", "cluster.node.devices=64"}),
            "plan.stages: 25 stages for 24 layers; every stage holds at least one: use 1..24, or auto"));
  CHECK(has(error(quickstart, {"plan=auto", "cluster.nodes=0"}), "cluster.nodes: \"0\" must be at least 1"));
  CHECK(has(error(quickstart, {"plan=auto", "cluster.node.devices=0"}), "cluster.node.devices: \"0\" must be"));
  CHECK(
      has(error(quickstart, {"plan=auto", "cluster.nodes=2"}), "cluster.network is missing: 2 nodes need one; write"));
}

// By its layers alone PP2 DP2 fits, with its buffers it does not: PP4 is the answer, however few plans are asked for.
TEST_CASE("plan: what turns out not to fit rules out nothing") {
  for (const char* top : {"1", "5"}) {
    const ProgramRun run = plan(kSmallPlan, {"--set", "cluster.node.device.memory=30 MB", "--top", top});
    CHECK(run.status == 0);
    CHECK(run.out.find("best plan     PP4 DP1, 8 micro-batches of 1, 1f1b") != std::string::npos);
  }
}

// What the nearest plan lacks, and a memory with which a plan is found.
TEST_CASE("plan: where no field helps, the answer is the memory that would, and it does") {
  const std::vector<std::string> ask = {"plan", "scenarios/quickstart.yaml", "--set", "plan=auto", "--top", "1"};
  std::vector<std::string> small = ask;
  small.insert(small.end(), {"--set", "cluster.node.device.memory=20MB"});
  const ProgramRun none = run_program(small);
  CHECK(none.status == 1);
  CHECK(none.out.find("more than the 19.1 MiB of a device") != std::string::npos);
  const std::string key = "--set cluster.node.device.memory=";
  const auto at = none.out.find(key);
  REQUIRE(at != std::string::npos);
  std::vector<std::string> larger = ask;
  larger.insert(larger.end(), {"--set", none.out.substr(at + 6, none.out.find_first_of(" \n", at + 6) - at - 6)});
  CHECK(run_program(larger).status == 0);
}

TEST_CASE("plan: without replicas that fit, sizes are in GiB; devices that are not GPUs are called devices") {
  const ProgramRun none =
      run_program({"plan", "scenarios/pipedream/vgg16-15-1.yaml", "--set", "plan.replicas=auto", "--set",
                   "plan.partition=balanced", "--set", "cluster.node.device.memory=700MB"});
  CHECK(none.status == 1);
  CHECK(none.out.find("nearest miss: replicas ") != std::string::npos);
  CHECK(none.out.find(" GiB more than its device has") != std::string::npos);
  const std::string tpus =
      run_program({"plan", "scenarios/gpipe/transformer-48-k8-m32.yaml", "--set", "plan.recompute=auto"}).out;
  CHECK(tpus.find("#  devices  GBS") != std::string::npos);
  CHECK(tpus.find("tok/s/device") != std::string::npos);
  CHECK(tpus.find("GPU") == std::string::npos);
}

TEST_CASE("plan: more memory never makes the best plan slower, and never makes it vanish") {
  double before = 0;
  for (int memory = 1861; memory <= 1981; memory += 10) {
    CAPTURE(memory);
    const ProgramRun run = run_program({"plan", "scenarios/quickstart.yaml", "--set",
                                        "plan={stages: 4, partition: auto, recompute: auto, schedule: 1f1b}", "--set",
                                        "cluster.node.device.memory=" + std::to_string(memory) + "MiB", "--json"});
    REQUIRE(run.status == 0);
    const double now = nlohmann::json::parse(run.out)["plans"][0]["samples_per_s"];
    CHECK(now >= before);
    before = now;
  }
}

TEST_CASE(
    "plan: --gap 0 goes on until no plan can be better: as fast as the exact partition of every number of stages") {
  const std::vector<std::string> slow = {"--set", "cluster.node.links.bandwidth=1 GB/s", "--json"};
  const auto samples = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), slow.begin(), slow.end());
    const ProgramRun run = run_program(arguments);
    REQUIRE(run.status == 0);
    return nlohmann::json::parse(run.out);
  };
  const double best = samples({"plan", "scenarios/quickstart.yaml", "--gap", "0", "--set",
                               "plan={stages: auto, partition: auto, schedule: 1f1b}"})["plans"][0]["samples_per_s"];
  for (const int stages : {2, 3, 4}) {
    const auto exact = samples({"simulate", "scenarios/quickstart.yaml", "--set",
                                "plan={stages: " + std::to_string(stages) + ", partition: exact, schedule: 1f1b}"});
    CHECK(best >= exact["samples_per_s"].get<double>() * (1 - 1e-9));
  }
}
