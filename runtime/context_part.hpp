// What one of several devices has of every sequence (plan.context_parallel): equal numbers of tokens, in one range, or in
// two that a causal mask makes as much work as those of the others.
//
//     contiguous  device i of c: tokens i L to (i + 1) L, L = tokens / c
//     zigzag      of 2 c halves the i-th and the (2 c - 1 - i)-th                                       [LlamaTeam24]
//     8 tokens on 2 devices, zigzag: {0, 1, 6, 7} and {2, 3, 4, 5}      tests/runtime/context_test.cpp "tokens"
#pragma once

#include <cstdint>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::runtime {

struct ContextPart {
  int number = 0, of = 1;
  bool zigzag = false;
};

struct TokenRange {
  std::int64_t here = 0;         // first token, counted within the part
  std::int64_t in_sequence = 0;  // and within the sequence
  std::int64_t count = 0;
};
// Of a part of `tokens` tokens, which two divides where the split is zigzag.
std::vector<TokenRange> ranges(const ContextPart& part, std::int64_t tokens);

}  // namespace pipewright::runtime
