#include "sim/price_rows.hpp"

#include <algorithm>

namespace pipewright::sim {

PriceRows::PriceRows(const Schedule& schedule, const Wiring& wiring, const std::vector<Edge>& edges,
                     std::vector<compiled::Row>& rows, std::vector<Op>& cell_ops)
    : seating_(schedule.seating()),
      wiring_(wiring),
      edges_(edges),
      rows_(rows),
      cell_ops_(cell_ops),
      slices_(at(schedule.shape.slices)),
      last_(static_cast<std::uint32_t>(schedule.shape.micro_batches - 1)),
      updates_(schedule.positions.size() * at(seating_.held()), kNone) {
  constexpr std::size_t kMost = 1 << 20;
  for (const Wiring::Chunk& chunk : wiring.chunks)
    holders_ = std::max(holders_, at(chunk.holders));
  const std::size_t all = wiring.chunks.size() * at(kKinds) * holders_ * holders_ * (slices_ + 1);
  if (all <= kMost) passes_.assign(all, kNone);
}

// Who deals it to whom, and which slice it is; last: micro-batch M - 1.
std::size_t PriceRows::kind_of_price(const Op& op, int peer) const {
  const std::size_t own = at(seating_.holder_of(VirtualStageId{op.virtual_stage}, op.micro_batch));
  const std::size_t slice = op.micro_batch == last_ ? slices_ : op.micro_batch % slices_;
  return (own * holders_ + at(peer)) * (slices_ + 1) + slice;
}

std::uint32_t PriceRows::add(const compiled::Row& row) {
  rows_.push_back(row);
  return static_cast<std::uint32_t>(rows_.size() - 1);
}

compiled::Row PriceRows::message(const Op& op, std::size_t way, std::size_t back) {
  return {.op = op,
          .edge = static_cast<std::int32_t>(way / 2),
          .direction = way % 2 == 0 ? Direction::Forward : Direction::Backward,
          .takes_time = false,
          .back = static_cast<std::uint16_t>(back)};
}

std::uint32_t PriceRows::of_pass(const Op& op) {
  const std::span<const std::uint32_t> edges = sends(op);
  const std::size_t first = edges.empty() ? 0 : way(edges.front(), op);
  const std::size_t pass = op.virtual_stage * at(kKinds) + at(op.kind);
  const std::size_t number =
      pass * holders_ * holders_ * (slices_ + 1) + kind_of_price(op, edges.empty() ? 0 : peer(op, first));
  std::uint32_t& row = passes_.empty() ? some_passes_.try_emplace(number, kNone).first->second : passes_[number];
  if (row != kNone) return row;
  if (edges.empty()) return row = add({.op = op});
  compiled::Row sending = message(op, first, 0);
  sending.takes_time = true;
  return row = add(sending);
}

std::uint32_t PriceRows::of_message(const Op& op, std::size_t way) {
  const std::size_t number = way * holders_ * holders_ * (slices_ + 1) + kind_of_price(op, peer(op, way));
  std::uint32_t& row = messages_.try_emplace(number, kNone).first->second;
  if (row == kNone) row = add(message(op, way, 0));
  return row;
}

std::uint32_t PriceRows::of_update(const Op& op, PositionId position) {
  const int local = seating_.local(VirtualStageId{op.virtual_stage}, seating_.stage_at(position));
  std::uint32_t& row = updates_[at(position) * at(seating_.held()) + at(local)];
  if (row == kNone) row = add({.op = op});
  return row;
}

std::uint32_t PriceRows::of_own(const Op& op, std::size_t lane) {
  const std::array key{lane, op.virtual_stage * at(kKinds) + at(op.kind), std::size_t{op.bucket},
                       std::size_t{op.micro_batch == last_}};
  std::uint32_t& row = own_.try_emplace(key, kNone).first->second;
  if (row == kNone) row = add({.op = op});
  return row;
}

std::uint32_t PriceRows::of_waiting(std::size_t lane) {
  if (lane >= waiting_.size()) waiting_.resize(lane + 1, kNone);
  if (waiting_[lane] == kNone) waiting_[lane] = add({.takes_time = false});
  return waiting_[lane];
}

std::uint32_t PriceRows::of_cell(std::span<const Op> cell) {
  std::vector<std::size_t> key;
  for (const Op& op : cell) {
    key.push_back(op.virtual_stage * at(kKinds) + at(op.kind));
    key.push_back(kind_of_price(op, 0));
    for (const std::uint32_t edge : sends(op))
      key.push_back(at(peer(op, way(edge, op))));
  }
  std::uint32_t& first = cells_.try_emplace(std::move(key), kNone).first->second;
  if (first != kNone) return first;
  first = static_cast<std::uint32_t>(rows_.size());
  const auto begin = static_cast<std::uint32_t>(cell_ops_.size());
  cell_ops_.insert(cell_ops_.end(), cell.begin(), cell.end());
  const auto size = static_cast<std::uint16_t>(cell.size());
  for (std::uint16_t i = 0; i < size; ++i)
    add({.op = cell[i], .cell = begin, .cell_size = size, .in_cell = i});
  for (std::size_t i = 0; i < cell.size(); ++i)
    for (const std::uint32_t edge : sends(cell[i]))
      add(message(cell[i], way(edge, cell[i]), cell.size() - 1 - i));
  return first;
}

}  // namespace pipewright::sim
