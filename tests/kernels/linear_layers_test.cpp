// Linear layers with a library that has algorithms for some shapes only: a fake one, which the CPU computes. Its values
// are small whole numbers, so that sums are exact in any order.
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/library_products.hpp"
#include "kernels/products.hpp"
#include "tests/kernels/host_grid.hpp"

using namespace pipewright::tests;

namespace {

using I = std::int64_t;

struct Asked {
  int chosen = 0, launched = 0, none = 0;
};
Asked asked;

// Has no algorithm for products with an odd number of rows.
class SomeProducts {
 public:
  SomeProducts(GpuPrecision, const MatmulShape& shape, int, Bytes workspace, MatmulResult) : s_(shape) {
    CHECK(workspace == Bytes{});
    const bool none = shape.m % 2 == 1;
    ++(none ? asked.none : asked.chosen);
    if (none) throw NoAlgorithm("none for it");
  }
  void launch(GpuStream, const void* left, const void* right, void* to, bool add, void*) const {
    ++asked.launched;
    const auto *a = static_cast<const float*>(left), *b = static_cast<const float*>(right);
    auto* c = static_cast<float*>(to);
    for (I i = 0; i < s_.m; ++i)
      for (I j = 0; j < s_.n; ++j) {
        float sum = add ? c[i * s_.n + j] : 0;
        for (I k = 0; k < s_.k; ++k)
          sum += a[s_.a_transposed ? k * s_.m + i : i * s_.k + k] * b[s_.b_transposed ? j * s_.k + k : k * s_.n + j];
        c[i * s_.n + j] = sum;
      }
  }
  // Tiles of 2 x 4 on 132 SMs.
  MatmulAlgorithm algorithm() const {
    return {static_cast<double>(((s_.m + 1) / 2) * ((s_.n + 3) / 4)) / 132, 2, 4, 1};
  }

 private:
  MatmulShape s_;
};

int plain_products = 0;

struct Queue : grid_kernels::HostGrid {
  ProductsOf<SomeProducts>* library = nullptr;
  bool multiply(const MatmulShape& shape, const void* a, const void* b, void* c, bool add) const {
    return library != nullptr && library->multiply(nullptr, shape, a, b, c, add);
  }
  template <class Body>
  void values(const char* name, I n, const Body& body) const {
    plain_products += std::string_view(name).starts_with("linear");
    HostGrid::values(name, n, body);
  }
};

std::vector<float> whole_numbers(I count, I seed) {
  std::vector<float> values;
  for (I i = 0; i < count; ++i)
    values.push_back(static_cast<float>((i * 7 + seed * 5) % 9 - 4));
  return values;
}

struct Results {
  std::vector<float> y, dx, dw, db;
  bool operator==(const Results&) const = default;
};

// All three passes; gradients of parameters are added to ones.
Results passes(const Queue& queue, I rows, I in, I out) {
  const auto x = whole_numbers(rows * in, 1), w = whole_numbers(out * in, 2), bias = whole_numbers(out, 3),
             dy = whole_numbers(rows * out, 4);
  const auto zeros = [](I count) { return std::vector<float>(static_cast<std::size_t>(count)); };
  Results r{zeros(rows * out), zeros(rows * in), std::vector<float>(static_cast<std::size_t>(out * in), 1.0F),
            std::vector<float>(static_cast<std::size_t>(out), 1.0F)};
  auto workspace = zeros(grid_kernels::columns_workspace(rows, out));
  linear(queue, rows, in, out, x.data(), w.data(), bias.data(), r.y.data());
  linear_input_gradient(queue, rows, in, out, dy.data(), w.data(), r.dx.data());
  linear_weight_gradient(queue, rows, in, out, x.data(), dy.data(), r.dw.data(), r.db.data(), workspace.data());
  return r;
}

}  // namespace

TEST_CASE("A linear layer is what it is whether the library has an algorithm for a product or not") {
  // The rows of its three products: rows, rows, out.
  struct Case {
    I rows, in, out;
    int by_library;
  };
  for (const auto& [rows, in, out, by_library] :
       {Case{6, 5, 4, 3}, Case{6, 5, 3, 2}, Case{7, 5, 4, 1}, Case{7, 4, 3, 0}}) {
    CAPTURE(rows);
    CAPTURE(out);
    ProductsOf<SomeProducts> library(GpuPrecision::Fp32, 132);
    Queue with, without;
    with.library = &library;
    asked = {}, plain_products = 0;
    const Results mixed = passes(with, rows, in, out);
    CHECK(asked.launched == by_library);
    CHECK(plain_products == 3 - by_library);
    plain_products = 0;
    CHECK(mixed == passes(without, rows, in, out));
    CHECK(plain_products == 3);
  }
}

TEST_CASE("The library is asked once for a product that it has no algorithm for, and once for one that it has") {
  ProductsOf<SomeProducts> library(GpuPrecision::Fp32, 132);
  Queue queue;
  queue.library = &library;
  asked = {};
  for (int i = 0; i < 3; ++i)
    passes(queue, 7, 5, 4);  // {7, 4, 5} and {7, 5, 4} have none, {4, 5, 7} has one
  CHECK(asked.none == 2);
  CHECK(asked.chosen == 1);
  CHECK(asked.launched == 3);
}

TEST_CASE("The library tells the algorithm of the product that it was asked for last, where it has one") {
  ProductsOf<SomeProducts> library(GpuPrecision::Fp32, 132);
  CHECK_FALSE(library.last_algorithm().has_value());
  const std::vector<float> a(64), b(64);
  std::vector<float> c(64);
  CHECK(library.multiply(nullptr, {4, 8, 2}, a.data(), b.data(), c.data(), false));
  REQUIRE(library.last_algorithm().has_value());
  CHECK(library.last_algorithm()->waves == 4.0 / 132);
  CHECK(library.last_algorithm()->tile_rows == 2);
  CHECK(library.last_algorithm()->tile_columns == 4);
  CHECK(library.last_algorithm()->split_k == 1);
  CHECK_FALSE(library.multiply(nullptr, {3, 8, 2}, a.data(), b.data(), c.data(), false));
  CHECK_FALSE(library.last_algorithm().has_value());
}

TEST_CASE("A product that is stored as its factors are is another one than the same in fp32") {
  ProductsOf<SomeProducts> library(GpuPrecision::Bf16, 132);
  asked = {};
  const MatmulShape shape{2, 2, 2};
  const std::vector<float> a = {1, 2, 3, 4}, b = {1, 0, 0, 1};
  std::vector<float> c(4);
  CHECK(library.multiply(nullptr, shape, a.data(), b.data(), c.data(), false));
  CHECK(library.multiply(nullptr, shape, a.data(), b.data(), c.data(), true));
  CHECK(asked.chosen == 2);
  CHECK(c == std::vector<float>{2, 4, 6, 8});
}
