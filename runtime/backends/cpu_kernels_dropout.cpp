#include "runtime/backends/cpu_kernels_lanes.hpp"

namespace pipewright::runtime::cpu_kernels {

namespace {

constexpr std::int64_t kDraws = 64;  // at once: vectors of counters, which stay in registers and L1

// Philox 4x32-10 [Salmon11] of kDraws counters {draw, draw >> 32, place, place >> 32} from `first` on.
struct Draws {
  std::uint32_t word[4][kDraws];

  Draws(std::uint64_t seed, std::uint64_t place, std::uint64_t first) {
    for (std::size_t i = 0; i < kDraws; ++i) {
      word[0][i] = static_cast<std::uint32_t>(first + i), word[1][i] = static_cast<std::uint32_t>((first + i) >> 32);
      word[2][i] = static_cast<std::uint32_t>(place), word[3][i] = static_cast<std::uint32_t>(place >> 32);
    }
    auto key = static_cast<std::uint32_t>(seed), other = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, key += 0x9e3779b9U, other += 0xbb67ae85U) {
      PIPEWRIGHT_ELEMENTWISE
      for (std::size_t i = 0; i < kDraws; ++i) {
        const std::uint64_t left = 0xd2511f53ULL * word[0][i], right = 0xcd9e8d57ULL * word[2][i];
        word[0][i] = static_cast<std::uint32_t>(right >> 32) ^ word[1][i] ^ key;
        word[1][i] = static_cast<std::uint32_t>(right);
        word[2][i] = static_cast<std::uint32_t>(left >> 32) ^ word[3][i] ^ other;
        word[3][i] = static_cast<std::uint32_t>(left);
      }
    }
  }
};

}  // namespace

template <class S>
void dropout(std::uint64_t seed, std::uint64_t place, std::uint32_t below, S factor, std::int64_t n, const S* x, S* y) {
  for (std::int64_t begin = 0; begin < n; begin += 4 * kDraws) {
    const Draws drawn(seed, place, static_cast<std::uint64_t>(begin) / 4);
    const std::int64_t end = begin + 4 * kDraws < n ? begin + 4 * kDraws : n;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i - begin);
      y[i] = drawn.word[at % 4][at / 4] < below ? S(0) : x[i] * factor;
    }
  }
}

template void dropout(std::uint64_t, std::uint64_t, std::uint32_t, float, std::int64_t, const float*, float*);
template void dropout(std::uint64_t, std::uint64_t, std::uint32_t, double, std::int64_t, const double*, double*);

}  // namespace pipewright::runtime::cpu_kernels
