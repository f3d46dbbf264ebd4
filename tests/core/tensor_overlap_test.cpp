// Exchanges of a tensor-parallel group beside products: the formula by hand, and in the price of a layer.
#include "core/cost/tensor_overlap.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <doctest/doctest.h>

#include "tests/core/passes.hpp"
#include "tests/support/microseconds.hpp"
#include "tests/support/transformer_block.hpp"

using namespace pipewright::tests;

namespace {

// Of exchanges that take as long beside computing as alone.
double left(const std::vector<DividedProduct>& products, int times, double exchange, int t) {
  return left_of_exchanges(products, times, exchange, exchange, t);
}

// A block of queries, keys and values of 165.191 us, an output of 55.064 and two products of 220.255 at 312 TFLOP/s, each way;
// exchanges of 2048 x 4096 x 2 B: 3/4 x 16 MiB at 200 GB/s, 62.915 us each.
Scenario overlapping(TensorOverlap overlap, double bandwidth = 200e9, bool halves = true) {
  const TensorParallel split{.degree = 4, .sequence_parallel = halves};
  Scenario scenario =
      block_scenario({.sequence = 2048, .hidden = 4096, .heads = 32, .inner = 16384, .flash = true}, 1, 4, split);
  scenario.plan.tensor_parallel.value = 4, scenario.plan.sequence_parallel.value = halves;
  scenario.cluster.links.kind = LinkKind::Nvswitch, scenario.cluster.links.bandwidth = Bandwidth{bandwidth};
  scenario.plan.tensor_overlap.value = overlap;
  return scenario;
}

Scenario without_exchanges(Scenario scenario) {
  for (Work& work : scenario.model.works) {
    work.reduced_forward = work.reduced_backward = {};
    work.reductions_forward = work.reductions_backward = 0;
  }
  return scenario;
}

void near(Time time, std::int64_t ns) {
  CHECK(std::abs(time.value - ns) <= 2);  // passes are rounded
}

}  // namespace

TEST_CASE("an exchange runs beside the product next to it: the longer of both, and the first part of the shorter") {
  const std::vector<DividedProduct> product = {{100, 112}};
  CHECK(left(product, 1, 60, 4) == 112 + 15 - 100);
  CHECK(left(product, 1, 200, 4) == 200 + 28 - 100);
  CHECK(left(product, 2, 60, 4) == 27 + 60);  // the second has no product
  CHECK(left(product, 0, 60, 4) == 0);
  const std::vector<DividedProduct> slow = {{100, 400}};  // worse in parts than waiting
  CHECK(left(slow, 1, 60, 4) == 60);
  // A product of 8 ms that no parts slow down: beside a gather of 4 ms it takes 9 ms, beside one of 12 ms 14.     [Wang23]
  const std::vector<DividedProduct> even = {{8, 8}};
  CHECK(8 + left(even, 1, 4, 4) == 9);
  CHECK(8 + left(even, 1, 12, 4) == 14);
  const std::vector<DividedProduct> free = {{100, 100}};  // as long in parts, and nothing to send
  CHECK(left(free, 1, 0, 4) == 0);
  CHECK(left_of_exchanges(even, 1, 4, 6, 4) == 8 + 1.5 - 8);  // beside computing it takes half as long again
}

TEST_CASE("beside a gradient that does not need it an exchange takes what the longer of both takes") {
  const ColumnGradients even{.input = {8, 8}, .weight = 8, .input_beside = 8, .weight_beside = 8};
  const LeftOfBackward shorter = left_in_bulk(even, 4, 4, 4), longer = left_in_bulk(even, 12, 12, 4);
  CHECK(8 + shorter.input == 8);
  CHECK(8 + shorter.weight == 8);
  CHECK(8 + shorter.apart == 9);  // with nothing to run beside: in parts
  CHECK(8 + longer.input == 12);
  CHECK(8 + longer.weight == 12);
  CHECK(8 + longer.input + longer.weight + longer.apart == 12 + 6);  // 14 ms in parts, beyond 8
  // A collective holds 20 of 132 multiprocessors: 8 x 132 / 112 ms. One that takes half as long again beside computing.
  const double slowed = 8.0 * 132 / 112;
  const ColumnGradients taken{.input = {8, 8}, .weight = 8, .input_beside = slowed, .weight_beside = slowed};
  CHECK(left_in_bulk(taken, 4, 4, 4).input == doctest::Approx(1.42857));
  CHECK(left_in_bulk(taken, 4, 4, 4).weight == doctest::Approx(1.42857));
  CHECK(left_in_bulk(even, 8, 12, 4).input == 4);
  // Waiting for one of 1 ms takes no longer than 1 ms for both.
  CHECK(left_in_bulk(taken, 1, 1, 4).input + left_in_bulk(taken, 1, 1, 4).weight == 1);
  // Frozen weights have no gradient to run beside, and read no input.
  const LeftOfBackward frozen = left_in_bulk({.input = {8, 8}, .weight = 0, .input_beside = 8}, 4, 4, 4);
  CHECK(frozen.input == 4);
  CHECK(frozen.weight + frozen.apart == 0);
}

TEST_CASE("with nothing in parts an exchange takes what it is longer than the weights' gradient") {
  const ColumnGradients product{.input = {4, 4}, .weight = 2, .input_beside = 4, .weight_beside = 2};  // ms
  for (const bool halves : {true, false}) {
    CAPTURE(halves);
    const double waits = halves ? 1 : 0;  // for what another product's gradients read
    const LeftOfBackward longer = left_without_parts({product}, 1, 3, 3, halves),
                         shorter = left_without_parts({product}, 1, 1, 1, halves);
    CHECK(longer.input == 3 * waits);
    CHECK(longer.weight == 1);
    CHECK(longer.apart == 2);  // nothing beside it where the weights' gradient comes later: all 3 ms
    CHECK(shorter.input == waits);
    CHECK(shorter.weight == 0);
    CHECK(shorter.apart == 1);
    const LeftOfBackward two = left_without_parts({product}, 2, 3, 3, halves);  // no product next to the second
    CHECK(two.input == 2 * 3 * waits + 3);
    CHECK(two.weight == 1);
    const LeftOfBackward frozen = left_without_parts({{.input = {4, 4}}}, 1, 3, 3, halves);
    CHECK(frozen.input == 3 * waits + 3);
    CHECK(frozen.weight + frozen.apart == 0);
  }
  // The second gathering of halves: 6 ms beside 4, and 6 beside 2; an all-reduce has none. Waiting counts 6 for the two.
  CHECK(left_without_parts({product}, 1, 6, 6, true).input == 6 + 2);
  CHECK(left_without_parts({product}, 1, 6, 6, true).weight == 4);
  CHECK(left_without_parts({product}, 1, 6, 6, false).input == 0);
  // Beside computing it takes half as long again: 4.5 ms beside 2.
  CHECK(left_without_parts({product}, 1, 3, 4.5, false).weight == 2.5);
}

TEST_CASE("exchanges beside gradients never take longer than to wait, nor less than the longer of both") {
  for (const double input : {1.0, 5.0, 8.0})
    for (const double weight : {1.0, 6.0, 9.0})
      for (const double exchange : {0.0, 0.5, 4.0, 7.0, 12.0, 40.0})
        for (const double slower : {1.0, 1.2}) {
          CAPTURE(input);
          CAPTURE(weight);
          CAPTURE(exchange);
          CAPTURE(slower);
          const ColumnGradients of{.input = {input, 1.1 * input},
                                   .weight = weight,
                                   .input_beside = input * slower,
                                   .weight_beside = weight * slower};
          const LeftOfBackward left = left_in_bulk(of, exchange, exchange * slower, 4);
          CHECK(std::min({left.input, left.weight, left.apart}) >= 0);
          CHECK(left.input + left.weight + left.apart <= exchange + 1e-9);
          const double both = std::max(input, exchange) + std::max(weight, exchange);
          CHECK(input + left.input + weight + left.weight >= std::min(both, input + weight + exchange) - 1e-9);
        }
}

TEST_CASE("plan.tensor_overlap leaves what its formulas say of a block's exchanges, and nothing else changes") {
  const Scenario alone = overlapping(TensorOverlap::None);
  const auto whole = price(alone), computing = price(without_exchanges(alone)),
             ring = price(overlapping(TensorOverlap::Ring)), bulk = price(overlapping(TensorOverlap::Beside));
  near(whole.forward - computing.forward, 251'658);  // two all-reduces: four halves
  // 3 x 62.915 / 4 beside the products of queries and of the feed-forward; the attention's output takes 55.064: 62.915 + 55.064
  // / 4 - 55.064.
  near(ring.forward - computing.forward, 68'802);
  CHECK(bulk.forward == ring.forward);
  // Backwards the same products; what is scattered runs beside gradients of weights, and only what is gathered is left:
  // 62.915 / 4, and as above.
  CHECK(ring.backward_input - computing.backward_input == ring.forward - computing.forward);
  CHECK(ring.backward_weight == whole.backward_weight);
  CHECK(ring.apart == Time{});
  near(bulk.backward_input - computing.backward_input, 37'346);
  CHECK(bulk.backward_weight == whole.backward_weight);
  near(bulk.apart, 31'457);  // both in parts where gradients of weights come later
  // Links of a fifth: exchanges of 314.573 us. The second gatherings leave 149.382 and 94.318, what is scattered as much; what
  // is gathered before gradients of inputs 314.573 + 55.064 / 4 - 55.064 and 314.573 + 220.255 / 4 - 220.255.
  const auto slow = price(overlapping(TensorOverlap::Beside, 40e9));
  near(slow.backward_input - computing.backward_input, 149'382 + 94'318 + 273'275 + 149'382);
  near(slow.backward_weight - computing.backward_weight, 149'382 + 94'318);
}

TEST_CASE(
    "a block's backward hides all-reduces of inputs, or halves, beside gradients of weights, and its forward waits") {
  for (const bool halves : {true, false}) {
    CAPTURE(halves);
    const auto priced = [&](TensorOverlap overlap, double bandwidth) {
      return price(overlapping(overlap, bandwidth, halves));
    };
    const auto computing = price(without_exchanges(overlapping(TensorOverlap::None, 200e9, halves))),
               whole = priced(TensorOverlap::None, 200e9), fast = priced(TensorOverlap::Backward, 200e9),
               slow = priced(TensorOverlap::Backward, 40e9);
    CHECK(fast.forward == whole.forward);
    CHECK(fast.again.value_or(fast.forward) == whole.again.value_or(whole.forward));
    // Gradients of 165.191 and 220.255 us are longer than halves of 62.915 and than all-reduces of 125.829.
    near(fast.backward_input - computing.backward_input, halves ? 125'829 : 0);
    near(fast.backward_weight - computing.backward_weight, 0);
    near(fast.apart, halves ? 125'829 : 251'658);
    // Links of a fifth: halves of 314.573, all-reduces of 629.146. Beyond the gradients of inputs and of weights are 149.382 and
    // 94.318 of halves; 463.955 and 408.891 of all-reduces.
    near(slow.backward_input - computing.backward_input, halves ? 629'146 + 149'382 + 94'318 : 0);
    near(slow.backward_weight - computing.backward_weight, halves ? 149'382 + 94'318 : 463'955 + 408'891);
    near(slow.apart, halves ? 629'146 - 2 * (149'382 + 94'318) : 165'191 + 220'255);
  }
}

TEST_CASE("what a collective takes from computing counts beside products, where a device states it") {
  const auto contending = [](TensorOverlap overlap) {
    Scenario scenario = overlapping(overlap);
    scenario.cluster.device.multiprocessors = 100, scenario.cluster.device.contention.multiprocessors = 10;
    return scenario;
  };
  const auto computing = price(without_exchanges(overlapping(TensorOverlap::None))),
             bulk = price(contending(TensorOverlap::Beside));
  // Gradients of 165.191 and 220.255 us take 18.355 and 24.473 more on nine tenths of the device.
  near(bulk.backward_input - computing.backward_input, 37'346 + 18'355 + 24'473);
  near(bulk.backward_weight - computing.backward_weight, 18'355 + 24'473);
  // Parts that are summed up: max(61.182, 62.915) + 61.182 / 4 - 55.064 and 244.728 + 62.915 / 4 - 220.255.
  near(bulk.forward - computing.forward, 2 * 15'729 + 23'146 + 40'202);
  // Parts that copy engines send take nothing.
  CHECK(price(contending(TensorOverlap::Ring)).forward == price(overlapping(TensorOverlap::Ring)).forward);
  CHECK(price(contending(TensorOverlap::None)).backward_input ==
        price(overlapping(TensorOverlap::None)).backward_input);
}

TEST_CASE("a layer with exchanges beside its products takes no longer than without") {
  for (const double bandwidth : {1e9, 20e9, 60e9, 200e9, 900e9})
    for (const int taken : {0, 24})
      for (const double collective : {1.0, 1.5}) {
        const auto priced = [&](TensorOverlap overlap) {
          Scenario scenario = overlapping(overlap, bandwidth);
          scenario.cluster.device.multiprocessors = 108;
          scenario.cluster.device.contention = {.multiprocessors = taken, .collective = collective};
          return price(scenario);
        };
        CAPTURE(bandwidth);
        CAPTURE(taken);
        CAPTURE(collective);
        const auto waiting = priced(TensorOverlap::None);
        for (const TensorOverlap overlap : {TensorOverlap::Beside, TensorOverlap::Ring, TensorOverlap::Backward}) {
          const auto beside = priced(overlap);
          CHECK(beside.forward <= waiting.forward);
          const Time both = beside.backward_input + beside.backward_weight;
          CHECK(both + beside.apart <= waiting.backward_input + waiting.backward_weight + Time{2});
        }
      }
}

TEST_CASE("without halves, or a group, to run beside anything nothing changes") {
  for (const TensorOverlap overlap : {TensorOverlap::Beside, TensorOverlap::Ring, TensorOverlap::Backward}) {
    Scenario alone = overlapping(TensorOverlap::None), beside = overlapping(overlap);
    beside.plan.sequence_parallel.value = alone.plan.sequence_parallel.value = false;
    CHECK(price(beside).forward == price(alone).forward);
    if (overlap != TensorOverlap::Backward) CHECK(price(beside).backward_input == price(alone).backward_input);
    for (Scenario* const of : {&alone, &beside})
      *of = block_scenario({.sequence = 2048, .hidden = 4096, .heads = 32, .inner = 16384, .flash = true}, 1, 1, {});
    beside.plan.tensor_overlap.value = overlap;
    CHECK(price(beside).forward == price(alone).forward);
    CHECK(price(beside).backward_input == price(alone).backward_input);
    CHECK(price(beside).backward_weight == price(alone).backward_weight);
  }
}
