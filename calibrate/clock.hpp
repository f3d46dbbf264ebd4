// The clock of measurements that several threads compare. Inside calibrate/ only.
#pragma once

#include <chrono>

#include "core/rooms.hpp"

namespace pipewright::calibrate {

inline double now_ns() {
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace pipewright::calibrate
