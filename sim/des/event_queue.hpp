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
#include <vector>

#include "core/units.hpp"

namespace pipewright::sim {

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

  bool empty() const { return waiting_ == 0 && heap_.size() == (hollow_ ? 1 : 0); }
  Time now() const { return {static_cast<std::int64_t>(now_)}; }  // of the last event popped
  Time next_time() const;                                         // kNever when empty

 private:
  // time, rank | sequence, what: two words, so that one 128-bit comparison orders two events.
  __extension__ typedef unsigned __int128 Key;
  static constexpr int kRankBits = 2, kWhatBits = 32;
  static constexpr Key kLast = ~Key{0};
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

  Key first() const;
  void sink(Key entry);
  void rise(std::size_t hole, Key entry);
  void close();

  // Implicit binary heap, smallest first. A popped event leaves a hole at the top (`hollow_`) until the next push or
  // pop: most events cause another one soon after them, which belongs near the top and costs little there.
  std::vector<Key> heap_;
  bool hollow_ = false;
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
  const Key entry = key(at, static_cast<std::uint64_t>(rank), pushed_++ << kWhatBits | what);
  if (hollow_) {
    hollow_ = false;
    sink(entry);
  } else {
    heap_.push_back(entry);
    rise(heap_.size() - 1, entry);
  }
}

inline Time EventQueue::next_time() const {
  if (waiting_ > 0) return now();
  return empty() ? kNever : Time{static_cast<std::int64_t>(when(first()))};
}

inline Event EventQueue::pop() {
  if (waiting_ > 0) {
    std::size_t rank = 0;
    while (lines_[rank].empty())
      ++rank;
    // In the heap, too, there may be events of this instant, older than those in line.
    if (first() >= key(now_, rank + 1, 0)) {
      Line& line = lines_[rank];
      const std::uint32_t what = line.what[line.head++];
      if (line.empty()) line.what.clear(), line.head = 0;
      --waiting_;
      return {now(), static_cast<Rank>(rank), what};
    }
  }
  if (hollow_) close();
  const Key next = heap_.front();
  hollow_ = true;
  now_ = when(next);
  constexpr std::uint64_t rank_mask = (std::uint64_t{1} << kRankBits) - 1;
  return {now(), static_cast<Rank>(static_cast<std::uint64_t>(next >> 64) & rank_mask),
          static_cast<std::uint32_t>(next)};
}

inline EventQueue::Key EventQueue::first() const {
  const std::size_t size = heap_.size();
  if (!hollow_) return size == 0 ? kLast : heap_[0];
  if (size == 1) return kLast;
  return size == 2 || heap_[1] < heap_[2] ? heap_[1] : heap_[2];
}

// Puts `entry` into the hole at the top and lets it sink to its place.
inline void EventQueue::sink(Key entry) {
  const std::size_t size = heap_.size();
  Key* const heap = heap_.data();
  std::size_t hole = 0, child = 1;
  while (child + 1 < size) {
    child += heap[child + 1] < heap[child] ? 1 : 0;
    if (entry < heap[child]) {
      heap[hole] = entry;
      return;
    }
    heap[hole] = heap[child];
    hole = child;
    child = 2 * hole + 1;
  }
  if (child < size && heap[child] < entry) heap[hole] = heap[child], hole = child;
  heap[hole] = entry;
}

inline void EventQueue::rise(std::size_t hole, Key entry) {
  Key* const heap = heap_.data();
  while (hole > 0 && entry < heap[(hole - 1) / 2]) {
    heap[hole] = heap[(hole - 1) / 2];
    hole = (hole - 1) / 2;
  }
  heap[hole] = entry;
}

// The hole at the top sinks to a leaf along the smaller children, then the last entry rises from there: it belongs
// near the leaves nearly always, and the way down needs one comparison per level and no branch.
inline void EventQueue::close() {
  hollow_ = false;
  const Key last = heap_.back();
  heap_.pop_back();
  const std::size_t size = heap_.size();
  if (size == 0) return;
  Key* const heap = heap_.data();
  std::size_t hole = 0, child = 1;
  while (child + 1 < size) {
    child += heap[child + 1] < heap[child] ? 1 : 0;
    heap[hole] = heap[child];
    hole = child;
    child = 2 * hole + 1;
  }
  if (child < size) heap[hole] = heap[child], hole = child;
  rise(hole, last);
}

}  // namespace pipewright::sim
