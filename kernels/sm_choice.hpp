// How the SMs of a GPU are cut into groups of equal size: what is asked of the driver, and what is asked next where it
// gives fewer groups than are wanted. How many it gives depends on where the SMs of a chip lie.
//
// cuda.h, "Green Contexts": smallest group and step are 4 and 2 SMs on architecture 8.x, 8 and 8 from 9.0 on; the
// driver may give fewer groups than asked; groups of one split are disjoint, and may be put together.
//
// Tests: tests/kernels/sm_choice_test.cpp (drivers that are made up)
#pragma once

#include <algorithm>

#include "core/rooms.hpp"

namespace pipewright::kernels {

// 0: the driver does not tell.
struct SmDevice {
  unsigned sms = 0, least = 0, step = 0;
  int major = 0;
};
inline unsigned least_group(const SmDevice& device) {
  return device.least > 0 ? device.least : device.major >= 9 ? 8 : 4;
}
inline unsigned group_step(const SmDevice& device) {
  return device.step > 0 ? device.step : device.major >= 9 ? 8 : 2;
}

// Groups of so many SMs. `loose`: of SMs that need not lie together; clusters of blocks are then small.
struct SmCall {
  unsigned groups = 0, each = 0;
  bool loose = false;
};
// What the driver gives: perhaps fewer groups, perhaps larger ones. No groups: it refuses.
struct SmAnswer {
  unsigned groups = 0, each = 0;
};
struct SmChoice {
  SmCall call;
  unsigned together = 1;  // groups of the call that make one
};

// Groups as large as they can be; else the smallest ones, put together; else loose ones. Where nothing gives as many as
// asked, the first call: whoever makes it says what there is. ask: SmCall -> SmAnswer, without any effect.
template <class Ask>
SmChoice chosen_groups(const SmDevice& device, unsigned asked, const Ask& ask) {
  const unsigned least = least_group(device), step = group_step(device);
  const SmChoice whole{{asked, std::max(device.sms / asked / step * step, least)}, 1};
  if (ask(whole.call).groups >= asked) return whole;
  const SmCall small{device.sms / least, least};
  const SmAnswer given = ask(small);
  const SmChoice of_small{small, given.groups / asked};
  if (of_small.together > 0 && of_small.together * given.each >= whole.call.each) return of_small;
  const SmChoice loose{{asked, whole.call.each, true}, 1};
  if (ask(loose.call).groups >= asked) return loose;
  return of_small.together > 0 ? of_small : whole;
}

}  // namespace pipewright::kernels
