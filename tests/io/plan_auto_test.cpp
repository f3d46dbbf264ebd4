// What `plan: auto` opens of a model.
#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "io/read/read_scenario.hpp"
#include "planner/search/search.hpp"
#include "planner/search/space.hpp"
#include "tests/io/scratch.hpp"

using namespace pipewright::tests;

namespace {

// Two blocks on eight devices in a node.
Scenario left_open(const std::string& model, const std::string& more = "plan: auto\n",
                   const std::vector<std::string>& set = {}) {
  const Scratch scratch;
  ReadOptions options;
  options.set = set;
  return read_scenario(
      scratch.write("x.yaml",
                    "model: {" + model +
                        "}\n"
                        "cluster: {node: {devices: 8, device: {memory: 16 GiB, peak: {bf16: 100 TFLOP/s}, "
                        "memory_bandwidth: 1 TB/s}, links: {kind: nvswitch, bandwidth: 100 GB/s}}}\n"
                        "training: {optimizer: adam, precision: bf16, global_batch_size: 64, micro_batch_size: 1}\n" +
                        more),
      options);
}

const std::string kDecoder =
    "family: decoder, layers: 2, hidden: 512, heads: 8, feed_forward: 1024, vocabulary: 1024, sequence_length: 256";
const std::string kExperts = kDecoder + ", experts: 8, active_experts: 2, expert_feed_forward: 1024";

bool opens(const Scenario& scenario, const char* key) {
  return without_what_is_not_there(scenario).plan.open.contains(key);
}

int most_experts(const Scenario& scenario) {
  int most = 0;
  for (const LayoutGroup& group : layouts_of(scenario, {}).groups)
    most = std::max(most, group.first.expert_parallel);
  return most;
}

}  // namespace

TEST_CASE("plan: auto opens experts where there are some, and context where tokens attend") {
  CHECK(opens(left_open(kExperts), "expert_parallel"));
  CHECK(opens(left_open(kExperts), "context_parallel"));
  CHECK_FALSE(opens(left_open(kDecoder), "expert_parallel"));
  CHECK(opens(left_open(kDecoder), "context_parallel"));
  // Scores that are kept whole need whole sequences; layers with stated figures have no sequences.
  CHECK_FALSE(opens(left_open(kDecoder + ", attention: materialised"), "context_parallel"));
  const Scenario stated = left_open("layers: [{name: a, forward: 1 ms, backward: 2 ms, activation: 1 MB}]");
  CHECK_FALSE(opens(stated, "context_parallel"));
  CHECK_FALSE(opens(stated, "expert_parallel"));
  CHECK(opens(stated, "data_parallel"));
  CHECK(most_experts(left_open(kExperts)) == 8);
  CHECK(most_experts(left_open(kDecoder)) == 1);
}

TEST_CASE("what is fixed beside plan: auto stays so, and a list stays open whatever the model is") {
  const Scenario two = left_open(kExperts, "plan: auto\n", {"plan.expert_parallel=2"});
  CHECK_FALSE(opens(two, "expert_parallel"));
  CHECK(two.plan.expert_parallel.value == 2);
  CHECK(opens(two, "context_parallel"));
  CHECK_FALSE(opens(left_open(kDecoder, "plan: auto\n", {"plan.stages=2"}), "expert_parallel"));
  CHECK(opens(left_open(kDecoder, "plan: {expert_parallel: {auto: [1, 2]}}\n"), "expert_parallel"));
  const Scenario uniform = left_open(kExperts, "cost: {uniform: {forward: 1 ms, backward: 2 ms}}\nplan: auto\n");
  CHECK_FALSE(opens(uniform, "expert_parallel"));
  CHECK(uniform.plan.open.contains("expert_parallel"));  // as read: other prices may be asked next
  // Nothing else is left open: a plan with 1.
  CHECK(most_experts(left_open(kDecoder, "plan: {stages: 2, expert_parallel: auto}\n")) == 1);
}

TEST_CASE("plan: auto opens what copies divide among them, unless the scenario says it") {
  const auto zero_is_open = [](const Scenario& scenario) { return scenario.training.open.contains("zero"); };
  CHECK(zero_is_open(left_open(kDecoder)));
  CHECK(zero_is_open(left_open(kDecoder, "plan: auto\n", {"plan.stages=2"})));
  CHECK(zero_is_open(left_open(kDecoder, "plan: {stages: 2}\n", {"plan=auto"})));
  const std::string training =
      "training={optimizer: adam, precision: bf16, global_batch_size: 64, micro_batch_size: 1}";
  CHECK(zero_is_open(left_open(kDecoder, "plan: auto\n", {"plan.stages=2", training})));
  CHECK(zero_is_open(left_open(kDecoder, "plan: auto\n", {training, "plan.stages=2"})));
  CHECK_FALSE(zero_is_open(left_open(kDecoder, "plan: auto\n", {"plan={stages: 2}", training})));
  for (const std::vector<std::string>& set : {std::vector<std::string>{"training.zero=1"},
                                              {"training.zero=1", "plan.stages=2"},
                                              {"plan.stages=2", "training.zero=1"}}) {
    const Scenario stated = left_open(kDecoder, "plan: auto\n", set);
    CHECK_FALSE(zero_is_open(stated));
    CHECK(stated.training.zero == 1);
  }
  CHECK_FALSE(zero_is_open(left_open(kDecoder, "plan: {stages: auto}\n")));
  CHECK_FALSE(zero_is_open(left_open(kDecoder, "plan: {stages: 2}\n")));
  const auto zeros_of = [](const std::vector<std::string>& set) {
    std::set<std::int64_t> zeros;
    for (const LayoutGroup& group : layouts_of(left_open(kDecoder, "plan: auto\n", set), {}).groups)
      zeros.insert(group.zeros.begin(), group.zeros.end());
    return zeros;
  };
  CHECK(zeros_of({}) == std::set<std::int64_t>{0, 1, 2, 3});
  CHECK(zeros_of({"training.zero=0"}) == std::set<std::int64_t>{0});
}

TEST_CASE("a model with experts gets a plan that divides them, where that is faster") {
  const auto best = [](const std::vector<std::string>& set) {
    const auto found =
        search(left_open(kExperts, "plan: auto\n", set), {.top = 1, .gap = 0, .most_simulations = 10'000});
    REQUIRE(std::holds_alternative<SearchAnswer>(found));
    return std::get<SearchAnswer>(found).plans.front();
  };
  const Found free = best({}), whole = best({"plan.expert_parallel=1"});
  CHECK(free.layout.expert_parallel > 1);
  CHECK(free.report.makespan < whole.report.makespan);
}

// With every micro-batch size and thousands of devices there are more combinations than a search lists.
TEST_CASE("where shared sequences make too many combinations they are left out, and it says so") {
  const Scenario scenario =
      left_open(kExperts + ", next_token_modules: 0", "plan: auto\n",
                {"cluster.nodes=1024", "cluster.network={bandwidth: 50 GB/s, latency: 5 us}", "model.layers=128",
                 "training.global_batch_size=65536", "training.micro_batch_size=auto"});
  const Space space = layouts_of(scenario, {});
  CHECK(std::ranges::all_of(space.groups, [](const LayoutGroup& group) { return group.first.context_parallel == 1; }));
  CHECK(space.whole_sequences);
  CHECK_FALSE(layouts_of(left_open(kExperts), {}).whole_sequences);
}
