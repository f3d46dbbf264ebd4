// Dropout's random bits, its rate, and that a gradient has the mask of its forward.
#include "kernels/dropout.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/functions.hpp"
#include "runtime/backends/cpu_kernels.hpp"
#include "tests/kernels/host_grid.hpp"

namespace pipewright::tests {
namespace {

using grid_kernels::HostGrid;

template <class S>
std::vector<S> random_values(std::size_t n, std::uint64_t seed) {
  std::vector<S> values;
  for (std::size_t i = 0; i < n; ++i)  // none is 0
    values.push_back(S(1 + grid_kernels::unit_of(grid_kernels::random_bits(seed, i))));
  return values;
}

template <class S>
std::vector<S> dropped(const DropoutMask& mask, const std::vector<S>& x, std::int64_t blocks = 1) {
  std::vector<S> y(x.size(), S(-1.0f));
  dropout(HostGrid{blocks}, mask, std::ssize(x), x.data(), y.data());
  return y;
}

template <class S>
std::vector<bool> zeros(const std::vector<S>& values) {
  std::vector<bool> zero;
  for (const S value : values)
    zero.push_back(value == 0);
  return zero;
}

bool same(const grid_kernels::Words4& a, const std::uint32_t (&b)[4]) {
  for (int i = 0; i < 4; ++i)
    if (a.word[i] != b[i]) return false;
  return true;
}

// Random123, kat_vectors: philox4x32 with 10 rounds.                                                     [Salmon11]
TEST_CASE("Philox 4x32-10 gives its authors' known answers") {
  using grid_kernels::philox;
  CHECK(same(philox({{0, 0, 0, 0}}, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kAll = 0xffffffff;
  CHECK(same(philox({{kAll, kAll, kAll, kAll}}, 0xffffffffffffffff), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  CHECK(same(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
             {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST_CASE("A value becomes 0 where its random bits are below the share of 2^32, else it is x / (1 - share)") {
  // Of the first known answer only 6627e8d5 is below half of 2^32.
  const DropoutMask half = {0.5, 0, 0};
  CHECK(half.below() == 0x80000000);
  CHECK(dropped<float>(half, {1, 2, 3, 4}) == std::vector<float>{0, 4, 6, 8});
  CHECK(DropoutMask{0.1, 0, 0}.below() == 429'496'730);
  const std::vector<float> x = random_values<float>(100, 1);
  CHECK(dropped<float>({0, 7, 7}, x) == x);
  CHECK(DropoutMask{1 - 0x1p-53, 0, 0}.below() == 0xffffffff);
  // Not 0 times what it was.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(dropped<float>(half, {nan, 1, 1, 1})[0] == 0);
}

TEST_CASE("The share of zeros is the one asked for, within five standard errors, at each place in a draw") {
  constexpr std::size_t n = 400'000;
  for (const double share : {0.1, 0.5, 0.9}) {
    const auto zero = zeros(dropped<float>({share, 42, 3}, random_values<float>(n, 1)));
    double all = 0, by_place[4] = {};
    for (std::size_t i = 0; i < n; ++i)
      all += zero[i], by_place[i % 4] += zero[i];
    // Binomial: n p (1 - p).
    const auto bound = [&](double count) { return 5 * std::sqrt(count * share * (1 - share)); };
    CHECK(std::abs(all - n * share) < bound(n));
    for (const double each : by_place)
      CHECK(std::abs(each - n / 4.0 * share) < bound(n / 4.0));
  }
}

template <class S>
void check_gradient_agrees() {
  for (const std::size_t n : {1, 5, 1000, 4099}) {
    const DropoutMask mask = {0.25, 11, 12};
    const auto x = random_values<S>(n, 1), dy = random_values<S>(n, 2);
    const auto y = dropped(mask, x), dx = dropped(mask, dy, 7);
    CHECK(zeros(y) == zeros(dx));
    for (std::size_t i = 0; i < n; ++i)
      if (dx[i] != 0) REQUIRE(static_cast<float>(dx[i]) == static_cast<float>(S(dy[i] * (1 / 0.75f))));
  }
}
TEST_CASE("A gradient is 0 where its forward is, whatever the grid, and of the forward's factor elsewhere") {
  check_gradient_agrees<float>();
  check_gradient_agrees<Bf16>();
  check_gradient_agrees<Fp16>();
}

TEST_CASE("A mask is the same in every precision, at every address and on the CPU backend") {
  constexpr std::size_t n = 4100;
  const DropoutMask mask = {0.4, 0x123456789, 0xabcdef012};
  const auto wanted = zeros(dropped(mask, random_values<double>(n, 1)));
  CHECK(zeros(dropped(mask, random_values<float>(n, 1))) == wanted);
  CHECK(zeros(dropped(mask, random_values<Bf16>(n, 1))) == wanted);
  CHECK(zeros(dropped(mask, random_values<Fp16>(n, 1))) == wanted);
  auto beside = random_values<Bf16>(n + 1, 1);
  dropout(HostGrid{3}, mask, n, beside.data() + 1, beside.data() + 1);
  beside.erase(beside.begin());
  CHECK(zeros(beside) == wanted);
  auto by_cpu = random_values<float>(n, 1);
  cpu_kernels::dropout<float>(mask.seed, mask.place, mask.below(), static_cast<float>(mask.factor()), n, by_cpu.data(),
                              by_cpu.data());
  CHECK(by_cpu == dropped(mask, random_values<float>(n, 1)));
}

TEST_CASE("Other seeds and other places have other masks, that agree as often as chance has it") {
  constexpr std::size_t n = 100'000;
  const auto mask_of = [](std::uint64_t seed, std::uint64_t place) {
    return zeros(dropped<float>({0.5, seed, place}, random_values<float>(n, 1)));
  };
  const auto one = mask_of(1, 1);
  for (const auto& other : {mask_of(2, 1), mask_of(1, 2), mask_of(1 + (std::uint64_t{1} << 32), 1),
                            mask_of(1, 1 + (std::uint64_t{1} << 32)), mask_of(0, 0)}) {
    double agree = 0;
    for (std::size_t i = 0; i < n; ++i)
      agree += one[i] == other[i];
    CHECK(std::abs(agree - n / 2.0) < 5 * std::sqrt(n / 4.0));
  }
}

}  // namespace
}  // namespace pipewright::tests
