// How full a GPU becomes while something runs: looked at every few milliseconds, in a thread of its own.
//
// What is on the GPU beside the workers' arenas (contexts, kernels' code, streams) is what is taken before they are
// reserved. With it:  predicted = taken before + sum of the arenas' extents,  measured = the most that was ever taken.
#pragma once

#include <cstdint>
#include <thread>

#include "core/units.hpp"

namespace pipewright {

class MemoryWatch {
 public:
  // Throws GpuError where there is no such GPU.
  explicit MemoryWatch(int device);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // Ends the watch: how much more was taken at most than at its beginning.
  Bytes stop();

 private:
  int device_;
  Bytes free_at_first_, least_free_;
  std::jthread thread_;
};

}  // namespace pipewright
