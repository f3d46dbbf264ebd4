// What a search keeps account of: the layouts that are open, the lines of its ranking, what it leaves without proof,
// and what all of these are worth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/answers/ranking.hpp"
#include "core/folds.hpp"
#include "planner/search/candidate.hpp"
#include "planner/search/found.hpp"
#include "planner/search/search.hpp"
#include "planner/search/space.hpp"

namespace pipewright::planner {

struct OpenLayout {
  enum class Bound : std::uint8_t { Raised, Tight, Simple, Anywhere, OfGroup };  // of equal bounds this comes first

  double bound;  // of the objective
  Bound kind;
  std::int64_t number;  // in the order of their opening
  const LayoutGroup* group;
  Layout layout;

  std::int64_t layouts() const { return kind == Bound::OfGroup ? std::ssize(members(*group)) : 1; }
};

// What is opened and not yet looked at, least bound first: a group opens into its layouts, and a layout is looked at
// once its tight bound is the least.
class LayoutQueue {
 public:
  void push_group(double bound, const LayoutGroup& group) {
    queue_.push({bound, OpenLayout::Bound::OfGroup, opened_++, &group, {}});
  }
  void push_group(double, LayoutGroup&&) = delete;
  void push(double bound, OpenLayout::Bound kind, Layout layout) {
    queue_.push({bound, kind, opened_++, nullptr, std::move(layout)});
  }
  bool empty() const { return queue_.empty(); }
  const OpenLayout& top() const { return queue_.top(); }
  void pop() { queue_.pop(); }
  // How many layouts are left of those whose bound is less than this.
  std::int64_t layouts_below(double value) const {
    std::int64_t count = 0;
    for (const OpenLayout& open : queue_.all())
      if (open.bound < value) count += open.layouts();
    return count;
  }

 private:
  struct Later {
    bool operator()(const OpenLayout& a, const OpenLayout& b) const {
      if (a.bound != b.bound) return a.bound > b.bound;
      if (a.kind != b.kind) return a.kind > b.kind;
      return a.number > b.number;
    }
  };
  struct Queue : std::priority_queue<OpenLayout, std::vector<OpenLayout>, Later> {
    const std::vector<OpenLayout>& all() const { return c; }
  };
  Queue queue_;
  std::int64_t opened_ = 0;
};

// Of layouts that are worth the same: the one of fewer devices.
inline bool before(const Layout& a, const Layout& b) {
  return a.devices() != b.devices() ? a.devices() < b.devices() : a < b;
}

// A plan: of one layout and one step there may be several, which hold different amounts.
using PlanKey = std::tuple<Layout, std::int64_t, std::vector<LayerId>, std::vector<Recompute>, std::vector<LayerId>>;
inline PlanKey key_of(const Candidate& candidate) {
  auto first = mapped<LayerId>(candidate.plan.layers, &LayerRange::begin);
  return {candidate.layout, candidate.step.value, std::move(first), candidate.plan.recompute, candidate.plan.rebuilt};
}

// By stage the most of both.
inline void widen(std::vector<Bytes>& set_aside, const std::vector<Bytes>& buffers) {
  set_aside.resize(buffers.size());
  for (std::size_t k = 0; k < buffers.size(); ++k)
    set_aside[k] = std::max(set_aside[k], buffers[k]);
}

// The lines of a ranking: plans that differ in their placement or in ZeRO alone are one, the best of them.
inline Layout line_of(Layout layout) {
  layout.placement = PlacementOrder::Pipeline, layout.zero = layout.shard = 0;
  return layout;
}

// The best value of every line so far, less is better, and the worst of the `wanted` best lines.
class Lines {
 public:
  explicit Lines(int wanted) : wanted_(wanted) {}

  void note(const Layout& layout, double value) {
    const auto [line, absent] = best_.try_emplace(line_of(layout), value);
    if (!absent && line->second <= value) return;
    line->second = value;
    if (!enough()) return;
    std::vector<double> values;
    for (const auto& [layout_of_line, best] : best_)
      values.push_back(best);
    const auto nth = values.begin() + wanted_ - 1;
    std::nth_element(values.begin(), nth, values.end());
    worst_ = *nth;
  }
  bool enough() const { return std::ssize(best_) >= wanted_; }
  double worst() const { return worst_; }
  void clear() { best_.clear(), worst_ = std::numeric_limits<double>::infinity(); }

 private:
  int wanted_;
  std::map<Layout, double> best_;
  double worst_ = std::numeric_limits<double>::infinity();
};

// Layouts that left a search without proof that they are no better: their least bounds, of the objective, are the
// answer's, too. Infinite where there is no such layout.
struct Unsettled {
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  double pruned = kNone;         // left in the queue: no better than what is wanted
  double unreached = kNone;      // left in the queue by a limit
  double given_up = kNone;       // of which no cut was found that fits
  double not_simulated = kNone;  // too large
  double not_worth_it = kNone;   // that turned out to need more than is wanted

  double least() const { return std::min({pruned, unreached, given_up, not_simulated, not_worth_it}); }

  // Figures in a message differ from layout to layout: of one key ("training.micro_batches") the first message stands
  // for all.
  void leave_out(Ranking& answer, const std::string& why, double bound, std::int64_t layouts) {
    not_simulated = std::min(not_simulated, bound);
    answer.not_simulated[said_.try_emplace(why.substr(0, why.find(':')), why).first->second] += layouts;
  }

 private:
  std::map<std::string, std::string> said_;
};

// What layouts and candidates are worth to a search: values of its objective, less is better.
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

}  // namespace pipewright::planner
