// Matrix products by NVIDIA's cuBLASLt, where it is there: for speed. Their sums run in an order of the library's own,
// which may change with shape, SMs and version: bits are compared with the plain kernels of products.hpp only.
//
//     c {m, n} = op(a) op(b), + c where it is added to; rows lie one after another
//     a {m, k}, or {k, m} when transposed; b {k, n}, or {n, k} when transposed; c fp32, or stored as a and b are
//
// Linear layers: forward x w^T (b transposed), input gradient dy w, weight gradient dy^T x (a transposed, added).
//
// Tests: tests/kernels/gpu_test.cpp
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/gpu_api.hpp"
#include "kernels/gpu_shapes.hpp"

namespace pipewright::kernels {

enum class GpuPrecision : std::uint8_t { Fp32, Tf32, Fp16, Bf16 };  // of a and b: 4, 4, 2, 2 bytes; sums are fp32

enum class MatmulResult : std::uint8_t { Fp32, AsFactors };

// What the library tells of an algorithm; 0: it does not.
struct MatmulAlgorithm {
  double waves = 0;  // how often the grid fills the SMs, as its heuristics count: 1.25 has a second wave a quarter full
  int tile_rows = 0, tile_columns = 0;  // of c
  int split_k = 0;                      // parts of k whose sums are added; 1: whole
};

// cuBLASLt has nothing for a shape, a precision and a workspace.
struct NoAlgorithm : GpuError {
  using GpuError::GpuError;
};

// The algorithm that the library's heuristics pick is chosen once, here, so that a calibration and a run use the same.
class Matmul {
 public:
  // For the current device. sms: of the virtual device that it runs on (grids are sized for them); workspace: how much
  // the algorithm may use. Throws GpuError when cuBLASLt is not there, NoAlgorithm when it has none.
  Matmul(GpuPrecision precision, const MatmulShape& shape, int sms, Bytes workspace,
         MatmulResult result = MatmulResult::Fp32);
  ~Matmul();
  Matmul(Matmul&&) noexcept;

  // c: of the type that was asked for. workspace: `workspace()` bytes, used by this stream alone.
  void launch(GpuStream stream, const void* a, const void* b, void* c, bool add, void* workspace) const;
  Bytes workspace() const;
  MatmulAlgorithm algorithm() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace pipewright::kernels
