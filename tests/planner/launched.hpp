// What a framework is launched with: the nearest plan that it can run, and the launch file's text.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "io/launch/launch.hpp"
#include "planner/answer.hpp"
#include "planner/find_plan.hpp"
#include "planner/launch/nearest.hpp"

namespace pipewright::tests {

struct Launched {
  std::shared_ptr<const Scenario> scenario;  // what the answer points to
  Answer asked;
  NearestPlan nearest;
  Plan plan;
};
inline Launched launched(const Scenario& scenario, Framework framework) {
  Launched result;
  result.scenario = std::make_shared<const Scenario>(scenario);
  result.asked = std::get<Answer>(answer(*result.scenario, {.ignore_memory = true}));
  result.nearest = nearest_plan(*result.scenario, result.asked.plan, framework);
  result.plan = find_plan(result.nearest.scenario, CostModel(result.nearest.scenario));
  return result;
}

// What is launched of a scenario: the answer to the nearest plan.
inline Answer written(const Launched& l) {
  return std::get<Answer>(answer(l.nearest.scenario, {.ignore_memory = true}));
}

inline std::string file(const Launched& l, const Answer& written, std::string (*writer)(const LaunchRequest&),
                        bool sbatch = false) {
  return writer({.asked = l.asked,
                 .written = written,
                 .differences = l.nearest.differences,
                 .asked_words = "",
                 .written_words = "",
                 .plan_path = "x.yaml",
                 .command = "",
                 .set = {},
                 .set_says_all = true,
                 .sbatch = sbatch});
}

}  // namespace pipewright::tests
