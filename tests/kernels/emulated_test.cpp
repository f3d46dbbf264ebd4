// The kernels' own code, run by the CPU thread after thread, against the CPU backend's arithmetic in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/dropout.hpp"
#include "kernels/flash.hpp"
#include "kernels/optimizers.hpp"
#include "kernels/tables.hpp"
#include "kernels/tiles.hpp"
#include "kernels/values.hpp"
#include "kernels/windows.hpp"
#include "tests/kernels/kernel_cases.hpp"
#include "tests/kernels/kernel_runs.hpp"
#include "tests/kernels/reference.hpp"

namespace pipewright::kernel_test {
namespace {

template <class S, class Machine>
using Called = std::function<void(const Machine&, const KernelArguments<S>&)>;

// A case of the table with its calls: by kernels that compute in double, for the right results, and in what is tested.
// Called through std::function, so that what compares them is compiled once, not for every kernel.
struct AnyKernel {
  KernelCase kernel;
  Called<double, reference::Reference> reference;
  Called<double, grid_kernels::HostGrid> in_double;
  Called<float, grid_kernels::HostGrid> in_fp32;
  Called<Bf16, grid_kernels::HostGrid> in_bf16;
  Called<Fp16, grid_kernels::HostGrid> in_fp16;
};

const std::vector<AnyKernel>& all_kernels() {
  static const std::vector<AnyKernel> all = [] {
    std::vector<AnyKernel> list;
    visit_kernels([&](const KernelCase& kernel, const auto& call) {
      list.push_back({kernel, call, call, call, call, call});
    });
    return list;
  }();
  return all;
}

// Beginning with what T can hold, against double; and the same bits on any grid.
template <class T>
void check_stored_as(Called<T, grid_kernels::HostGrid> AnyKernel::*call, const std::vector<std::int64_t>& grids) {
  for (const AnyKernel& each : all_kernels()) {
    CAPTURE(each.kernel.name);
    const HostRun<double, T> expected(each.kernel, each.reference, reference::Reference{});
    const HostRun<T> one_block(each.kernel, each.*call, grid_kernels::HostGrid{1});
    CHECK(largest_difference<T>(each.kernel, one_block, expected) < 1);
    for (const std::int64_t blocks : grids) {
      const HostRun<T> other(each.kernel, each.*call, grid_kernels::HostGrid{blocks});
      CHECK(same_bits(each.kernel, one_block, other));
    }
  }
}

TEST_CASE("Every kernel computes what the CPU backend computes in double, and has the same bits on any grid") {
  CHECK(all_kernels().size() > 90);
  for (const AnyKernel& each : all_kernels()) {
    CAPTURE(each.kernel.name);
    const HostRun<double> expected(each.kernel, each.reference, reference::Reference{});
    const HostRun<double> exact(each.kernel, each.in_double, grid_kernels::HostGrid{1});
    CHECK(largest_difference<double>(each.kernel, exact, expected) < 1e-12 / kFloatTolerance);
  }
  check_stored_as(&AnyKernel::in_fp32, {2, 7, 1000});
}

// On one other grid each: who computes what does not depend on how it is stored, but for pieces of 16 bytes, which a
// block of another grid may begin beside.
TEST_CASE("Stored in bf16, every kernel is off by its roundings alone") {
  check_stored_as(&AnyKernel::in_bf16, {7});
}

TEST_CASE("Stored in fp16, every kernel is off by its roundings alone") {
  check_stored_as(&AnyKernel::in_fp16, {7});
}

TEST_CASE("A wrong kernel is noticed: a bias of 1e-4 in fp32, of four roundings in bf16") {
  const KernelCase kernel = {"copy", {{Role::In, 100}, {Role::Out, 100}}};
  const auto copied = [](const auto& k, const auto& a) { copy_values(k, 100, a[0], a[1]); };
  const auto biased = [&]<class T>(T, float bias) {
    const HostRun<double, T> expected(kernel, copied, reference::Reference{});
    const HostRun<T> wrong(
        kernel,
        [&](const auto& k, const auto& a) {
          copied(k, a);
          a[1][17] = T(a[1][17] + bias);
        },
        grid_kernels::HostGrid{1});
    return largest_difference<T>(kernel, wrong, expected);
  };
  CHECK(biased(0.0f, 1e-4f) > 1);
  CHECK(biased(Bf16(0.0f), 0x4p-9f) > 1);
  CHECK(biased(Bf16(0.0f), 0) == 0);
}

TEST_CASE("Products in tf32 are those of factors rounded to it, bit by bit") {
  constexpr I rows = 21, in = 300, out = 17;
  const KernelCase kernel = {"linear", {{Role::In, rows * in}, {Role::In, out * in}, {Role::Out, rows * out}}};
  const auto call = [](const auto& k, const auto& a) {
    linear(k, rows, in, out, a[0], a[1], static_cast<decltype(a[0])>(nullptr), a[2]);
  };
  const auto rounded_first = [&](const auto& k, const auto& a) {
    for (const I i : {0, 1})
      for (I j = 0; j < kernel.arrays[static_cast<std::size_t>(i)].size; ++j)
        a[static_cast<std::size_t>(i)][j] = in_tf32(a[static_cast<std::size_t>(i)][j]);
    call(k, a);
  };
  const HostRun<float> whole(kernel, call, grid_kernels::HostGrid{1}),
      tf32(kernel, call, grid_kernels::HostGrid{3, true}), first(kernel, rounded_first, grid_kernels::HostGrid{1});
  CHECK(std::memcmp(tf32.arrays[2].data(), first.arrays[2].data(), tf32.arrays[2].bytes()) == 0);
  CHECK(std::memcmp(tf32.arrays[2].data(), whole.arrays[2].data(), tf32.arrays[2].bytes()) != 0);
}

TEST_CASE("Sums fold by halves within a warp, then over the warps") {
  // 1e8 and -1e8 cancel in lanes 0 and 16, which meet first; 1 in lane 1 would be lost if it met either of them alone.
  std::array<float, kernel_test::kLanes> values{};
  values[0] = 1e8f, values[16] = -1e8f, values[1] = 1;
  CHECK(grid_kernels::HostTeam<32>{}.sum([&](int t) { return values[static_cast<std::size_t>(t)]; }) == 1);
  CHECK(grid_kernels::HostTeam<256>{}.sum([](int t) { return t; }) == 255 * 128);
  CHECK(grid_kernels::HostTeam<256>{}.max([](int t) { return t == 200 ? 9 : -t; }) == 9);
  CHECK(std::isnan(grid_kernels::HostTeam<32>{}.max([](int t) { return t == 5 ? std::nanf("") : 1.0f; })));
}

TEST_CASE("Softmax of huge logits stays finite, whichever thread holds the largest") {
  for (const std::int64_t n : {std::int64_t{50}, std::int64_t{3000}})
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{40}}) {
      std::vector<float> x(static_cast<std::size_t>(n), -1e30f), y(x), wanted(x.size(), 0.0f);
      x[static_cast<std::size_t>(at)] = 1e30f, wanted[static_cast<std::size_t>(at)] = 1;
      softmax(grid_kernels::HostGrid{1}, 1, n, x.data(), y.data());
      CHECK(y == wanted);
    }
}

TEST_CASE("Random fills depend on seed and place alone, and have the moments they should") {
  constexpr std::int64_t n = 20000;
  std::vector<float> one(n), other(n), normals(n);
  uniform(grid_kernels::HostGrid{1}, n, 7, 2.0f, one.data());
  uniform(grid_kernels::HostGrid{9}, n, 7, 2.0f, other.data());
  CHECK(one == other);
  uniform(grid_kernels::HostGrid{1}, n, 8, 2.0f, other.data());
  CHECK(one != other);
  normal(grid_kernels::HostGrid{1}, n, 7, 3.0f, normals.data());
  const auto mean = [](const std::vector<float>& values, double power) {
    double total = 0;
    for (const float value : values)
      total += std::pow(static_cast<double>(value), power);
    return total / n;
  };
  // Uniform in (-2, 2): variance 4/3; normal of deviation 3: 9. Bounds of five standard errors.
  CHECK(std::abs(mean(one, 1)) < 5 * 2 / std::sqrt(3.0 * n));
  CHECK(mean(one, 2) == doctest::Approx(4.0 / 3).epsilon(5 * std::sqrt(0.8 / n)));
  CHECK(std::abs(mean(normals, 1)) < 5 * 3 / std::sqrt(1.0 * n));
  CHECK(mean(normals, 2) == doctest::Approx(9).epsilon(5 * std::sqrt(2.0 / n)));
  CHECK(*std::max_element(one.begin(), one.end()) < 2);
  CHECK(*std::min_element(one.begin(), one.end()) > -2);
}

}  // namespace
}  // namespace pipewright::kernel_test
