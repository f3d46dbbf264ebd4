// All-reduce around a ring of R members, of their buffers of n values each.                           [Thakur05]
//
// The values are cut into R chunks. R - 1 steps of reduce-scatter: member i adds its left neighbour's chunk i - 1 - s
// to its own; then it holds the whole sum of chunk i + 1. R - 1 steps of all-gather: it copies its neighbour's chunk i
// - s. Each member moves 2 (R - 1) / R of its buffer. All numbers modulo R.
//
// The order of a sum is the ring's, from the chunk's own number on: chunk c is x[c] + x[c+1] + ... + x[c-1], whatever
// the timing, so bits repeat; but for R > 2 they are not those of sums in the order of the members (`sum_of_terms`).
// 4 members, chunk 2: ((x2 + x3) + x0) + x1.     tests/kernels/rings_test.cpp
#pragma once

#include <cstdint>

#include "core/rooms.hpp"

namespace pipewright::kernels::grid_kernels {

// One member's part of one step: own[begin, end) += or = left[begin, end), once the left neighbour has done its step
// before.
struct RingStep {
  int member = 0, left = 0;
  bool add = false;
  std::int64_t begin = 0, end = 0;
};

// visit(step, RingStep): 2 (R - 1) steps, in each of them every member.
template <class Visit>
void for_ring(int members, std::int64_t n, const Visit& visit) {
  const auto begin = [&](int chunk) { return n * chunk / members; };
  for (int step = 0; step < 2 * (members - 1); ++step)
    for (int i = 0; i < members; ++i) {
      const bool add = step < members - 1;
      const int back = add ? 1 + step : step - (members - 1);
      const int chunk = ((i - back) % members + members) % members;
      visit(step, RingStep{i, (i + members - 1) % members, add, begin(chunk), begin(chunk + 1)});
    }
}

}  // namespace pipewright::kernels::grid_kernels
