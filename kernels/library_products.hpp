// Products by cuBLASLt as a run asks for them: shape after shape, the algorithm of each chosen at its first use and
// kept. Without workspace, so that all memory of a run stays in its arena. A shape for which the library has no
// algorithm is left to plain kernels, every time. One object per queue.
//
// Tests: tests/kernels/linear_layers_test.cpp (any machine), tests/kernels/gpu_test.cpp
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "kernels/cublas_lt.hpp"

namespace pipewright::kernels {

// Product: Matmul, or one of a test.
template <class Product>
class ProductsOf {
 public:
  ProductsOf(GpuPrecision precision, int sms) : precision_(precision), sms_(sms) {}

  // c = op(a) op(b), stored as a and b are; or c += op(a) op(b) in fp32. False: nothing was done, the library has no
  // algorithm.
  bool multiply(GpuStream stream, const MatmulShape& shape, const void* a, const void* b, void* c, bool add) {
    last_ = &of(shape, add ? MatmulResult::Fp32 : MatmulResult::AsFactors);
    if (*last_) (*last_)->launch(stream, a, b, c, add, nullptr);
    return last_->has_value();
  }
  // Of the product that was asked for last. Nothing: the library has none, or nothing was asked for.
  std::optional<MatmulAlgorithm> last_algorithm() const {
    return last_ != nullptr && *last_ ? std::optional((*last_)->algorithm()) : std::nullopt;
  }

 private:
  const std::optional<Product>& of(const MatmulShape& shape, MatmulResult result) {
    const std::pair key(shape, result);
    const auto found = known_.find(key);
    return found == known_.end() ? known_.emplace(key, chosen(shape, result)).first->second : found->second;
  }
  std::optional<Product> chosen(const MatmulShape& shape, MatmulResult result) const {
    try {
      return Product(precision_, shape, sms_, Bytes{}, result);
    } catch (const NoAlgorithm&) {
      return std::nullopt;
    }
  }

  GpuPrecision precision_;
  int sms_;
  const std::optional<Product>* last_ = nullptr;                                  // one of `known_`
  std::map<std::pair<MatmulShape, MatmulResult>, std::optional<Product>> known_;  // none: it has no algorithm
};

class LibraryProducts final : public ProductsOf<Matmul> {
 public:
  using ProductsOf<Matmul>::ProductsOf;
};

// Whether the library is there.
bool has_library_products();

}  // namespace pipewright::kernels
