// One fuzzer per reader: libFuzzer calls it with bytes that it makes up. FUZZ_TARGET is the reader's name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const pipewright::tests::FuzzTarget& target : pipewright::tests::fuzz_targets())
    if (target.name == FUZZ_TARGET) {
      pipewright::tests::run_target(target, {reinterpret_cast<const char*>(data), size});
      return 0;
    }
  std::abort();
}
