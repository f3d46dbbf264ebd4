// The slots of a compiled order: where what an op waits for has arrived. Used again as soon as it has been read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace pipewright::sim {

// A way is an edge in one direction: 2 * edge, + 1 backwards.
class OrderSlots {
 public:
  static constexpr std::uint32_t kBegin = 0;      // what is there from the start
  static constexpr std::uint32_t kNobody = 1;     // what nobody reads
  static constexpr std::uint32_t kElsewhere = 2;  // ops with several messages look for each
  static constexpr std::uint32_t kEmpty = ~0u;

  // Of the messages on a way 2^n: that of micro-batch m is begin + m mod 2^n.
  struct Ring {
    std::uint32_t begin = 0, mask = 0;
    std::uint32_t slot(std::uint32_t micro_batch) const { return begin + (micro_batch & mask); }
  };
  // A message in its slot.
  struct Sent {
    std::uint32_t micro_batch = kEmpty;
    std::uint32_t wave = 0;  // of its sender
  };

  void add_ways(std::size_t ways) {
    constexpr std::uint32_t kRing = 4;  // at first
    rings_.resize(ways), outgrown_.resize(ways);
    for (std::size_t way = 0; way < ways; ++way)
      add_ring(way, kRing);
  }
  const Ring& ring(std::size_t way) const { return rings_[way]; }
  std::vector<Sent>& messages() { return sent_; }  // by slot
  const std::vector<Sent>& messages() const { return sent_; }
  std::size_t count() const { return sent_.size(); }

  // The slot of a message; kNobody: it is not there.
  std::uint32_t arrived(std::size_t way, std::uint32_t micro_batch) const {
    const std::uint32_t slot = rings_[way].slot(micro_batch);
    return sent_[slot].micro_batch == micro_batch ? slot : outgrown(way, micro_batch);
  }
  // Of one that was sent before the ring grew.
  [[gnu::cold]] std::uint32_t outgrown(std::size_t way, std::uint32_t micro_batch) const {
    for (const Ring& old : outgrown_[way])
      if (sent_[old.slot(micro_batch)].micro_batch == micro_batch) return old.slot(micro_batch);
    return kNobody;
  }
  // Messages on the way have a larger ring from now on.
  [[gnu::cold]] void grow(std::size_t way) {
    outgrown_[way].push_back(rings_[way]);
    add_ring(way, 2 * (rings_[way].mask + 1));
  }
  // Whether all messages under way are those of before, so many micro-batches later. Looks first where they differed last: a ring
  // that drains is empty slots but for its last ones.
  bool later(const std::vector<Sent>& before, std::int64_t micro_batches) {
    const auto same = [&](const Sent& was, const Sent& now) {
      return was.micro_batch == kEmpty ? now.micro_batch == kEmpty : now.micro_batch == was.micro_batch + micro_batches;
    };
    if (before.size() != sent_.size()) return false;
    if (differ_ < sent_.size() && !same(before[differ_], sent_[differ_])) return false;
    differ_ = static_cast<std::size_t>(std::ranges::mismatch(before, sent_, same).in1 - before.begin());
    return differ_ == sent_.size();
  }
  void move_on(std::int64_t micro_batches) {
    for (Sent& sent : sent_)
      if (sent.micro_batch != kEmpty) sent.micro_batch += static_cast<std::uint32_t>(micro_batches);
  }

  // Of what is no message.
  std::uint32_t add() {
    if (free_.empty()) {
      sent_.emplace_back();
      return static_cast<std::uint32_t>(sent_.size() - 1);
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  std::uint32_t read(std::uint32_t slot) {
    if (slot != kBegin) free_.push_back(slot);
    return slot;
  }

 private:
  void add_ring(std::size_t way, std::uint32_t slots) {
    rings_[way] = {static_cast<std::uint32_t>(sent_.size()), slots - 1};
    sent_.resize(sent_.size() + slots);
  }

  std::vector<Sent> sent_ = std::vector<Sent>(3);
  std::size_t differ_ = 0;
  std::vector<std::uint32_t> free_;          // those that are no message's
  std::vector<Ring> rings_;                  // by way
  std::vector<std::vector<Ring>> outgrown_;  // by way: rings that were too small; something may still be there
};

}  // namespace pipewright::sim
