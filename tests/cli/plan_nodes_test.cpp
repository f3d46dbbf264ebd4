// `plan --nodes` as a user runs it.
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

using namespace pipewright::tests;

namespace {

// A slow or busy machine reaches the gap, too: what is checked is where a search ends, not when.
ProgramRun plan_llama(std::vector<std::string> more) {
  more.insert(more.begin(), {"plan", kLlama, "--gap", "30%", "--time-limit", "10min"});
  return run_program(more);
}

}  // namespace

TEST_CASE("plan --nodes: a row per number of nodes, in every form, and the answers" *
          doctest::test_suite("whole searches")) {
  ScratchFolder folder;
  const std::vector<std::string> ask = {"--nodes", "1,2", "--tokens", "1T", "--price", "2", "--width", "1000"};
  std::vector<std::string> all = ask;
  for (const char* name : {"a.html", "a.json", "a.csv", "a.md"})
    all.insert(all.end(), {"-o", folder.path(name)});
  const ProgramRun run = plan_llama(all);
  CHECK(run.status == 0);
  CHECK(contains(run.out, "smallest on which a plan fits: 2 nodes (16 devices)"));
  CHECK(contains(run.out, "no plan on 1 node: no plan fits with 95 %: "));
  CHECK(run.out.find("next          pipewright plan ") != std::string::npos);
  CHECK(run.out.ends_with(" --price 2 --set cluster.nodes=2 --time-limit 10min --tokens 1T -o plan.yaml\n"));
  const auto document = nlohmann::json::parse(file_text(folder.path("a.json")));
  CHECK(document["schema"] == "pipewright.sizing/1");
  CHECK(document["smallest_nodes"] == 2);
  CHECK(document["rows"][0]["outcome"] == "does_not_fit");
  CHECK(document["rows"][0]["plan"].is_null());
  CHECK(document["rows"][1]["days"] == document["rows"][1]["plan"]["campaign"]["days"]);
  CHECK(file_text(folder.path("a.csv")).starts_with("nodes,devices,outcome,plan,"));
  CHECK(file_text(folder.path("a.md")).find("- smallest on which a plan fits: 2 nodes") != std::string::npos);
  const std::string page = file_text(folder.path("a.html"));
  for (const char* part : {"smallest that fits", "Samples per second of the best plan", "Days of the best plan",
                           "Cost of the best plan", "How it is known", "Made by"})
    CHECK_MESSAGE(page.find(part) != std::string::npos, part);
  const ProgramRun narrowed = plan_llama({"--nodes", "4", "--for", "deepspeed"});
  CHECK(narrowed.status == 0);
  CHECK(contains(narrowed.out, "searched for DeepSpeed only: schedule: 1f1b"));
}

TEST_CASE(
    "plan --nodes: days and cost are with failures where these are asked for, and no plan found yet is not proof" *
    doctest::test_suite("whole searches")) {
  ScratchFolder folder;
  const std::string csv = folder.path("a.csv");
  const ProgramRun run =
      plan_llama({"--nodes", "2,4", "--tokens", "1T", "--price", "2", "--mtbf", "5000 h", "--checkpoint", "60s",
                  "--restart", "10min", "--deadline", "1d", "--width", "1000", "-o", csv});
  CHECK(run.status == 1);
  // Behind the plan: its devices, seven figures, days, device-hours, cost.
  const std::string figures = file_text(csv).substr(file_text(csv).find("\",") + 2);
  std::vector<double> row;
  std::istringstream cells(figures.substr(0, figures.find('\n')));
  for (std::string cell; row.size() < 11 && std::getline(cells, cell, ',');)
    row.push_back(std::stod("0" + cell));
  REQUIRE(row.size() == 11);
  CHECK(row[9] == doctest::Approx(row[8] * 24 * row[0]));
  CHECK(row[10] == doctest::Approx(row[9] * 2));
  CHECK(contains(run.out, "days expected"));
  CHECK(contains(run.out, "cost expected"));
  CHECK(contains(run.out, "none of these is done in 1 day; the least are "));
  CHECK(contains(run.out, "smallest on which a plan fits: 2 nodes") == false);  // 1 was not asked
  CHECK(contains(run.out, "smallest tried on which a plan fits: 2 nodes"));
  CHECK(file_text(csv).find("smallest tried") != std::string::npos);
  CHECK(contains(run.out, "next          pipewright plan "));  // not one that misses the deadline
  CHECK(contains(run.out, " --nodes 5..16"));
  CHECK(contains(run.out, ", on 4 nodes"));
  const ProgramRun alike = plan_llama({"--nodes", "8,16", "--width", "1000"});
  CHECK(contains(alike.out, "device seconds per sample (within the gap of the search: 8, 16 nodes)"));
  const ProgramRun short_run = run_program({"plan", kLlama, "--nodes", "2", "--time-limit", "1ms"});
  if (!contains(short_run.out, "smallest on which"))
    CHECK(contains(short_run.out, "no plan found yet on up to 2 nodes"));
}

// Cuts into several chunks are tried, not searched: that of the least memory fits where those of least time do not.
TEST_CASE("plan --nodes: no plan fits only where plan on that cluster says so, too") {
  std::vector<std::string> ask = {
      "plan",  "scenarios/quickstart.yaml",
      "--set", "plan={stages: 4, virtual_stages: 3, schedule: interleaved_1f1b, partition: auto}",
      "--set", "cluster.node.device.memory=2977 MB"};
  CHECK(run_program(ask).status == 0);
  ask.insert(ask.end(), {"--nodes", "1"});
  const ProgramRun run = run_program(ask);
  CHECK(run.status == 0);
  CHECK(contains(run.out, "smallest on which a plan fits: 1 node (4 devices)"));
}

TEST_CASE("numbers of nodes that no cluster has are refused at once, with the most that there may be") {
  const auto refused = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "scenarios/quickstart.yaml", "--set", "plan=auto"});
    const ProgramRun run = run_program(more);
    CHECK(run.status == 2);
    return run.err;
  };
  CHECK(refused({"--nodes", "1000000"}).find("--nodes: 1000000 nodes are more than 262144; write fewer") !=
        std::string::npos);
  CHECK(refused({"--set", "cluster.nodes=1000000"})
            .find("1000000 nodes of 4 devices are more than 262144 devices; use at most 65536 nodes") !=
        std::string::npos);
}

TEST_CASE("plan --nodes: the command to go on with names a file where the scenario came on standard input") {
  const std::string text = file_text(source_folder() + "/scenarios/quickstart.yaml");
  const ProgramRun run = run_program({"plan", "-", "--set", "plan.partition=auto", "--nodes", "1"},
                                     {.folder = {}, .input = text, .output_to = {}, .settings = {}});
  CHECK(run.status == 0);
  CHECK_MESSAGE(contains(run.out, "next          pipewright plan scenario.yaml --set "), run.out);
  CHECK(run.out.ends_with(" -o plan.yaml    # scenario.yaml: a file with what was on standard input\n"));
}

TEST_CASE("plan --nodes --deadline: the days of the answer have the band of the efficiencies, in every form" *
          doctest::test_suite("whole searches")) {
  ScratchFolder folder;
  const auto ask = [&](const std::string& days) {
    return plan_llama({"--nodes", "2,4", "--tokens", "10G", "--deadline", days, "--width", "1000", "-o",
                       folder.path("a.json"), "-o", folder.path("a.html")});
  };
  CHECK(contains(ask("1000d").out, "): in time over all of it"));
  const auto document = nlohmann::json::parse(file_text(folder.path("a.json")));
  const auto& row = document["rows"][0];
  CHECK(document["in_time_nodes"] == 2);
  REQUIRE(row["days_low"].is_number());
  CHECK(row["days_low"] < row["days"]);
  CHECK(row["days"] < row["days_high"]);
  const std::string page = file_text(folder.path("a.html"));
  CHECK(page.find(" to ") < page.find("Samples per second of the best plan"));
  CHECK(page.find("engine: ") != std::string::npos);  // how it is known
  const double high = row["days_high"], middle = row["days"];
  CHECK(contains(ask(std::to_string((high + middle) / 2) + "d").out, "): in time at the central estimate only"));
  // A plan on 2 nodes that is faster than the one found: the gap leaves room for it.
  REQUIRE(row["gap"] > 0.01);
  const ProgramRun near = ask(std::to_string(middle * 0.999) + "d");
  CHECK(contains(near.out,
                 "fewer than 4 nodes are not excluded: the gaps of the searches leave room for plans on 1 to 3 nodes"));
}

TEST_CASE("plan --nodes: bad numbers, and options that go with one cluster only, are named with a way out") {
  const auto error = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan", "scenarios/quickstart.yaml", "--set", "plan=auto"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramRun run = run_program(arguments);
    CHECK(run.status == 2);
    CHECK(run.out.empty());
    return run.err;
  };
  for (const char* nodes : {"0", "4..2", "1,,2", "many", "1.5"})
    CHECK(contains(error({"--nodes", nodes}),
                   "does not say numbers of nodes; write auto, a list like 1,2,4,6 or a range"));
  CHECK(contains(error({"--nodes", "1,2"}), "2 nodes need cluster.network, which is missing"));
  CHECK(contains(error({"--set", "cluster.nodes=auto"}), "pipewright plan SCENARIO --nodes auto"));
  CHECK(contains(error({"--nodes", "1", "--pareto", "memory"}), "--pareto: is for one cluster"));
  CHECK(contains(error({"--nodes", "1", "-o", "plan.yaml"}), "--set cluster.nodes=N -o plan.yaml"));
  CHECK(
      contains(error({"--nodes", "1", "--objective", "cost"}), "--objective: cost: --nodes finds the plans of most "));
  CHECK(contains(error({"--nodes", "1", "--deadline", "soon"}),
                 "--deadline: \"soon\" is not a time above 0; write e.g. --deadline 30d"));
  CHECK(contains(error({"--nodes", "1", "--deadline", "30d"}), "--deadline: is met or missed by a whole training"));
}
