// A schedule compiled once and then timed with any prices: what a search asks for thousands of times, and what a timeline
// is made from.
//
// The ops of one copy become a flat list of records, in waves: a wave holds the passes that can run when those of the
// waves before it have, at most one of each worker, so that a processor works on many workers' clocks at a time. A record
// names its worker, the slot with the arrival that it needs, the slot where its own message arrives, and its row of
// prices. Slots are used again as soon as they have been read. A steady state, in which the lists repeat themselves some
// micro-batches later, is kept once, with the number of its repeats. One sweep over the records is
//     end = max(end of the worker's op before, arrival) + duration;   arrival = max(channel free, end) + wire + latency
// and every copy is swept with its own prices. A communication stream of a worker is a lane of its own, and whatever
// joins lanes is a slot: an op that lets another one begin, or waits for it, writes or reads one in a record without a
// duration. Between records there are meetings: the ops of streams, which begin when the last member is there.
//
// The times are those of the worklist, which walks the lists op by op:       tests/support/worklist.hpp
// How fast it is: docs/results/performance.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::sim {

namespace compiled {

// `Index`: 16 bits where lanes, rows and slots are that few.
template <class Index>
struct Record {
  Index lane = 0, row = 0;
  Index needs = 0, gives = 0;  // slots
};
// A steady state: the records from `begin` to `end` run so many times more.
struct Repeat {
  std::size_t begin = 0, end = 0, times = 0;
};
// What is priced alike: ops of a chunk on one holder, of one kind, whose message goes to one holder.
struct Row {
  Op op{};                 // one of them
  std::int32_t edge = -1;  // of its message; -1: none
  Direction direction{};
  bool takes_time = true;  // false: only waits or sends
  std::uint16_t back = 0;  // what it sends is of so many ops before the worker's last one
  std::uint32_t cell = 0;  // its first op in `cell_ops`, of a cell of several
  std::uint16_t cell_size = 1;
  std::uint16_t in_cell = 0;  // which of them it is
  std::uint32_t times = 0;    // of a worker's own op of a stream: how many there are
};
// An op of a stream that several run together, before that record.
struct Meeting {
  std::size_t record = 0;
  std::uint32_t members = 0, end = 0;  // from .. to
  Op op;
  bool all_buckets = false;  // of its chunk's gradients, one after the other
};
struct Member {
  std::uint32_t lane = 0;
  std::uint32_t ready = 0, gives = 1;  // slots: when its part is there; of the end
  // Of gradients: slot of when the backward began that completes them (0: it has run none), and which one it is, in `completing_`.
  std::uint32_t begin = 0, completing = 0;
};

}  // namespace compiled

class CompiledOrder {
 public:
  // The schedule must be valid. Throws InputError where cells of ops that run at once wait for themselves.
  static CompiledOrder of(const Schedule& schedule, const StepCosts& costs);

  // Whether these are prices of the same ops in the same order, whatever the number of copies, if there are several, and of
  // buckets of gradients, if there are any and they stay on the device.
  bool is_of(const StepCosts& costs) const;

  // End of the last op of all copies. The order must be that of the prices, and no op have one of its own (`settled`).
  Time makespan(const StepCosts& costs) const;

  // The same with the times of every op and transfer, of any prices.
  Timeline timeline(const Schedule& schedule, const StepCosts& costs) const;

  // Fewer than ops where the order has a steady state.
  std::size_t records() const;

 private:
  template <class Index>
  class Compiler;
  class Sweep;
  template <class Index>
  using Records = std::vector<compiled::Record<Index>>;

  CompiledOrder(const ScheduleShape& shape, const StepCosts& costs)
      : shape_(shape), edges_(costs.edges), cells_(costs.together.has_value()) {}
  double computing(const StepCosts& costs) const;
  double communicating(const StepCosts& costs) const;
  std::span<const Op> ops_of(const compiled::Row& row) const;  // its cell
  Time run(const StepCosts& costs, std::vector<Sweep>& copies) const;
  void meet(const compiled::Meeting& meeting, const StepCosts& costs, std::vector<Sweep>& copies) const;

  ScheduleShape shape_;
  std::vector<Edge> edges_;
  bool cells_ = false;  // ops of a cell run at once
  std::variant<Records<std::uint16_t>, Records<std::uint32_t>> records_;
  std::vector<compiled::Repeat> repeats_;  // by record; no two overlap
  std::vector<compiled::Row> rows_;
  std::vector<Op> cell_ops_, completing_;
  std::vector<compiled::Meeting> meetings_;  // by record
  std::vector<compiled::Member> members_;
  std::vector<std::pair<PositionId, StreamId>> lanes_;  // those of computing come first
  std::size_t slots_ = 0;
};

// Makespans of one kind of schedule under many prices: an order is compiled when it is asked for, and kept until another
// one is.
class Makespans {
 public:
  explicit Makespans(const ScheduleRule& rule) : rule_(rule) {}  // of the table
  Time operator()(const StepCosts& costs);

 private:
  const ScheduleRule& rule_;
  std::optional<CompiledOrder> order_;
};

}  // namespace pipewright::sim
