// What tests hand to their NCCL (fake_nccl.cpp) as a stream: it does what it was asked for in that order, in a thread
// of its own, as a device does.
#pragma once

#include <functional>

namespace pipewright::tests::runtime_test {

class FakeStream {
 public:
  virtual ~FakeStream() = default;
  virtual void ask(std::function<void()> work) = 0;
};

}  // namespace pipewright::tests::runtime_test
