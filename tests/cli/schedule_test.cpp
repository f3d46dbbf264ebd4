// `schedule` as a user meets it: the table, the order as a file that simulate takes, exit statuses, refusals.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

ProgramRun asked(std::vector<std::string> more) {
  more.insert(more.begin(), {"schedule", kQuickstart, "--evaluations", "500"});
  return run_program(more);
}

nlohmann::json found(std::vector<std::string> more) {
  more.emplace_back("--json");
  const ProgramRun run = asked(std::move(more));
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  return nlohmann::json::parse(run.out);
}

TEST_CASE("What schedule finds, simulate runs: as fast as it said, and no slower than a schedule with a name") {
  const ScratchFolder folder;
  const std::string file = folder.path("my.schedule.csv");
  const auto answer = found({"--memory-cap", "1.5x", "-o", file});
  CHECK(answer.at("schema") == "pipewright.found-order/1");
  const ProgramRun run = run_program({"simulate", kQuickstart, "--schedule", file, "--json"});
  REQUIRE(run.status == 0);
  const auto simulated = nlohmann::json::parse(run.out);
  CHECK(simulated.at("step_time_s").get<double>() ==
        doctest::Approx(1e-9 * answer.at("simulated_step_ns").get<double>()).epsilon(1e-9));
  for (const auto& row : answer.at("orders")) {
    CHECK(row.at("step_ns").get<std::int64_t>() >= answer.at("orders").at(0).at("step_ns").get<std::int64_t>());
    CHECK(row.at("step_ns").get<std::int64_t>() >= answer.at("bound_ns").get<std::int64_t>());
    CHECK(row.at("in_flight").get<double>() <= 6);
  }
}

// The words of a command line, quoted by ' where they hold spaces.
std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : command) {
    if (c == '\'')
      quoted = !quoted;
    else if (c == ' ' && !quoted)
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

TEST_CASE("The command that schedule prints simulates the same plan, with its cut and its changes") {
  const ScratchFolder folder;
  const std::string file = folder.path("v.schedule.csv");
  const ProgramRun run =
      run_program({"schedule", kQuickstart, "--evaluations", "500", "--json", "-o", file, "--set", "plan.schedule=zbv",
                   "--set", "plan.virtual_stages=2", "--set", "plan.recompute=full"});
  REQUIRE(run.status == 0);
  const std::size_t from = run.err.find("pipewright simulate "), to = run.err.rfind(')');
  REQUIRE(from != std::string::npos);
  std::vector<std::string> words = words_of(run.err.substr(from, to - from));
  CHECK(contains(run.err, "plan.partition={layers: ["));
  words.erase(words.begin());
  words.emplace_back("--json");
  const ProgramRun simulated = run_program(words);
  CAPTURE(simulated.err);
  REQUIRE(simulated.status == 0);
  CHECK(nlohmann::json::parse(simulated.out).at("step_time_s").get<double>() ==
        doctest::Approx(1e-9 * nlohmann::json::parse(run.out).at("simulated_step_ns").get<double>()).epsilon(1e-9));
}

TEST_CASE("More memory never makes the order worse, and a search with the same seed says the same") {
  const auto answer = found({"--measure", "span", "--memory-cap", "1x", "--pareto"});
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  REQUIRE(answer.at("caps").size() >= 4);
  for (const auto& row : answer.at("caps")) {
    CHECK(row.at("value_ns").get<std::int64_t>() <= before);
    CHECK(row.at("value_ns").get<std::int64_t>() >= row.at("bound_ns").get<std::int64_t>());
    before = row.at("value_ns").get<std::int64_t>();
  }
  CHECK(asked({"--memory-cap", "2x"}).out == asked({"--memory-cap", "2x"}).out);
}

TEST_CASE("Room for activations: of the devices, of a size for each stage, and too little") {
  const ProgramRun table = asked({});
  CHECK(table.status == 0);
  CHECK(contains(table.out, "no order is better"));
  CHECK(contains(error_of({"schedule", kQuickstart, "--memory-cap", "16GiB,16GiB"}),
                 "--memory-cap: 2 sizes for 4 stages; write one for all, or one for each"));
  CHECK(asked({"--memory-cap", "16GiB,15GiB,14GiB,13GiB"}).status == 0);
  CHECK(contains(error_of({"schedule", kQuickstart, "--memory-cap", "0.2x"}), "use 0.25x or more"));
  CHECK(contains(error_of({"schedule", kQuickstart, "--memory-cap", "much"}),
                 "--memory-cap: \"much\" is neither a multiple nor a size; write e.g. 1.5x or 40GiB"));
}

TEST_CASE("What is not searched is refused, with a way out") {
  const auto refused = [](const std::string& set) { return error_of({"schedule", kQuickstart, "--set", set}); };
  CHECK(contains(refused("plan=auto"), "pipewright plan SCENARIO -o FILE.yaml"));
  CHECK(contains(error_of({"schedule", kQuickstart, "--set", "plan.schedule=chimera", "--set", "plan.pipelines=4"}),
                 "orders of more than two pipelines are not searched"));
  CHECK(contains(error_of({"schedule", "scenarios/schedules/chimera.yaml", "--set", "plan.pipelines=2", "--set",
                           "training.micro_batches=7"}),
                 "7 do not go both ways in equal numbers; use 8"));
  CHECK(contains(refused("plan.schedule=pipedream"), "has no flush"));
  CHECK(contains(error_of({"schedule", kQuickstart, "--measure", "bubble"}), "step, span"));
  CHECK(contains(error_of({"schedule", kQuickstart, "--kept-for-weights", "130%"}), "use 100% or less"));
  CHECK(contains(error_of({"schedule", kQuickstart, "--evaluations", "0"}), "--evaluations"));
}

TEST_CASE("A time limit ends the search and says so") {
  const ProgramRun run = run_program({"schedule", "scenarios/zero_bubble/14.6b-p16.yaml", "--set",
                                      "training.micro_batches=24", "--memory-cap", "0.6x", "--measure", "span",
                                      "--evaluations", "1000000000", "--time-limit", "300ms"});
  CHECK(contains(run.err, "the time limit ended the search after"));
  CHECK(contains(run.out, "the search was ended early"));
}

}  // namespace
}  // namespace pipewright::tests

TEST_CASE("schedule: plan.most_in_flight is the room, unless a cap is asked for; the order is simulated without it") {
  const Scratch scratch;
  for (const char* scenario : {"search", "zb_auto", "v_auto"})
    for (const std::vector<std::string>& cap : {std::vector<std::string>{}, {"--memory-cap", "1.5x"}}) {
      CAPTURE(scenario);
      std::vector<std::string> arguments = {"schedule",
                                            std::string("scenarios/schedules/") + scenario + ".yaml",
                                            "--evaluations",
                                            "300",
                                            "-o",
                                            scratch.path("x.schedule.csv")};
      arguments.insert(arguments.end(), cap.begin(), cap.end());
      const ProgramRun run = run_program(arguments);
      CHECK(run.status == 0);
      CHECK(contains(run.err, "--set plan.most_in_flight=null"));
    }
}
