// The rows of prices of a compiled order: what is priced alike has one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/plan/schedule.hpp"
#include "sim/compiled_order.hpp"
#include "sim/dependencies.hpp"

namespace pipewright::sim {

// `Wiring` of one copy. Rows and the ops of cells go to the two lists.
class PriceRows {
 public:
  static constexpr std::uint32_t kNone = ~0u;

  PriceRows(const Schedule& schedule, const Wiring& wiring, const std::vector<Edge>& edges,
            std::vector<compiled::Row>& rows, std::vector<Op>& cell_ops);

  // The edges on which an op sends, and those on which what it needs comes. A way is an edge in one direction.
  std::span<const std::uint32_t> sends(const Op& op) const { return edges_of(op, rule(op.kind).forward); }
  std::span<const std::uint32_t> takes(const Op& op) const { return edges_of(op, !rule(op.kind).forward); }
  static std::size_t way(std::uint32_t edge, const Op& op) { return 2 * std::size_t{edge} + !rule(op.kind).forward; }
  // Where a message of the op goes.
  PositionId receiver(const Op& op, std::size_t way) const { return seating_.position(receiving(way), peer(op, way)); }

  std::uint32_t of_pass(const Op& op);                            // with its first message
  bool one_row() const { return holders_ == 1 && slices_ == 1; }  // for all micro-batches of a pass but the last
  bool dealt() const { return holders_ > 1; }
  std::uint32_t of_message(const Op& op, std::size_t way);  // a further one
  std::uint32_t of_update(const Op& op, PositionId position);
  std::uint32_t of_own(const Op& op, std::size_t lane);  // of a stream of that lane, which the worker runs alone
  std::uint32_t of_waiting(std::size_t lane);            // and of telling others
  // Of the ops of a cell, behind one another, and then of their messages.
  std::uint32_t of_cell(std::span<const Op> cell);

 private:
  using Numbers = std::unordered_map<std::size_t, std::uint32_t>;
  std::span<const std::uint32_t> edges_of(const Op& op, bool out) const {
    if (!rule(op.kind).forward && !rule(op.kind).backward) return {};
    return out ? wiring_.chunks[op.virtual_stage].out : wiring_.chunks[op.virtual_stage].in;
  }
  VirtualStageId receiving(std::size_t way) const {
    const Edge& edge = edges_[way / 2];
    return way % 2 == 0 ? edge.to : edge.from;
  }
  int peer(const Op& op, std::size_t way) const { return seating_.holder_of(receiving(way), op.micro_batch); }
  std::size_t kind_of_price(const Op& op, int peer) const;
  std::uint32_t add(const compiled::Row& row);
  static compiled::Row message(const Op& op, std::size_t way, std::size_t back);

  const Seating seating_;
  const Wiring& wiring_;
  const std::vector<Edge>& edges_;
  std::vector<compiled::Row>& rows_;
  std::vector<Op>& cell_ops_;
  std::size_t holders_ = 1;  // of the chunk with most
  std::size_t slices_;
  std::uint32_t last_;                 // micro-batch M - 1
  std::vector<std::uint32_t> passes_;  // by chunk and kind, then as `kind_of_price`; empty: they are too many
  Numbers some_passes_, messages_;
  std::map<std::array<std::size_t, 4>, std::uint32_t> own_;
  std::vector<std::uint32_t> updates_;  // by position and which of its chunks
  std::vector<std::uint32_t> waiting_;  // by lane
  std::map<std::vector<std::size_t>, std::uint32_t> cells_;
};

}  // namespace pipewright::sim
