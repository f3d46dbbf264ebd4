// Whether an order can reach a value of its measure, asked of all stages together: between when a pass can begin and when
// it must have ended, each stage runs one pass at a time. What does not fit refutes the value.
//
// A window becomes narrower by
//   - what comes before and behind a pass: the micro-batch's way, the micro-batch before it on the stage, the room;
//   - two passes of a stage of which one cannot be first: then the other one is;
//   - any passes of a stage that leave no time for another one before their last end ("edge finding", [CarlierPinson94]);
//   - both orders of two passes, one tried after the other: what holds in both, holds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/finder/problem.hpp"

namespace pipewright::sim {

class PassWindows {
 public:
  // Without cells. `begins_vary`: a stage may begin later than its first F could, as where cells are to be bounded.
  explicit PassWindows(const OrderProblem& problem, bool begins_vary = false);

  // true: no order has a measure of `target` or less. false: not known. `effort` is counted down by steps, and ends the
  // question at 0. `both_orders`: tries the orders of pairs, too.
  bool refutes(std::int64_t target, bool both_orders, std::int64_t& effort, const std::function<bool()>& stop = {});

 private:
  struct Windows {
    std::vector<std::int64_t> earliest, latest;  // begin and end, by pass
  };
  std::size_t pass(StageId stage, int code, int m) const {
    return (at(stage) * codes_ + at(code)) * at(micro_batches_) + at(m);
  }
  std::size_t pass_of(int kind, VirtualStageId chunk, int m) const;
  std::int64_t end_of(std::size_t x) const { return now_.earliest[x] + length_[x]; }
  std::int64_t begin_of(std::size_t x) const { return now_.latest[x] - length_[x]; }                    // at the latest
  bool before(std::size_t x, std::size_t y) const { return end_of(x) + length_[y] <= now_.latest[y]; }  // possible

  // All of these: false, it cannot be.
  bool begins_at(std::size_t x, std::int64_t time);
  bool ends_by(std::size_t x, std::int64_t time);
  bool follow(std::size_t x, std::size_t y) { return begins_at(y, end_of(x)) && ends_by(x, begin_of(y)); }
  bool ways();
  bool from_first_pass();
  bool two_at_a_time(StageId stage);
  bool edges(StageId stage);
  bool edge_finding();
  bool narrow();
  bool try_both_orders();
  bool try_order(std::size_t x, std::size_t y, bool& changed);

  const OrderProblem& problem_;
  const bool begins_vary_;  // of spans
  OrderPricer pricer_;
  std::size_t codes_;
  int micro_batches_;
  std::vector<std::int64_t> begin_;   // by stage: of its first pass
  std::vector<std::int64_t> length_;  // by pass
  std::vector<std::size_t> needs_;    // by pass: what must have ended for room; itself: nothing
  Windows now_;
  std::vector<char> changed_;  // by stage: since pairs, and since edges were looked at
  bool any_changed_ = false;
  std::int64_t effort_ = 0, target_ = 0;
  const std::function<bool()>* stop_ = nullptr;

  // Of one stage, for edge finding: windows, lengths, and the earliest begins that it finds.
  std::vector<std::int64_t> begins_, ends_, lengths_, found_, latest_of_;
  std::vector<std::size_t> by_begin_, by_end_;
};

}  // namespace pipewright::sim
