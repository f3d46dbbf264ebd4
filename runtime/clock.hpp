// The clock of a run: all workers and all marks of the CPU backends share it.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/rooms.hpp"

namespace pipewright::runtime {

inline std::int64_t steady_ns() {
  using std::chrono::nanoseconds, std::chrono::steady_clock;
  return std::chrono::duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace pipewright::runtime
