// Dropout:  y[i] = x[i] / (1 - share), or 0 with probability `share`.                                 [Srivastava14]
// Its gradient is the same of dy: mask and factor are the forward's, drawn anew from seed, place and i.
//
// Random bits by number: Philox 4x32-10, ten rounds of two products over a counter of four words.        [Salmon11]
//
//     counter = {g, g >> 32, place, place >> 32}, key = {seed, seed >> 32}   for values 4 g ... 4 g + 3
//
// No state goes from one value to the next: the mask depends on no grid, no number of SMs, no alignment and no type.
//
// Tests: tests/kernels/dropout_test.cpp, emulated_test.cpp
#pragma once

#include "kernels/dropout_mask.hpp"
#include "kernels/storage.hpp"

namespace pipewright::kernels::grid_kernels {

struct Words4 {
  std::uint32_t word[4];
};

// All zeros: 6627e8d5 e169c58d bc57ac4c 9b00dbd8, the first of the authors' known answers.
PIPEWRIGHT_BOTH inline Words4 philox(Words4 counter, std::uint64_t key) {
  auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xd2511f53u} * counter.word[0];
    const std::uint64_t b = std::uint64_t{0xcd9e8d57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ low, static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ high, static_cast<std::uint32_t>(a)}};
    low += 0x9e3779b9u, high += 0xbb67ae85u;
  }
  return counter;
}

constexpr int kPerDraw = 4;

// The values of one draw.
template <class S>
struct DroppedValues {
  using F = Arithmetic<S>;
  I n;
  std::uint64_t seed, place;
  std::uint32_t below;
  F factor;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I number) const {
    const auto draw = static_cast<std::uint64_t>(number);
    const Words4 random = philox({{static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32),
                                   static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32)}},
                                 seed);
    const I first = number * kPerDraw;
    for (int i = 0; i < kPerDraw && first + i < n; ++i)
      y[first + i] = S(random.word[i] < below ? F(0) : x[first + i] * factor);
  }
};

// y may be x.
template <class Grid, class S>
void dropout(const Grid& grid, const DropoutMask& mask, I n, const S* x, S* y) {
  grid.values(
      "dropout", (n + kPerDraw - 1) / kPerDraw,
      DroppedValues<S>{n, mask.seed, mask.place, mask.below(), static_cast<Arithmetic<S>>(mask.factor()), x, y});
}

}  // namespace pipewright::kernels::grid_kernels
