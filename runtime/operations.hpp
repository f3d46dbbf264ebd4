// The operations that can be run: what each keeps, reads and trains. One table for all backends, so that memory and
// gradients are laid out alike on every device; how an operation is computed is the backend's.
//
// y: output, dy, dx: gradients of the loss with respect to output and input; b: samples of the micro-batch.
//
//     operation             dx reads          parameters' gradient reads   saved from forward (per sample)
//     linear                (weight)          x, dy                        -
//     grouped_linear        (weight)          x, dy                        -
//     dispatch              -                 -                            -
//     combine               rows, shares      -                            -
//     conv2d                (weight)          x, dy                        -
//     embedding             no dx             token numbers, dy            -
//     learned_table         -                 dy                           -
//     layer_norm, rms_norm  x, saved          x, saved, dy                 mean and 1 / deviation (rms: the latter), 4 B
//     relu, tanh, sigmoid   y                 -                            -
//     gelu, silu, gated     x                 -                            -
//     softmax               y                 -                            -
//     attention             q, k, v           -                            scores after softmax; `flash`: y, and of
//                                                                          every row the log of its sum, 4 B
//     add, concat, slice,   -                 -                            -
//     average_pool, global_average_pool, image_to_tokens
//     multiply              both x            -                            -
//     max_pool              saved             -                            position of the maximum, 4 B per output
//     cross_entropy         saved             -                            gradient of the logits, as large as they are
//
// Tests: tests/runtime/operations_test.cpp
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/program.hpp"
#include "core/units.hpp"

namespace pipewright::runtime {

enum class Initial : std::uint8_t {
  Zero,
  One,
  Uniform,  // in (-bound, bound)
  Normal,   // standard deviation `bound`
};

// One trained tensor of a step.
struct ParameterTensor {
  std::string_view name;  // a literal: "weight", "bias"
  std::int64_t elements = 0;
  Initial initial = Initial::Zero;
  double bound = 0;
};

struct OperationRule {
  std::string_view name;
  // The gradient of the inputs reads: all inputs, the output, what the forward saved.
  bool gradient_reads_inputs = false, gradient_reads_output = false, gradient_reads_saved = false;
  // The gradient of the parameters, beside dy.
  bool weights_read_inputs = false, weights_read_saved = false;
  std::vector<ParameterTensor> (*parameters)(const Program&, const ProgramStep&) = nullptr;  // nullptr: none
  // Per sample, of a run that stores values in so many bytes; nullptr: nothing.
  std::int64_t (*saved_bytes)(const Program&, const ProgramStep&, std::int64_t value_bytes) = nullptr;
  // Why this very step cannot be run ("dropout of the scores"), or "".
  std::string (*refusal)(const Program&, const ProgramStep&) = nullptr;
};

std::span<const OperationRule> operation_rules();

// The rule of a step. Throws InputError without a place that names the operation, and what can be run.
const OperationRule& rule_of(const Program& program, const ProgramStep& step);

std::vector<ParameterTensor> parameters_of(const Program& program, const ProgramStep& step);
// Bytes per sample that the forward of a step saves for its backward beside inputs and output. Statistics and positions
// take 4 B each, whatever a value takes (`weight_bytes`: fp32 and tf32 4, bf16 and fp16 2).
std::int64_t saved_bytes(const Program& program, const ProgramStep& step, std::int64_t value_bytes = 4);

// Bytes of a tensor of one sample: of its values, or 8 per token number. Losses are fp32 and not asked for here.
std::int64_t tensor_bytes(const ProgramTensor& tensor, std::int64_t value_bytes = 4);

}  // namespace pipewright::runtime
