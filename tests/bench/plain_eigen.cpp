#include "tests/bench/plain_eigen.hpp"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

namespace pipewright::tests {

void plain_eigen_linear(std::int64_t rows, std::int64_t in, std::int64_t out, const float* x, const float* w,
                        const float* dy, float* y, float* dx, float* dw) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix, Eigen::Aligned64> in_x(x, rows, in), in_w(w, out, in), in_dy(dy, rows, out);
  Eigen::Map<Matrix, Eigen::Aligned64>(y, rows, out).noalias() = in_x * in_w.transpose();
  Eigen::Map<Matrix, Eigen::Aligned64>(dx, rows, in).noalias() = in_dy * in_w;
  Eigen::Map<Matrix, Eigen::Aligned64>(dw, out, in).noalias() += in_dy.transpose() * in_x;
}

}  // namespace pipewright::tests
