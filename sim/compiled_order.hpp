// A schedule compiled once and then timed with any prices: what a search asks for thousands of times.
//
// The passes of one copy become a flat list of records, in waves: a wave holds the ops that can run when those of the
// waves before it have, at most one of each worker, so that a processor works on many workers' clocks at a time. A record
// names its worker, the slot with the arrival that it needs, the slot where its own message arrives, and its row of
// prices. Slots are used again as soon as they have been read. A steady state, in which the lists repeat themselves some
// micro-batches later, is kept once, with the number of its repeats. One sweep over the records is
//     end = max(end of the worker's op before, arrival) + duration;   arrival = max(channel free, end) + wire + latency
// and every copy is swept with its own prices. All-reduces and updates, which a flush puts behind the passes, follow.
//
// The times are those of the static order, op for op.                       tests/sim/compiled_order_test.cpp
// How fast it is: docs/results/performance.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::sim {

// Whether the prices are of passes of that shape in the same order, whatever the buckets and the copies.
bool same_passes(const ScheduleShape& shape, const std::vector<Edge>& edges, const StepCosts& costs);

class CompiledOrder {
 public:
  // None where the order has no compiled form: updates between micro-batches, several edges into or out of a chunk
  // (`skips: direct`), communication other than all-reduces and gathers behind updates, more than 8 holders of a chunk,
  // 65 535 rows or slots and more. The schedule must be valid, and is not needed afterwards.
  static std::optional<CompiledOrder> of(const Schedule& schedule, const std::vector<Edge>& edges);

  // End of the last op of all copies. `costs` must be prices of the same passes (`same_passes`).
  Time makespan(const StepCosts& costs) const;

  // Fewer than ops where the order has a steady state.
  std::size_t records() const { return records_.size(); }

 private:
  struct Record {
    std::uint16_t lane = 0, row = 0;
    std::uint16_t needs = 0, gives = 0;  // slots
  };
  // A steady state: the records from `begin` to `end` run so many times more.
  struct Repeat {
    std::size_t begin = 0, end = 0, times = 0;
  };
  // What is priced alike: ops of a chunk on one holder, of one kind, whose message goes to one holder.
  struct Row {
    Op op;                   // one of them
    std::int32_t edge = -1;  // of its message; -1: none
    Direction direction{};
  };
  // The last gradient of a chunk on a worker: all-reduces wait for it.
  struct Mark {
    std::uint32_t record = 0;
    VirtualStageId chunk = 0;
    PositionId position = 0;
    Op op;
  };
  struct Sweep;
  class Compiler;

  CompiledOrder() = default;
  double computing(const StepCosts& costs) const;
  Time flush(const StepCosts& costs, std::vector<Sweep>& copies) const;

  ScheduleShape shape_;  // its replicas are what views of it point to
  std::vector<Record> records_;
  std::vector<Repeat> repeats_;  // by record; no two overlap
  std::vector<Row> rows_;
  std::vector<Mark> marks_;                           // by record
  std::vector<std::vector<std::uint32_t>> marks_of_;  // by chunk
  std::size_t slots_ = 0;
  std::vector<std::vector<VirtualStageId>>
      flushed_;  // by position: chunks in the order of their all-reduces and updates
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
  std::optional<ScheduleShape> asked_;  // of the last price, with its edges
  std::vector<Edge> edges_;
};

}  // namespace pipewright::sim
