// Plans that fit with a probability, as a user asks for them: `plan --fit 95%`, and the key plan.fit.
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright {
namespace {

const std::string kAuto = "{stages: auto, partition: auto, recompute: auto}";

std::string gpt(const std::string& memory, const std::string& plan = kAuto) {
  return "name: small\n"
         "model: {family: gpt, layers: 8, hidden: 256, heads: 4, vocabulary: 1024, sequence_length: 128}\n"
         "cluster: {nodes: 1, node: {devices: 2, device: {memory: " +
         memory +
         ", memory_bandwidth: 1 TB/s, peak: {fp32: 10 TFLOP/s}}, links: {kind: nvswitch, bandwidth: 100 GB/s}},\n"
         "          network: {bandwidth: 10 GB/s}}\n"
         "training: {global_batch_size: 16, micro_batch_size: 2}\n"
         "plan: " +
         plan + "\n";
}

ProgramRun with(const std::string& yaml, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin() + 1, "-");
  return run_program(arguments, {.input = yaml});
}

// What the best plan needs by the estimate, and 1 % more: it fits with about a half.
std::string tight_memory(const std::string& plan = kAuto, const std::string& objective = "throughput") {
  const ProgramRun run = with(gpt("80 GB", plan), {"plan", "--json", "--objective", objective});
  const auto roomy = nlohmann::json::parse(run.out);
  const auto peak = roomy.at("plans").at(0).at("peak_bytes").get<std::int64_t>();
  return std::to_string(peak + peak / 100) + " B";
}

double not_fitting(const std::string& plan) {
  const ProgramRun run = run_program({"simulate", plan, "--json", "--tokens", "1G", "--set", "campaign.trials=20"});
  REQUIRE(run.status == 0);
  return nlohmann::json::parse(run.out).at("campaign").at("spread").at("probability_not_fitting");
}

TEST_CASE("plan --fit 95%: the plan found does not fit in 5 % of the draws at most, and the answer says its limit") {
  const ScratchFolder folder;
  const std::string memory = tight_memory(), any = folder.path("any.yaml"), sure = folder.path("sure.yaml");
  const ProgramRun without = with(gpt(memory), {"plan", "--width", "200", "-o", any});
  CHECK(without.status == 0);
  CHECK(contains(without.out, "; tight: up to "));
  CHECK(contains(without.out, "--fit 95%"));
  CHECK(not_fitting(any) > 0.05);

  const ProgramRun text = with(gpt(memory), {"plan", "--width", "200", "--fit", "95%", "-o", sure});
  CHECK(text.status == 0);
  CHECK(contains(text.out, "; fits with 95 %: peaks up to "));
  CHECK(!contains(text.out, "tight"));
  CHECK(contains(file_text(sure), "\n  fit: 95%"));
  CHECK(not_fitting(sure) <= 0.05);

  const auto document = nlohmann::json::parse(with(gpt(memory), {"plan", "--fit", "95 %", "--json"}).out);
  CHECK(document.at("fit") == 0.95);
  for (const auto& plan : document.at("plans")) {
    CHECK(plan.at("fit_probability").get<double>() >= 0.95);
    CHECK(plan.at("to_fit_bytes") <= plan.at("capacity_bytes"));
    CHECK(plan.at("to_fit_bytes") > plan.at("peak_bytes"));
  }
}

TEST_CASE("plan.fit is asked of every command: simulate refuses the plan that fits with less") {
  const ScratchFolder folder;
  const std::string any = folder.path("any.yaml");
  CHECK(with(gpt(tight_memory()), {"plan", "-o", any}).status == 0);
  CHECK(run_program({"simulate", any}).status == 0);
  const ProgramRun refused = run_program({"simulate", any, "--set", "plan.fit=95%"});
  CHECK(refused.status == 1);
  CHECK(contains(refused.out, " to fit with 95 % ("));
  CHECK(contains(refused.out, "by the estimate alone it fits: without plan.fit"));
}

TEST_CASE("capacity with plan.fit: the largest fits with the probability, the next one does not") {
  const std::string fixed = gpt("200 MB", "{stages: 2, partition: fitting}");
  const auto largest = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {"capacity",
                                     "--over",
                                     "training.micro_batch_size",
                                     "--set",
                                     "training.global_batch_size=null",
                                     "--set",
                                     "training.micro_batches=4",
                                     "--json"};
    line.insert(line.end(), more.begin(), more.end());
    const ProgramRun run = with(fixed, line);
    REQUIRE(run.status == 0);
    return nlohmann::json::parse(run.out).at("rows").at(0);
  };
  const auto any = largest({}), sure = largest({"--set", "plan.fit=95%"});
  CHECK(sure.at("largest").get<int>() < any.at("largest").get<int>());
  CHECK(sure.at("headroom_bytes").get<std::int64_t>() >= 0);
  CHECK(sure.at("next").at("need_bytes").get<std::int64_t>() > sure.at("device_memory_bytes").get<std::int64_t>());
}

TEST_CASE("plan --nodes --fit: more nodes where that takes it, and the command for the plan of the answer") {
  const ScratchFolder folder;
  const std::string scenario = folder.path("s.yaml");
  const std::string kept = "{stages: auto, partition: auto}";
  std::ofstream(scenario) << gpt(tight_memory(kept, "memory"), kept);
  const std::vector<std::string> ask = {"plan", scenario, "--nodes", "1,2", "--json"};
  std::vector<std::string> surely = ask;
  surely.insert(surely.end(), {"--fit", "95%"});
  const auto any = nlohmann::json::parse(run_program(ask).out), sure = nlohmann::json::parse(run_program(surely).out);
  CHECK(any.at("smallest_nodes") == 1);
  CHECK(sure.at("smallest_nodes") == 2);
  CHECK(sure.at("rows").at(1).at("plan").at("fit_probability").get<double>() >= 0.95);
  CHECK(any.at("next") == "pipewright plan " + scenario + " --set cluster.nodes=1 -o plan.yaml");
  CHECK(contains(sure.at("next").get<std::string>(), "--fit 95%"));
}

TEST_CASE("a probability of fitting is refused with what it is and an example") {
  for (const std::string bad : {"0", "0%", "101%", "-1", "-1%", "nan", "nan%", "often", "95", "0.95"}) {
    CAPTURE(bad);
    const ProgramRun option = run_program({"plan", "scenarios/quickstart.yaml", "--fit", bad});
    CHECK(option.status == 2);
    CHECK(contains(option.err, "--fit: \"" + bad + "\" "));
    CHECK(contains(option.err, "more than 0 %, at most 100 %, e.g. 95%"));
    const ProgramRun key =
        run_program({"simulate", "scenarios/quickstart.yaml", "--set", std::string("plan.fit=") + bad});
    CHECK(key.status == 2);
    CHECK(contains(key.err, "plan.fit: \"" + bad + "\" "));
  }
  const ProgramRun both = run_program({"plan", "scenarios/quickstart.yaml", "--fit", "95%", "--set", "plan.fit=90%"});
  CHECK(both.status == 2);
  CHECK(contains(both.err, "--fit: --set plan.fit=90% says another; keep one of them"));
}

TEST_CASE("layers that state what they hold have no range, and the answer says so") {
  const ProgramRun run = run_program({"plan", "scenarios/quickstart.yaml", "--set", "plan=auto", "--set",
                                      "plan.stages=4", "--fit", "95%", "--width", "200"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "fits with 95 %: the layers state what they hold, so that there is no range"));
}

}  // namespace
}  // namespace pipewright
