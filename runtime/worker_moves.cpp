// Activations that wait in the memory of a partner's stage, or of the host (runtime/moves.hpp).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/clock.hpp"
#include "runtime/worker.hpp"

namespace pipewright::runtime {

Moving::Moving(const RunMoves& moves) : leaving(moves.slot.size()), returning(moves.slot.size()) {
  if (moves.channel < 0)
    host.assign(core::at(moves.slots), std::vector<std::byte>(static_cast<std::size_t>(moves.bytes)));
}

void Worker::let(std::atomic<int>& counter, int value) {
  counter.store(value, std::memory_order_release);
  counter.notify_all();
}

Frame& Worker::frame_of(const Op& move) {
  return chunks_[move.virtual_stage].frames[move.micro_batch];
}

MessageSlot Worker::slot_of_move(std::size_t offload) const {
  const std::int64_t in_step = std::ssize(moves_.slot);
  return {moves_.channel, moves_.slot[offload], step_ * in_step + static_cast<std::int64_t>(offload) + 1, 0};
}

void Worker::move_before(std::size_t index) {
  const Moved::AtOp& now = moves_.at.at(index);
  wait_until(moving_.has_left, now.over);
  if (now.gone >= 0) {
    const Op& op = lane_.communication[kOut][core::at(now.gone)];
    for (const MovedPart& part : moved_parts(run_, op)) {
      std::byte*& block = frame_of(op).at[core::at(part.block)];
      if (settings_.poison) fill_with_nan(*mover_, block, part.bytes);
      arena_.free(block - memory_->base());
      block = nullptr;
    }
  }
  if (now.returns != Moved::kNone) {
    const auto reload = static_cast<std::size_t>(now.returns >= 0 ? now.returns : -2 - now.returns);
    const Op& op = lane_.communication[kIn][reload];
    std::vector<Room>& rooms = moving_.returning[reload];
    rooms.clear();
    for (const MovedPart& part : moved_parts(run_, op)) {
      std::byte*& block = frame_of(op).at[core::at(part.block)];
      if (now.returns >= 0) block = memory_->base() + arena_.allocate({part.bytes}, Tag::Stash);
      rooms.push_back({block, part.offset, part.bytes});
    }
    let(moving_.may_return, static_cast<int>(reload) + 1);
  }
  wait_until(moving_.has_returned, now.back);
}

void Worker::move_behind(std::size_t index) {
  const std::int32_t offload = moves_.at.at(index).leaves;
  if (offload < 0) return;
  const Op& op = lane_.communication[kOut][core::at(offload)];
  std::vector<Piece>& pieces = moving_.leaving[core::at(offload)];
  pieces.clear();
  for (const MovedPart& part : moved_parts(run_, op))
    pieces.push_back({frame_of(op).at[core::at(part.block)], part.offset, part.bytes});
  let(moving_.may_leave, offload + 1);
}

void Worker::offloads() {
  std::vector<Span>& spans = record_->times.communication[kOut];
  for (std::size_t i = 0; i < spans.size(); ++i) {
    wait_until(moving_.may_leave, static_cast<int>(i) + 1);
    spans[i].start = {steady_ns()};
    if (moves_.channel < 0) {
      for (const Piece& piece : moving_.leaving[i])
        std::memcpy(moving_.host[core::at(moves_.slot[i])].data() + piece.offset, piece.from, core::at(piece.bytes));
    } else {
      const Sent sent = transport_.send(slot_of_move(i), moving_.leaving[i]);
      while (steady_ns() < sent.readable && !stopped_.load())  // on a slow link it is there later
        std::this_thread::sleep_for(
            std::chrono::nanoseconds(std::min<std::int64_t>(50'000, sent.readable - steady_ns())));
    }
    spans[i].end = {steady_ns()};
    let(moving_.has_left, static_cast<int>(i) + 1);
  }
}

void Worker::reloads() {
  std::vector<Span>& spans = record_->times.communication[kIn];
  for (std::size_t i = 0; i < spans.size(); ++i) {
    wait_until(moving_.may_return, static_cast<int>(i) + 1);
    wait_until(moving_.has_left, static_cast<int>(moves_.at.waits_of(i)));
    const std::size_t offload = moves_.at.offload_of(i);
    spans[i].start = {steady_ns()};
    if (moves_.channel < 0) {
      for (const Room& room : moving_.returning[i])
        std::memcpy(room.to, moving_.host[core::at(moves_.slot[offload])].data() + room.offset, core::at(room.bytes));
    } else {
      transport_.take_back(slot_of_move(offload), moving_.returning[i]);
    }
    spans[i].end = {steady_ns()};
    let(moving_.has_returned, static_cast<int>(i) + 1);
  }
}

}  // namespace pipewright::runtime
