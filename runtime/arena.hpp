// The memory of one worker: one stretch of addresses, handed out by best fit.
//
// The arena knows sizes and addresses only. A real run lays it over the device's memory; the memory model replays the
// same calls on sizes alone and gets the same two figures, to the byte:
//
//     live peak   most bytes handed out at once, each block rounded up to the alignment
//     extent      the highest address ever used: what a cap acts on
//
// Best fit: the smallest free gap that holds the block, of several the lowest; else the end. A freed block joins its
// free neighbours. The order of calls is fixed by the worker's op list, never by a clock, so the addresses are, too.
//
// Blocks of 100, 200 and 100 B at 64 B alignment: at 0, 128 and 384; live 512. Freed: the second. 60 B go to 128,
// 180 B to 192 (gap of 192); extent 512.                          tests/runtime/arena_test.cpp "best fit"
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "core/units.hpp"

namespace pipewright::runtime {

enum class Tag : std::uint8_t { Weights, Gradients, Optimizer, Stash, Recompute, Workspace, Buffers };
constexpr int kTags = 7;
constexpr std::array<std::string_view, kTags> kTagNames = {"weights",   "gradients", "optimizer", "stash",
                                                           "recompute", "workspace", "buffers"};

struct ArenaUse {
  std::array<Bytes, kTags> by_tag{};  // at the moment of the live peak, rounded blocks
  Bytes live;                         // their sum
  Bytes extent;
  bool operator==(const ArenaUse&) const = default;
};

// The cap does not hold what was asked for. `what`: itemised.
class OutOfArena : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// The device itself has not the memory that the cap would allow.
class OutOfDevice : public OutOfArena {
 public:
  using OutOfArena::OutOfArena;
};

class Arena {
 public:
  // Addresses begin at 0. cap 0: no limit.
  explicit Arena(Bytes alignment, Bytes cap = {});

  // Address of a new block. Throws OutOfArena when it would end behind the cap. 0 bytes take one alignment.
  std::int64_t allocate(Bytes bytes, Tag tag);
  // A block that `allocate` gave. Anything else is a bug: PP_CHECK.
  void free(std::int64_t address);

  const ArenaUse& peak() const { return peak_; }  // so far
  Bytes live() const { return live_; }
  std::size_t blocks() const { return used_.size(); }

 private:
  struct Block {
    std::int64_t bytes;
    Tag tag;
  };
  void add_gap(std::int64_t begin, std::int64_t end);
  void take_gap(std::map<std::int64_t, std::int64_t>::iterator gap);

  std::int64_t alignment_, cap_;
  std::int64_t end_ = 0;                                     // no block ends behind it
  std::map<std::int64_t, Block> used_;                       // by address
  std::map<std::int64_t, std::int64_t> gaps_;                // begin -> end, never touching one another or `end_`
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;  // (size, begin) of every gap
  std::array<Bytes, kTags> by_tag_{};
  Bytes live_;
  ArenaUse peak_;
};

// "weights 1.2 MiB, stash 0.4 MiB": the parts that are not 0.
std::string text(const ArenaUse& use);

}  // namespace pipewright::runtime
