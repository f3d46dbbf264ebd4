// Keys that are open and no part of a layout: what is searched with them is what separate searches find together.
#include "planner/search/switches.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "io/read/read_scenario.hpp"
#include "planner/launch/narrowed.hpp"
#include "planner/launch/nearest.hpp"
#include "planner/search/space.hpp"
#include "tests/io/scratch.hpp"
#include "tests/support/input_error.hpp"

using namespace pipewright::tests;

namespace {

// Four blocks on a node of four devices; three copies of sequences or parts of them at most.
Scenario four_blocks(const std::string& plan, const std::string& zero = "{auto: [0, 3]}") {
  const Scratch scratch;
  return read_scenario(scratch.write(
      "x.yaml",
      "model: {family: decoder, layers: 4, hidden: 256, heads: 4, key_heads: 4, feed_forward: 512, vocabulary: 512, "
      "sequence_length: 512}\n"
      "cluster: {node: {devices: 4, device: {memory: 80 GiB, peak: {fp32: 10 TFLOP/s, bf16: 20 TFLOP/s}, "
      "memory_bandwidth: 1 TB/s}, links: {kind: nvswitch, bandwidth: 2 GB/s}}}\n"
      "training: {global_batch_size: 8, micro_batch_size: {auto: [1, 2]}, optimizer: adam, precision: bf16, zero: " +
          zero + "}\nplan: " + plan + "\n"));
}

SearchAnswer found_of(const Scenario& scenario, int top = 400) {
  return std::get<SearchAnswer>(search(scenario, {.top = top, .gap = 0}));
}

std::map<std::string, std::string> values(const Found& found) {
  return {found.switches.begin(), found.switches.end()};
}

const std::string kRest =
    "stages: {auto: [1, 2]}, data_parallel: {auto: [1, 2]}, context_parallel: {auto: [1, 2]}, schedule: 1f1b, "
    "partition: "
    "balanced";

}  // namespace

TEST_CASE("open switches: the best of all separate searches, and a bound below each" *
          doctest::test_suite("whole searches")) {
  const Scenario open = four_blocks("{" + kRest +
                                    ", context_exchange: auto, gradient_sync: {auto: [overlapped, blocking]}, "
                                    "reshard_after_forward: auto}");
  REQUIRE(asks_for_switches(open));
  const SearchAnswer all = found_of(open);
  double best = std::numeric_limits<double>::infinity();
  std::set<std::string> seen;
  for (const char* exchange : {"ring", "all_gather", "all_to_all"})
    for (const char* sync : {"overlapped", "blocking"})
      for (const char* zero : {"0", "3, keep", "3, again"}) {
        const std::string resharding = zero == std::string("3, keep")    ? ", reshard_after_forward: false"
                                       : zero == std::string("3, again") ? ", reshard_after_forward: true"
                                                                         : "";
        const Scenario settled = four_blocks(
            fmt::format("{{{}, context_exchange: {}, gradient_sync: {}{}}}", kRest, exchange, sync, resharding),
            std::string(zero).substr(0, 1));
        CHECK_FALSE(asks_for_switches(settled));
        const SearchAnswer one = found_of(settled);
        best = std::min(best, one.plans.front().value);
        CHECK(all.bound <= one.plans.front().value * (1 + 1e-12));
        seen.insert(in_words(one.plans.front().layout));
      }
  CHECK(all.plans.front().value == doctest::Approx(best).epsilon(1e-12));
  CHECK(seen.size() > 1);
  CHECK(all.bound <= best);
  for (const Found& found : all.plans) {
    CAPTURE(in_words(found.layout));
    const auto own = values(found);
    CHECK(own.contains("context_exchange") == (found.layout.context_parallel > 1));
    CHECK(own.contains("gradient_sync") == (found.layout.copies() > 1 && found.layout.zero < 2));
    CHECK(own.contains("reshard_after_forward") == (found.layout.copies() > 1 && found.layout.zero == 3));
    if (own.contains("context_exchange"))
      CHECK((found.scenario->plan.context_exchange.value == ContextExchange::Ring) ==
            (own.at("context_exchange") == "ring"));
    if (own.contains("reshard_after_forward"))
      CHECK(found.scenario->plan.reshard_after_forward->value == (own.at("reshard_after_forward") == "true"));
    CHECK(found.scenario->plan.open.empty());
  }
}

TEST_CASE("a layout is searched once for each value that matters to it, and once if none does") {
  const auto layouts = [](const std::string& plan) {
    const Scenario scenario = four_blocks("{" + kRest + plan + "}");
    return found_of(scenario, 5).layouts;
  };
  const std::string whole = ", context_exchange: ring", open = ", context_exchange: {auto: [ring, all_gather]}";
  const std::int64_t all = layouts(whole), both = layouts(open);
  const Scenario one = four_blocks(
      "{stages: {auto: [1, 2]}, data_parallel: {auto: [1, 2]}, context_parallel: 2, "
      "schedule: 1f1b, partition: balanced}");
  CHECK(both == all + found_of(one, 5).layouts);
}

TEST_CASE("switches alone may be open, and each plan has its own") {
  const Scenario scenario =
      four_blocks("{stages: 1, data_parallel: 2, context_parallel: 2, schedule: 1f1b, context_exchange: auto}", "0");
  const SearchAnswer found = found_of(scenario);
  REQUIRE(found.plans.size() >= 3);
  std::set<std::string> exchanges;
  for (const Found& each : found.plans)
    exchanges.insert(values(each).at("context_exchange"));
  CHECK(exchanges == std::set<std::string>{"ring", "all_gather", "all_to_all"});
  const Scenario& last = *found.plans.back().scenario;
  CHECK((last.plan.context_exchange.value == ContextExchange::Ring) ==
        (values(found.plans.back()).at("context_exchange") == "ring"));
}

TEST_CASE("exchanges beside products are searched where a group, or halves, are there to run them") {
  const SearchAnswer found =
      found_of(four_blocks("{stages: 1, data_parallel: {auto: [2, 4]}, tensor_parallel: {auto: [1, 2]}, "
                           "sequence_parallel: {auto: [true, false]}, "
                           "schedule: 1f1b, partition: balanced, tensor_overlap: {auto: [true, false, backward]}}",
                           "0"));
  std::map<std::string, std::set<std::string>> seen;
  for (const Found& each : found.plans) {
    const Layout& layout = each.layout;
    const auto own = values(each);
    seen[layout.tensor_parallel == 1 ? "alone"
         : layout.sequence_parallel  ? "halves"
                                     : "whole"]
        .insert(own.contains("tensor_overlap") ? own.at("tensor_overlap") : "none");
  }
  CHECK(
      (seen == std::map<std::string, std::set<std::string>>{
                   {"alone", {"none"}}, {"halves", {"true", "false", "backward"}}, {"whole", {"false", "backward"}}}));
}

TEST_CASE("values that are not there, and too many combinations, are refused with a way out") {
  const auto refused = [](const std::string& plan) {
    return error_of([&] { static_cast<void>(found_of(four_blocks("{" + kRest + plan + "}"))); });
  };
  CHECK(refused(", bucket: {auto: [25 MB, megatron]}")
            .find("plan.bucket: \"25 MB\" is not searched; auto lists pytorch, megatron, deepspeed") !=
        std::string::npos);
  CHECK(refused(", context_exchange: auto, context_split: auto, gradient_sync: auto, bucket: auto")
            .find("plan.context_exchange, plan.context_split, plan.gradient_sync, plan.bucket leave more than 64") !=
        std::string::npos);
}

TEST_CASE("of open switches a framework keeps what launch writes") {
  const Scenario scenario = four_blocks("{" + kRest + ", context_exchange: auto, reshard_after_forward: auto}", "3");
  const auto left = [&](Framework framework) {
    const Narrowed narrow = narrowed(scenario, framework);
    std::string text;
    for (const char* key : {"context_exchange", "reshard_after_forward"})
      if (const auto open = narrow.scenario.plan.open.find(key); open != narrow.scenario.plan.open.end())
        text += fmt::format("{} {} ", key, open->second.among.empty() ? 0 : open->second.among.size());
    return text;
  };
  CHECK(left(Framework::Torchtitan) == "reshard_after_forward 0 ");
  CHECK(narrowed(scenario, Framework::Torchtitan).scenario.plan.context_exchange.value == ContextExchange::AllGather);
  CHECK(left(Framework::Megatron) == "context_exchange 0 ");
  const Narrowed narrow = narrowed(scenario, Framework::Torchtitan);
  const auto found = search(narrow.scenario, {.top = 40, .gap = 0, .within = narrow.within, .kept = narrow.keys});
  for (const Found& each : std::get<SearchAnswer>(found).plans) {
    CAPTURE(in_words(each.layout));
    CHECK(nearest_plan(*each.scenario, each.plan, Framework::Torchtitan).differences == std::vector<std::string>{});
  }
}

TEST_CASE("buckets matter wherever gradients are reduced in them; what a value lacks is told") {
  const std::string rest = "stages: 1, data_parallel: 4, schedule: 1f1b";
  for (const char* zero : {"0", "1", "2"}) {
    CAPTURE(zero);
    double best = std::numeric_limits<double>::infinity();
    for (const char* bucket : {"pytorch", "megatron"})
      best = std::min(best, found_of(four_blocks("{" + rest + ", bucket: " + bucket + "}", zero)).plans.front().value);
    const SearchAnswer open = found_of(four_blocks("{" + rest + ", bucket: {auto: [pytorch, megatron]}}", zero));
    CHECK(open.plans.front().value == doctest::Approx(best).epsilon(1e-12));
    CHECK(open.bound <= best);
    CHECK(values(open.plans.front()).contains("bucket"));
  }
  const SearchAnswer two_level = found_of(four_blocks(
      "{stages: 1, data_parallel: 2, context_parallel: 2, schedule: 1f1b, context_exchange: {auto: [two_level, ring]}}",
      "0"));
  CHECK(std::any_of(two_level.left_out.begin(), two_level.left_out.end(),
                    [](const auto& each) { return each.first.starts_with("context_exchange: two_level: "); }));
  const Scenario replicas = four_blocks("{stages: auto, replicas: auto, schedule: 1f1b, gradient_sync: auto}", "0");
  CHECK(error_of([&] {
          static_cast<void>(found_of(replicas));
        }).find("plan.gradient_sync: auto is not searched beside stages with replicas") != std::string::npos);
}

TEST_CASE("once there is a plan, a limit leaves out what is left, and the bound with it") {
  const Scenario scenario = four_blocks("{" + kRest + ", context_exchange: auto, gradient_sync: auto}");
  int asked = 0;
  SearchOptions options{.top = 3, .gap = 0, .time_limit = 1000};
  options.stop = [&] { return ++asked > 60; };
  const auto found = search(scenario, options);
  if (const auto* answer = std::get_if<SearchAnswer>(&found)) {
    CHECK(answer->ended == Ended::Interrupted);
    CHECK(answer->bound == 0);
  }
  CHECK(layouts_of_switches(scenario) == found_of(scenario).layouts);
}
