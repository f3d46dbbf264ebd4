// The lines of a ranking: plans that differ in their placement or in ZeRO alone are one, the best of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <vector>

#include "core/answers/ranking.hpp"

namespace pipewright {

inline Layout line_of(Layout layout) {
  layout.placement = PlacementOrder::Pipeline, layout.zero = 0;
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

}  // namespace pipewright
