#include "core/cost/kernel_queue.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace pipewright::tests {
namespace {

KernelQueue queue(std::int64_t host, std::int64_t device, std::int64_t end) {
  return {Time{host}, Time{device}, Time{end}};
}
KernelQueue kernel(std::int64_t host, std::int64_t device) {
  return KernelQueue::kernel(Time{host}, Time{device});
}

// Issued at 2, 4, 6; the device works in 2-3, 4-9, 9-10.
const KernelQueue kThree = kernel(2, 1).then(kernel(2, 5)).then(kernel(2, 1));

TEST_CASE("a list of kernels ends when the device has worked off what the host issued") {
  CHECK(kThree == queue(6, 7, 10));
}

// The host issues the second list from 6 on; its kernels: issued at 8, 10, 12, worked on in 10-11, 11-16, 16-17.
TEST_CASE("the host runs ahead into the next list, unless it waits for the device in between") {
  CHECK(kThree.then(kThree) == queue(12, 14, 17));
  const KernelQueue waited = kThree.then(KernelQueue::wait());
  CHECK(waited.host == Time{10});
  CHECK(waited.device == Time{7});
  CHECK(waited.then(waited).end == Time{20});
  CHECK(waited.then(kThree).device == Time{14});  // gaps are not the device's work
}

// A device that is late: at 0, while the device works until 100, the host issues (2, 1) and waits until 101.
TEST_CASE("a host that waits is as late as its device") {
  const KernelQueue list = kernel(2, 1).then(KernelQueue::wait()).then(kernel(3, 4));
  CHECK(list == KernelQueue{Time{6}, Time{5}, Time{10}, true, Time{4}, Time{8}});
  CHECK(kernel(0, 100).then(list).end == Time{108});
  CHECK(kernel(0, 100).then(kernel(2, 1)).then(kernel(3, 4)).end == Time{105});
}

TEST_CASE("n repetitions are n lists one after the other") {
  KernelQueue one_by_one;
  for (int n = 0; n < 20; ++n) {
    CHECK(kThree.times(n) == one_by_one);
    one_by_one = one_by_one.then(kThree);
  }
}

// By the definition, kernel by kernel: issued += h; ended = max(issued, ended) + d.
TEST_CASE("joining lists is the same as running their kernels, and it does not matter where they are cut") {
  const std::vector<KernelQueue> kernels = {kernel(3, 1), kernel(1, 9), kernel(4, 0),  kernel(7, 2),
                                            kernel(1, 1), kernel(0, 6), kernel(20, 3), kernel(2, 2)};
  Time issued, ended;
  KernelQueue from_left, from_right;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    issued += kernels[i].host;
    ended = std::max(issued, ended) + kernels[i].device;
    from_left = from_left.then(kernels[i]);
    from_right = kernels[kernels.size() - 1 - i].then(from_right);
  }
  CHECK(from_left == KernelQueue{issued, Time{24}, ended});
  CHECK(from_right == from_left);
}

// Kernels and waits at random, joined in any grouping.
TEST_CASE("with waits, too") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Time issued, ended;
    std::vector<KernelQueue> lists;
    for (int i = 0; i < 12; ++i) {
      const bool wait = random() % 4 == 0;
      const KernelQueue next =
          wait ? KernelQueue::wait() : kernel(static_cast<int>(random() % 9), static_cast<int>(random() % 9));
      issued += next.host;
      if (wait)
        issued = ended = std::max(issued, ended);
      else
        ended = std::max(issued, ended) + next.device;
      lists.push_back(next);
    }
    while (lists.size() > 1) {
      const std::size_t i = random() % (lists.size() - 1);
      lists[i] = lists[i].then(lists[i + 1]);
      lists.erase(lists.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
    CHECK(lists.front().host == issued);
    CHECK(lists.front().end == ended);
  }
}

TEST_CASE("a list takes at least the host's time and at least the device's, and at most both") {
  CHECK(kThree.end >= std::max(kThree.host, kThree.device));
  CHECK(kThree.end <= kThree.host + kThree.device);
}

}  // namespace
}  // namespace pipewright::tests
