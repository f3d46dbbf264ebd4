// Every reader of other people's bytes, as a function of bytes: what the fuzzers (docs/results/fuzzing.md) call a
// million times, and the ordinary tests with the inputs that are kept in corpus/.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pipewright::tests {

struct FuzzTarget {
  std::string_view name;  // also the folder of its inputs
  // Reads the bytes: a value or an InputError, which it lets out. What it reads it writes back where there is a writer,
  // and aborts when that does not read again.
  void (*read)(const std::string& bytes);
};

std::span<const FuzzTarget> fuzz_targets();

// Calls a target; an InputError is an answer. Aborts when its message is empty.
void run_target(const FuzzTarget& target, const std::string& bytes);

}  // namespace pipewright::tests
