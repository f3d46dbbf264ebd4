// Products of 16-bit values by tensor cores, sums in fp32: c {m, n} = a {m, k} b {k, n}, in tiles of 128 x kColumns.
//
// A block loads 32 values along k of its rows of a and columns of b into one of three slots of shared memory while it
// multiplies another. Eight warps share the tile, 64 rows x kColumns / 4 columns each, by the core m16n8k16: every
// value is one sum along k, 16 after 16 from the first to the last, whatever the tile, the way of loading and the grid.
//
// In shared memory lie pieces of 16 bytes, eight neighbours along k or across it, as they come. Their places are
// permuted so that the eight pieces that make up a matrix of 8 x 8 lie in different banks: place() below.
//
// Block: what threads of a block can do, device_tensor_block.cuh on a GPU; tensor_block.hpp on the host, which also
// notices reads of what is not there yet, misplaced pieces and matrices whose pieces share a bank.
//
// Tests: tests/kernels/tensor_tiles_test.cpp (any machine), tests/kernels/gpu_test.cpp (a GPU)
#pragma once

#include <type_traits>

#include "kernels/pieces.hpp"
#include "kernels/storage.hpp"

namespace pipewright::tensor_tiles {

using I = std::int64_t;
using grid_kernels::Piece;

constexpr int kThreads = grid_kernels::kBlock;
constexpr int kRows = 128, kNarrow = 128, kWide = 256;  // of a tile
constexpr int kDepth = 32, kCore = 16, kSlots = 3;
constexpr int kPerPiece = 8;                     // values
constexpr int kPiecesDeep = kDepth / kPerPiece;  // of a row, along k
constexpr int kWarpRows = 64, kWarpsAcross = 4, kWarpsDown = 2;
constexpr int kBand = 16;  // tiles down that are worked at together: what they read stays in the L2
static_assert(kWarpsDown * kWarpRows == kRows && kWarpsDown * kWarpsAcross * grid_kernels::kWarp == kThreads);

// Four matrices of 8 x 8 values, a pair of neighbours of each in every lane of a warp.
struct Matrices {
  std::uint32_t at[4];
};
// What a thread sums up: cores down and across, and the four values of a core that a lane holds: of row lane / 4 two
// neighbours from column 2 (lane % 4) on, and the same of the row 8 below.
template <int kColumns>
struct Sums {
  static constexpr int kDown = kWarpRows / kCore, kAcross = kColumns / kWarpsAcross / 8;
  float at[kDown][kAcross][4];
};

// A factor: `sides` rows (a) or columns (b) of `depth` values along k, packed; neighbours in memory are those along k,
// or those across it. kSides: of a tile.
template <class T, bool kAlongK, int kSides>
struct Factor {
  static constexpr int kPieces = kSides * kPiecesDeep, kPiecesAcross = kSides / kPerPiece;
  const T* values;
  I sides, depth;

  // Of the piece that begins at side and deep, within the slot. Of eight pieces one below the other in memory, rows of
  // 64 bytes (along k) fill half of the banks each, so that every second row changes; longer rows all do.
  PIPEWRIGHT_BOTH static int place(int side, int deep) {
    const int piece = (kAlongK ? deep : side) / kPerPiece;
    return kAlongK ? side * kPiecesDeep + (piece ^ (side / 2 % kPiecesDeep))
                   : deep * kPiecesAcross + (piece ^ deep % kPerPiece);
  }
  // Pieces may be loaded whole: each lies inside or outside, and begins at a multiple of 16 bytes.
  bool whole() const {
    return (kAlongK ? depth : sides) % kPerPiece == 0 && reinterpret_cast<std::uintptr_t>(values) % sizeof(Piece) == 0;
  }

  // Thread t's part of the load of the tile's sides from first_side on, and of k from first on.
  template <bool kWhole, class Block>
  PIPEWRIGHT_TEAM void load(Block& block, int t, int slot, I first_side, I first) const {
    PIPEWRIGHT_UNROLL
    for (int i = 0; i < kPieces / kThreads; ++i) {
      const int at = t + i * kThreads;
      const int side = kAlongK ? at / kPiecesDeep : at % kPiecesAcross * kPerPiece;
      const int deep = kAlongK ? at % kPiecesDeep * kPerPiece : at / kPiecesAcross;
      const I row = first_side + side, column = first + deep;
      const T* const from = values + (kAlongK ? row * depth + column : column * sides + row);
      const bool inside = row < sides && column < depth;
      if constexpr (kWhole) {
        block.copy(t, slot + place(side, deep), inside ? from : values, inside);
      } else {
        Piece piece = {};
        PIPEWRIGHT_UNROLL
        for (int j = 0; j < kPerPiece; ++j)
          if (inside && (kAlongK ? column + j < depth : row + j < sides))
            piece.words[j / 2] |= static_cast<std::uint32_t>(from[j].bits) << j % 2 * 16;
        block.store(t, slot + place(side, deep), piece);
      }
    }
  }

  // 16 sides from `side` on, 16 along k from `deep` on: matrices of 8 sides by 8 of k, the next 8 sides, then the same
  // of the next 8 of k.
  template <class Warp>
  PIPEWRIGHT_TEAM static void matrices(const Warp& warp, typename Warp::template Lanes<Matrices>& to, int slot,
                                       int side, int deep) {
    warp.template load<!kAlongK>(to, [&](int lane) {
      const int in_matrix = lane % 8, next_sides = lane / 8 % 2 * 8, next_deep = lane / 16 * 8;
      return slot + (kAlongK ? place(side + next_sides + in_matrix, deep + next_deep)
                             : place(side + next_sides, deep + next_deep + in_matrix));
    });
  }
};

// Two neighbours, stored by one instruction.
template <class C>
struct alignas(2 * sizeof(C)) Pair {
  C first, second;
};

// c = a b, + bias per column unless that is null; or added to c. c is stored as a and b are, or in fp32.
template <class T, class C, bool kAAlongK, bool kBAlongK, bool kWhole, int kColumns>
struct Product {
  Factor<T, kAAlongK, kRows> a;
  Factor<T, kBAlongK, kColumns> b;
  C* c;
  const T* bias;
  bool add;

  using Held = Sums<kColumns>;
  static constexpr int kBlocksPerSm = kColumns == kNarrow ? 2 : 1;
  static constexpr int kSlot = (kRows + kColumns) * kPiecesDeep, kPieces = kSlots * kSlot;

  PIPEWRIGHT_BOTH I down() const { return (a.sides + kRows - 1) / kRows; }
  PIPEWRIGHT_BOTH I across() const { return (b.sides + kColumns - 1) / kColumns; }
  I tiles() const { return down() * across(); }

  template <class Block>
  PIPEWRIGHT_TEAM void operator()(Block& block, I tile) const {
    // Bands of kBand tiles down, in each one column of tiles after another.
    const I band = tile / (kBand * across()), in_band = tile % (kBand * across());
    const I rest = down() - band * kBand, high = rest < kBand ? rest : kBand;
    const I top = (band * kBand + in_band % high) * kRows, left = in_band / high * kColumns;
    block.each([&](int t) {
      Held& sums = block.sums(t);
      PIPEWRIGHT_UNROLL
      for (int i = 0; i < Held::kDown; ++i)
        PIPEWRIGHT_UNROLL
      for (int j = 0; j < Held::kAcross; ++j)
        PIPEWRIGHT_UNROLL
      for (int v = 0; v < 4; ++v)
        sums.at[i][j][v] = 0;
    });
    PIPEWRIGHT_UNROLL
    for (int ahead = 0; ahead < kSlots - 1; ++ahead)
      load(block, ahead * kSlot, top, left, ahead * kDepth);
    int slot = 0, loaded = (kSlots - 1) * kSlot;
    for (I first = 0; first < a.depth; first += kDepth) {
      block.each([&](int t) { block.template wait_copies<kSlots - 2>(t); });  // this thread's
      block.barrier();  // everybody's; and nobody reads the slot before this one any more, which is loaded now
      load(block, loaded, top, left, first + (kSlots - 1) * kDepth);
      multiply(block, slot);
      loaded = slot;
      slot = slot == (kSlots - 1) * kSlot ? 0 : slot + kSlot;
    }
    block.each([&](int t) { block.template wait_copies<0>(t); });
    block.barrier();  // before the next tile's first load
    store(block, top, left);
  }

 private:
  // Behind the end of k: nothing but an empty group, so that groups count steps.
  template <class Block>
  PIPEWRIGHT_TEAM void load(Block& block, int slot, I top, I left, I first) const {
    block.each([&](int t) {
      if (first < a.depth) {
        a.template load<kWhole>(block, t, slot, top, first);
        b.template load<kWhole>(block, t, slot + kRows * kPiecesDeep, left, first);
      }
      block.close_copies(t);
    });
  }

  template <class Block>
  PIPEWRIGHT_TEAM static void multiply(Block& block, int slot) {
    block.warps([&](const auto& warp) {
      using Warp = std::decay_t<decltype(warp)>;
      const int side = warp.index() / kWarpsAcross * kWarpRows,
                column = warp.index() % kWarpsAcross * Held::kAcross * 8;
      PIPEWRIGHT_UNROLL
      for (int deep = 0; deep < kDepth; deep += kCore) {
        typename Warp::template Lanes<Matrices> x[Held::kDown], y[Held::kAcross / 2];
        PIPEWRIGHT_UNROLL
        for (int j = 0; j < Held::kAcross / 2; ++j)
          Factor<T, kBAlongK, kColumns>::matrices(warp, y[j], slot + kRows * kPiecesDeep, column + j * 16, deep);
        PIPEWRIGHT_UNROLL
        for (int i = 0; i < Held::kDown; ++i)
          Factor<T, kAAlongK, kRows>::matrices(warp, x[i], slot, side + i * kCore, deep);
        PIPEWRIGHT_UNROLL
        for (int i = 0; i < Held::kDown; ++i)
          PIPEWRIGHT_UNROLL
        for (int j = 0; j < Held::kAcross; ++j)
          warp.template multiply<T>([&](int t) -> float(&)[4] { return block.sums(t).at[i][j]; }, x[i], y[j / 2],
                                    j % 2);
      }
    });
  }

  template <class Block>
  PIPEWRIGHT_TEAM void store(Block& block, I top, I left) const {
    const bool pairs = b.sides % 2 == 0 && reinterpret_cast<std::uintptr_t>(c) % sizeof(Pair<C>) == 0;
    block.each([&](int t) {
      const int warp = t / grid_kernels::kWarp, lane = t % grid_kernels::kWarp;
      const I row = top + warp / kWarpsAcross * kWarpRows + lane / 4;
      const I column = left + warp % kWarpsAcross * Held::kAcross * 8 + lane % 4 * 2;
      const Held& sums = block.sums(t);
      PIPEWRIGHT_UNROLL
      for (int j = 0; j < Held::kAcross; ++j)
        PIPEWRIGHT_UNROLL
      for (int i = 0; i < 2 * Held::kDown; ++i) {
        const float first = sums.at[i / 2][j][i % 2 * 2], second = sums.at[i / 2][j][i % 2 * 2 + 1];
        if (row + i * 8 < a.sides) store_two(row + i * 8, column + j * 8, first, second, pairs);
      }
    });
  }
  PIPEWRIGHT_BOTH void store_two(I row, I column, float first, float second, bool pairs) const {
    C* const to = c + row * b.sides + column;
    if (pairs) {
      if (column >= b.sides) return;
      Pair<C>& both = *reinterpret_cast<Pair<C>*>(to);
      both = Pair<C>{value(column, first, add ? &both.first : nullptr),
                     value(column + 1, second, add ? &both.second : nullptr)};
    } else {
      if (column < b.sides) to[0] = value(column, first, add ? to : nullptr);
      if (column + 1 < b.sides) to[1] = value(column + 1, second, add ? to + 1 : nullptr);
    }
  }
  PIPEWRIGHT_BOTH C value(I column, float sum, const C* before) const {
    sum += bias == nullptr ? 0.0f : static_cast<float>(bias[column]);
    return C(before == nullptr ? sum : *before + sum);
  }
};

// ---- the three products of a linear layer
// ------------------------------------------------------------------------------ launch(name, product) runs one;
// launch.sms() of them there are, for the choice of a tile. The bits are the same.

// A wide tile reads three quarters of what two narrow ones do from shared memory and the L2. Wide ones, where SMs that
// take two units of time for each of them and one for each narrow one are not done later.
inline bool wide_tiles(I m, I n, I sms) {
  const auto parts = [](I of, I size) { return (of + size - 1) / size; };
  const I down = parts(m, kRows);
  return 2 * parts(down * parts(n, kWide), sms) <= parts(down * parts(n, kNarrow), sms);
}

template <class T, bool kAAlongK, bool kBAlongK, int kColumns, class Launch, class C>
void product_of_tiles(const Launch& launch, const char* name, I m, I n, I k, const T* a, const T* b, C* c,
                      const T* bias, bool add) {
  const Factor<T, kAAlongK, kRows> left = {a, m, k};
  const Factor<T, kBAlongK, kColumns> right = {b, n, k};
  if (left.whole() && right.whole())
    launch(name, Product<T, C, kAAlongK, kBAlongK, true, kColumns>{left, right, c, bias, add});
  else if constexpr (kColumns == kNarrow)
    launch(name, Product<T, C, kAAlongK, kBAlongK, false, kColumns>{left, right, c, bias, add});
  else
    product_of_tiles<T, kAAlongK, kBAlongK, kNarrow>(launch, name, m, n, k, a, b, c, bias, add);
}
template <class T, bool kAAlongK, bool kBAlongK, class Launch, class C>
void product(const Launch& launch, const char* name, I m, I n, I k, const T* a, const T* b, C* c, const T* bias,
             bool add) {
  if (wide_tiles(m, n, launch.sms()))
    product_of_tiles<T, kAAlongK, kBAlongK, kWide>(launch, name, m, n, k, a, b, c, bias, add);
  else
    product_of_tiles<T, kAAlongK, kBAlongK, kNarrow>(launch, name, m, n, k, a, b, c, bias, add);
}

template <class Launch, class T>
void linear(const Launch& launch, I rows, I in, I out, const T* x, const T* w, const T* bias, T* y) {
  product<T, true, true>(launch, "linear", rows, out, in, x, w, y, bias, false);
}
template <class Launch, class T>
void linear_input_gradient(const Launch& launch, I rows, I in, I out, const T* dy, const T* w, T* dx) {
  product<T, true, false>(launch, "linear_input_gradient", rows, in, out, dy, w, dx, static_cast<const T*>(nullptr),
                          false);
}
template <class Launch, class T>
void linear_weight_gradient(const Launch& launch, I rows, I in, I out, const T* x, const T* dy, float* dw) {
  product<T, false, false>(launch, "linear_weight_gradient", out, in, rows, dy, x, dw, static_cast<const T*>(nullptr),
                           true);
}

}  // namespace pipewright::tensor_tiles
