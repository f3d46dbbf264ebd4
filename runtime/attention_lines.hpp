// The instructions of attention over a sequence in parts, which devices share or one computes slice by slice. Inside
// runtime/ only.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/chunk_code.hpp"

namespace pipewright::runtime {

// Of step `s`, behind the room for its output. `again`: of a recomputation.
void add_attention_forward(std::vector<Instruction>& line, std::size_t s, const RingStep& ring, bool again);
// Behind the room for the gradients of its inputs.
void add_attention_backward(std::vector<Instruction>& line, std::size_t s, const RingStep& ring);

}  // namespace pipewright::runtime
