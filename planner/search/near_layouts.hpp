// Layouts that differ little from one: a large space is searched from the best plan so far, too, not by bounds alone.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "planner/search/space.hpp"

namespace pipewright::planner {

class NearLayouts {
 public:
  explicit NearLayouts(const Space& space);

  // In its group those that differ in one of schedule, chunks, ZeRO, its groups and placement. In others those that have
  // twice as many devices along one axis and half as many along another, half or twice the micro-batch, or half or twice
  // as many devices for experts; with as many chunks, half or twice as many. Sequence parallelism may differ as well. TP4 PP16 DP64: TP8 PP8 DP64, TP2 PP32 DP64, ...
  //                                                          tests/planner/near_layouts_test.cpp
  std::vector<Layout> of(const Layout& layout) const;

 private:
  using Sizes = std::array<std::int64_t, 6>;  // tensor, context, stages, copies, samples of a micro-batch, experts

  static Sizes sizes_of(const Layout& layout);
  void add_group(const Sizes& sizes, const Layout& like, std::vector<Layout>& all) const;

  std::multimap<Sizes, const LayoutGroup*> groups_;
};

}  // namespace pipewright::planner
