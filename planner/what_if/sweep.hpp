// Every point of a sweep priced, by several threads; the same rows whatever their number.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "core/answers/report.hpp"
#include "core/answers/sweep.hpp"
#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

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
  // The points to be priced next, a few at a time; none: there are no more. Called by all threads, one at a time.
  std::function<std::vector<std::int64_t>()> next;
  // What has been found since the last call, in any order: every 100 ms and at the end, by the calling thread.
  std::function<void(std::vector<SweepFinding>)> found;
};

// Prices the points that `next` gives. A point whose scenario is refused, or which no plan fits, is a row with the
// reason. Throws InputError for a condition that cannot be judged, and what the functions of `options` throw; what was
// found before has been told then.
void price_points(const SweepQuestion& question, const SweepOptions& options);

// Gives out `points` in order to so many takers, up to 16 at a time: neighbours differ in the last key of the grid, so
// a thread that takes several reads less anew. Towards the end fewer, so that none waits for another one's last.
std::function<std::vector<std::int64_t>()> in_turn(std::vector<std::int64_t> points, int takers);

// All points; rows in their order. `next` and `found` need not be set.
Sweep sweep(const SweepQuestion& question, SweepOptions options);

// The best plan for what the scenario leaves open, priced; where it leaves nothing open, for every field that `plan:
// auto` opens. Safe to call from several threads. Throws InputError as `search` does.
std::variant<Answer, Infeasible> replanned(const Scenario& scenario, const SearchOptions& options = {.top = 1});

// A plan in the words of its table: "PP4 VP2 DP2 TP8 MBS1 x 16 1f1b".
std::string plan_in_words(const Plan& plan);

}  // namespace pipewright::planner
