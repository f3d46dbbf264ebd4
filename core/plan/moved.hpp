// What goes to a partner's memory or to the host's and comes back, seen without a clock: an offload is over when a forward
// waits for it, the room of a reload is taken when the op begins that lets it. The memory model books it so, and real runs
// move it so.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/schedule.hpp"

namespace pipewright::core {

// Of one lane's compute stream. Offloads and reloads are numbered as in their streams.
class Moved {
 public:
  static constexpr std::int32_t kNone = -1;
  struct AtOp {
    std::int32_t leaves = kNone;      // offload that begins behind this forward
    std::int32_t gone = kNone;        // offload whose room is free from the op's begin on
    std::int32_t returns = kNone;     // reload that may begin with this op; -2 - r: reload r, whose room was never free
    std::int32_t over = 0, back = 0;  // offloads that are over before it begins, and reloads
  };

  // `may_leave`: offloads that may be on their way under a forward.
  Moved(const Lane& lane, std::size_t may_leave) {
    const std::vector<Op>&outs = lane.communication[kOut], &ins = lane.communication[kIn];
    if (outs.empty() || outs.front().kind != Kind::Offload) return;
    const auto is_of = [](const Op& move, const Op& op) {
      return move.virtual_stage == op.virtual_stage && move.micro_batch == op.micro_batch;
    };
    at_.resize(lane.compute.size());
    std::vector<std::size_t> gone(outs.size(), lane.compute.size());
    std::size_t out = 0, in = 0, over = 0, before = 0,
                here = 0;  // offloads of forwards before the last op, and this one
    for (std::size_t i = 0; i < lane.compute.size(); ++i, before = std::exchange(here, out)) {
      const Op& op = lane.compute[i];
      if (op.kind == Kind::F) {
        if (out > over + may_leave) gone[over++] = i;
        if (out < outs.size() && is_of(outs[out], op)) at_[i].leaves = static_cast<std::int32_t>(out++);
      } else if (reads_stash(op.kind) && in < ins.size() && is_of(ins[in], op)) {
        at_[i - 1].returns = static_cast<std::int32_t>(in++);
        offload_.push_back(static_cast<std::size_t>(
            std::find_if(outs.begin(), outs.end(), [&](const Op& one) { return is_of(one, op); }) - outs.begin()));
        waits_.push_back(std::max(offload_.back() + 1, may_leave == 0 ? before : 0));
      }
      at_[i].over = static_cast<std::int32_t>(over), at_[i].back = static_cast<std::int32_t>(in);
    }
    // Where nothing waits for an offload before its reload begins, its room is not known to be free in between.
    for (std::size_t i = 0; i < at_.size(); ++i) {
      if (at_[i].returns < 0) continue;
      const std::size_t j = offload_[core::at(at_[i].returns)];
      if (gone[j] < i)
        at_[gone[j]].gone = static_cast<std::int32_t>(j);
      else
        at_[i].returns = -2 - at_[i].returns;
    }
  }

  bool any() const { return !at_.empty(); }
  const AtOp& at(std::size_t op) const { return at_[op]; }
  // Of a reload: the offload that it brings back, and how many offloads are over before it begins.
  std::size_t offload_of(std::size_t reload) const { return offload_[reload]; }
  std::size_t waits_of(std::size_t reload) const { return waits_[reload]; }

 private:
  std::vector<AtOp> at_;
  std::vector<std::size_t> offload_, waits_;
};

}  // namespace pipewright::core
