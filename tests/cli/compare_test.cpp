// `compare` as a user meets it: scenarios, result documents, files, refusals.
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

void put_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST_CASE("The same scenario twice is not a difference, and neither is its result document") {
  const ScratchFolder folder;
  CHECK(run_program({"simulate", kQuickstart, "-o", folder.path("a.json")}).status == 0);
  for (const auto& [a, b] : {std::pair{kQuickstart, kQuickstart}, std::pair{kQuickstart, folder.path("a.json")},
                             std::pair{folder.path("a.json"), folder.path("a.json")}}) {
    const ProgramRun run = run_program({"compare", a, b});
    CHECK(run.status == 0);
    CHECK(run.err == "");
    CHECK(contains(run.out, "no difference: the inputs and all figures are the same"));
  }
}

TEST_CASE("A change of one side is named, and the figures are those that simulate gives") {
  const ProgramRun run =
      run_program({"compare", kQuickstart, kQuickstart, "--set-b", "training.micro_batches=16", "--json"});
  REQUIRE(run.status == 0);
  const auto document = nlohmann::json::parse(run.out);
  CHECK(document.at("schema") == "pipewright.comparison/1");
  CHECK(document.at("same") == false);
  CHECK(document.at("all_inputs") == true);
  REQUIRE(document.at("inputs").size() == 1);
  CHECK(document.at("inputs").at(0) == nlohmann::json{{"key", "training.micro_batches"}, {"a", "8"}, {"b", "16"}});
  const auto step = document.at("figures").at(0);
  CHECK(step.at("what") == "step time");
  CHECK(step.at("a").get<double>() == 0.0346);
  const ProgramRun alone = run_program({"simulate", kQuickstart, "--json", "--set", "training.micro_batches=16"});
  CHECK(step.at("b") == nlohmann::json::parse(alone.out).at("step_time_s"));
  double shares_a = 0, shares_b = 0;
  for (const auto& share : document.at("time_shares")) {
    shares_a += share.at("a").get<double>();
    shares_b += share.at("b").get<double>();
  }
  CHECK(shares_a == doctest::Approx(1));
  CHECK(shares_b == doctest::Approx(1));
}

TEST_CASE("Predicted step times have their 90 % intervals, and stated ones have none") {
  const std::string llama = "scenarios/what_if/llama3-70b.yaml", slower = "cluster.network.bandwidth=25Gb/s";
  const auto document =
      nlohmann::json::parse(run_program({"compare", llama, llama, "--set-b", slower, "--json"}).out).at("figures");
  const auto of = [&](const std::vector<std::string>& asked) {
    return nlohmann::json::parse(run_program(asked).out).at("interval_90");
  };
  const auto a = of({"simulate", llama, "--json"}), b = of({"simulate", llama, "--json", "--set", slower});
  CHECK(document.at(1) ==
        nlohmann::json{{"what", "of it, 90 % from"}, {"a", a.at("step_time_low_s")}, {"b", b.at("step_time_low_s")}});
  CHECK(document.at(2) ==
        nlohmann::json{{"what", "of it, 90 % to"}, {"a", a.at("step_time_high_s")}, {"b", b.at("step_time_high_s")}});
  CHECK_FALSE(
      contains(run_program({"compare", kQuickstart, kQuickstart, "--set-b", "training.micro_batches=16"}).out, "90 %"));
}

// 11 (f + b) + 16 c = 34.6 ms in cells of 500 us: 69 of them; GPipe's 33.6 ms are 67.
TEST_CASE("Timelines stand on one scale: the shorter run has the shorter rows") {
  const ProgramRun run = run_program({"compare", kQuickstart, kQuickstart, "--set-b", "plan.schedule=gpipe"});
  REQUIRE(run.status == 0);
  CHECK(contains(run.out,
                 "  stage 0 ▕00112233.............aaaa44bbbb55.cccc66dddd77eeee..ffff...gggg..hhhh▏ busy 69 %\n"));
  CHECK(
      contains(run.out, "  stage 0 ▕0011223344556677...................hhhhggggffffeeeeddddccccbbbbaaaa▏ busy 71 %\n"));
  CHECK(contains(run.out, "1 character = 500 us"));
}

TEST_CASE("A result document has no timeline, and it is said where it is missed") {
  const ScratchFolder folder;
  run_program({"simulate", kQuickstart, "-o", folder.path("a.json")});
  const ProgramRun run = run_program({"compare", folder.path("a.json"), "scenarios/what_if/naive.yaml"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "no timelines: a result document has none"));
  CHECK(contains(run.out, "compared is what the result document tells of scenario and plan"));
  CHECK(contains(error_of({"compare", folder.path("a.json"), kQuickstart, "-o", folder.path("x.svg")}),
                 "which has no timeline to draw; name its scenario instead"));
  CHECK(folder.files() == std::vector<std::string>{"a.json"});
}

TEST_CASE("The drawing has both schedules on one time axis, Markdown and JSON the same figures") {
  const ScratchFolder folder;
  const ProgramRun run =
      run_program({"compare", "scenarios/what_if/hops-1f1b.yaml", "scenarios/what_if/hops-gpipe.yaml", "-o",
                   folder.path("c.svg"), "-o", folder.path("c.md"), "-o", folder.path("c.json")});
  CHECK(run.status == 0);
  const std::string svg = file_text(folder.path("c.svg"));
  CHECK(contains(svg, ">A: 8 stages"));
  CHECK(contains(svg, ">B: 8 stages"));
  CHECK(contains(file_text(folder.path("c.md")), "| step time | 250.2 ms | 217.2 ms | -13.2 % |"));
  CHECK(nlohmann::json::parse(file_text(folder.path("c.json"))).at("same") == false);
}

TEST_CASE("Plans that do not fit are compared all the same") {
  const ProgramRun run =
      run_program({"compare", kQuickstart, kQuickstart, "--set-b", "cluster.node.device.memory=1000 MiB"});
  CHECK(run.status == 0);
  CHECK(contains(run.out, "B does not fit: "));
  CHECK(contains(run.out, "cluster.node.device.memory"));
}

TEST_CASE("compare refuses what it cannot compare, with a way out") {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& text) {
    put_text(folder.path("x.json"), text);
    return error_of({"compare", folder.path("x.json"), kQuickstart});
  };
  CHECK(contains(refused("{"), "x.json:1:2: not valid JSON: it ends within a value"));
  CHECK(contains(refused("[]"), "is not a pipewright.result/1 document; write one with pipewright simulate"));
  CHECK(contains(refused("{\"schema\": 3}"), "is not a pipewright.result/1 document"));
  CHECK(contains(refused("{\"schema\": \"pipewright.capacity/1\"}"), "is not a pipewright.result/1 document"));
  CHECK(contains(refused("{\"schema\": \"pipewright.result/1\", \"fits\": false}"), "the plan did not fit"));
  CHECK(contains(refused("{\"schema\": \"pipewright.result/1\", \"stages\": []}"),
                 "x.json: scenario is missing; this is not a whole pipewright.result/1 document"));
  CHECK(contains(error_of({"compare", kQuickstart}), "an argument is missing"));
  CHECK(contains(error_of({"compare", kQuickstart, "nowhere.yaml"}), "nowhere.yaml"));
  CHECK(contains(error_of({"compare", "-", "-"}), "standard input can be one side only"));
  CHECK(contains(error_of({"compare", kQuickstart, kQuickstart, "-o", kQuickstart}), "is read by this command"));
  CHECK(contains(error_of({"compare", kQuickstart, kQuickstart, "-o", "x.png"}), "known: .html, .json, .md, .svg"));
  CHECK(contains(error_of({"compare", kQuickstart, kQuickstart, "--set-b", "plan.stagse=3"}), "did you mean"));
  put_text(folder.path("x.json"), run_program({"simulate", kQuickstart, "--json"}).out);
  CHECK(contains(error_of({"compare", folder.path("x.json"), kQuickstart, "--set-a", "plan.stages=3"}),
                 "is a result, in which nothing can be changed"));
}

}  // namespace
}  // namespace pipewright::tests
