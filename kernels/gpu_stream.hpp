// A stream of its own on a whole GPU, before others where the driver can choose: what waits for a message must not wait
// behind arithmetic, too. Without kernels: GpuError.
#pragma once

#include <utility>

#include "kernels/gpu_api.hpp"

namespace pipewright {

class GpuOwnStream {
 public:
  explicit GpuOwnStream(int device);
  ~GpuOwnStream();
  GpuOwnStream(const GpuOwnStream&) = delete;
  GpuOwnStream& operator=(const GpuOwnStream&) = delete;

  GpuStream stream() const { return stream_; }

 private:
  GpuStream stream_ = nullptr;
};

}  // namespace pipewright
