// What layouts and candidates are worth to a search: values of its objective, less is better.
#pragma once

#include <algorithm>

#include "planner/search/better.hpp"
#include "planner/search/candidate.hpp"
#include "planner/search/search.hpp"

namespace pipewright {

class Values {
 public:
  Values(const Scenario& scenario, Objective objective, Evaluator& evaluator)
      : scenario_(scenario), objective_(objective), evaluator_(evaluator) {}

  double of(const Layout& layout, Time step, Bytes need) const {
    return objective_value(objective_, layout, scenario_, step, need);
  }
  double of(const Candidate& candidate) const { return of(candidate.layout, candidate.step, candidate.need); }

  // No plan of the layout is better.
  double bound(const Layout& layout, Time step) { return of(layout, step, least(layout)); }
  double bound(const Candidate& candidate) {
    return of(candidate.layout, candidate.bound, std::max(candidate.least, least(candidate.layout)));
  }

  // Of plans of one value the better one: as little memory in less time.
  double second(const Layout& layout, Time step) const {
    return objective_ == Objective::Memory ? objective_value(Objective::Throughput, layout, scenario_, step, {}) : 0;
  }

  // The bound of a layout, raised as far as `wanted` where that is possible (Evaluator::raise_bound).
  double raised(const Layout& layout, double wanted, int rounds) {
    constexpr Time kSecond{1'000'000'000};
    if (objective_ == Objective::Memory) return bound(layout, evaluator_.tight_bound(layout));
    const double step = wanted / of(layout, kSecond, {});  // values grow with the step
    const bool any = !(step < seconds(Time{kLargest}) / 2);
    return bound(
        layout, evaluator_.raise_bound(layout, any ? kNever : Time{static_cast<std::int64_t>(step * 1e9) + 1}, rounds));
  }

 private:
  Bytes least(const Layout& layout) {
    return objective_ == Objective::Memory ? evaluator_.least_states(layout) : Bytes{};
  }

  const Scenario& scenario_;
  Objective objective_;
  Evaluator& evaluator_;
};

}  // namespace pipewright
