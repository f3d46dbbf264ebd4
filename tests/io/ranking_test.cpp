// What a ranking says of how good its best plan is, and of recomputation.
#include "io/writers/ranking.hpp"

#include <memory>

#include <doctest/doctest.h>

#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

Ranking with_gap(double gap) {
  Ranking ranking;
  Found found;
  found.scenario = std::make_shared<const Scenario>(uniform_scenario());
  found.plan.stages = 1, found.plan.replicas = {1}, found.plan.recompute = {Recompute::None};
  found.value = 1 + gap;
  ranking.plans.push_back(std::move(found));
  ranking.bound = 1;
  return ranking;
}

std::string quality(const Ranking& ranking) {
  const std::string text = ranking_markdown(ranking);
  return text.substr(text.rfind('\n', text.size() - 2) + 1);
}

}  // namespace

TEST_CASE("A ranking is optimal, or has a gap, and no gap is called 0.00 %") {
  CHECK(quality(with_gap(0)).starts_with("optimal within the model: "));
  CHECK(quality(with_gap(0.0146)).starts_with("gap 1.46 %: "));
  CHECK(quality(with_gap(1e-4)).starts_with("gap 0.01 %: "));
  CHECK(quality(with_gap(1e-6)).starts_with("gap below 0.01 %: "));
  CHECK(quality(with_gap(171)).starts_with("gap of a factor of 172: "));
}

TEST_CASE("Neighbouring stages with one recomputation are told together") {
  Plan plan;
  plan.recompute = {Recompute::Full, Recompute::Full, Recompute::Layers, Recompute::None, Recompute::Full};
  plan.rebuilt = {7, 8, 9};
  CHECK(recompute_in_words(plan) == "recompute layers 7-9, full on stages 0-1, full on stage 4");
  plan.rebuilt.clear();
  plan.recompute = {Recompute::Full, Recompute::Full, Recompute::None};
  CHECK(recompute_in_words(plan) == "recompute full on stages 0-1, none on stage 2");
}

// 1000 tokens/s on 4 devices, and half of 100 TFLOP/s.
TEST_CASE("The document of a ranking has tokens and FLOPs per second of a device") {
  Ranking ranking = with_gap(0);
  Scenario scenario = uniform_scenario();
  scenario.cluster.device.peak[scenario.training.precision] = FlopRate{100e12};
  Found& found = ranking.plans.front();
  found.scenario = std::make_shared<const Scenario>(scenario);
  found.plan.data_parallel = 4;
  CHECK(ranking_json(ranking, scenario).find("\"tokens_per_s_per_device\": null") != std::string::npos);
  found.report.tokens_per_s = 1000, found.report.mfu = 0.5;
  const std::string json = ranking_json(ranking, scenario);
  CHECK(json.find("\"tokens_per_s_per_device\": 250") != std::string::npos);
  CHECK(json.find("\"tflops_per_device\": 50") != std::string::npos);
}
