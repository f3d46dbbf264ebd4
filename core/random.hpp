// Seeded random numbers, the same on every machine: the generator is fixed here, and so are the distributions.
//
//     bits      z += 0x9e3779b97f4a7c15, then mixed                                                       [Steele14]
//     uniform   (bits / 2^11 + 1/2) / 2^53, in (0, 1)
//     normal    sqrt(-2 ln u) cos(2 pi v)                                                                 [BoxMuller58]
// Seed 1: the first bits are 0x910a2dec89025cc1.                        tests/core/random_test.cpp "the first numbers"
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/rooms.hpp"

namespace pipewright::core {

class Random {
 public:
  // `stream`: numbers of one seed that have nothing to do with one another.
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) : state_(seed ^ mixed(stream)) {}

  std::uint64_t bits() { return mixed(state_ += 0x9e3779b97f4a7c15U); }
  double uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal() {
    const double u = uniform(), v = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  }
  // Drawn again while farther than `most` from 0.
  double normal_within(double most) {
    double value = normal();
    while (std::abs(value) > most)
      value = normal();
    return value;
  }

 private:
  static std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace pipewright::core
