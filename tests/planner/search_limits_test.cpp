// What a search is kept to: values of fields, nodes, time; and what it says when it ends early.
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "planner/search/explain.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/small_spaces.hpp"
#include "tests/support/family_model.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright;

TEST_CASE("fields that are restricted take the values listed and no others") {
  Scenario scenario = uniform_scenario({.layers = 4, .devices = 1, .stages = 1, .micro_batches = 64});
  open(scenario, {"stages"});
  const auto schedules = [&](std::vector<std::string> among) {
    scenario.plan.open["schedule"].among = std::move(among);
    std::vector<std::string> found;
    for (const Layout& layout : all_layouts(scenario))
      found.push_back(layout.schedule);
    return found;
  };
  // With one stage gpipe holds all micro-batches, and interleaved_1f1b is none.
  CHECK(schedules({"gpipe", "1f1b"}) == std::vector<std::string>{"1f1b"});
  CHECK(schedules({"interleaved_1f1b", "1f1b"}) == std::vector<std::string>{"1f1b"});
  CHECK(schedules({"gpipe"}) == std::vector<std::string>{"gpipe"});
  CHECK(schedules({"interleaved_1f1b"}).empty());
  CHECK(refusal_of(scenario).find("takes two stages or more") != std::string::npos);
  CHECK(schedules({"pipedream", "1f1b"}) == std::vector<std::string>{"pipedream", "1f1b"});
  open(scenario, {"partition"});
  scenario.plan.open["partition"].among = {"balanced"};
  CHECK(refusal_of(scenario).find("plan.partition: auto is every cut and takes no list") != std::string::npos);

  Scenario family = uniform_scenario({.layers = 3, .devices = 2, .stages = 1, .micro_batches = 4});
  family.model = family_model(
      "gpt", {{"layers", "2"}, {"hidden", "32"}, {"heads", "4"}, {"sequence_length", "32"}, {"vocabulary", "64"}});
  open(family, {"tensor_parallel", "sequence_parallel"});
  family.plan.open["sequence_parallel"].among = {"false"};
  for (const Layout& layout : all_layouts(family))
    CHECK(!layout.sequence_parallel);
}

TEST_CASE("a space too large to list says so, and a layout longer than time can count is left out") {
  Scenario scenario = uniform_scenario({.layers = 1000, .devices = 1 << 18, .stages = 1, .micro_batches = 4});
  scenario.training.global_batch_size = Placed<std::int64_t>{1'000'000'000, {}};
  scenario.training.micro_batch_size.reset(), scenario.training.micro_batches.reset();
  open(scenario, {"stages", "data_parallel"}, {"micro_batch_size"});
  CHECK(refusal_of(scenario).find("combinations of stages, copies") != std::string::npos);

  Scenario slow = uniform_scenario({.layers = 4, .devices = 4, .stages = 1, .micro_batches = 4});
  for (Layer& layer : slow.model.layers)
    layer.forward = Time{std::int64_t{1} << 58}, layer.backward = Time{std::int64_t{1} << 58};
  slow.training.global_batch_size = Placed<std::int64_t>{4, {}};
  slow.training.micro_batches.reset();
  slow.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  open(slow, {"stages", "data_parallel", "schedule"});
  const auto result = search(slow);
  const auto* answer = std::get_if<SearchAnswer>(&result);
  REQUIRE(answer != nullptr);
  std::int64_t refused = 0;
  for (const auto& [reason, count] : answer->refused)
    refused += count;
  CHECK(refused >= 1);
  CHECK(answer->evaluated + answer->bounded + answer->too_large + answer->not_reached + refused == answer->layouts);
}

TEST_CASE("an interrupted search answers with what it has, and says so") {
  std::mt19937 random(12);
  Scenario scenario = random_scenario(random, 8, 4);
  scenario.cluster.device.memory.value *= 4;
  open(scenario, {"stages", "data_parallel", "recompute", "schedule"}, {"micro_batch_size"});
  int asked = 0;
  const auto result = search(scenario, {.top = 1, .stop = [&] { return ++asked > 12; }});
  REQUIRE(std::holds_alternative<SearchAnswer>(result));
  const auto& answer = std::get<SearchAnswer>(result);
  CHECK(answer.ended == "interrupted");
  CHECK(answer.bound <= answer.plans.front().value);
}

// Whenever it comes, and though what is looked at first does not fit.
TEST_CASE("a search that ends before it has a plan says that it has none yet, never that none fits") {
  std::mt19937 random(12);
  Scenario scenario = random_scenario(random, 8, 4);
  scenario.cluster.device.memory = Bytes{scenario.cluster.device.memory.value / 3};
  open(scenario, {"stages", "data_parallel", "recompute", "schedule"}, {"micro_batch_size"});
  int plans = 0, none = 0, misses = 0;
  for (int most = 0; plans < 3; ++most) {
    int asked = 0;
    const auto result = search(scenario, {.top = 1, .stop = [&] { return ++asked > most; }});
    if (std::holds_alternative<SearchAnswer>(result)) {
      ++plans;
      continue;
    }
    REQUIRE(std::holds_alternative<NoPlanYet>(result));
    const auto& yet = std::get<NoPlanYet>(result);
    ++none;
    if (!yet.details.empty()) ++misses;
    CHECK(yet.ended == "interrupted");
    CHECK(in_words(yet).starts_with("no plan found yet: an interrupt (Ctrl-C or SIGTERM) ended the search after "));
  }
  CHECK(none >= 1);
  CHECK(misses >= 1);
  const auto late = search(scenario, {.time_limit = 0});
  REQUIRE(std::holds_alternative<NoPlanYet>(late));
  CHECK(
      in_words(std::get<NoPlanYet>(late)).starts_with("no plan found yet: the time limit ended the search after 0 of"));
}

TEST_CASE("progress is told of every kind of work, in its order, and never more is done than there is") {
  std::mt19937 random(12);
  Scenario scenario = random_scenario(random, 8, 4);
  open(scenario, {"stages", "data_parallel", "recompute", "schedule"}, {"micro_batch_size"});
  std::vector<std::string> kinds;
  std::map<std::string, std::set<std::int64_t>> counts;
  SearchOptions options{.top = 3, .gap = 0};
  options.progress = [&](const Progress& now) {
    if (kinds.empty() || kinds.back() != now.what) kinds.emplace_back(now.what);
    counts[kinds.back()].insert(now.done);
    CHECK(now.done <= now.all);
    CHECK(now.done >= 0);
  };
  auto found = search(scenario, options);
  REQUIRE(std::holds_alternative<SearchAnswer>(found));
  REQUIRE(kinds.size() >= 3);
  CHECK(kinds[0] == "layouts");
  CHECK(kinds[1] == "cuts");
  CHECK(kinds[2] == "plans");
  CHECK(counts["cuts"].size() >= 3);
  kinds.clear();
  explain_bandwidth(scenario, options, std::get<SearchAnswer>(found));
  CHECK(kinds == std::vector<std::string>{"flips"});
  CHECK(counts["flips"].size() >= 10);
  kinds.clear();
  scenario.cluster.device.memory = Bytes{1000};
  CHECK(std::holds_alternative<Infeasible>(search(scenario, options)));
  CHECK(kinds.back() == "changes");
}

TEST_CASE("plans of whole nodes: devices of one, or all of several") {
  Scenario scenario = uniform_scenario({.layers = 12, .devices = 4, .stages = 1, .micro_batches = 8});
  scenario.cluster.nodes = 3;
  scenario.cluster.network = Network{};
  open(scenario, {"stages", "data_parallel"});
  std::set<int> any, whole;
  for (const LayoutGroup& group : layouts_of(scenario).groups)
    any.insert(group.first.devices());
  for (const LayoutGroup& group : layouts_of(scenario, {.whole_nodes = true}).groups)
    whole.insert(group.first.devices());
  CHECK(any.contains(6));
  CHECK(whole == std::set<int>{1, 2, 3, 4, 8, 12});
  CHECK(layouts_of(scenario, {.whole_nodes = true})
            .left_out.contains("devices that do not fill the last of their nodes"));
}
