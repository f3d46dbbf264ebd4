// Messages between devices whose memory is not the host's are measured as they travel: by the workers' movers.
#include "calibrate/handoff.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/measurement.hpp"
#include "runtime/wire.hpp"
#include "tests/runtime/far_backend.hpp"
#include "tests/support/free_port.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

TEST_CASE("handoff: memory that the host cannot read is moved by its movers alone, staged or not") {
  if (available_cores() < 2) return;
  for (const Staging staging : {Staging::None, Staging::Host}) {
    const HandoffTimes times = hand_over(far_backend, staging, 4096, 8);  // a host's copy would end this program
    REQUIRE(times.copied.size() == 3);
    REQUIRE(times.first_read.size() == 3);
    CHECK(*std::min_element(times.copied.begin(), times.copied.end()) > 0);
    const double read = *std::max_element(times.first_read.begin(), times.first_read.end());
    CHECK((staging == Staging::Host) == (read > 0));  // the upload; else the data are there
  }
}

TEST_CASE("handoff: a device that fails ends both sides, and its error is the caller's") {
  if (available_cores() < 2) return;
  class Broken final : public Mover {
   public:
    void copy(void*, const void*, Bytes) override { throw std::runtime_error("the link is down, made up"); }
    void upload(void*, const void*, Bytes) override {}
    void download(void*, const void*, Bytes) override {}
    void sum(float*, std::span<const float* const>, std::int64_t) override {}
  };
  class BrokenBackend final : public FarBackend {
   public:
    std::unique_ptr<Mover> mover(MoverFor) override { return std::make_unique<Broken>(); }
  };
  CHECK_THROWS_WITH(hand_over([] { return std::make_unique<BrokenBackend>(); }, Staging::None, 4096, 8),
                    "the link is down, made up");
}

TEST_CASE("handoff: over processes a device's message comes down at its sender and goes up at its receiver") {
  const int port = free_port();
  const auto rank = [&](int number) {
    Ranks ranks(tcp_wire({number, 2, "the test"}, {"127.0.0.1", port}, 120), 120);
    const HandoffTimes times = hand_over(ranks, far_backend, 4096, 4);  // a host's copy would end this program
    static_cast<void>(ranks.leave(0));
    return times;
  };
  HandoffTimes second;
  std::jthread other([&] { second = rank(1); });
  const HandoffTimes first = rank(0);
  other.join();
  REQUIRE(first.copied.size() == 4);
  CHECK(*std::min_element(first.copied.begin(), first.copied.end()) > 0);
  CHECK(*std::min_element(first.first_read.begin(), first.first_read.end()) > 0);  // the upload
  CHECK(second.copied.empty());
}
