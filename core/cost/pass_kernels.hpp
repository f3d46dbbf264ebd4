// The kernels of one pass over a layer, as a source of costs lists them.
#pragma once

#include <algorithm>
#include <vector>

#include "core/check.hpp"
#include "core/cost/kernel_queue.hpp"
#include "core/cost/tensor_overlap.hpp"

namespace pipewright::core {

// The kernels of one pass over a layer as they are issued one after the other, its all-reduces spread among them.
struct PassKernels {
  using Queue = KernelQueueOf<double>;  // ns

  std::vector<Queue> list;
  double device = 0;
  std::vector<DividedProduct> gathers, scatters;  // of its products, beside exchanges of a tensor-parallel group

  void add(double host, double time, int kernels = 1) {
    device += time;
    if (time > 0) list.push_back(Queue::kernel(host, time / kernels).times(kernels));
  }
  // The host waits for what was issued.
  void wait() { list.push_back(Queue::wait()); }
  // So many collectives that hold the device up for `time` together, if at all.
  void add_exchanges(double host, double time, int count) {
    device += time;
    list.push_back(Queue::kernel(host, time / count).times(count));
  }
  // Rounded once, with `count` all-reduces that take `time` together.
  KernelQueue with(int count = 0, double host = 0, double time = 0) const {
    const Queue each = time > 0 ? Queue::kernel(host, time / count) : Queue{};
    Queue all;
    int done = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      all = all.then(list[i]);
      const int due = static_cast<int>(static_cast<std::size_t>(count) * (i + 1) / list.size());
      all = all.then(each.times(due - done)), done = due;
    }
    all = all.then(each.times(count - done));
    const auto whole = [](double ns) { return Time{rounded(ns, "a layer's time")}; };
    const Time all_device = whole(device + time);
    return {whole(all.host), all_device,           std::max(whole(all.end), all_device),
            all.waits,       whole(all.late_host), whole(all.late_device)};
  }
};

}  // namespace pipewright::core
