// What the tool tells: devices without work, and settings to paste.
#include <algorithm>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

using nlohmann::json;

// The words behind the last ": " of a remedy or hint, as a shell splits them: "--set a=1 --set 'b={c: d}'".
std::vector<std::string> pasted(const std::string& line) {
  std::vector<std::string> words;
  const auto begin = line.find("--set ");
  if (begin == std::string::npos) return words;
  bool quoted = false;
  words.emplace_back();
  for (const char c : line.substr(begin)) {
    if (c == '\'')
      quoted = !quoted;
    else if (c == ' ' && !quoted)
      words.emplace_back();
    else
      words.back() += c;
  }
  CHECK_FALSE(quoted);
  return words;
}

struct Asked {
  std::string file;
  std::vector<std::string> set;
};

std::vector<std::string> with_set(const char* command, const Asked& asked) {
  std::vector<std::string> arguments{command, asked.file};
  for (const std::string& each : asked.set)
    arguments.insert(arguments.end(), {"--set", each});
  return arguments;
}

// Runs every remedy and hint of the answer as a user would: the same command with the printed options behind it.
// Returns how many there were.
int paste_all(const char* command, const Asked& asked) {
  std::vector<std::string> arguments = with_set(command, asked);
  CAPTURE(asked.file);
  CAPTURE(arguments);
  arguments.push_back("--json");
  const ProgramRun first = run_program(arguments);
  CAPTURE(first.err);
  REQUIRE(first.status <= 1);
  const json document = json::parse(first.out);
  std::vector<std::string> lines;
  if (document.contains("hints")) lines = document["hints"];
  if (document.contains("shortfall") && !document["shortfall"].is_null())
    for (const std::string line : document["shortfall"]["remedies"])
      lines.push_back(line);
  int offered = 0;
  for (const std::string& line : lines) {
    const std::vector<std::string> more = pasted(line);
    if (more.empty()) continue;
    ++offered;
    CAPTURE(line);
    std::vector<std::string> again = arguments;
    again.insert(again.end(), more.begin(), more.end());
    const ProgramRun run = run_program(again);
    CHECK_MESSAGE(run.status == 0, run.err);
  }
  return offered;
}

// Llama-3 8B on eight H100, whose states alone are more than a device has: 15.0 GiB of weights, 29.9 of fp32 gradients,
// 89.7 of Adam's, an eighth of that with ZeRO-1.
std::string write_8b(const ScratchFolder& folder, const std::string& zero, const std::string& plan) {
  std::ofstream(folder.path("8b.yaml"))
      << "model: {hf: llama3-8b, sequence_length: 8192}\n"
         "cluster: {node: {devices: 8, device: h100-sxm-80g, links: {kind: nvswitch, bandwidth: 450 GB/s}}}\n"
         "training: {global_batch_size: 128, micro_batch_size: 2, precision: bf16, gradient_precision: fp32, "
         "optimizer: "
         "adam, zero: "
      << zero << "}\nplan: " << plan << "\n";
  return folder.path("8b.yaml");
}

}  // namespace

TEST_CASE("simulate tells devices without work in its text, in Markdown and in JSON") {
  ScratchFolder folder;
  const std::string markdown = folder.path("report.md");
  const std::vector<std::string> three{"simulate", "scenarios/quickstart.yaml", "--set", "plan.stages=3"};
  std::vector<std::string> to_file = three, to_json = three;
  to_file.insert(to_file.end(), {"-o", markdown});
  to_json.push_back("--json");
  const std::string told = "1 of 4 devices has nothing to do";
  to_file.insert(to_file.end(), {"--width", "300"});
  const std::string out = run_program(to_file).out;
  CHECK(contains(out.substr(0, out.find('\n')), " · " + told));
  CHECK(contains(file_text(markdown), " · " + told + "**\n"));
  const json document = json::parse(run_program(to_json).out);
  CHECK(document["idle_devices"] == 1);
  CHECK(document["unused_classes"].empty());
  const std::string all_four = run_program({"simulate", "scenarios/quickstart.yaml"}).out;
  CHECK_FALSE(contains(all_four, "nothing to do"));
}

TEST_CASE("what makes an 8B model fit is recomputation, and with whole states on every device ZeRO-1, too") {
  ScratchFolder folder;
  const std::string dp8 = "{stages: 1, data_parallel: 8}";
  const std::string sharded = run_program({"simulate", write_8b(folder, "1", dp8)}).out;
  const auto blocks = sharded.find("  recompute: blocks needs 73.4 GiB, "),
             knapsack = sharded.find("  recompute: knapsack needs ");
  REQUIRE(blocks != std::string::npos);
  CHECK(knapsack < blocks);  // the fastest first
  CHECK_FALSE(contains(sharded, "nothing that was tried"));
  CHECK(paste_all("simulate", {folder.path("8b.yaml"), {}}) == 2);
  // As many more micro-batches of the same size change nothing, of which a few tell what is hopeless.
  CHECK(contains(run_program({"simulate", folder.path("8b.yaml"), "--set", "training.global_batch_size=8192"}).out,
                 "  recompute: blocks needs 73.4 GiB, "));
  // No single change suffices: the first pair that does, and of less memory three together.
  const auto remedies = [&](const std::string& memory) {
    const Asked asked{folder.path("8b.yaml"), {"cluster.node.device.memory=" + memory}};
    CHECK(paste_all("simulate", asked) == 1);
    return run_program(with_set("simulate", asked)).out;
  };
  CHECK(contains(remedies("60GiB"), "  gradient_precision: bf16 and recompute: "));
  CHECK(
      contains(remedies("50GiB"), "  gradient_precision: bf16 and micro_batch_size: 1 and recompute: knapsack needs "));
  write_8b(folder, "0", dp8);
  CHECK(contains(remedies("80GiB"), ": --set training.zero=1 --set plan.recompute=knapsack\n"));
}

TEST_CASE("where no plan fits by one open field, plan tells what fits with several") {
  ScratchFolder folder;
  const std::string file = write_8b(folder, "0", "{stages: 1, data_parallel: 8, schedule: {auto: [1f1b]}}");
  CHECK(contains(run_program({"plan", file}).out,
                 ": --set plan.recompute=auto --set training.zero=auto --set training.micro_batch_size=auto\n"));
  CHECK(contains(run_program({"plan",
                              write_8b(folder, "1",
                                       "{stages: 1, data_parallel: 8, schedule: {auto: [1f1b]}, "
                                       "recompute: blocks}"),
                              "--set", "cluster.node.device.memory=60GiB"})
                     .out,
                 "  with training.gradient_precision: bf16: PP1 DP8, "));
}

// All formats that have warnings; the ranking's JSON has them for all its plans.
TEST_CASE("a model with experts is warned of: they are priced without an exchange") {
  ScratchFolder folder;
  const std::string told = "experts are priced without an exchange of tokens";
  const Asked mixtral{
      "scenarios/what_if/mixtral-8x7b.yaml",
      {"plan={stages: {auto: [8]}, tensor_parallel: 8}", "training.micro_batch_size=1", "training.zero=0"}};
  Asked fixed = mixtral;
  fixed.set[0] = "plan={stages: 8, tensor_parallel: 8}";
  const auto all_of = [&](const char* command, const Asked& asked) {
    std::vector<std::string> to_files = with_set(command, asked);
    to_files.insert(to_files.end(), {"-o", folder.path("r.md"), "-o", folder.path("r.html")});
    CHECK(contains(run_program(to_files).out, "\nwarning: " + told));
    CHECK(contains(file_text(folder.path("r.md")), "arning: " + told));
    CHECK(contains(file_text(folder.path("r.html")), told));
    std::vector<std::string> to_json = with_set(command, asked);
    to_json.push_back("--json");
    const json document = json::parse(run_program(to_json).out);
    return std::string(document.at("warnings").at(0));
  };
  CHECK(contains(all_of("simulate", fixed), told));
  CHECK(contains(all_of("plan", mixtral), "plan.expert_parallel divides them among devices"));
  // No experts, or times that are stated: nothing to warn of.
  fixed.set.push_back("model={hf: mistral-7b, sequence_length: 4096}");
  CHECK_FALSE(contains(run_program(with_set("simulate", fixed)).out, told));
  fixed.set.back() = "cost={uniform: {forward: 1 ms, backward: 2 ms}}";
  CHECK_FALSE(contains(run_program(with_set("simulate", fixed)).out, told));
}

TEST_CASE("simulate and plan tell a class of devices of which none is used") {
  const Asked on_new{"scenarios/what_if/old-and-new.yaml",
                     {"plan={partition: suffix_dp, schedule: 1f1b}", "cluster.other_nodes.old.device.memory=1 GiB"}};
  const std::string told = "8 of 16 devices have nothing to do: all 8 v100-sxm2-32g";
  std::vector<std::string> simulate = with_set("simulate", on_new), plan = with_set("plan", on_new);
  for (std::vector<std::string>* each : {&simulate, &plan})
    each->insert(each->end(), {"--width", "400"});
  const ProgramRun simulated = run_program(simulate);
  const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  CHECK(contains(first_line(simulated.out), " · " + told));
  CHECK(contains(first_line(run_program(plan).out), " · in the best plan " + told));
  for (std::vector<std::string>* each : {&simulate, &plan}) {
    each->push_back("--json");
    const json document = json::parse(run_program(*each).out);
    CHECK(document["idle_devices"] == 8);
    CHECK(document["unused_classes"] == json{"v100-sxm2-32g"});
  }
}

// 2^24 micro-batches are too many to simulate, and 20 % faster than four: 2^24 + 1 times 3 ns.
TEST_CASE("plan counts layouts that are too large to simulate in its bound, and says why they are") {
  ScratchFolder folder;
  std::ofstream(folder.path("planted.yaml")) << R"(version: 1
name: planted
model:
  layers:
    - {name: a, repeat: 2, forward: 1 ns, backward: 2 ns, activation: 0 B, stash: 0 B, parameters: 0}
cluster: {node: {devices: 2, device: {memory: 1 GiB}, links: {kind: ideal}}}
training: {global_batch_size: 16777216, micro_batch_size: {auto: [1, 4194304]}}
plan: {stages: 2, schedule: 1f1b, partition: balanced}
)";
  const ProgramRun text = run_program({"plan", folder.path("planted.yaml"), "--width", "200"});
  CHECK(contains(text.out,
                 "gap 25.00 %: 2.667e+08 samples/s, and no plan in the search space can be faster than 3.333e+08"));
  CHECK(contains(text.out, "1 not simulated, their bounds are in the one above: training.micro_batches: 16777216 on"));
  CHECK_FALSE(contains(text.out, " refused"));
  const json document = json::parse(run_program({"plan", folder.path("planted.yaml"), "--json"}).out);
  CHECK_FALSE(document["proven"]);
  CHECK(document["bound"].get<double>() <= 16777217.0 * 3e-9 / 16777216.0);
  CHECK(document["searched"]["refused"].empty());
  CHECK(document["searched"]["not_simulated"].size() == 1);
}

TEST_CASE("plan on several classes ranks plans with the class of every stage, and writes one that simulate takes") {
  ScratchFolder folder;
  const std::string path = folder.path("plan.yaml");
  const ProgramRun found = run_program({"plan", "scenarios/what_if/old-and-new.yaml", "--json", "-o", path});
  CAPTURE(found.err);
  REQUIRE(found.status == 0);
  const json best = json::parse(found.out)["plans"][0];
  CHECK(best["classes"].size() == best["replicas"].size());
  const ProgramRun asked = run_program({"simulate", "scenarios/what_if/old-and-new.yaml", "--json"});
  const ProgramRun again = run_program({"simulate", path, "--json"});
  CHECK(json::parse(again.out)["samples_per_s"] == best["samples_per_s"]);
  // The program that cuts for `simulate` asks for less memory to be left: its plan may be a little faster.
  const double alone = json::parse(asked.out)["samples_per_s"], ranked = best["samples_per_s"];
  CHECK(alone == doctest::Approx(ranked).epsilon(0.02));
  CHECK(run_program({"check", path}).status == 0);
}

TEST_CASE("plan: no two rows of a ranking with replicas are alike") {
  const ProgramRun run = run_program({"plan", "scenarios/pipedream/vgg16-15-1.yaml", "--set",
                                      "plan={replicas: auto, schedule: auto}", "--top", "8", "--json"});
  REQUIRE(run.status == 0);
  const json document = json::parse(run.out);
  std::vector<json> rows;
  for (const json& plan : document["plans"]) {
    const json row{plan["replicas"], plan["schedule"], plan["micro_batch_size"], plan["recompute"]};
    CHECK(std::find(rows.begin(), rows.end(), row) == rows.end());
    rows.push_back(row);
  }
  CHECK(rows.size() > 4);
}

TEST_CASE("plan: auto and one field beside it: what auto opens stays open, but for that one") {
  const auto layouts = [](const std::vector<std::string>& set) {
    std::vector<std::string> arguments = with_set("plan", {"scenarios/quickstart.yaml", set});
    arguments.push_back("--json");
    const ProgramRun run = run_program(arguments);
    CAPTURE(run.err);
    REQUIRE(run.status == 0);
    return json::parse(run.out);
  };
  const json all = layouts({"plan=auto"}), four = layouts({"plan=auto", "plan.stages=4"});
  CHECK(four["searched"]["layouts"] < all["searched"]["layouts"]);
  for (const json& plan : four["plans"])
    CHECK(plan["stages"] == 4);
  CHECK(four["plans"][0]["virtual_stages"] > 1);  // still open
  CHECK(layouts({"plan=auto", "plan.order=graph"})["layer_order"] != "");
  CHECK(layouts({"plan=auto", "plan.recompute=full"})["plans"][0]["recompute"][0] == "full");
}

TEST_CASE("What simulate and plan offer with --set is taken when pasted, and fits") {
  const std::string quickstart = "scenarios/quickstart.yaml", llama = "scenarios/megatron/llama3-70b-64xh100.yaml";
  const std::string small = "cluster.node.device.memory=1941 MiB";
  int offered = 0;
  offered += paste_all("simulate", {quickstart, {}});
  offered += paste_all("simulate", {quickstart, {small}});
  offered += paste_all("simulate", {quickstart, {small, "plan.stages=2", "training.micro_batches=4"}});
  offered += paste_all("simulate", {quickstart, {small, "plan={stages: 2, partition: {cuts: [12]}, schedule: gpipe}"}});
  offered +=
      paste_all("simulate", {quickstart, {small, "plan={stages: 2, recompute: [none, full], placement: [0, 2]}"}});
  offered += paste_all("simulate", {quickstart, {small, "plan={partition: suffix_dp, schedule: pipedream}"}});
  offered += paste_all("simulate", {"scenarios/what_if/hops-1f1b.yaml", {}});
  offered += paste_all("plan", {quickstart, {small, "plan={stages: 2, data_parallel: auto}"}});
  offered += paste_all("plan", {quickstart, {"cluster.node.device.memory=1401 MiB", "plan=auto"}});
  offered += paste_all("plan", {llama, {"plan={stages: 1, tensor_parallel: auto}"}});
  CHECK(offered > 12);
}

}  // namespace pipewright::tests
