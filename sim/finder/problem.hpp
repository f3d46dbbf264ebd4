// What the finder of orders is asked, and how it prices an order: one step of a pipeline whose backwards are split, with
// a time for every pass of every chunk and a limit of memory on every stage.
//
// Micro-batches go through a chunk in ascending order. Among equal micro-batches that loses nothing: two that are
// exchanged from some op on leave all times as they are.
//
// Two pipelines in opposite directions are two chains of chunks: 0 .. K - 1 down, K .. 2 K - 1 up, from stage K - 1 to
// stage 0, so that they lie as the chunks of a V do. Each chain has micro-batches of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/order_measure.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::sim {

struct OrderProblem {
  int stages = 1, virtual_stages = 1, micro_batches = 1;  // K, v, M; both ways v = 2, and M of each direction
  ChunkOrder chunk_order = ChunkOrder::Loop;              // or V
  bool two_ways = false;                                  // in a V
  OrderMeasure measure = OrderMeasure::Span;
  // One entry per chunk, ns: F, B (gradient of the input) and W (of the weights) of a micro-batch.
  std::vector<std::int64_t> forward, input, weights;
  // The recomputation directly before B, ns, which need not wait for the gradient, of so many micro-batches from the first one
  // on; empty: there is none.
  std::vector<std::int64_t> again = {};
  int again_count = 0;
  // Between chunk v and v + 1, ns: from the end of F(v) until F(v+1) may begin, and of B(v+1) until B(v).
  std::vector<std::int64_t> down, up;
  // A cell of an F beside a whole backward, its recomputation, B and W, of another micro-batch on the stage, ns: [chunk of
  // the F * v + row of the backward's]; it begins when both can and ends at once. Empty: there are none.
  std::vector<std::int64_t> pair;
  // One entry per chunk, in one unit: what a micro-batch holds from F to B, and what from B to W.
  std::vector<std::int64_t> held, kept_after_input;
  std::vector<std::int64_t> cap;  // one entry per stage, in the same unit

  std::int64_t again_of(VirtualStageId v, std::int64_t m = 0) const { return m < again_count ? again[at(v)] : 0; }
  int chunks() const { return stages * virtual_stages; }
  // Whether nothing comes before the chunk, or behind it.
  bool first(VirtualStageId v) const { return v == 0 || (two_ways && v == stages); }
  bool last(VirtualStageId v) const { return v + 1 == chunks() || (two_ways && v + 1 == stages); }
  // One of the two directions by itself, stages counted along its way.
  OrderProblem direction(bool upward) const;
  Seating seating() const { return {stages, virtual_stages, chunk_order, micro_batches, 1, {}}; }
  // Of one stage: time of all its passes.
  std::int64_t work(StageId stage) const;
  // Without cells, and with times so short that no cell takes less than its passes by these: what no order beats then, none
  // with cells does.
  OrderProblem without_pairs() const;
  // Likewise without recomputations, which a stage may run while it waits: cells are shorter by theirs.
  OrderProblem without_recomputation() const;
};

// Passes of a stage in their order: kind * v + row; kind 0 is F, 1 is B, 2 is W, row r is the stage's r-th chunk. The
// i-th of a code is of micro-batch i. Cells: 3 v + v * row of the F + row of the backward.
using PassCodes = std::vector<std::uint8_t>;
inline constexpr int kPassKinds = 3, kMostRows = 80, kMostRowsOfPairs = 8;
struct CodedCell {
  int forward, backward;  // rows
};
inline std::optional<CodedCell> cell_of(int code, int v) {
  if (code < kPassKinds * v) return std::nullopt;
  return CodedCell{(code - kPassKinds * v) / v, (code - kPassKinds * v) % v};
}
inline std::uint8_t code_of(CodedCell cell, int v) {
  return static_cast<std::uint8_t>(kPassKinds * v + cell.forward * v + cell.backward);
}

// By stage; and when it begins its first op and ends its last one, from the beginning of the step, ns.
struct PricedOrder {
  std::vector<PassCodes> codes;
  std::vector<std::int64_t> begin, end;

  std::int64_t span() const;
  std::int64_t step() const;
  std::int64_t of(OrderMeasure measure) const { return measure == OrderMeasure::Span ? span() : step(); }
};

// The chunks of a problem by stage, and arrays that pricing needs, kept between runs.
class OrderPricer {
 public:
  explicit OrderPricer(const OrderProblem& problem);

  // begin and end of the codes; false: they deadlock, or are not every pass once.
  bool price(PricedOrder& order);
  // Of the order that was priced last, and has a price: the chain of passes that makes the stage end when it does, last one
  // first. Each begins when the next in the vector has ended, or its message has come.
  struct Place {
    StageId stage;
    int index;  // in its codes
  };
  const std::vector<Place>& critical_path(const PricedOrder& order, StageId stage);
  // Most that the stage holds at a time with those codes.
  std::int64_t peak(StageId stage, const PassCodes& codes) const;
  // The same order for other times: of forward, input, weights, down and up; the rest stays.
  void take_times(const OrderProblem& times) { problem_ = times; }

  VirtualStageId chunk_at(StageId stage, int row) const { return chunk_at_[at(stage * problem_.virtual_stages + row)]; }
  StageId stage_of(VirtualStageId chunk) const { return stage_of_[at(chunk)]; }
  int row_of(VirtualStageId chunk) const { return row_of_[at(chunk)]; }
  const OrderProblem& problem() const { return problem_; }

 private:
  void set_out(PricedOrder& order);
  const std::vector<std::int64_t>& begins(const PricedOrder& order, StageId stage);
  std::int64_t length(StageId stage, int code) const;
  Place sender(const PricedOrder& order, Place of, std::int64_t begin) const;

  OrderProblem problem_;
  std::vector<StageId> stage_of_;                    // by chunk
  std::vector<int> row_of_;                          // by chunk
  std::vector<VirtualStageId> chunk_at_;             // by stage and row
  std::vector<std::int64_t> forward_at_, input_at_;  // arrivals by chunk and micro-batch; -1: not known yet
  std::vector<std::size_t> position_;
  std::vector<int> count_;               // by kind and chunk
  std::vector<std::int64_t> waits_for_;  // by stage: which arrival
  std::vector<StageId> ready_;
  std::vector<Place> path_;
  std::vector<std::vector<std::int64_t>> begins_;  // by stage, of its passes; empty: not asked for yet
};

// Who runs what in such an order's ops: both ways half of the micro-batches go down, then half up.
ScheduleShape shape_of_ops(const OrderProblem& problem);
// The order in ops, and back from those of some seating: both ways another one may deal micro-batches otherwise. none: the
// lists are not every pass once in ascending order, or their chunks lie elsewhere.
std::vector<std::vector<Op>> ops_of(const OrderProblem& problem, const std::vector<PassCodes>& codes);
std::optional<std::vector<PassCodes>> codes_of(const OrderProblem& problem, const std::vector<std::vector<Op>>& ops,
                                               const Seating& seating);

}  // namespace pipewright::sim
