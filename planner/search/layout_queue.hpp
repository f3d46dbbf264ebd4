// What a search has opened and not yet looked at, least bound first: a group opens into its layouts, and a layout is
// looked at once its tight bound is the least.
#pragma once

#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "planner/search/space.hpp"

namespace pipewright {

struct OpenLayout {
  enum class Bound : std::uint8_t { Raised, Tight, Simple, OfGroup };  // of equal bounds this comes first

  double bound;  // of the objective
  Bound kind;
  std::int64_t number;  // in the order of their opening
  const LayoutGroup* group;
  Layout layout;

  std::int64_t layouts() const { return kind == Bound::OfGroup ? std::ssize(members(*group)) : 1; }
};

class LayoutQueue {
 public:
  // The group must outlive the queue.
  void push_group(double bound, const LayoutGroup& group) {
    queue_.push({bound, OpenLayout::Bound::OfGroup, opened_++, &group, {}});
  }
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

}  // namespace pipewright
