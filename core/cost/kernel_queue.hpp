// A list of kernels as its host and its device see it.
//
// The host issues kernels one after the other, h_i each, and runs ahead; the device works on each once it is issued and
// the one before has ended, d_i each:
//     issued_i = issued_(i-1) + h_i;   ended_i = max(issued_i, ended_(i-1)) + d_i
// What a list does to the two clocks is a product of max-plus matrices                                     [Baccelli92]
// of which three figures remain, so that lists are joined without looking at their kernels again:
//     host h = sum h_i;   device d = sum d_i;   end a = max over i of (issued_i + sum over j >= i of d_j)
//     two lists one after the other: (h1 + h2, d1 + d2, max(a1 + d2, h1 + a2))
// Where the host waits for the device, both clocks go on from the later one. Two figures more say what a device that is
// late makes late: the host behind the last wait, and the device.
//
// Kernels (h, d) = (2, 1), (2, 5), (2, 1): (6, 7, 10), since the second begins at 4 and the third waits for it. Twice
// (12, 14, 17); with a wait in between 20.                         tests/core/kernel_queue_test.cpp
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/units.hpp"

namespace pipewright::core {

// `Duration`: Time, or double for ns that are rounded later. Lists begin with both clocks at 0; an empty one is all 0.
// Of clocks at h0 and d0 a list makes
//     host = max(h0 + host, d0 + late_host if it waits);   device = max(h0 + end, d0 + late_device or device)
template <class Duration>
struct KernelQueueOf {
  Duration host{}, device{}, end{};  // `device`: what it computes, without gaps
  bool waits = false;
  Duration late_host{}, late_device{};  // 0 where it does not wait

  // One kernel: the device begins once the host has issued it. (2, 1): (2, 1, 3).
  static constexpr KernelQueueOf kernel(Duration host, Duration device) {
    return {host, device, host + device, false, {}, {}};
  }
  // The host waits until the device has done all that was issued.
  static constexpr KernelQueueOf wait() { return {{}, {}, {}, true, {}, {}}; }

  constexpr KernelQueueOf then(const KernelQueueOf& next) const {
    KernelQueueOf all{host + next.host, device + next.device, {}, waits || next.waits, {}, {}};
    all.end = std::max(end + next.through(), host + next.end);
    if (!all.waits) return all;
    all.late_device = through() + next.through();
    if (waits) all.late_host = late_host + next.host, all.late_device = std::max(all.late_device, late_host + next.end);
    if (next.waits) {
      all.host = std::max(all.host, end + next.late_host);
      all.late_host = std::max(all.late_host, through() + next.late_host);
    }
    return all;
  }
  // `count` times, one after the other, in O(log count).
  constexpr KernelQueueOf times(std::int64_t count) const {
    KernelQueueOf all{}, power = *this;
    for (; count > 0; count /= 2, power = power.then(power))
      if (count % 2 == 1) all = all.then(power);
    return all;
  }
  bool operator==(const KernelQueueOf&) const = default;

 private:
  constexpr Duration through() const { return waits ? late_device : device; }
};
using KernelQueue = KernelQueueOf<Time>;

}  // namespace pipewright::core
