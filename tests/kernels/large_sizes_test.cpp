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

namespace pipewright {
namespace {

constexpr std::int64_t kFeatures = 1024, kTwo31 = std::int64_t{1} << 31, kRows = kTwo31 / kFeatures + 1;
constexpr std::int64_t kValues = kRows * kFeatures;

// The begin and the last `kFeatures` values, or pieces of them; all of less than that.
struct EdgeGrid {
  template <class Body>
  void values(const char*, std::int64_t n, const Body& body) const {
    const auto some = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end && i < n; ++i)
        body(i);
    };
    const std::int64_t last = n > kFeatures ? n - kFeatures : 0;
    some(0, last < 8 ? last : 8), some(last, n);
  }
  template <class Body>
  void rows(const char*, std::int64_t rows, std::int64_t, const Body& body) const {
    for (const std::int64_t r : {std::int64_t{0}, rows - 1})
      body(grid_kernels::HostTeam<grid_kernels::kWarp>{}, r);
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
  check("add", [](const auto& g, std::int64_t r, const S* a, const S* b, S* y) { add(g, r * f, a, b, y); });
  check("gelu", [](const auto& g, std::int64_t r, const S* x, const S*, S* y) {
    activation(g, GpuFunction::Gelu, r * f, x, y);
  });
  check("gelu, gradient", [](const auto& g, std::int64_t r, const S* x, const S* dy, S* dx) {
    activation_input_gradient(g, GpuFunction::Gelu, r * f, x, dy, dx);
  });
  check_last_row<S>("gated", 2 * f, f, [](const auto& g, std::int64_t r, const S* x, const S*, S* y) {
    gated(g, GpuFunction::Silu, r, f, x, y);
  });
  check_last_row<S>("gated, gradient", 2 * f, 2 * f, [](const auto& g, std::int64_t r, const S* x, const S* dy, S* dx) {
    gated_input_gradient(g, GpuFunction::Silu, r, f, x, dy + (r - 1) * f, dx);  // a row of dy is half as long
  });
  check("layer norm and its gradient", [&](const auto& g, std::int64_t r, const S* x, const S* dy, S* y) {
    layer_norm(g, r, f, x, weight.data(), bias.data(), y, statistics.data());
    layer_norm_input_gradient(g, r, f, x, statistics.data(), weight.data(), dy, y);
  });
  check("rms norm", [&](const auto& g, std::int64_t r, const S* x, const S*, S* y) {
    rms_norm(g, r, f, x, weight.data(), y, statistics.data());
  });
  check("softmax", [](const auto& g, std::int64_t r, const S* x, const S*, S* y) { softmax(g, r, f, x, y); });
  check("softmax, gradient", [](const auto& g, std::int64_t r, const S* y, const S* dy, S* dx) {
    softmax_input_gradient(g, r, f, y, dy, dx);
  });
}

// The gradient of a norm's gain: chunks of rows are summed, then the chunks. All rows but the last add nothing.
void check_weight_gradient() {
  using namespace grid_kernels;
  const auto in = row_of<Bf16>(1, kFeatures), d_out = row_of<Bf16>(2, kFeatures);
  const std::vector<float> mean_and_inverse = {0.25f, 2.0f};
  const Reserved<Bf16> x(kValues), dy(kValues);
  const Reserved<float> statistics(2 * kRows), workspace(columns_workspace(kRows, kFeatures));
  const auto bytes = in.size() * sizeof(Bf16);
  std::memcpy(x.data() + kValues - kFeatures, in.data(), bytes);
  std::memcpy(dy.data() + kValues - kFeatures, d_out.data(), bytes);
  std::memcpy(statistics.data() + 2 * (kRows - 1), mean_and_inverse.data(), 2 * sizeof(float));
  std::vector<float> large(kFeatures), alone(kFeatures), bias(kFeatures), bias_alone(kFeatures), chunk(kFeatures);
  layer_norm_weight_gradient(EdgeGrid{}, kRows, kFeatures, static_cast<const Bf16*>(x.data()),
                             static_cast<const float*>(statistics.data()), static_cast<const Bf16*>(dy.data()),
                             large.data(), bias.data(), workspace.data());
  layer_norm_weight_gradient(HostGrid{1}, 1, kFeatures, in.data(), mean_and_inverse.data(), d_out.data(), alone.data(),
                             bias_alone.data(), chunk.data());
  CHECK(large == alone);
  CHECK(bias == bias_alone);
}

TEST_CASE("What moves values reaches the last row of a tensor of more than 2^31 of them") {
  if (const Reserved<float> most(4 * kValues); most.data() == nullptr) {
    MESSAGE("not tried: this machine does not reserve 32 GiB of addresses");
    return;
  }
  check_last_rows<float>();
  check_last_rows<Bf16>();
  check_weight_gradient();
}

TEST_CASE("A loss reads its label and writes its gradient beyond 2^31 logits") {
  const Reserved<Bf16> x(kValues), gradient(kValues);
  const Reserved<std::int64_t> labels(kRows);
  const Reserved<float> losses(kRows), row_losses(kRows);
  if (gradient.data() == nullptr || x.data() == nullptr) return;
  const auto row = row_of<Bf16>(1, kFeatures);
  std::memcpy(x.data() + kValues - kFeatures, row.data(), row.size() * sizeof(Bf16));
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
  CHECK(std::memcmp(gradient.data() + kValues - kFeatures, alone.data(), alone.size() * sizeof(Bf16)) == 0);
}

TEST_CASE("Dropout draws by the whole number of a value, beyond 2^31 and beyond 2^34, where a counter's word ends") {
  const DropoutMask mask = {0.5, 3, 4};
  for (const std::int64_t n : {kValues, 4 * kTwo31 * 4 + 64}) {
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
}  // namespace pipewright
