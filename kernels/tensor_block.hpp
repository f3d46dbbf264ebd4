// The block of tensor_tiles.hpp on the host: 256 threads one after another, lanes, copies and cores as the PTX ISA
// [PTX] describes them, sums as they were found on A100s [Fasi21]. A copy is done when it is waited for, and not
// before.
//
// It counts what would be wrong on a GPU though the threads of this host hide it: pieces that are read or overwritten
// while a copy or another thread of the same step between barriers is at them, pieces that begin at no multiple of 16
// bytes, and matrices whose eight rows do not lie in different banks.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/tensor_tiles.hpp"

namespace pipewright::tensor_tiles {

// A core does not round: it takes the addends in steps of the largest one's 25th bit, cuts off what lies below, and
// cuts the sum to 24 bits, both toward zero. So an A100's does with 8 products of 16 bits and the sum before [Fasi21]
// (their 8 at once, and one bit more than fp32 has); later ones take 16 and keep more bits. What is right within this
// is right on those, too. Exact: products have 22 bits, and sums in these steps fit into a double.
inline float cut_sum(std::span<const double> addends) {
  int largest = std::numeric_limits<int>::min();
  for (const double a : addends) {
    if (!std::isfinite(a)) return static_cast<float>(std::accumulate(addends.begin(), addends.end(), 0.0));
    if (a != 0) largest = std::max(largest, std::ilogb(a));
  }
  if (largest == std::numeric_limits<int>::min()) return 0;
  double steps = 0;
  for (const double a : addends)
    steps += std::trunc(std::ldexp(a, 24 - largest));
  const double sum = std::ldexp(steps, largest - 24);
  const float nearest = static_cast<float>(sum);
  return std::abs(static_cast<double>(nearest)) > std::abs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
}

struct Mishaps {
  int races = 0, misaligned = 0, conflicts = 0;
  int copies = 0, stores = 0;  // no mishaps: how pieces came
};

class TracedPieces {
 public:
  TracedPieces(std::size_t pieces, Mishaps& mishaps) : pieces_(pieces), uses_(pieces), mishaps_(&mishaps) {}

  void copy(int t, int place, const void* from, bool present) {
    if (present && reinterpret_cast<std::uintptr_t>(from) % sizeof(Piece) != 0) ++mishaps_->misaligned;
    ++mishaps_->copies;
    write(t, place);
    ++use(place).pending;
    threads_[static_cast<std::size_t>(t)].open.push_back({place, present ? from : nullptr});
  }
  void store(int t, int place, const Piece& piece) {
    ++mishaps_->stores;
    write(t, place);
    pieces_[static_cast<std::size_t>(place)] = piece;
  }
  void close_copies(int t) {
    Thread& thread = threads_[static_cast<std::size_t>(t)];
    thread.groups.push_back(std::move(thread.open));
    thread.open.clear();
  }
  void wait_copies(int t, std::size_t open) {
    Thread& thread = threads_[static_cast<std::size_t>(t)];
    for (; thread.done + open < thread.groups.size(); ++thread.done)
      for (const Copy& copy : thread.groups[thread.done]) {
        Piece& piece = pieces_[static_cast<std::size_t>(copy.place)];
        piece = {};
        if (copy.from != nullptr) std::memcpy(&piece, copy.from, sizeof(Piece));
        --use(copy.place).pending;
        write(t, copy.place);
      }
  }
  void barrier() { ++step_; }
  const Piece& read(int t, int place) {
    Use& at = use(place);
    if (at.pending > 0 || (at.written == step_ && at.writer != t)) ++mishaps_->races;
    if (at.read == step_ && at.reader != t) at.reader = kSeveral;
    if (at.read != step_) at.read = step_, at.reader = t;
    return pieces_[static_cast<std::size_t>(place)];
  }
  void check_banks(const int* places) {
    std::uint32_t banks = 0;
    for (int row = 0; row < 8; ++row)
      banks |= 1u << places[row] % 8;
    if (banks != 0xff) ++mishaps_->conflicts;
  }

 private:
  static constexpr int kSeveral = -2;
  struct Use {
    int pending = 0, writer = -1, reader = -1;
    long written = -1, read = -1;  // in which step between barriers
  };
  struct Copy {
    int place;
    const void* from;
  };
  struct Thread {
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;
    std::size_t done = 0;
  };
  Use& use(int place) { return uses_[static_cast<std::size_t>(place)]; }
  void write(int t, int place) {
    Use& at = use(place);
    const bool read_by_another = at.read == step_ && at.reader != t;
    if (at.pending > 0 || read_by_another || (at.written == step_ && at.writer != t)) ++mishaps_->races;
    at.written = step_, at.writer = t;
  }

  std::vector<Piece> pieces_;
  std::vector<Use> uses_;
  std::array<Thread, kThreads> threads_;
  Mishaps* mishaps_;
  long step_ = 0;
};

class HostWarp {
 public:
  template <class V>
  using Lanes = std::array<V, grid_kernels::kWarp>;
  HostWarp(TracedPieces& pieces, int index) : pieces_(&pieces), index_(index) {}
  int index() const { return index_; }

  // Lane 8 i + r says where row r of matrix i lies; lane l gets of each the values at row l / 4, columns 2 (l % 4) and
  // the next one, or of the transposed matrix.                                                        [PTX] ldmatrix
  template <bool kTransposed, class Place>
  void load(Lanes<Matrices>& to, const Place& place) const {
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::array<int, 8> places;
      std::uint16_t values[8][8];
      for (int row = 0; row < 8; ++row) {
        const int lane = 8 * matrix + row;
        places[static_cast<std::size_t>(row)] = place(lane);
        std::memcpy(values[row], &pieces_->read(index_ * grid_kernels::kWarp + lane, place(lane)), sizeof(Piece));
      }
      pieces_->check_banks(places.data());
      for (int lane = 0; lane < grid_kernels::kWarp; ++lane) {
        const int row = lane / 4, column = 2 * (lane % 4);
        const std::uint32_t low = kTransposed ? values[column][row] : values[row][column];
        const std::uint32_t high = kTransposed ? values[column + 1][row] : values[row][column + 1];
        to[static_cast<std::size_t>(lane)].at[matrix] = low | high << 16;
      }
    }
  }

  // The core m16n8k16: a's four registers are rows g and g + 8 of k 2 c and 2 c + 1, then both of k 8 + ..., with g =
  // lane / 4 and c = lane % 4; b's two are column g of k 2 c and 2 c + 1, then of k 8 + ...                [PTX] mma
  template <class T, class SumsOf>
  void multiply(const SumsOf& sums, const Lanes<Matrices>& a, const Lanes<Matrices>& b, int half) const {
    float x[16][16], y[16][8];
    for (int lane = 0; lane < grid_kernels::kWarp; ++lane) {
      const int group = lane / 4, pair = lane % 4 * 2;
      const Matrices &of_a = a[static_cast<std::size_t>(lane)], &of_b = b[static_cast<std::size_t>(lane)];
      for (int next = 0; next < 2; ++next) {
        x[group][pair + next] = value<T>(of_a.at[0], next), x[group + 8][pair + next] = value<T>(of_a.at[1], next);
        x[group][pair + 8 + next] = value<T>(of_a.at[2], next);
        x[group + 8][pair + 8 + next] = value<T>(of_a.at[3], next);
        y[pair + next][group] = value<T>(of_b.at[half], next);
        y[pair + 8 + next][group] = value<T>(of_b.at[half + 2], next);
      }
    }
    for (int lane = 0; lane < grid_kernels::kWarp; ++lane)
      for (int v = 0; v < 4; ++v) {
        const int row = lane / 4 + v / 2 * 8, column = lane % 4 * 2 + v % 2;
        float& sum = sums(index_ * grid_kernels::kWarp + lane)[v];
        for (int first = 0; first < 16; first += 8) {
          double addends[9] = {sum};
          for (int k = 0; k < 8; ++k)
            addends[k + 1] = static_cast<double>(x[row][first + k]) * static_cast<double>(y[first + k][column]);
          sum = cut_sum(addends);
        }
      }
  }

 private:
  template <class T>
  static float value(std::uint32_t both, int next) {
    T stored;
    stored.bits = static_cast<std::uint16_t>(both >> 16 * next);
    return stored;
  }
  TracedPieces* pieces_;
  int index_;
};

template <class Held>
class HostTensorBlock {
 public:
  HostTensorBlock(int pieces, Mishaps& mishaps) : pieces_(static_cast<std::size_t>(pieces), mishaps), held_(kThreads) {}

  Held& sums(int t) { return held_[static_cast<std::size_t>(t)]; }
  template <class F>
  void each(const F& f) const {
    for (int t = 0; t < kThreads; ++t)
      f(t);
  }
  template <class F>
  void warps(const F& f) {
    for (int warp = 0; warp < kThreads / grid_kernels::kWarp; ++warp)
      f(HostWarp(pieces_, warp));
  }
  void barrier() { pieces_.barrier(); }
  void copy(int t, int place, const void* from, bool present) { pieces_.copy(t, place, from, present); }
  void store(int t, int place, const Piece& piece) { pieces_.store(t, place, piece); }
  void close_copies(int t) { pieces_.close_copies(t); }
  template <int kOpen>
  void wait_copies(int t) {
    pieces_.wait_copies(t, kOpen);
  }

 private:
  TracedPieces pieces_;
  std::vector<Held> held_;
};

// `blocks` blocks, one after another: what a Launch of tensor_tiles.hpp is on the host.
struct HostTensorCores {
  std::int64_t blocks = 1;
  Mishaps* mishaps = nullptr;
  bool wide = false;  // wide tiles wherever there are two narrow ones side by side
  std::int64_t sms() const { return wide ? 1 : 1000; }
  template <class Product>
  void operator()(const char*, const Product& product) const {
    for (std::int64_t i = 0; i < blocks && i < product.tiles(); ++i) {
      HostTensorBlock<typename Product::Held> block(Product::kPieces, *mishaps);
      for (std::int64_t tile = i; tile < product.tiles(); tile += blocks)
        product(block, tile);
    }
  }
};

}  // namespace pipewright::tensor_tiles
