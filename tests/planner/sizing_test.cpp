// The best plan on each of several numbers of nodes.
#include "planner/what_if/sizing.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <doctest/doctest.h>

#include "core/answers/campaign.hpp"
#include "planner/search/deadline.hpp"
#include "tests/planner/small_spaces.hpp"
#include "tests/support/input_error.hpp"

using namespace pipewright::tests;

namespace {

// 12 layers, two devices on a node; one pipeline with full batches, of which a stage holds so many layers.
Scenario wide(std::int64_t layers_that_fit) {
  Scenario scenario = uniform_scenario({.layers = 12, .devices = 2, .stages = 1, .micro_batches = 8});
  for (Layer& layer : scenario.model.layers)
    layer.forward = layer.backward = Time{1'000'000}, layer.parameters = 1'000'000, layer.activation = {};
  scenario.cluster.network = Network{};
  scenario.cluster.network->bandwidth = Bandwidth{1e12};
  // Weights and gradients: 8 bytes a parameter.
  scenario.cluster.device.memory = Bytes{layers_that_fit * 8'000'000 + 1'000'000};
  scenario.origins.clear();
  open(scenario, {"stages", "partition"});
  return scenario;
}

const SizedNodes& row(const Sizing& sizing, int nodes) {
  return *std::find_if(sizing.rows.begin(), sizing.rows.end(), [&](const SizedNodes& r) { return r.nodes == nodes; });
}

std::vector<int> asked(const Sizing& sizing) {
  std::vector<int> nodes;
  for (const SizedNodes& each : sizing.rows)
    nodes.push_back(each.nodes);
  return nodes;
}

Scenario with_samples(Scenario scenario, double samples) {
  CampaignRequest request;
  request.length = CampaignLength{CampaignLength::Of::Samples, samples, "", {}};
  scenario.campaign = std::make_shared<const CampaignRequest>(request);
  return scenario;
}

}  // namespace

TEST_CASE("numbers of nodes: powers of two, and the ends of a range") {
  CHECK(nodes_between(1, 8).nodes == std::vector<int>{1, 2, 4, 8});
  CHECK(nodes_between(3, 12).nodes == std::vector<int>{3, 4, 8, 12});
  CHECK(nodes_between(5, 5).nodes == std::vector<int>{5});
  Scenario scenario = wide(12);
  CHECK(nodes_by_themselves(scenario).nodes == std::vector<int>{1, 2, 4, 8, 16, 32, 64});
  scenario.cluster.nodes = 100;
  CHECK(nodes_by_themselves(scenario).nodes.back() == 100);
}

// Two layers fit a device: six stages, three nodes of two. Of 1, 2 and 4 nodes only the last one does; 3 lies between.
TEST_CASE("the fewest nodes on which a plan fits are found between two powers of two") {
  const Scenario scenario = wide(2);
  const Sizing between = size_cluster(scenario, nodes_between(1, 4), {});
  CHECK(asked(between) == std::vector<int>{1, 2, 3, 4});
  CHECK(between.smallest == 3);
  CHECK_FALSE(row(between, 2).best.has_value());
  CHECK(row(between, 2).known);
  CHECK(between.notes.empty());
  const Sizing as_listed = size_cluster(scenario, {.nodes = {1, 4}}, {});
  CHECK(as_listed.smallest == 4);
  REQUIRE(as_listed.notes.size() == 1);
  CHECK(as_listed.notes.front() == "2 to 3 nodes were not tried: fewer than 4 may do");
  const Sizing one_between = size_cluster(scenario, {.nodes = {2, 4}}, {});
  REQUIRE(one_between.notes.size() == 1);
  CHECK(one_between.notes.front() == "3 nodes were not tried: fewer than 4 may do");
  const Sizing range = size_cluster(scenario, nodes_between(4, 5), {});
  CHECK(range.smallest == 4);
  REQUIRE(range.notes.size() == 1);
  CHECK(range.notes.front() == "1 to 3 nodes were not tried: fewer than 4 may do");
}

TEST_CASE(
    "each row is what a search on that cluster finds, more nodes are never slower, and the list ends where they bring "
    "nothing") {
  Scenario scenario = wide(12);
  scenario.cluster.nodes = 512;
  const Sizing sizing = size_cluster(scenario, nodes_by_themselves(scenario), {});
  CHECK(sizing.smallest == 1);
  CHECK(asked(sizing) == std::vector<int>{1, 2, 4, 8, 16, 32, 64});  // 12 layers are 12 stages at most, on 6 nodes
  REQUIRE(sizing.notes.size() == 2);
  CHECK(sizing.notes.front() == "more than 64 nodes were not tried: more brought nothing from 8 to 64");
  const int used = row(sizing, 8).best->plan.devices();
  REQUIRE(used < 15);
  CHECK(sizing.notes.back() == "on 8 nodes the plan uses " + std::to_string(used) + " of 16 devices, " +
                                   std::to_string((used + 1) / 2) + " nodes; device time and cost are of these alone");
  double before = 0;
  for (const SizedNodes& each : sizing.rows) {
    REQUIRE(each.best.has_value());
    CHECK(each.best->report.samples_per_s >= before);
    before = each.best->report.samples_per_s;
    CHECK(each.bound <= each.best->value);
    for (const SizedNodes& more : sizing.rows)
      if (more.nodes > each.nodes) CHECK(each.bound >= more.bound);  // fewer nodes lie in the space of more
    Scenario alone = scenario;
    alone.cluster.nodes = each.nodes;
    CHECK(each.best->value <= std::get<SearchAnswer>(search(alone, {.top = 1})).plans.front().value);
  }
  // One pipeline of more stages waits longer: the fewest devices take the least device time.
  CHECK(sizing.cheapest == 1);
  CHECK(sizing.fastest == 8);
}

// 3 stages, a batch of 27: three pipelines on 9 devices, 5 nodes; two or four of them do not divide it.
TEST_CASE("one flat doubling does not end the list, nor do any while a deadline is not met") {
  Scenario scenario = wide(12);
  scenario.plan.open.erase("stages");
  scenario.plan.stages.value = 3;
  scenario.training.global_batch_size = Placed<std::int64_t>{27, {}};
  scenario.training.micro_batches.reset();
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  open(scenario, {"data_parallel"});
  SizingQuestion question = nodes_by_themselves(scenario);
  const Sizing all = size_cluster(scenario, question, {});
  const auto speed = [&](int nodes) { return row(all, nodes).best->report.samples_per_s; };
  CHECK(speed(4) == speed(2));  // flat, and yet more bring more
  CHECK(speed(8) > 2 * speed(4));
  const Scenario long_one = with_samples(scenario, 86400 * 1.5 * speed(4));
  question.deadline = 1;
  const Sizing met = size_cluster(long_one, question, {});
  CHECK(met.in_time == 5);
  // 27 copies are the most, on 41 nodes: three doublings behind 64 bring nothing.
  question.deadline = 0.001;
  const Sizing never = size_cluster(long_one, question, {});
  std::vector<int> beyond = question.nodes;
  beyond.insert(beyond.end(), {128, 256, 512});
  CHECK(asked(never) == beyond);
  CHECK_FALSE(never.in_time.has_value());
  CHECK(std::find(never.notes.begin(), never.notes.end(),
                  "more than 512 nodes were not tried: more brought nothing from 64 on") != never.notes.end());
}

// One layer of 2 ms on every device, a batch of 2^16: n devices take 2^17 / n ms.
TEST_CASE(
    "a deadline that the numbers asked by themselves do not meet doubles the nodes, and is then halved in between") {
  Scenario scenario = wide(12);
  scenario.model.layers.resize(1);
  scenario.model.layers.front().parameters = 0;
  scenario.plan.open.clear();
  scenario.plan.stages.value = 1;
  scenario.training.global_batch_size = Placed<std::int64_t>{std::int64_t{1} << 16, {}};
  scenario.training.micro_batches.reset();
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  open(scenario, {"data_parallel"});
  SizingQuestion question = nodes_by_themselves(scenario);
  const double rate_of_64 = 128 * 500;  // samples per second
  question.deadline = 1;
  const Sizing met = size_cluster(with_samples(scenario, 86400 * 3 * rate_of_64), question, {});
  REQUIRE(met.in_time.has_value());
  CHECK(*met.in_time == 256);  // copies divide the batch: 64 and 128 nodes, and then 256
  CHECK(row(met, 128).days > 1);
  CHECK(row(met, 255).days > 1);
  CHECK(met.rows.back().nodes == 256);
}

TEST_CASE(
    "with failures a goodput of 0 is never in time, and days that rise with the nodes are not reason for halving") {
  Scenario scenario = with_samples(wide(12), 1e9);
  const auto failing = [&](Time mtbf) {
    CampaignRequest request = *scenario.campaign;
    request.mtbf = mtbf, request.checkpoint = Time{60'000'000'000}, request.restart = Time{600'000'000'000};
    Scenario changed = scenario;
    changed.campaign = std::make_shared<const CampaignRequest>(request);
    return changed;
  };
  SizingQuestion question = nodes_between(1, 4);
  question.deadline = 1e9;
  const Sizing never = size_cluster(failing(Time{1}), question, {});
  CHECK_FALSE(never.in_time.has_value());
  for (const SizedNodes& each : never.rows) {
    CHECK(each.best.has_value());
    CHECK_FALSE(each.days.has_value());
    CHECK(each.failures);
  }
  CHECK(std::any_of(never.notes.begin(), never.notes.end(), [](const std::string& note) {
    return note == "on 1 node: failures come faster than checkpoints and restarts: the training never ends";
  }));
  const Scenario rare = failing(Time{3600'000'000'000});
  const Sizing rows = size_cluster(rare, nodes_between(1, 4), {});
  question.deadline = (*row(rows, 2).days + *row(rows, 1).days) / 2;
  const Sizing some = size_cluster(rare, question, {});
  REQUIRE(some.in_time.has_value());
  CHECK(some.notes.back().starts_with("more devices fail more often"));
}

TEST_CASE("a number of nodes that is too few for what is fixed does not fit, and is an error only where all are") {
  Scenario scenario = wide(12);
  scenario.plan.open.erase("stages");
  scenario.plan.stages.value = 6, scenario.plan.stages.place = {"scenarios/plan.yaml", 3, 5};
  const Sizing sizing = size_cluster(scenario, nodes_between(1, 4), {});
  CHECK(asked(sizing) == std::vector<int>{1, 2, 3, 4});
  CHECK(sizing.smallest == 3);
  for (const int few : {1, 2}) {
    CHECK(row(sizing, few).known);
    CHECK(row(sizing, few).why.starts_with("plan: 6 stages x 1 copies x 1 (tensor_parallel) need 6 devices, the "));
  }
  CHECK(sizing.notes.empty());
  CHECK(error_of([&] {
          static_cast<void>(size_cluster(scenario, {.nodes = {1, 2}}, {}));
        }).find("the cluster has 2;") != std::string::npos);
}

TEST_CASE("a deadline: the fewest nodes that meet it, and none where none does") {
  const Scenario scenario = with_samples(wide(12), 1e9);
  const Sizing all = size_cluster(scenario, nodes_between(1, 4), {});
  const double two = *row(all, 2).days, four = *row(all, 4).days;
  REQUIRE(four < two);
  SizingQuestion question = nodes_between(1, 4);
  question.deadline = two;
  CHECK(size_cluster(scenario, question, {}).in_time == 2);
  question.deadline = (two + four) / 2;
  const Sizing between = size_cluster(scenario, question, {});
  REQUIRE(between.in_time.has_value());
  CHECK(*row(between, *between.in_time).days <= *question.deadline);
  CHECK(*row(between, *between.in_time - 1).days > *question.deadline);
  question.deadline = four / 10;
  CHECK_FALSE(size_cluster(scenario, question, {}).in_time.has_value());
  // Where the searches leave no gap fewer nodes are excluded; tests/cli/plan_test.cpp has those that do.
  question = {.nodes = {1, 2}, .deadline = (*row(all, 1).days + two) / 2};
  const Sizing proven = size_cluster(scenario, question, {.gap = 0});
  CHECK(proven.in_time == 2);
  CHECK(std::none_of(proven.notes.begin(), proven.notes.end(),
                     [](const std::string& note) { return note.find("not excluded") != std::string::npos; }));
}

TEST_CASE("a marked row says how its plan is known") {
  const Sizing sizing = size_cluster(with_samples(wide(12), 1e9), nodes_between(1, 2), {});
  REQUIRE(sizing.smallest == 1);
  CHECK_FALSE(row(sizing, 1).best->report.provenance.empty());
  CHECK_FALSE(row(sizing, 1).days_low.has_value());  // stated times have no bands
}

TEST_CASE("what cannot be asked of several nodes is refused, with a way out") {
  Scenario scenario = wide(12);
  const auto refusal = [&](const SizingQuestion& question) {
    return error_of([&] { static_cast<void>(size_cluster(scenario, question, {})); });
  };
  CHECK(refusal({.nodes = {1}, .deadline = 3}).find("--deadline: is met or missed by a whole training") !=
        std::string::npos);
  scenario.cluster.network.reset();
  CHECK(refusal({.nodes = {1, 2}}).find("2 nodes need cluster.network") != std::string::npos);
  CHECK(refusal({.nodes = {1}}) == "no error");
}

TEST_CASE("a number of nodes of which the layouts are too many to list leaves the other rows as they are" *
          doctest::test_suite("whole searches")) {
  Scenario scenario = uniform_scenario(
      {.layers = 1000, .devices = 1, .stages = 1, .micro_batches = 4, .forward = Time{10}, .backward = Time{20}});
  scenario.cluster.network = Network{};
  scenario.cluster.network->bandwidth = Bandwidth{1e12};
  scenario.training.global_batch_size = Placed<std::int64_t>{1'000'000'000, {}};
  scenario.training.micro_batch_size.reset(), scenario.training.micro_batches.reset();
  open(scenario, {"stages", "data_parallel"}, {"micro_batch_size"});
  const Sizing sizing = size_cluster(scenario, {.nodes = {1, 1 << 18}}, {.top = 1, .gap = 1, .time_limit = 300});
  REQUIRE(sizing.rows.size() == 2);
  REQUIRE(sizing.notes.size() == 1);
  CHECK(sizing.notes.front().starts_with("on 262144 nodes: plan: more than 262144 combinations of stages, copies"));
  CHECK(sizing.notes.front().ends_with("; shown is the plan of 1 node"));
  CHECK(sizing.rows.back().best->value == sizing.rows.front().best->value);
}

TEST_CASE("the time limit holds for all numbers of nodes together, each with its share of what is left") {
  double now = 0;
  const SharedLimit limit(12, [&] { return now; });
  CHECK(limit.share(4) == 3);
  now = 6;  // the first took twice its share
  CHECK(limit.share(3) == 2);
  CHECK(limit.share(0) == 6);
  now = 20;
  CHECK(limit.share(2) == 0);
  // A clock on which every search takes 200 seconds, whatever its share: five of eight begin in time.
  now = 0;
  SizingQuestion question{.nodes = {1, 2, 3, 4, 5, 6, 7, 8}};
  question.clock = [&] { return std::exchange(now, now + 200); };
  const Sizing sizing = size_cluster(wide(12), question, {.time_limit = 1100});
  std::vector<bool> in_time;
  for (const SizedNodes& each : sizing.rows)
    in_time.push_back(each.ended == Ended::No);
  CHECK(in_time == std::vector<bool>{true, true, true, true, true, false, false, false});
  question.clock = [] { return 0.0; };
  for (const SizedNodes& each : size_cluster(wide(12), question, {.time_limit = 800}).rows)
    CHECK(each.ended == Ended::No);
}

TEST_CASE("an interrupted question has the rows that were asked") {
  int asked_for = 0;
  SearchOptions options;
  options.stop = [&] { return ++asked_for > 30; };
  const Sizing sizing = size_cluster(wide(12), nodes_between(1, 64), options);
  CHECK(sizing.ended == Ended::Interrupted);
  CHECK(sizing.rows.size() < 7);
  options.stop = [] { return true; };
  const Sizing none = size_cluster(wide(12), nodes_between(1, 64), options);
  CHECK(none.rows.size() == 1);
  CHECK_FALSE(none.rows.front().known);
  CHECK(none.ended == Ended::Interrupted);
  bool last = false;  // in the only row
  options.stop = [&] { return std::exchange(last, true); };
  CHECK(size_cluster(wide(12), {.nodes = {4}}, options).ended == Ended::Interrupted);
}

TEST_CASE("where nothing fits, the fewest nodes on which something does are told, and it does there alone") {
  const Scenario scenario = wide(2);  // six stages: three nodes
  const auto found = search(scenario, {});
  REQUIRE(std::holds_alternative<Infeasible>(found));
  const std::vector<std::string>& remedies = std::get<Infeasible>(found).remedies;
  CHECK(std::any_of(remedies.begin(), remedies.end(), [](const std::string& line) {
    return line.starts_with("on 3 nodes (6 devices; on fewer none was found): ") &&
           line.ends_with(": --set cluster.nodes=3");
  }));
}
