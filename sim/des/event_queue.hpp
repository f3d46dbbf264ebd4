// What happens next: pending events in the order (time, rank, sequence).
//
// Ranks settle what "at the same instant" means: first everything that ends then ends and frees what it held (Finish),
// then messages are delivered (Arrive), then what can begin begins (Start). Among equals the one pushed first comes
// first. No pointer, hash or clock takes part, so the same pushes give the same pops on every machine.
//
// Time never runs backwards, keys may: an op of zero length that starts at t pushes a Finish at t, whose key lies below
// that of the Start just popped. It is delivered before anything else of rank Arrive or Start at t.
// Drawn by hand in tests/sim/event_queue_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/units.hpp"

namespace pipewright {

enum class Rank : std::uint8_t { Finish, Arrive, Start };

struct Event {
  Time time;
  Rank rank{};
  std::uint32_t what = 0;  // whatever the caller wants to know again
  bool operator==(const Event&) const = default;
};

class EventQueue {
 public:
  // 2^62 ns or more do not fit into a key; `now() <= time`.
  void push(Time time, Rank rank, std::uint32_t what);
  Event pop();  // not empty

  bool empty() const { return heap_.empty() && waiting_ == 0; }
  Time now() const { return {static_cast<std::int64_t>(now_)}; }  // of the last event popped
  Time next_time() const;                                         // kNever when empty

 private:
  // time, rank | sequence, what: two words, so that one 128-bit comparison orders two events.
  __extension__ typedef unsigned __int128 Key;
  static constexpr int kRankBits = 2, kWhatBits = 32;
  static Key key(std::uint64_t when, std::uint64_t rank, std::uint64_t low) {
    return static_cast<Key>(when << kRankBits | rank) << 64 | low;
  }
  static std::uint64_t when(Key key) { return static_cast<std::uint64_t>(key >> 64) >> kRankBits; }

  // Events of the present instant need no sorting: they are younger than all in the heap, so they queue up per rank.
  struct Line {
    std::vector<std::uint32_t> what;
    std::size_t head = 0;
    bool empty() const { return head == what.size(); }
  };

  void sift_in(Key entry);
  Key take_first();

  std::vector<Key> heap_;  // implicit binary heap, smallest first
  std::array<Line, 3> lines_;
  std::size_t waiting_ = 0;  // events in lines_
  std::uint64_t now_ = 0;
  std::uint64_t pushed_ = 0;
};

inline void EventQueue::push(Time time, Rank rank, std::uint32_t what) {
  const auto at = static_cast<std::uint64_t>(time.value);  // a negative time becomes a huge one
  PP_CHECK(at >= now_ && at < std::uint64_t{1} << (64 - kRankBits));
  if (at == now_) {
    lines_[static_cast<std::size_t>(rank)].what.push_back(what);
    ++waiting_;
    return;
  }
  PP_CHECK(pushed_ < std::uint64_t{1} << (64 - kWhatBits));
  sift_in(key(at, static_cast<std::uint64_t>(rank), pushed_++ << kWhatBits | what));
}

inline Time EventQueue::next_time() const {
  if (waiting_ > 0) return now();
  return heap_.empty() ? kNever : Time{static_cast<std::int64_t>(when(heap_.front()))};
}

inline Event EventQueue::pop() {
  if (waiting_ > 0) {
    std::size_t rank = 0;
    while (lines_[rank].empty())
      ++rank;
    // In the heap, too, there may be events of this instant, older than those in line.
    if (heap_.empty() || heap_.front() >= key(now_, rank + 1, 0)) {
      Line& line = lines_[rank];
      const std::uint32_t what = line.what[line.head++];
      if (line.empty()) line.what.clear(), line.head = 0;
      --waiting_;
      return {now(), static_cast<Rank>(rank), what};
    }
  }
  const Key first = take_first();
  now_ = when(first);
  constexpr std::uint64_t rank_mask = (std::uint64_t{1} << kRankBits) - 1;
  return {now(), static_cast<Rank>(static_cast<std::uint64_t>(first >> 64) & rank_mask),
          static_cast<std::uint32_t>(first)};
}

inline void EventQueue::sift_in(Key entry) {
  std::size_t hole = heap_.size();
  heap_.push_back(entry);
  while (hole > 0) {
    const std::size_t parent = (hole - 1) / 2;
    if (heap_[parent] < entry) break;
    heap_[hole] = heap_[parent];
    hole = parent;
  }
  heap_[hole] = entry;
}

// The hole left by the first event sinks to a leaf along the smaller children, then the last entry rises from there:
// it belongs near the leaves nearly always, and the way down needs one comparison per level and no branch.
inline EventQueue::Key EventQueue::take_first() {
  const Key first = heap_.front();
  const Key last = heap_.back();
  heap_.pop_back();
  const std::size_t size = heap_.size();
  if (size == 0) return first;
  Key* const heap = heap_.data();
  std::size_t hole = 0, child = 1;
  while (child + 1 < size) {
    child += heap[child + 1] < heap[child] ? 1 : 0;
    heap[hole] = heap[child];
    hole = child;
    child = 2 * hole + 1;
  }
  if (child < size) heap[hole] = heap[child], hole = child;
  while (hole > 0 && last < heap[(hole - 1) / 2]) {
    heap[hole] = heap[(hole - 1) / 2];
    hole = (hole - 1) / 2;
  }
  heap[hole] = last;
  return first;
}

}  // namespace pipewright
