// plan.order as a user writes it.
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/refusals.hpp"

namespace pipewright::tests {
namespace {

// The diamond of tests/planner/layer_order_test.cpp: 36 ms per step as given, 33 ms with the branches exchanged.
const std::string kDiamond = R"(version: 1
name: diamond
model:
  layers:
    - {name: fork, forward: 0.5 ms, backward: 0.5 ms, activation: 0 B}
    - {name: b, forward: 1.5 ms, backward: 1.5 ms, activation: 0 B}
    - {name: c, forward: 3 ms, backward: 3 ms, activation: 0 B, inputs: [fork]}
    - {name: join, forward: 1 ms, backward: 1 ms, activation: 0 B, inputs: [b, c]}
cluster: {node: {devices: 2, device: {memory: 1 GB}, links: {kind: ideal}}}
training: {micro_batch_size: 1, micro_batches: 4}
plan: {stages: 2, schedule: gpipe, order: model}
)";

ProgramRun of_diamond(std::vector<std::string> arguments, const std::vector<std::string>& set = {}) {
  for (const std::string& each : set)
    arguments.insert(arguments.end(), {"--set", each});
  return run_program(arguments, {.input = kDiamond});
}

double step_of(const std::vector<std::string>& set) {
  const ProgramRun run = of_diamond({"simulate", "-", "--json"}, set);
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  return nlohmann::json::parse(run.out)["step_time_s"];
}

std::string refused(const std::string& order, const std::string& more = "plan.schedule=gpipe") {
  const ProgramRun run = of_diamond({"simulate", "-"}, {"plan.order=" + order, more});
  CHECK(run.status == 2);
  return run.err;
}

TEST_CASE("order: by name, number and range, and by the graph") {
  CHECK(step_of({}) == doctest::Approx(0.036));
  for (const char* order : {"graph", "[fork, c, b, join]", "[0, 2, 1, 3]", "[0, c, 1, 3..3]"}) {
    CAPTURE(order);
    CHECK(step_of({std::string("plan.order=") + order}) == doctest::Approx(0.033));
  }
  CHECK(step_of({"plan.order=[0..3]"}) == doctest::Approx(0.036));
  CHECK(step_of({"plan.order=[fork..join]"}) == doctest::Approx(0.036));
  // Cuts by name and layers per stage count in the order: fork, c | b, join.
  CHECK(step_of({"plan.order=[0, 2, 1, 3]", "plan.partition={cuts: [b]}"}) == doctest::Approx(0.033));
  CHECK(step_of({"plan.order=[0, 2, 1, 3]", "plan.partition={layers: [2, 2]}"}) == doctest::Approx(0.033));
}

TEST_CASE("order: plan writes the order it found, and simulate answers alike") {
  ScratchFolder folder;
  const std::string path = folder.path("plan.yaml");
  const ProgramRun found =
      of_diamond({"plan", "-", "--json", "-o", path}, {"plan.order=graph", "plan.stages=auto", "plan.schedule=auto"});
  CAPTURE(found.err);
  REQUIRE(found.status == 0);
  const auto ranking = nlohmann::json::parse(found.out);
  CHECK(contains(ranking["layer_order"],
                 "the graph's, largest stage 7 ms per micro-batch, 8 ms in the model's order; exact"));
  CHECK(ranking["plans"][0]["order"] == nlohmann::json{0, 2, 1, 3});
  const std::string yaml = file_text(path);
  CHECK(contains(yaml, "  order: [0, 2, 1, 3]"));
  CHECK(yaml.find("name: b,") < yaml.find("name: c,"));  // the model as it is given
  const ProgramRun simulated = run_program({"simulate", path, "--json"});
  REQUIRE(simulated.status == 0);
  CHECK(nlohmann::json::parse(simulated.out)["samples_per_s"] == ranking["plans"][0]["samples_per_s"]);
  const ProgramRun again = run_program({"check", path, "--resolved"});
  CHECK(again.status == 0);
  CHECK(contains(again.out, "  order: [0, 2, 1, 3]"));
}

TEST_CASE("order: plan says which order it cuts, and how that is known") {
  const ProgramRun found = of_diamond({"plan", "-", "--explain"}, {"plan.order=graph", "plan.recompute=auto"});
  CHECK(found.status == 0);
  CHECK(
      contains(found.out, "layer order   the graph's, largest stage 7 ms per micro-batch, 8 ms in the model's order;"));
  CHECK(contains(found.out, "cuts of the model's layers in any of their orders"));
  CHECK_FALSE(contains(of_diamond({"plan", "-"}, {"plan.recompute=auto"}).out, "layer order"));
}

TEST_CASE("order: what is not an order is named with the layer and the edge") {
  CHECK(contains(refused("[0, 3, 1, 2]"),
                 "plan.order.1: \"join\" (layer 3) stands before \"b\" (layer 1), whose output it uses"));
  CHECK(contains(refused("[0, 1, 2]"),
                 "plan.order: names 3 of the model's 4 layers; \"join\" (layer 3) is missing; name each layer once"));
  CHECK(contains(refused("[0, b, 1, 2, 3]"), "plan.order.2: \"b\" (layer 1) stands here twice"));
  CHECK(contains(refused("[0, 1, 2, 4]"), "plan.order.3: \"4\" is not a layer of the model; write a layer's name"));
  CHECK(contains(refused("[0, 2..1, 3]"), "plan.order.1: \"2..1\" runs backwards"));
  CHECK(contains(refused("[0, \"1\", 2, 3]"), "plan.order.1: \"1\" is not a layer"));
  CHECK(contains(refused("best"), "plan.order: \"best\" is not an order; write model, graph, or a list of all layers"));
  CHECK(contains(refused("auto"), "plan.order: \"auto\" is not an order; write model, graph"));
  CHECK(contains(refused("{auto: [graph]}"), "is not an order"));
  CHECK(contains(refused("graph", "plan.partition={layers: [2, 2]}"), "plan.order: graph chooses the order by where"));
  CHECK(contains(refused("graph", "plan.stages=9"), "plan.stages: 9 stages for 4 layers"));
  CHECK(contains(run_program({"capacity", "-", "--over", "training.micro_batch_size", "--set", "plan.order=graph"},
                             {.input = kDiamond})
                     .err,
                 "plan.order: graph is settled by `pipewright plan`"));
}

TEST_CASE("order: a sweep asks for one order after another") {
  ScratchFolder folder;
  std::ofstream(folder.path("diamond.yaml")) << kDiamond;
  std::ofstream(folder.path("sweep.yaml")) << R"(version: 1
sweep:
  base: ./diamond.yaml
  grid:
    plan.order: [model, graph, [0, 2, 1, 3], [0..3]]
)";
  const ProgramRun run = run_program({"sweep", folder.path("sweep.yaml"), "--json", "--jobs", "1"});
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  const auto rows = nlohmann::json::parse(run.out)["rows"];
  REQUIRE(rows.size() == 4);
  const double expected[] = {0.036, 0.033, 0.033, 0.036};
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(rows[i]["step_time_s"] == doctest::Approx(expected[i]));
}

}  // namespace
}  // namespace pipewright::tests
