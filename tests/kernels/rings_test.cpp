// All-reduce around a ring, by the kernels that a GPU's virtual devices would use.
#include "kernels/rings.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/functions.hpp"
#include "kernels/values.hpp"
#include "tests/kernels/host_grid.hpp"

namespace pipewright::tests {
namespace {

using Buffers = std::vector<std::vector<float>>;

Buffers some_buffers(int members, std::size_t n) {
  Buffers buffers(static_cast<std::size_t>(members), std::vector<float>(n));
  for (std::size_t m = 0; m < buffers.size(); ++m)
    for (std::size_t i = 0; i < n; ++i)
      buffers[m][i] = 2 * grid_kernels::unit_of(grid_kernels::random_bits(m + 1, i)) - 1;
  return buffers;
}

void run_step(const grid_kernels::RingStep& s, Buffers& buffers) {
  const grid_kernels::HostGrid grid{3};
  float* const own = buffers[static_cast<std::size_t>(s.member)].data() + s.begin;
  const float* const left = buffers[static_cast<std::size_t>(s.left)].data() + s.begin;
  if (s.add)
    add(grid, s.end - s.begin, static_cast<const float*>(own), left, own);
  else
    copy_values(grid, s.end - s.begin, left, own);
}

TEST_CASE("After a ring's steps every member has the sum, in the ring's order from the chunk's number on") {
  for (const int members : {1, 2, 3, 4, 7})
    for (const std::size_t n : {std::size_t{1}, std::size_t{3}, std::size_t{1000}, std::size_t{1001}}) {
      CAPTURE(members);
      CAPTURE(n);
      const Buffers before = some_buffers(members, n);
      Buffers buffers = before;
      grid_kernels::for_ring(members, static_cast<std::int64_t>(n),
                             [&](int, const grid_kernels::RingStep& s) { run_step(s, buffers); });
      const auto count = static_cast<std::size_t>(members);
      double worst = 0;
      for (std::size_t chunk = 0; chunk < count; ++chunk)
        for (std::size_t i = n * chunk / count; i < n * (chunk + 1) / count; ++i) {
          float in_order = before[chunk][i];
          double exact = 0;
          for (std::size_t k = 1; k < count; ++k)
            in_order += before[(chunk + k) % count][i];
          for (std::size_t k = 0; k < count; ++k)
            exact += static_cast<double>(before[k][i]);
          for (const auto& buffer : buffers) {
            CHECK(buffer[i] == in_order);
            worst = std::max(worst, std::abs(static_cast<double>(buffer[i]) - exact));
          }
        }
      CHECK(worst < 2e-6);  // seven terms of size 1
    }
}

TEST_CASE("A ring needs no other wait than for the left neighbour's step before") {
  // Whichever member runs ahead as far as it may, the result is the same.
  constexpr int kMembers = 5;
  constexpr std::int64_t kValues = 103;
  std::vector<std::vector<grid_kernels::RingStep>> steps(kMembers);
  grid_kernels::for_ring(kMembers, kValues, [&](int, const grid_kernels::RingStep& s) {
    steps[static_cast<std::size_t>(s.member)].push_back(s);
  });
  Buffers wanted = some_buffers(kMembers, kValues);
  grid_kernels::for_ring(kMembers, kValues, [&](int, const grid_kernels::RingStep& s) { run_step(s, wanted); });
  for (std::size_t first = 0; first < kMembers; ++first) {
    Buffers buffers = some_buffers(kMembers, kValues);
    std::vector<std::size_t> done(kMembers);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t k = 0; k < kMembers; ++k) {
        const std::size_t m = (first + k) % kMembers, left = (m + kMembers - 1) % kMembers;
        while (done[m] < steps[m].size() && done[left] >= done[m])
          run_step(steps[m][done[m]++], buffers), moved = true;
      }
    }
    CHECK(buffers == wanted);
  }
}

}  // namespace
}  // namespace pipewright::tests
