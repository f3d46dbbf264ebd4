// Muon: which parameters are matrices that it updates, and what it takes to orthogonalise them.            [Muon24] [Muon25]
//
// Of a product's weight, m x n with m <= n, five iterations of Newton and Schulz: X X^T, its square, and both times X:
//     5 (2 m^2 n + 2 m^3 + 2 m^2 n) FLOPs, products in bf16
// 4096 x 14336: 5 (4 * 4096^2 * 14336 + 2 * 4096^3) = 5.50 TFLOP. Of m x n, over B tokens that take 6 m n B, at most 5 m / B.
// A weight that a tensor-parallel group divides is orthogonalised part by part, an expert by itself. Parameters of embeddings,
// the head and norms go by Adam; biases count with their matrix. With ZeRO-1 whole matrices are dealt out: a worker takes its
// share of all, the largest matrix at least, and the weights are gathered as ever.       tests/core/muon_test.cpp
#pragma once

#include "core/cost/cost_model.hpp"
#include "core/model/work.hpp"

namespace pipewright::core {

// A weight that Muon updates, once per group.
bool muon_matrix(const Operator& op);
// On one device of the group; 0 with other optimizers.
HeldParameters muon_parameters(const Scenario& scenario, LayerId layer);

// Of one call: (m, n) divided as the op's product is, so many times.
struct MuonMatrix {
  double m = 0, n = 0, count = 1;
};
MuonMatrix muon_matrix_of(const Operator& op, const TensorParallel& split);

}  // namespace pipewright::core
