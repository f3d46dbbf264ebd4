// Kernels on tensors of more than 2^31 values. Their memory is reserved, not used: the grid hands out the first and the
// last work there is, and what that computes is what it is in a tensor of its own.
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/mman.h>

#include "kernels/dropout.hpp"
#include "kernels/rows.hpp"
#include "kernels/values.hpp"
#include "tests/kernels/host_grid.hpp"

namespace pipewright::tests {
namespace {

constexpr std::int64_t kFeatures = 1024, kTwo31 = std::int64_t{1} << 31, kRows = kTwo31 / kFeatures + 1;
constexpr std::int64_t kLargeValues = kRows * kFeatures;

// The first and the last `kFeatures` values; all of less than that.
struct EdgeGrid {
  template <class Body>
  void values(const char*, std::int64_t n, const Body& body) const {
    for (std::int64_t i = 0; i < n; i = i == kFeatures - 1 && n > 2 * kFeatures ? n - kFeatures : i + 1)
      body(i);
  }
  template <class Body>
  void rows(const char*, std::int64_t rows, const Body& body) const {
    for (const std::int64_t r : {std::int64_t{0}, rows - 1})
      body(grid_kernels::HostTeam{}, r);
  }
};

// Pages of zeros that become memory when they are written.
template <class S>
class Reserved {
 public:
  explicit Reserved(std::int64_t values) : bytes_(static_cast<std::size_t>(values) * sizeof(S)) {
    void* const block =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block != MAP_FAILED) data_ = static_cast<S*>(block);
  }
  ~Reserved() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  S* data() const { return data_; }

 private:
  std::size_t bytes_;
  S* data_ = nullptr;
};

template <class S>
std::vector<S> row_of(std::uint64_t seed, std::int64_t n) {
  std::vector<S> row;
  for (std::int64_t i = 0; i < n; ++i)
    row.push_back(S(2 * grid_kernels::unit_of(grid_kernels::random_bits(seed, static_cast<std::uint64_t>(i))) - 1));
  return row;
}

// call(grid, rows, a, b, y): reads rows of a and b, writes y, of in, in and out values each. Its last row in a large
// tensor, and alone.
template <class S, class Call>
void check_last_row(const std::string& name, std::int64_t in, std::int64_t out, const Call& call) {
  CAPTURE(name);
  const Reserved<S> a(kRows * in), b(kRows * in), y(kRows * out);
  REQUIRE(a.data() != nullptr);
  REQUIRE(b.data() != nullptr);
  REQUIRE(y.data() != nullptr);
  const auto first = row_of<S>(1, in), second = row_of<S>(2, in);
  const auto bytes = static_cast<std::size_t>(in) * sizeof(S);
  std::memcpy(a.data() + (kRows - 1) * in, first.data(), bytes);
  std::memcpy(b.data() + (kRows - 1) * in, second.data(), bytes);
  call(EdgeGrid{}, kRows, static_cast<const S*>(a.data()), static_cast<const S*>(b.data()), y.data());
  std::vector<S> alone(static_cast<std::size_t>(out));
  call(grid_kernels::HostGrid{1}, std::int64_t{1}, first.data(), second.data(), alone.data());
  CHECK(std::memcmp(y.data() + (kRows - 1) * out, alone.data(), alone.size() * sizeof(S)) == 0);
}

template <class S>
void check_last_rows() {
  using namespace grid_kernels;
  constexpr std::int64_t f = kFeatures;
  const auto weight = row_of<S>(3, f), bias = row_of<S>(4, f);
  const Reserved<Arithmetic<S>> statistics(2 * kRows);
  REQUIRE(statistics.data() != nullptr);
  const auto check = [](const std::string& name, const auto& call) { check_last_row<S>(name, f, f, call); };
  check("copy", [](const auto& g, std::int64_t r, const S* x, const S*, S* y) { copy_values(g, r * f, x, y); });
  check_last_row<S>("gated, gradient", 2 * f, 2 * f, [](const auto& g, std::int64_t r, const S* x, const S* dy, S* dx) {
    gated_input_gradient(g, GpuFunction::Silu, r, f, x, dy + (r - 1) * f, dx);  // a row of dy is half as long
  });
  check("layer norm and its gradient", [&](const auto& g, std::int64_t r, const S* x, const S* dy, S* y) {
    layer_norm(g, r, f, x, weight.data(), bias.data(), y, statistics.data());
    layer_norm_input_gradient(g, r, f, x, statistics.data(), weight.data(), dy, y);
  });
  check("softmax", [](const auto& g, std::int64_t r, const S* x, const S*, S* y) { softmax(g, r, f, x, y); });
  check("softmax, gradient", [](const auto& g, std::int64_t r, const S* y, const S* dy, S* dx) {
    softmax_input_gradient(g, r, f, y, dy, dx);
  });
}

TEST_CASE("What moves values reaches the last row of a tensor of more than 2^31 of them") {
  if (const Reserved<float> most(4 * kLargeValues); most.data() == nullptr) {
    MESSAGE("not tried: this machine does not reserve 32 GiB of addresses");
    return;
  }
  check_last_rows<float>();
  check_last_rows<Bf16>();
}

TEST_CASE("A loss reads its label and writes its gradient beyond 2^31 logits") {
  const Reserved<Bf16> x(kLargeValues), gradient(kLargeValues);
  const Reserved<std::int64_t> labels(kRows);
  const Reserved<float> losses(kRows), row_losses(kRows);
  if (gradient.data() == nullptr || x.data() == nullptr) return;
  const auto row = row_of<Bf16>(1, kFeatures);
  std::memcpy(x.data() + kLargeValues - kFeatures, row.data(), row.size() * sizeof(Bf16));
  labels.data()[kRows - 1] = 700;
  grid_kernels::cross_entropy(EdgeGrid{}, kRows, 1, kFeatures, static_cast<const Bf16*>(x.data()),
                              static_cast<const std::int64_t*>(labels.data()), 1.0f, losses.data(), gradient.data(),
                              row_losses.data());
  const std::int64_t label = 700;
  float loss = 0, row_loss = 0;
  std::vector<Bf16> alone(row.size());
  grid_kernels::cross_entropy(grid_kernels::HostGrid{1}, 1, 1, kFeatures, row.data(), &label, 1.0f, &loss, alone.data(),
                              &row_loss);
  CHECK(losses.data()[kRows - 1] == loss);
  CHECK(std::memcmp(gradient.data() + kLargeValues - kFeatures, alone.data(), alone.size() * sizeof(Bf16)) == 0);
}

TEST_CASE("Dropout draws by the whole number of a value, beyond 2^31 and beyond 2^34, where a counter's word ends") {
  const DropoutMask mask = {0.5, 3, 4};
  for (const std::int64_t n : {kLargeValues, 4 * kTwo31 * 4 + 64}) {
    const Reserved<Bf16> x(n), y(n);
    if (x.data() == nullptr || y.data() == nullptr) continue;
    for (std::int64_t i = n - 64; i < n; ++i)
      x.data()[i] = Bf16(1.0f);
    grid_kernels::dropout(EdgeGrid{}, mask, n, static_cast<const Bf16*>(x.data()), y.data());
    for (std::int64_t i = n - 64; i < n; ++i) {
      const auto draw = static_cast<std::uint64_t>(i) / 4;
      const auto word = [](std::uint64_t bits, int shift) { return static_cast<std::uint32_t>(bits >> shift); };
      const grid_kernels::Words4 random =
          grid_kernels::philox({{word(draw, 0), word(draw, 32), word(mask.place, 0), word(mask.place, 32)}}, mask.seed);
      REQUIRE(y.data()[i] == (random.word[i % 4] < 0x80000000u ? 0.0f : 2.0f));
    }
  }
}

}  // namespace
}  // namespace pipewright::tests
