// The size of a program's step, as times that were measured depend on it (core/cluster/measured_device.hpp).
//
//     linear         rows = b * rows of a sample.   forward {rows, in} x {in, out}, input gradient {rows, out} x
//                    {out, in}, weight gradient {out, rows} x {rows, in}
//     conv2d         with g groups: g products {b H' W', C/g kh kw} x {.., C'/g}; input gradient {b H W, C'/g kh kw} x
//                    {.., C/g}; weight gradient {C'/g, b H' W'} x {.., C/g kh kw}
//     attention      b * heads products {queries, key size + value size} x {.., keys}
//     others         {rows, features} of the first input; of token numbers, of the output
//
// Values: a forward reads its inputs and parameters and writes its output; an input gradient reads the output's
// gradient and the inputs and writes the inputs' gradients; a weight gradient reads the output's gradient and the
// inputs, and adds to the parameters' gradient. Of a table only the rows looked up count.
//
// 8 samples of 64 tokens, linear 128 -> 384 with a bias: forward {512, 128} x {128, 384},
// 512 * 128 + 512 * 384 + 128 * 384 + 384 = 311 680 values.  tests/core/measured_device_test.cpp "The size of"
#pragma once

#include <optional>

#include "core/cluster/measured_device.hpp"
#include "core/model/program.hpp"

namespace pipewright::core {

// Nothing where the step has nothing to do in that pass.
std::optional<OperationSize> operation_size(const Program& program, const ProgramStep& step, std::int64_t samples,
                                            MeasuredPass pass);

}  // namespace pipewright::core
