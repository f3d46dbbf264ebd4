// Kernels by pieces of 16 bytes: what begins at one and what does not, rows that are kept and rows that are read again;
// nothing is written beside what a kernel is given.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/optimizers.hpp"
#include "kernels/rows.hpp"
#include "kernels/tables.hpp"
#include "kernels/values.hpp"

namespace pipewright::kernel_test {
namespace {

using I = std::int64_t;
using grid_kernels::HostGrid;

// Arrays of n values each at random in (-1, 1), `off` values behind a multiple of 16 bytes.
template <class T>
class Inputs {
 public:
  Inputs(I n, std::size_t off) : n_(n), off_(off) {}
  const T* next() {
    ++seed_;
    arrays_.emplace_back(off_, T(0));
    for (I i = 0; i < n_; ++i)
      arrays_.back().push_back(
          T(2 * grid_kernels::unit_of(grid_kernels::random_bits(seed_, static_cast<std::uint64_t>(i))) - 1));
    return arrays_.back().data() + off_;
  }

 private:
  I n_;
  std::size_t off_;
  std::uint64_t seed_ = 0;
  std::vector<std::vector<T>> arrays_;
};

// What `call` writes into n values between two guards, which it may not touch; before, they are 0.25.
template <class T, class Call>
std::vector<T> written(I n, std::size_t off, const Call& call) {
  constexpr std::size_t kGuard = 8;
  std::vector<T> out(off + static_cast<std::size_t>(n) + kGuard, T(-77));
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(off), out.end() - kGuard, T(0.25f));
  call(out.data() + off);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (i < off || i >= out.size() - kGuard) CHECK(static_cast<double>(out[i]) == -77);
  return {out.begin() + static_cast<std::ptrdiff_t>(off), out.end() - kGuard};
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Every output of the row kernels.
template <class T>
using Outputs = std::vector<std::vector<T>>;
template <class T>
bool same(const Outputs<T>& a, const Outputs<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const std::vector<T>& one, const std::vector<T>& other) { return same(one, other); });
}
template <class T>
Outputs<T> all_rows(I rows, I n, std::size_t off, const HostGrid& grid) {
  using F = Arithmetic<T>;
  Inputs<T> inputs(rows * n, off);
  const T *const x = inputs.next(), *const dy = inputs.next(), *const w = inputs.next(), *const b = inputs.next();
  std::vector<F> statistics(static_cast<std::size_t>(2 * rows)), square(static_cast<std::size_t>(rows));
  std::vector<F> losses(1), row_losses(static_cast<std::size_t>(rows));
  std::vector<I> labels(static_cast<std::size_t>(rows), n / 2);
  const auto scale = static_cast<F>(n);  // gradients of what is no label are of size 1
  Outputs<T> all;
  const auto append = [&](const auto& call) { all.push_back(written<T>(rows * n, off, call)); };
  append([&](T* y) { grid_kernels::layer_norm(grid, rows, n, x, w, b, y, statistics.data()); });
  append([&](T* dx) { grid_kernels::layer_norm_input_gradient(grid, rows, n, x, statistics.data(), w, dy, dx); });
  append([&](T* y) { grid_kernels::rms_norm(grid, rows, n, x, w, y, square.data()); });
  append([&](T* dx) { grid_kernels::rms_norm_input_gradient(grid, rows, n, x, square.data(), w, dy, dx); });
  append([&](T* y) { grid_kernels::softmax(grid, rows, n, x, y); });
  append([&](T* dx) { grid_kernels::softmax_input_gradient(grid, rows, n, x, dy, dx); });
  append([&](T* d) {
    grid_kernels::cross_entropy(grid, I{1}, rows, n, x, labels.data(), scale, losses.data(), d, row_losses.data());
  });
  all.push_back({T(losses[0])});
  // In place: over dy, over the logits.
  append([&](T* dx) {
    std::copy_n(dy, rows * n, dx);
    grid_kernels::softmax_input_gradient(grid, rows, n, x, static_cast<const T*>(dx), dx);
  });
  append([&](T* d) {
    std::copy_n(x, rows * n, d);
    grid_kernels::cross_entropy(grid, I{1}, rows, n, static_cast<const T*>(d), labels.data(), scale, losses.data(), d,
                                row_losses.data());
  });
  CHECK(same(all[all.size() - 2], all[all.size() - 5]));
  CHECK(same(all[all.size() - 1], all[all.size() - 4]));
  return all;
}

// Lengths of whole pieces: fewer than a warp's threads take, all that a warp keeps, beyond it, all that a block keeps,
// beyond that; and lengths that are not.
constexpr I kLengths[] = {8, 24, 1000, 2048, 2056, 16384, 16392, 1, 7, 2047, 2049, 16385};

TEST_CASE_TEMPLATE("Rows have the same bits on any grid and at any piece, and write nothing beside themselves", T,
                   float, Bf16, Fp16) {
  constexpr std::size_t kPiece = grid_kernels::kPerPiece<T>;
  for (const I n : kLengths) {
    CAPTURE(n);
    const Outputs<T> first = all_rows<T>(3, n, 0, HostGrid{1});
    CHECK(same(first, all_rows<T>(3, n, kPiece, HostGrid{1})));
    CHECK(same(first, all_rows<T>(3, n, 2 * kPiece, HostGrid{5})));
  }
}

// Of numbers below 1 and sums of up to 16385 of them: a rounding of what is stored, and of sums in fp32.
template <class T>
double tolerance() {
  return std::is_same_v<T, float> ? 1e-4 : std::is_same_v<T, Fp16> ? 2e-3 : 1.6e-2;
}
// Of |a - b| / max(1, |b|); where all of an output is small (probabilities of a long row), its root mean square stands
// for the 1.
template <class T, class S>
double largest_difference(const std::vector<T>& a, const std::vector<S>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0, squares = 0;
  for (const S& right : b)
    squares += static_cast<double>(right) * static_cast<double>(right);
  const double mean = std::sqrt(squares / static_cast<double>(b.size()));
  constexpr std::size_t kFew = 8;  // of which the mean says little: in a row of one value a norm's gradient is 0
  const double usual = mean > 0 && b.size() > kFew ? std::min(1.0, mean) : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double right = static_cast<double>(b[i]);
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - right) / std::max(usual, std::abs(right)));
  }
  return largest;
}
template <class T, class S>
double largest_difference(const Outputs<T>& a, const Outputs<S>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, largest_difference(a[i], b[i]));
  return largest;
}
TEST_CASE_TEMPLATE("Rows that begin beside a piece are summed up value by value, to the same within rounding", T, float,
                   Bf16, Fp16) {
  for (const I n : kLengths) {
    CAPTURE(n);
    CHECK(largest_difference(all_rows<T>(3, n, 1, HostGrid{1}), all_rows<T>(3, n, 0, HostGrid{1})) < tolerance<T>());
  }
}
TEST_CASE("Rows kept, and rows read again, are right against double") {
  for (const I n : kLengths) {
    CAPTURE(n);
    CHECK(largest_difference(all_rows<float>(2, n, 0, HostGrid{1}), all_rows<double>(2, n, 0, HostGrid{1})) < 1e-4);
  }
}

// Every output of the kernels over values, one behind the other: of {rows, n}.
template <class T>
std::vector<T> all_values(I rows, I n, std::size_t off) {
  using F = Arithmetic<T>;
  using namespace grid_kernels;
  const HostGrid grid{2};
  const I size = rows * n;
  Inputs<T> inputs(2 * size, off);
  Inputs<F> wide(2 * size, off);
  const T *const a = inputs.next(), *const b = inputs.next(), *const c = inputs.next();
  const F *const f = wide.next(), *const statistics = wide.next();
  const std::vector<I> index = {2, 0, 1};
  std::vector<T> all;
  const auto append = [&](I outputs, const auto& call) {
    const std::vector<T> out = written<T>(outputs, off, call);
    all.insert(all.end(), out.begin(), out.end());
  };
  const auto append_wide = [&](I outputs, const auto& call) {
    for (const F value : written<F>(outputs, off, call))
      all.push_back(T(value));
  };
  append(size, [&](T* y) { fill(grid, size, F(0.3f), y); });
  append(size, [&](T* y) { convert(grid, size, f, y); });
  append_wide(size, [&](F* y) { convert(grid, size, a, y); });
  append(size, [&](T* y) { copy_values(grid, size, a, y); });
  append(size, [&](T* y) { triad(grid, size, a, b, F(3), y); });
  append(size, [&](T* y) {
    const T* const terms[] = {a, y, b};
    sum_of_terms(grid, size, terms, 3, y);
  });
  append(size, [&](T* y) { scale(grid, size, F(0.7f), y); });
  append(size, [&](T* y) { add(grid, size, a, b, y); });
  append(size, [&](T* y) { multiply(grid, size, a, b, y); });
  append(size, [&](T* y) { add_bias(grid, rows, n, a, b, static_cast<const T*>(nullptr), y); });
  append(size, [&](T* y) { add_bias(grid, rows, n, a, b, c, y); });
  for (const GpuFunction function :
       {GpuFunction::Relu, GpuFunction::Gelu, GpuFunction::Silu, GpuFunction::Tanh, GpuFunction::Sigmoid}) {
    append(size, [&](T* y) { activation(grid, function, size, a, y); });
    append(size, [&](T* dx) { activation_input_gradient(grid, function, size, a, b, dx); });
    append(size, [&](T* y) { gated(grid, function, rows, n, a, y); });
    append(2 * size, [&](T* dx) { gated_input_gradient(grid, function, rows, n, a, b, dx); });
  }
  append(size, [&](T* y) { transpose_heads(grid, I{1}, I{1}, rows, n, a, y); });
  append(2 * size, [&](T* y) { copy_rows(grid, rows, n, a, n, y, 2 * n); });
  append(size, [&](T* y) { embedding(grid, rows, n, index.data(), a, y); });
  append(size, [&](T* y) { learned_table(grid, rows, n, a, b, y); });
  std::vector<F> workspace(static_cast<std::size_t>(columns_workspace(rows, n)) + 8);
  F* const work = workspace.data() + off;
  append_wide(n, [&](F* d) { bias_gradient(grid, rows, n, a, d, work); });
  append_wide(
      n, [&](F* d) { layer_norm_weight_gradient(grid, rows, n, a, statistics, b, d, static_cast<F*>(nullptr), work); });
  append_wide(n, [&](F* d) { rms_norm_weight_gradient(grid, rows, n, a, statistics, b, d, work); });
  append_wide(n, [&](F* d) { learned_table_weight_gradient(grid, rows, n, a, d, work); });
  for (const GpuOptimizer kind :
       {GpuOptimizer::Sgd, GpuOptimizer::Momentum, GpuOptimizer::RmsProp, GpuOptimizer::Adam}) {
    const UpdateRule<F> rule = {kind, F(0.01f), F(0.9f), F(0.9f), F(0.99f), F(1e-8f), F(0.1f), F(0.01f)};
    append_wide(size, [&](F* out) {
      append_wide(size, [&](F* first) {
        append_wide(size, [&](F* second) {
          append(size, [&](T* stored) {
            const UpdatedTensor<F, T> tensor = {size, f, statistics, out, first, second, stored};
            update(grid, rule, &tensor, I{1});
          });
        });
      });
    });
  }
  return all;
}

TEST_CASE_TEMPLATE("Kernels over values have the same bits by pieces and value by value, and write nothing beside them",
                   T, float, Bf16, Fp16) {
  constexpr std::size_t kPiece = grid_kernels::kPerPiece<T>;
  for (const I n : {I{8}, I{64}, I{1}, I{7}, I{13}, I{136}}) {
    CAPTURE(n);
    const std::vector<T> pieces = all_values<T>(3, n, 0);
    CHECK(same(pieces, all_values<T>(3, n, 1)));
    CHECK(same(pieces, all_values<T>(3, n, 3)));
    CHECK(same(pieces, all_values<T>(3, n, kPiece)));
  }
}

// On the host a piece that begins between two throws, so each array counts.
TEST_CASE("One array that begins between two pieces, or one length that is none, is enough to go value by value") {
  using namespace grid_kernels;
  const HostGrid grid{1};
  constexpr I n = 64;
  for (int off = 0; off < 6; ++off) {  // array `off` of five; 5: none
    CAPTURE(off);
    Inputs<float> begins(n, 0), beside(n, 1);
    const auto input = [&](int i) { return i == off ? beside.next() : begins.next(); };
    std::vector<float> first(n + 4, 0.5f), second(n + 4, 0.5f), out(n + 4);
    std::vector<Bf16> stored(n + 8);
    const auto array = [&](auto& values, int i) { return values.data() + (i == off ? 1 : 0); };
    for (const GpuOptimizer kind : {GpuOptimizer::Sgd, GpuOptimizer::Momentum, GpuOptimizer::Adam}) {
      const UpdateRule<float> rule = {kind, 0.01f, 0.9f, 0.9f, 0.99f, 1e-8f, 0.1f, 0.01f};
      const float *const w = input(0), *const g = input(1);
      const UpdatedTensor<float, Bf16> tensor = {
          n, w, g, array(out, 2), array(first, 3), array(second, 4), stored.data() + (off == 5 ? 1 : 0)};
      update(grid, rule, &tensor, I{1});
      const float* const updated = array(out, 2);
      for (std::size_t i = 0; i < n; ++i)
        CHECK(static_cast<float>(tensor.stored[i]) == static_cast<float>(Bf16(updated[i])));
      if (kind == GpuOptimizer::Sgd)
        for (std::size_t i = 0; i < n; ++i)
          CHECK(updated[i] == doctest::Approx(w[i] - 0.01f * g[i]).epsilon(1e-6));
    }
    std::vector<float> y(n + 4);
    add_bias(grid, I{4}, I{16}, input(0), input(1), input(2), array(y, 3));
    gated(grid, GpuFunction::Silu, I{2}, I{16}, input(0), array(y, 3));
  }
  for (const auto& [columns, from, to] : {std::array<I, 3>{8, 8, 13}, {8, 13, 8}, {7, 8, 8}, {8, 12, 16}}) {
    Inputs<float> inputs(3 * from, 0);
    const float* const x = inputs.next();
    const std::vector<float> y = written<float>(3 * to, 0, [&, columns = columns, from = from, to = to](float* at) {
      copy_rows(grid, I{3}, columns, x, from, at, to);
    });
    for (I i = 0; i < 3 * to; ++i) {
      const I column = i % to;
      CHECK(y[static_cast<std::size_t>(i)] == (column < columns ? x[i / to * from + column] : 0.25f));
    }
  }
}

TEST_CASE("A copy keeps the bits of what is no number") {
  const std::vector<std::uint16_t> bits = {0x7fc1, 0xffff, 0x7f81, 0x0001, 0x8000, 0x7f80, 0x1234, 0xabcd};
  for (const std::size_t n : {std::size_t{8}, std::size_t{7}}) {
    std::vector<Bf16> x(8), y(8, Bf16(0.0f));
    for (std::size_t i = 0; i < 8; ++i)
      x[i].bits = bits[i];
    grid_kernels::copy_values(HostGrid{1}, static_cast<I>(n), x.data(), y.data());
    CHECK(std::memcmp(x.data(), y.data(), 2 * n) == 0);
  }
}

}  // namespace
}  // namespace pipewright::kernel_test
