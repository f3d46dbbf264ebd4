#include "cli/accuracy/memory_watch.hpp"

#include <algorithm>
#include <chrono>

#include "kernels/gpu_api.hpp"

namespace pipewright {
namespace {

constexpr std::chrono::milliseconds kBetween{2};  // two looks: a run of one step holds its arenas for longer

}  // namespace

MemoryWatch::MemoryWatch(int device)
    : device_(device), free_at_first_(gpu_free_memory(device)), least_free_(free_at_first_) {
  thread_ = std::jthread([this](const std::stop_token& end) {
    while (!end.stop_requested())
      try {
        least_free_ = std::min(least_free_, gpu_free_memory(device_));
        std::this_thread::sleep_for(kBetween);
      } catch (const GpuError&) {  // the run says what is wrong
        return;
      }
  });
}

MemoryWatch::~MemoryWatch() = default;

Bytes MemoryWatch::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  return free_at_first_ - least_free_;
}

}  // namespace pipewright
