// The kernels' own code, run by the CPU thread after thread, against the CPU backend's arithmetic in double.
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/gpu_kernels.hpp"
#include "tests/kernels/host_grid.hpp"
#include "tests/kernels/kernel_cases.hpp"
#include "tests/kernels/kernel_runs.hpp"
#include "tests/kernels/reference.hpp"

namespace pipewright::tests::kernel_test {
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

// On one other grid each: who computes what does not depend on how it is stored.
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

TEST_CASE("Sums fold a warp by halves") {
  // 1e8 and -1e8 cancel in lanes 0 and 16, which meet first; 1 in lane 1 would be lost if it met either of them alone.
  std::array<float, grid_kernels::kWarp> values{};
  values[0] = 1e8f, values[16] = -1e8f, values[1] = 1;
  const grid_kernels::HostTeam team;
  CHECK(team.sum([&](int t) { return values[static_cast<std::size_t>(t)]; }) == 1);
  CHECK(team.sum([](int t) { return t; }) == 31 * 16);
  CHECK(team.max([](int t) { return t == 20 ? 9 : -t; }) == 9);
  CHECK(std::isnan(team.max([](int t) { return t == 5 ? std::nanf("") : 1.0f; })));
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

TEST_CASE("Gradients may be written over what they are of: dy of a softmax, the logits of a loss") {
  const grid_kernels::HostGrid grid{1};
  constexpr I n = 100;
  std::vector<float> p(n), x(n), apart(n), losses(1), row_losses(1);
  normal(grid, n, 1, 1.0f, p.data());
  normal(grid, n, 2, 1.0f, x.data());
  const auto at = [](std::vector<float>& values) { return static_cast<const float*>(values.data()); };
  std::vector<float> dx = x;
  softmax_input_gradient(grid, 1, n, at(p), at(x), apart.data());
  softmax_input_gradient(grid, 1, n, at(p), at(dx), dx.data());
  CHECK(dx == apart);
  dx = x;
  const I label = 40;
  cross_entropy(grid, 1, 1, n, at(x), &label, 1.0f, losses.data(), apart.data(), row_losses.data());
  const float loss = losses[0];
  cross_entropy(grid, 1, 1, n, at(dx), &label, 1.0f, losses.data(), dx.data(), row_losses.data());
  CHECK(dx == apart);
  CHECK(losses[0] == loss);
}

TEST_CASE("A copy keeps the bits of what is no number") {
  std::vector<Bf16> x(4), y(4, Bf16(0.0f));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i].bits = std::array<std::uint16_t, 4>{0x7fc1, 0xffff, 0x7f81, 0x0001}[i];
  copy_values(grid_kernels::HostGrid{1}, 4, static_cast<const Bf16*>(x.data()), y.data());
  CHECK(std::memcmp(x.data(), y.data(), 8) == 0);
}

TEST_CASE("Random fills depend on seed and place alone, and have the moments they should") {
  constexpr std::int64_t n = 20000;
  std::vector<float> one(n), other(n);
  normal(grid_kernels::HostGrid{1}, n, 7, 3.0f, one.data());
  normal(grid_kernels::HostGrid{9}, n, 7, 3.0f, other.data());
  CHECK(one == other);
  normal(grid_kernels::HostGrid{1}, n, 8, 3.0f, other.data());
  CHECK(one != other);
  double sum = 0, squares = 0;
  for (const float value : one)
    sum += double{value}, squares += double{value} * double{value};
  // Of deviation 3: variance 9. Bounds of five standard errors.
  CHECK(std::abs(sum / n) < 5 * 3 / std::sqrt(1.0 * n));
  CHECK(squares / n == doctest::Approx(9).epsilon(5 * std::sqrt(2.0 / n)));
}

}  // namespace
}  // namespace pipewright::tests::kernel_test
