// The products by tensor cores, their lanes, copies and cores emulated: right against double, the same bits on any grid
// and by any way of loading, and no mishap that the emulation could hide.
#include <cmath>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/tensor_block.hpp"
#include "tests/kernels/kernel_cases.hpp"
#include "tests/kernels/kernel_runs.hpp"
#include "tests/kernels/reference.hpp"

namespace pipewright::tensor_tiles {

// As a machine of kernel_cases.hpp: the bias's gradient is none of its products.
template <class T>
void linear_weight_gradient(const HostTensorCores& cores, I rows, I in, I out, const T* x, const T* dy, float* dw,
                            float* db, float*) {
  linear_weight_gradient(cores, rows, in, out, x, dy, dw);
  if (db == nullptr) return;
  for (I j = 0; j < out; ++j)
    for (I r = 0; r < rows; ++r)
      db[j] += dy[r * out + j];
}

}  // namespace pipewright::tensor_tiles

namespace pipewright::kernel_test {
namespace {

using tensor_tiles::HostTensorCores;
using tensor_tiles::Mishaps;

// `grids`: of narrow tiles, besides one block.
template <class T>
void check_products(const std::vector<std::int64_t>& grids) {
  Mishaps mishaps;
  int products = 0;
  visit_linear([&](const KernelCase& kernel, const auto& call) {
    CAPTURE(kernel.name);
    const HostRun<double, T> expected(kernel, call, reference::Reference{});
    const HostRun<T> one_block(kernel, call, HostTensorCores{1, &mishaps});
    CHECK(largest_difference<T>(kernel, one_block, expected) < 1);
    for (const std::int64_t blocks : grids) {
      const HostRun<T> other(kernel, call, HostTensorCores{blocks, &mishaps});
      CHECK(same_bits(kernel, one_block, other));
    }
    const HostRun<T> wide(kernel, call, HostTensorCores{2, &mishaps, true});
    CHECK(same_bits(kernel, one_block, wide));
    ++products;
  });
  CHECK(products >= 24);
  CHECK(mishaps.races == 0);
  CHECK(mishaps.misaligned == 0);
  CHECK(mishaps.conflicts == 0);
  CHECK(mishaps.copies > 0);  // both ways of loading
  CHECK(mishaps.stores > 0);
}

TEST_CASE(
    "Products of bf16 and fp16 by tensor cores are off by their roundings alone, with the same bits on any grid") {
  check_products<Bf16>({3, 1000});
  check_products<Fp16>({});  // laid out, copied and dealt out to blocks as bf16 is; what differs is one core's product
}

TEST_CASE("A core cuts toward zero what lies below the largest addend's 25th bit, and the sum to 24 bits") {
  const auto sum = [](std::vector<double> addends) { return tensor_tiles::cut_sum(addends); };
  CHECK(sum({1, 0x1p-24, 0x1p-24}) == 1 + 0x1p-23f);  // fp32 one by one: 1
  CHECK(sum({1, 0x1p-24}) == 1);
  CHECK(sum({1, 0x1p-23, 0x1p-24}) == 1 + 0x1p-23f);  // halfway: even would be 1 + 2^-22
  CHECK(sum({-1, -0x1p-23, -0x1p-24}) == -1 - 0x1p-23f);
  CHECK(sum({1, 0x1.8p-25, 0x1.8p-25}) == 1);  // each is cut
  CHECK(sum({1, -0x1p-25}) == 1);
  CHECK(sum({1, -0x1p-24}) == 1 - 0x1p-24f);
  CHECK(sum({0x1p100, 1, -0x1p100}) == 0);
  CHECK(sum({0, 0}) == 0);
  CHECK(sum({1, HUGE_VAL}) == HUGE_VAL);
  CHECK(std::isnan(sum({-HUGE_VAL, HUGE_VAL})));
}

// Sums of 2100 terms in fp16, which are exact products: off by more than the same in fp32 one by one may be, and
// within what `terms` allows.
TEST_CASE("Long sums by cores are off by their cuts, within what the tests allow them") {
  visit_linear([&](const KernelCase& kernel, const auto& call) {
    if (kernel.name != "linear_weight_gradient 2100 x 24 x 40") return;
    const HostRun<double, Fp16> expected(kernel, call, reference::Reference{});
    Mishaps mishaps;
    const HostRun<Fp16> cut(kernel, call, HostTensorCores{1, &mishaps});
    KernelCase rounded = kernel;
    rounded.terms = 1;
    CHECK(largest_difference<Fp16>(rounded, cut, expected) > 1);
    CHECK(largest_difference<Fp16>(kernel, cut, expected) < 0.6);
    double off = 0, all = 0;  // of the whole gradient
    for (std::size_t i = 0; i < cut.arrays[2].size(); ++i) {
      const double right = expected.arrays[2][i], difference = cut.arrays[2][i] - right;
      off += difference * difference, all += right * right;
    }
    CHECK(std::sqrt(off / all) == doctest::Approx(3e-6).epsilon(0.5));
  });
}

// x, w and dy of a layer at a multiple of 16 bytes, or `off` values behind one; all zeros beyond their ends.
template <class T>
struct Layer {
  I rows, in, out;
  std::vector<T> x, w, dy, bias;
  std::size_t off;
  Layer(I r, I i, I o, std::size_t behind) : rows(r), in(i), out(o), off(behind) {
    std::uint64_t seed = 1;
    for (const auto& [to, n] : {std::pair{&x, r * i}, {&w, i * o}, {&dy, r * o}, {&bias, o}}) {
      to->assign(off, T(0.0f));
      ++seed;
      for (I j = 0; j < n; ++j)
        to->push_back(T(2 * grid_kernels::unit_of(grid_kernels::random_bits(seed, static_cast<std::uint64_t>(j))) - 1));
    }
  }
  struct Results {
    std::vector<T> y, dx;
    std::vector<float> dw;
    Mishaps mishaps;
  };
  Results run() const {
    Results out_of{std::vector<T>(static_cast<std::size_t>(rows * out)),
                   std::vector<T>(static_cast<std::size_t>(rows * in)),
                   std::vector<float>(static_cast<std::size_t>(in * out), 0.5f),
                   {}};
    const HostTensorCores cores{1, &out_of.mishaps};
    linear(cores, rows, in, out, &x[off], &w[off], &bias[off], out_of.y.data());
    linear_input_gradient(cores, rows, in, out, &dy[off], &w[off], out_of.dx.data());
    linear_weight_gradient(cores, rows, in, out, &x[off], &dy[off], out_of.dw.data());
    return out_of;
  }
};
template <class V>
bool same(const std::vector<V>& a, const std::vector<V>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0;
}

TEST_CASE("Pieces copied and values loaded one by one give the same bits") {
  const Layer<Bf16> aligned(136, 104, 200, 0), behind(136, 104, 200, 1);
  const auto fast = aligned.run(), plain = behind.run();
  CHECK(fast.mishaps.copies > 0);
  CHECK(fast.mishaps.stores == 0);
  CHECK(plain.mishaps.copies == 0);
  CHECK(plain.mishaps.stores > 0);
  CHECK(same(fast.y, plain.y));
  CHECK(same(fast.dx, plain.dx));
  CHECK(same(fast.dw, plain.dw));
}

TEST_CASE("Wide tiles where they are not done later: enough of them, and their second half not idle") {
  using tensor_tiles::wide_tiles;
  CHECK(wide_tiles(4096, 4096, 132));        // 1024 narrow ones: 8 rounds; 512 wide ones: 4 of two units
  CHECK_FALSE(wide_tiles(1280, 1280, 132));  // 100: 1 round, where 50 wide ones leave SMs idle and take 2
  CHECK_FALSE(wide_tiles(128, 128, 1));      // half of it would be empty
  CHECK(wide_tiles(128, 136, 1));
  CHECK_FALSE(wide_tiles(128 * 132, 384, 132));  // 3 rounds, or 2 of two units
}

TEST_CASE("A value depends on its row and column alone, not on where in a tile they lie nor on what lies beside them") {
  // The last rows of a tall product, alone in a small one.
  const Layer<Fp16> tall(300, 72, 136, 0);
  Layer<Fp16> last(20, 72, 136, 0);
  last.w = tall.w, last.bias = tall.bias;
  last.x.assign(tall.x.end() - 20 * 72, tall.x.end());
  const std::vector<Fp16> whole = tall.run().y;
  CHECK(same(last.run().y, std::vector<Fp16>(whole.end() - 20 * 136, whole.end())));
}

TEST_CASE("The emulated block notices what is not waited for, what is overwritten too early, and shared banks") {
  const auto mishaps_of = [](const auto& f) {
    Mishaps mishaps;
    tensor_tiles::TracedPieces pieces(16, mishaps);
    f(pieces);
    return mishaps;
  };
  alignas(16) const std::array<std::uint16_t, 16> values = {1, 2, 3, 4, 5, 6, 7, 8};
  const void* const from = values.data();
  const auto copied = [&](auto& pieces) { pieces.copy(0, 3, from, true), pieces.close_copies(0); };
  CHECK(mishaps_of([&](auto& p) { copied(p), p.wait_copies(0, 0), p.barrier(), p.read(9, 3); }).races == 0);
  CHECK(mishaps_of([&](auto& p) { copied(p), p.barrier(), p.read(9, 3); }).races == 1);  // no wait
  CHECK(mishaps_of([&](auto& p) { copied(p), p.wait_copies(0, 1), p.barrier(), p.read(9, 3); }).races == 1);
  CHECK(mishaps_of([&](auto& p) { copied(p), p.wait_copies(0, 0), p.read(9, 3); }).races == 1);  // no barrier
  CHECK(mishaps_of([&](auto& p) { p.read(9, 3), copied(p); }).races == 1);  // overwritten while it may be read
  CHECK(mishaps_of([&](auto& p) { p.read(0, 3), p.read(9, 3), copied(p); }).races == 1);
  CHECK(mishaps_of([&](auto& p) { p.read(9, 3), p.barrier(), copied(p); }).races == 0);
  CHECK(mishaps_of([&](auto& p) { p.copy(0, 3, values.data() + 1, true); }).misaligned == 1);
  CHECK(mishaps_of([&](auto& p) {
          const std::array<int, 8> apart = {0, 9, 2, 3, 4, 5, 6, 7};
          p.check_banks(apart.data());
        }).conflicts == 0);
  CHECK(mishaps_of([&](auto& p) {
          const std::array<int, 8> twice = {0, 8, 2, 3, 4, 5, 6, 7};
          p.check_banks(twice.data());
        }).conflicts == 1);
}

TEST_CASE("Emulated matrices and cores lie in the lanes as the PTX ISA says") {
  // Matrix i holds 64 i + 8 row + column; of the transposed one, lane 5 (row 1, columns 2 and 3) gets (2, 1), (3, 1).
  Mishaps mishaps;
  tensor_tiles::TracedPieces pieces(32, mishaps);
  for (int place = 0; place < 32; ++place) {
    std::array<std::uint16_t, 8> row;
    for (std::size_t column = 0; column < 8; ++column)
      row[column] = static_cast<std::uint16_t>(8 * place + static_cast<int>(column));
    tensor_tiles::Piece piece;
    std::memcpy(&piece, row.data(), sizeof(piece));
    pieces.store(0, place, piece);
  }
  pieces.barrier();
  const tensor_tiles::HostWarp warp(pieces, 0);
  tensor_tiles::HostWarp::Lanes<tensor_tiles::Matrices> straight, transposed;
  warp.load<false>(straight, [](int lane) { return lane; });
  warp.load<true>(transposed, [](int lane) { return lane; });
  CHECK(straight[5].at[0] == (10u | 11u << 16));
  CHECK(straight[5].at[3] == (202u | 203u << 16));
  CHECK(transposed[5].at[0] == (17u | 25u << 16));
  CHECK(mishaps.conflicts == 0);
}

}  // namespace
}  // namespace pipewright::kernel_test
