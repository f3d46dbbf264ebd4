// Exchanges of a tensor-parallel group beside products: the formula by hand, and in the price of a layer.
#include "core/cost/tensor_overlap.hpp"

#include <cstdlib>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/core/passes.hpp"
#include "tests/support/microseconds.hpp"
#include "tests/support/transformer_block.hpp"

using namespace pipewright::tests;

TEST_CASE("an exchange runs beside the product next to it: the longer of both, and the first part of the shorter") {
  const std::vector<DividedProduct> product = {{100, 112}};
  CHECK(left_of_exchanges(product, {}, 1, 60, 4) == 112 + 15 - 100 + 60);  // the scattering has no product
  CHECK(left_of_exchanges({}, product, 1, 200, 4) == 200 + 28 - 100 + 200);
  CHECK(left_of_exchanges(product, product, 1, 60, 4) == 2 * 27);
  CHECK(left_of_exchanges(product, product, 2, 60, 4) == 2 * 27 + 2 * 60);
  CHECK(left_of_exchanges(product, product, 0, 60, 4) == 0);
  const std::vector<DividedProduct> slow = {{100, 400}};  // worse in parts than waiting
  CHECK(left_of_exchanges(slow, slow, 1, 60, 4) == 2 * 60);
  // A product of 8 ms that no parts slow down: beside a gather of 4 ms it takes 9 ms, beside one of 12 ms 14.     [Wang23]
  const std::vector<DividedProduct> even = {{8, 8}};
  CHECK(8 + left_of_exchanges(even, {}, 1, 4, 4) - 4 == 9);
  CHECK(8 + left_of_exchanges(even, {}, 1, 12, 4) - 12 == 14);
  const std::vector<DividedProduct> free = {{100, 100}};  // as long in parts, and nothing to send
  CHECK(left_of_exchanges(free, free, 1, 0, 4) == 0);
}

TEST_CASE("plan.tensor_overlap leaves what its formula says of a block's exchanges, and nothing else changes") {
  const TensorParallel split{.degree = 4, .sequence_parallel = true};
  Scenario alone =
      block_scenario({.sequence = 2048, .hidden = 4096, .heads = 32, .inner = 16384, .flash = true}, 1, 4, split);
  alone.plan.tensor_parallel.value = 4, alone.plan.sequence_parallel.value = true;
  alone.cluster.links.kind = LinkKind::Nvswitch, alone.cluster.links.bandwidth = Bandwidth{200e9};
  Scenario beside = alone, none = alone;
  beside.plan.tensor_overlap.value = true;
  for (Work& work : none.model.works) {
    work.reduced_forward = work.reduced_backward = {};
    work.reductions_forward = work.reductions_backward = 0;
  }
  const auto whole = price(alone), overlapped = price(beside), computing = price(none);
  CHECK(overlapped.backward_weight == whole.backward_weight);
  // Two all-reduces of 2048 x 4096 x 2 B: halves of 3/4 x 16 MiB at 200 GB/s, 62.915 us each. Products at 312 TFLOP/s take in
  // parts what they take in one piece.
  const auto [shown, all] = std::pair(overlapped.forward - computing.forward, whole.forward - computing.forward);
  CHECK(std::abs(all.value - 251'658) <= 1);  // passes are rounded
  // 3 x 62.915 / 4 beside the products of queries, of 165 us, and of the feed-forward, of 220 us; the attention's output
  // takes 55.064: 62.915 + 55.064 / 4 - 55.064.
  CHECK(std::abs(shown.value - 68'802) <= 1);
  CHECK(overlapped.backward_input - computing.backward_input < Time{all.value / 2});
  // Without sequence parallelism there are no halves to run beside anything.
  beside.plan.sequence_parallel.value = alone.plan.sequence_parallel.value = false;
  CHECK(price(beside).forward == price(alone).forward);
}
