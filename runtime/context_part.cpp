#include "runtime/context_part.hpp"

namespace pipewright::runtime {

std::vector<TokenRange> ranges(const ContextPart& part, std::int64_t tokens) {
  if (!part.zigzag) return {{0, part.number * tokens, tokens}};
  const std::int64_t half = tokens / 2;
  return {{0, part.number * half, half}, {half, (2 * part.of - 1 - part.number) * half, half}};
}

}  // namespace pipewright::runtime
