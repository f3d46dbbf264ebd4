// Inside runtime/backends/cpu_kernels*.cpp only: matrix products by Eigen on one thread.
//
// meson.build compiles these files with -DEigen=pipewright_cpu_eigen: what Eigen's headers define here has names of its
// own, so that the linker cannot mix it with Eigen compiled for another processor elsewhere in the program.
//
// EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 1: small products, too, go the way of blocks that are copied before they are
// multiplied; Eigen's other way begins where an address is aligned, so that its sums would depend on addresses.
#pragma once

#define EIGEN_DONT_PARALLELIZE
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 1
#include <cstdint>

#include <Eigen/Core>

namespace pipewright::cpu_kernels {
namespace {

// A row-major matrix, `stride` values from one row to the next.
template <class S>
struct Rows {
  S* data;
  std::int64_t rows, columns, stride;
};

template <class S>
using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class S>
inline auto mapped(const Rows<const S>& m) {
  return Eigen::Map<const Matrix<S>, Eigen::Unaligned, Eigen::OuterStride<>>(m.data, m.rows, m.columns,
                                                                             Eigen::OuterStride<>(m.stride));
}
template <class S>
inline auto mapped(const Rows<S>& m) {
  return Eigen::Map<Matrix<S>, Eigen::Unaligned, Eigen::OuterStride<>>(m.data, m.rows, m.columns,
                                                                       Eigen::OuterStride<>(m.stride));
}

// c = a b, c = a b^T, c = a^T b, and the same added to c.
template <class S>
inline void set_product(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() = mapped<S>(a) * mapped<S>(b);
}
template <class S>
inline void set_product_bt(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() = mapped<S>(a) * mapped<S>(b).transpose();
}
template <class S>
inline void set_product_at(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() = mapped<S>(a).transpose() * mapped<S>(b);
}
template <class S>
inline void add_product_bt(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() += mapped<S>(a) * mapped<S>(b).transpose();
}
template <class S>
inline void add_product_at(const Rows<S>& c, const Rows<const S>& a, const Rows<const S>& b) {
  mapped<S>(c).noalias() += mapped<S>(a).transpose() * mapped<S>(b);
}

}  // namespace
}  // namespace pipewright::cpu_kernels
