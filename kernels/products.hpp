// Products of matrices in the arithmetic of the stored type: dense ones here, convolutions.hpp, attention.hpp.
//
// Every value is one sum over k = 0, 1, 2, ... in that order, by one thread: the same bits on any grid. Linear layers go
// to the queue's library (cuBLASLt) where it is there and has an algorithm for the shape; these kernels serve where it
// is not, for other products, and in tests. They are plain, not tuned.
//
// A and B are functions (batch, row, column) -> value, so that a convolution is the same product over values that are
// looked up where they lie (implicit GEMM); C takes (batch, row, column, sum). Where the grid says tf32, factors are
// rounded to it; sums are not.
//
// Tests: tests/kernels/emulated_test.cpp, linear_layers_test.cpp (any machine), gpu_test.cpp (needs a GPU)
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/columns.hpp"
#include "kernels/gpu_shapes.hpp"
#include "kernels/values.hpp"

namespace pipewright::kernels::grid_kernels {

// As a product sees it.
template <class F>
PIPEWRIGHT_BOTH F factor(F x, bool tf32) {
  if constexpr (std::is_same_v<F, float>) return tf32 ? in_tf32(x) : x;
  return x;
}

template <class F, class A, class B, class C>
struct ProductValue {
  I m, n, k;
  A a;
  B b;
  C c;
  bool tf32;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const I column = i % n, row = i / n % m, batch = i / n / m;
    F sum = 0;
    for (I deep = 0; deep < k; ++deep)
      sum += factor<F>(a(batch, row, deep), tf32) * factor<F>(b(batch, deep, column), tf32);
    c(batch, row, column, sum);
  }
};
// F: of the sums.
template <class F, class Grid, class A, class B, class C>
void product(const Grid& grid, const char* name, I batches, I m, I n, I k, const A& a, const B& b, const C& c) {
  grid.values(name, batches * m * n, ProductValue<F, A, B, C>{m, n, k, a, b, c, grid.tf32});
}

// Where batch b begins: b / inner samples and b % inner / sharers heads on.
struct BatchPlace {
  I inner = 1, outer_stride = 0, inner_stride = 0, sharers = 1;
  PIPEWRIGHT_BOTH I operator()(I batch) const {
    return batch / inner * outer_stride + batch % inner / sharers * inner_stride;
  }
};

template <class S>
struct Matrix {
  const S* data;
  I row_stride, column_stride;
  BatchPlace place{};
  I fold = std::numeric_limits<I>::max(), fold_stride = 0;  // from one stretch of `fold` rows to the next
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(I batch, I row, I column) const {
    const I at = row < fold ? row * row_stride : row / fold * fold_stride + row % fold * row_stride;
    return data[place(batch) + at + column * column_stride];
  }
};
template <class M>
struct Transposed {
  M matrix;
  PIPEWRIGHT_BOTH auto operator()(I batch, I row, I column) const { return matrix(batch, column, row); }
};
// S: of the output. Bias: stored as the factors are.
template <class S, class Bias = S>
struct OutMatrix {
  S* data;
  I row_stride;
  BatchPlace place{};
  const Bias* bias = nullptr;  // per column, or null
  bool add = false;            // to what is there
  PIPEWRIGHT_BOTH void operator()(I batch, I row, I column, Arithmetic<S> sum) const {
    S& out = data[place(batch) + column + row * row_stride];
    const Arithmetic<S> value = bias == nullptr ? sum : sum + bias[column];
    out = S(add ? out + value : value);
  }
};

// ---- linear layers --------------------------------------------------------------------------------------------------

// False: the grid has no library, or it has no algorithm for the shape.
template <class Grid, class S>
bool by_library(const Grid& grid, const MatmulShape& shape, const S* a, const S* b, void* c, bool add) {
  if constexpr (requires { grid.multiply(shape, a, b, c, add); })
    return grid.multiply(shape, a, b, c, add);
  else
    return false;
}

// y {rows, out} = x {rows, in} w^T + bias; w {out, in}; bias may be null. The library stores a product before the bias
// is added to it: one rounding more in 16 bits.
template <class Grid, class S>
void linear(const Grid& grid, I rows, I in, I out, const S* x, const S* w, const S* bias, S* y) {
  if (!by_library(grid, {rows, out, in, false, true}, x, w, y, false))
    product<Arithmetic<S>>(grid, "linear", 1, rows, out, in, Matrix<S>{x, in, 1}, Matrix<S>{w, 1, in},
                           OutMatrix<S>{y, out, {}, bias});
  else if (bias != nullptr)
    add_bias<Grid, S>(grid, rows, out, y, bias, nullptr, y);
}
template <class Grid, class S>
void linear_input_gradient(const Grid& grid, I rows, I in, I out, const S* dy, const S* w, S* dx) {
  if (!by_library(grid, {rows, in, out, false, false}, dy, w, dx, false))
    product<Arithmetic<S>>(grid, "linear_input_gradient", 1, rows, in, out, Matrix<S>{dy, out, 1}, Matrix<S>{w, in, 1},
                           OutMatrix<S>{dx, in});
}
// Added to dw and db; db may be null. workspace: columns_workspace(rows, out) values where there is db.
template <class Grid, class S>
void linear_weight_gradient(const Grid& grid, I rows, I in, I out, const S* x, const S* dy, Arithmetic<S>* dw,
                            Arithmetic<S>* db, Arithmetic<S>* workspace) {
  if (!by_library(grid, {out, in, rows, true, false}, dy, x, dw, true))
    product<Arithmetic<S>>(grid, "linear_weight_gradient", 1, out, in, rows, Matrix<S>{dy, 1, out}, Matrix<S>{x, in, 1},
                           OutMatrix<Arithmetic<S>>{dw, in, {}, nullptr, true});
  if (db != nullptr) bias_gradient(grid, rows, out, dy, db, workspace);
}

}  // namespace pipewright::kernels::grid_kernels
