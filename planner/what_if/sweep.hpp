// Every point of a sweep priced, by several threads; the same rows whatever their number.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "core/plan/plan.hpp"
#include "core/plan/report.hpp"
#include "core/plan/scenario.hpp"
#include "core/plan/sweep.hpp"

namespace pipewright {

// What one thread reads points with. `scenario` throws InputError; what it returns holds until its next call.
struct SweepPoints {
  std::function<const Scenario&(std::int64_t point)> scenario;
  std::function<std::optional<Magnitude>(const Scenario&, const std::string& key)> magnitude;
};

// The plan that the scenario states, priced; fits or not. Throws InputError.
std::variant<Answer, Infeasible> priced_as_stated(const Scenario& scenario);

struct SweepOptions {
  int jobs = 1;
  std::function<SweepPoints()> points;  // called once by each thread, in it
  // The answer to one point, of which plan, memory and report are read; called by several threads at once. Where the
  // planner is to choose the plan anew (`replan`), its search stands here.
  std::function<std::variant<Answer, Infeasible>(const Scenario&)> priced = priced_as_stated;
  // Looked at between two points; true: no further one is begun, and the rows that are there are the answer.
  std::function<bool()> stopped = [] { return false; };
  bool stops_inside = false;  // `priced` asks `stopped`, too: what it answers after that is no answer to its point
  // Called now and then, by the calling thread.
  std::function<void(std::int64_t done, std::int64_t all)> progress = [](std::int64_t, std::int64_t) {};
};

// Rows in the order of their points. A point whose scenario is refused, or which no plan fits, is a row with the
// reason. Throws InputError for a condition that cannot be judged.
Sweep sweep(const SweepQuestion& question, const SweepOptions& options);

// A plan in the words of its table: "PP4 VP2 DP2 TP8 MBS1 x 16 1f1b".
std::string plan_in_words(const Plan& plan);

}  // namespace pipewright
