// Linear layers that compute in fp8 or fp4 (training.low_precision): what their operands take, and what is done to them.
//
//     recipe           products   bytes of a value    first its largest    copies for both products that read it
//     fp8_delayed      fp8        1                                        2; 1 where products read either layout
//     fp8_tensorwise   fp8        1                   yes                  likewise
//     fp8_blockwise    fp8        1 + 4/128                                2
//     mxfp8            fp8        1 + 1/32                                 2
//     nvfp4            fp4        1/2 + 1/16          yes                  2
//
// A tensor is cast by a kernel that reads 2 B per value and writes the copies; finding its largest value reads it once
// before. The input of a layer is cast in the forward, the gradient of its output in the backward; one copy of the input is
// kept for the gradient of the weights, in place of the tensor where nobody else reads that. Weights are cast once per
// update, or, where they are gathered in 16 bits for every use (training.zero: 3), each time.   [TransformerEngine26]
//
// 8 B parameters, mxfp8, of which 7 B are of linear layers: copies of 7e9 * 2 * 33/32 = 14.4 GB beside 16 GB of weights;
// with low_precision_weights 14.4 GB beside 2 GB.                                tests/core/low_precision_test.cpp
#pragma once

#include <cstdint>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

struct LowPrecisionRule {
  LowPrecision recipe = LowPrecision::None;
  const char* name = "";                // as written in YAML
  Precision products = Precision::Fp8;  // whose peak they run at
  OperatorKind kind = OperatorKind::Fp8Product;
  double bytes = 1;  // of a value, with its share of the scales
  bool finds_largest = false;
  bool along_both = false;  // scales lie along the summed side, so that each product needs a copy of its own
};
const LowPrecisionRule* low_precision(const Training& training);  // nullptr: none
// What MFU is measured against: what products of linear layers are priced in.
Precision rated_precision(const Scenario& scenario);
int copies_of(const LowPrecisionRule& rule, const Device& device);

// Parameters of a layer that its linear layers hold on one device.
std::int64_t low_precision_parameters(const Scenario& scenario, LayerId layer);
std::int64_t low_precision_parameters(const Scenario& scenario, LayerRange layers);  // of them, the trained ones
// Bytes of the weights of a layer on one device: `low` of the `parameters` are of linear layers in fewer bits.
struct WeightBytes {
  Bytes held;    // from one update to the next: what ZeRO-3 divides and gathers
  Bytes copies;  // made of it where it is whole
};
WeightBytes weight_bytes(std::int64_t parameters, std::int64_t low, const Training& training, const Device& device);
// Of one parameter, held, at least: for bounds.
double least_weight_bytes(const Training& training);
// Bytes that casting `low` weights moves, once per update; 0 where they are cast for every use.
double cast_bytes(std::int64_t low, const Training& training, const Device& device);

}  // namespace pipewright::core
