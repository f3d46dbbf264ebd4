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

using namespace pipewright::tests;

namespace {

std::int64_t sum_of(const std::map<std::string, std::int64_t>& by_reason) {
  std::int64_t sum = 0;
  for (const auto& [reason, count] : by_reason)
    sum += count;
  return sum;
}

// Every layout is counted under one reason.
void check_counts(const SearchAnswer& answer) {
  CHECK(answer.evaluated + answer.bounded + answer.too_large + sum_of(answer.refused) + answer.within_gap +
            answer.no_cut + sum_of(answer.not_simulated) + answer.not_reached ==
        answer.layouts);
}

}  // namespace

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
  CHECK(sum_of(answer->not_simulated) >= 1);
  check_counts(*answer);
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
  CHECK(answer.ended == Ended::Interrupted);
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
    CHECK(yet.ended == Ended::Interrupted);
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

// Equal stages on ideal links: T = (M + K - 1) t, so that the best of all layouts is known without simulating those of
// 2^23 micro-batches and more, which are more ops than a run may have. They are the fastest.
TEST_CASE("what is too large to be simulated stays in the bound, under its true reason") {
  constexpr std::int64_t kBatch = std::int64_t{1} << 24, kRefused = std::int64_t{1} << 23;
  for (const char* stages : {"1", "2", "4"}) {
    CAPTURE(stages);
    Scenario scenario = uniform_scenario({.layers = 4, .devices = 4, .stages = 1, .micro_batches = 4});
    for (Layer& layer : scenario.model.layers)
      layer.forward = Time{1}, layer.backward = Time{2}, layer.activation = {}, layer.stash = Bytes{};
    scenario.training.global_batch_size = Placed<std::int64_t>{kBatch, {}};
    scenario.training.micro_batch_size.reset(), scenario.training.micro_batches.reset();
    open(scenario, {"partition"});
    scenario.plan.open["schedule"].among = {"1f1b"};
    scenario.plan.open["stages"].among = {stages};
    scenario.training.open["micro_batch_size"].among = {"1", "2", "1048576", "2097152"};
    double best = std::numeric_limits<double>::infinity(), simulated = best;
    std::int64_t refused = 0;
    for (const Layout& layout : all_layouts(scenario)) {
      const std::int64_t time = 3 * (4 / layout.stages) * layout.micro_batch_size;
      const Time step{(layout.micro_batches + layout.stages - 1) * time};
      const double value = objective_value(Objective::Throughput, layout, scenario, step, {});
      best = std::min(best, value);
      if (layout.micro_batches >= kRefused)
        ++refused;
      else
        simulated = std::min(simulated, value);
    }
    CHECK(refused >= 2);
    const auto answer = std::get<SearchAnswer>(search(scenario, {.top = 1, .gap = 0}));
    CHECK(answer.plans.front().value == doctest::Approx(simulated).epsilon(1e-12));
    CHECK(answer.bound <= best * (1 + 1e-12));
    CHECK(answer.bound >= best * 0.8);
    CHECK(answer.refused.empty());
    REQUIRE(answer.not_simulated.size() == 1);
    CHECK(answer.not_simulated.begin()->first.starts_with("training.micro_batch"));
    CHECK(answer.not_simulated.begin()->second == refused);
    check_counts(answer);
    if (answer.bound < answer.plans.front().value)
      CHECK(answer.gap_left.starts_with("layouts that are too large to be simulated may be better (training.micro_"));
  }
}

TEST_CASE("lists that no layout matches have no plan, and leave the bound alone") {
  const auto refuse = [](const Scenario& scenario) {
    const auto answer = std::get<SearchAnswer>(search(scenario, {.top = 1, .gap = 0}));
    CHECK(answer.layouts == 4);
    CHECK(sum_of(answer.refused) >= 2);  // before the only plan is found
    CHECK(answer.not_simulated.empty());
    CHECK(answer.gap() == 0);
    check_counts(answer);
  };
  Scenario scenario = uniform_scenario({.layers = 4, .devices = 4, .stages = 1, .micro_batches = 4});
  open(scenario, {"stages"});
  scenario.plan.schedule.value = "1f1b";
  Scenario recomputed = scenario, replicated = scenario, cut = scenario;
  recomputed.plan.recompute.value = {Recompute::None, Recompute::Full};
  refuse(recomputed);
  replicated.plan.replicas.value = {1, 1, 1};
  refuse(replicated);
  cut.plan.partition.value = LayerCounts{{2, 2}};
  cut.origins["plan.partition"] = {};
  refuse(cut);
}

TEST_CASE("nothing is said to fit nowhere that was not simulated") {
  Scenario scenario = uniform_scenario({.layers = 2, .devices = 2, .stages = 2, .micro_batches = 4});
  scenario.training.global_batch_size = Placed<std::int64_t>{std::int64_t{1} << 24, {}};
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.training.micro_batches.reset();
  open(scenario, {"partition"});
  const auto result = search(scenario, {.remedies = false});
  REQUIRE(std::holds_alternative<Infeasible>(result));
  const auto& none = std::get<Infeasible>(result);
  CHECK_FALSE(none.known);
  CHECK(none.reason == "no layout can be simulated");
  REQUIRE(none.details.size() == 1);
  CHECK(none.details[0].starts_with("1 x training.micro_batch"));
}

// A fixed cut, and what a stage repeats is chosen: full recomputation runs while the gradient is on its way, so it may
// be faster than less of it that runs behind. The least of all is brute force.
TEST_CASE("of a fixed cut the recomputation that adds least is not said to be the best one") {
  std::mt19937 random(3);
  int fitting = 0;
  for (int i = 0; i < 12; ++i) {
    Scenario scenario = random_scenario(random, 6, 6);
    scenario.model.works.resize(1);
    scenario.plan.stages.value = 6;
    scenario.plan.partition.value = Balanced{};
    scenario.origins["plan.partition"] = {};
    scenario.cluster.device.memory = Bytes{scenario.cluster.device.memory.value / 5};
    open(scenario, {"schedule"});
    scenario.plan.open["schedule"].among = {"1f1b"};
    scenario.plan.open["recompute"].among = {"none", "knapsack", "full"};
    const auto result = search(scenario, {.top = 1, .gap = 0, .remedies = false});
    const auto* answer = std::get_if<SearchAnswer>(&result);
    if (answer == nullptr) continue;
    ++fitting;
    Layout layout = answer->plans.front().layout;
    double best = answer->plans.front().value;
    Plan plan = answer->plans.front().plan;
    for (int full = 0; full < 1 << 6; ++full) {
      for (StageId k = 0; k < 6; ++k)
        plan.recompute[k] = (full >> k & 1) != 0 ? Recompute::Full
                            : answer->plans.front().plan.recompute[k] == Recompute::Full
                                ? Recompute::None
                                : answer->plans.front().plan.recompute[k];
      const Scenario whole = settled(scenario, layout, &plan);
      const CostModel cost(whole);
      const Answer priced = price(find_plan(whole, cost), cost, Engine::Auto);
      if (priced.report.fits)
        best = std::min(best, objective_value(Objective::Throughput, layout, scenario, priced.report.step_time, {}));
    }
    CHECK(answer->bound <= best * (1 + 1e-12));
  }
  CHECK(fitting >= 3);
}

TEST_CASE("with a gap of 20 % layouts that may be better are counted as such, and the bound is theirs") {
  std::mt19937 random(12);
  int within = 0;
  for (int i = 0; i < 6; ++i) {
    Scenario scenario = random_scenario(random, 8, 4);
    scenario.cluster.device.memory.value *= 4;
    open(scenario, {"stages", "data_parallel", "recompute", "schedule", "virtual_stages"}, {"micro_batch_size"});
    const auto exact = std::get<SearchAnswer>(search(scenario, {.top = 1, .gap = 0}));
    const auto loose = std::get<SearchAnswer>(search(scenario, {.top = 1, .gap = 0.2}));
    CHECK(loose.bound <= exact.plans.front().value * (1 + 1e-12));
    CHECK(exact.within_gap == 0);
    within += loose.within_gap > 0 ? 1 : 0;
    if (loose.within_gap > 0) CHECK(loose.bound < loose.plans.front().value);
    check_counts(exact), check_counts(loose);
  }
  CHECK(within >= 1);
}
