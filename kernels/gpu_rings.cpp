#include <array>
#include <vector>

#include "kernels/gpu_kernels.hpp"
#include "kernels/rings.hpp"

namespace pipewright::kernels::grid_kernels {

// A member's event of a step is recorded over two steps later, when its neighbour has long been told to wait for it.
void ring_all_reduce(int device, std::span<const Queue> queues, std::span<float* const> buffers, I n) {
  std::vector<std::array<GpuEvent, 2>> done;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    done.push_back({GpuEvent(device), GpuEvent(device)});
    done[i][1].record(queues[i].stream);  // what was asked for before counts as the step before the first
  }
  for_ring(static_cast<int>(queues.size()), n, [&](int step, const RingStep& s) {
    const auto own = static_cast<std::size_t>(s.member), left = static_cast<std::size_t>(s.left);
    const Queue& queue = queues[own];
    done[left][static_cast<std::size_t>(step + 1) % 2].wait_on(queue.stream);
    const float* const from = buffers[left] + s.begin;
    float* const to = buffers[own] + s.begin;
    if (s.add)
      add(queue, s.end - s.begin, static_cast<const float*>(to), from, to);
    else
      copy_values(queue, s.end - s.begin, from, to);
    done[own][static_cast<std::size_t>(step) % 2].record(queue.stream);
  });
  // What is asked for next may write where the right neighbour's last step, the odd one 2 (R - 1) - 1, still reads.
  for (std::size_t i = 0; i < queues.size(); ++i)
    done[(i + 1) % queues.size()][1].wait_on(queues[i].stream);
}

}  // namespace pipewright::kernels::grid_kernels
