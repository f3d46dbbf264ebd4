// Dropout:  y[i] = x[i] / (1 - share), or 0 with probability `share`.                                 [Srivastava14]
// Its gradient is the same of dy: mask and factor are the forward's, drawn anew from seed, place and i.
//
// Random bits by number: Philox 4x32-10, ten rounds of two products over a counter of four words.        [Salmon11]
//
//     counter = {g, g >> 32, place, place >> 32}, key = {seed, seed >> 32}   for values 4 g ... 4 g + 3
//
// No state goes from one value to the next: the mask depends on no grid, no number of SMs, no alignment and no type.
// A GPU moves 16 bytes by one instruction, as copy_values does; their 4 or 8 values take one or two draws.
//
// Tests: tests/kernels/dropout_test.cpp, emulated_test.cpp
#pragma once

#include "kernels/dropout_mask.hpp"
#include "kernels/pieces.hpp"

namespace pipewright::grid_kernels {

struct Words4 {
  std::uint32_t word[4];
};

// All zeros: 6627e8d5 e169c58d bc57ac4c 9b00dbd8, the first of the authors' known answers.
PIPEWRIGHT_BOTH inline Words4 philox(Words4 counter, std::uint64_t key) {
  auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
  PIPEWRIGHT_UNROLL
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

// One group of `each` values, a whole number of draws.
template <class S>
struct DroppedGroup {
  using F = Arithmetic<S>;
  static constexpr bool kPieces = sizeof(S) <= 4;
  static constexpr int each = kPieces ? kPerPiece<S> : kPerDraw;
  std::int64_t n;
  std::uint64_t seed, place;
  std::uint32_t below;
  F factor;
  bool whole;  // x and y begin at a multiple of a piece
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH Words4 drawn(std::int64_t value) const {
    const auto draw = static_cast<std::uint64_t>(value / kPerDraw);
    return philox({{static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32),
                    static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32)}},
                  seed);
  }
  PIPEWRIGHT_BOTH S of(S value, std::uint32_t random) const { return S(random < below ? F(0) : value * factor); }

  PIPEWRIGHT_BOTH void operator()(std::int64_t group) const {
    const std::int64_t first = group * each;
    if constexpr (kPieces)
      if (whole && first + each <= n) return by_piece(first);
    for (std::int64_t begin = first; begin < first + each && begin < n; begin += kPerDraw) {
      const Words4 random = drawn(begin);
      for (int i = 0; i < kPerDraw && begin + i < n; ++i)
        y[begin + i] = of(x[begin + i], random.word[i]);
    }
  }
  PIPEWRIGHT_BOTH void by_piece(std::int64_t first) const {
    const Piece values = words_at<sizeof(Piece)>(x + first);
    Piece dropped = {};
    PIPEWRIGHT_UNROLL
    for (int draw = 0; draw < each / kPerDraw; ++draw) {
      const Words4 random = drawn(first + draw * kPerDraw);
      PIPEWRIGHT_UNROLL
      for (int j = 0; j < kPerDraw; ++j) {
        const int i = draw * kPerDraw + j;
        put_in(dropped, i, of(value_in<S>(values, i), random.word[j]));
      }
    }
    put_words(y + first, dropped);
  }
};

// y may be x.
template <class Grid, class S>
void dropout(const Grid& grid, const DropoutMask& mask, std::int64_t n, const S* x, S* y) {
  using Group = DroppedGroup<S>;
  grid.values("dropout", (n + Group::each - 1) / Group::each,
              Group{n, mask.seed, mask.place, mask.below(), static_cast<Arithmetic<S>>(mask.factor()),
                    begins_piece(x) && begins_piece(y), x, y});
}

}  // namespace pipewright::grid_kernels
