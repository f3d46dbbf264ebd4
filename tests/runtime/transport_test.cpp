#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/transports/local.hpp"
#include "tests/runtime/run_case.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::runtime_test;

namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Two workers with memory for the slots of every channel.
struct Pair {
  explicit Pair(WaitSettings settings, Throttles throttles = {})
      : run({"plan.stages=2"}), ends(local_transport(run.run_plan, settings, std::move(throttles))) {
    for (int worker = 0; worker < 2; ++worker) {
      std::vector<std::vector<std::byte*>> slots(run.run_plan.channels.size());
      for (std::size_t c = 0; c < slots.size(); ++c)
        if (run.run_plan.channels[c].to == worker)
          for (int s = 0; s < run.run_plan.channels[c].slots; ++s) {
            memory.emplace_back(static_cast<std::size_t>(run.run_plan.channels[c].bytes[0]));
            slots[c].push_back(memory.back().data());
          }
      ends[static_cast<std::size_t>(worker)]->bind(std::move(slots), {mover.get(), mover.get(), mover.get()});
    }
    while (!run.run_plan.channels[static_cast<std::size_t>(forward)].forward)
      ++forward;
  }
  RunCase run;
  std::unique_ptr<Mover> mover = host_mover();
  std::vector<std::unique_ptr<Transport>> ends;
  std::vector<std::vector<std::byte>> memory;
  int forward = 0;  // channel of the activations
};

}  // namespace

TEST_CASE("A message arrives whole, in its slot") {
  Pair pair({.spin = false, .timeout_s = 60});
  const std::vector<std::byte> part(100, std::byte{7});
  const std::vector<Piece> pieces = {{part.data(), 64, 100}};
  pair.ends[0]->send({pair.forward, 1, 2, 0}, pieces);
  const std::byte* const got = pair.ends[1]->receive({pair.forward, 1, 2, 0});
  CHECK(std::memcmp(got + 64, part.data(), part.size()) == 0);
  CHECK(got[63] == std::byte{0});
}

TEST_CASE("throttled: messages follow one another, and none is readable before its time") {
  // 1000 B at 1 MB/s take 1 ms, the latency is 2 ms: readable after 3 and 4 ms, counted from the first copy.
  Pair pair({.spin = false, .timeout_s = 60}, Throttles(4, {Bandwidth{1e6}, Time{2'000'000}}));
  const std::vector<std::byte> part(1000);
  const std::vector<Piece> pieces = {{part.data(), 0, 1000}};
  const std::int64_t begin = now_ns();
  const Sent first = pair.ends[0]->send({pair.forward, 0, 1, 0}, pieces);
  const Sent second = pair.ends[0]->send({pair.forward, 1, 2, 0}, pieces);
  CHECK(first.readable - begin >= 3'000'000);
  CHECK(second.readable - first.readable >= 1'000'000);
  pair.ends[1]->receive({pair.forward, 1, 2, 0});
  CHECK(now_ns() >= second.readable);
}

TEST_CASE("A silent peer ends a wait in bounded time, and says who was waited for") {
  Pair pair({.spin = false, .timeout_s = 0.05});
  CHECK_THROWS_WITH_AS(pair.ends[1]->receive({pair.forward, 0, 1, 0}), doctest::Contains("a message of worker 0"),
                       PeerSilent);
}

TEST_CASE("A worker that fails ends the waits of all others") {
  Pair pair({.spin = false, .timeout_s = 60});
  const std::jthread other([&] { pair.ends[0]->stop(""); });
  CHECK_THROWS_AS(pair.ends[1]->receive({pair.forward, 0, 1, 0}), Stopped);
}

TEST_CASE("A sender waits for a slot that is still read") {
  Pair pair({.spin = false, .timeout_s = 0.05});
  const std::vector<std::byte> part(8);
  const std::vector<Piece> pieces = {{part.data(), 0, 8}};
  pair.ends[0]->send({pair.forward, 0, 1, 0}, pieces);
  CHECK_THROWS_AS(pair.ends[0]->send({pair.forward, 0, 9, 1}, pieces), PeerSilent);
  pair.ends[1]->receive({pair.forward, 0, 1, 0});
  pair.ends[1]->release({pair.forward, 0, 1, 0});
  CHECK_NOTHROW(pair.ends[0]->send({pair.forward, 0, 9, 1}, pieces));
}

TEST_CASE("A reduce-scatter leaves each member the sums of its elements, few, many or none") {
  const std::vector<WorkerId> members = {0, 1};
  for (const std::int64_t cut : {0, 2, 5}) {
    CAPTURE(cut);
    Pair pair({.spin = false, .timeout_s = 60});
    std::vector<std::vector<float>> data = {{1, 2, 3, 4, 5}, {10, 20, 30, 40, 50}};
    const std::vector<std::int64_t> begin = {0, cut, 5};
    {
      std::vector<std::jthread> threads;
      for (std::size_t w = 0; w < 2; ++w)
        threads.emplace_back([&, w] { pair.ends[w]->reduce_scatter(0, members, data[w].data(), begin); });
    }
    for (std::int64_t i = 0; i < 5; ++i)
      CHECK(data[i < cut ? 0 : 1][static_cast<std::size_t>(i)] == 11 * static_cast<float>(i + 1));
  }
  Pair alone({.spin = false, .timeout_s = 0.05});
  std::vector<float> data(4);
  CHECK_THROWS_WITH_AS(alone.ends[1]->reduce_scatter(0, members, data.data(), std::vector<std::int64_t>{0, 2, 4}),
                       doctest::Contains("the other members of an all-reduce"), PeerSilent);
}

TEST_CASE("Threads beside the workers' sleep while they wait for a meeting, also where workers spin") {
  const std::vector<WorkerId> members = {0, 1};
  const std::vector<std::int64_t> begin = {0, 2, 4};
  constexpr std::chrono::milliseconds kLate{300};
  Pair pair({.spin = true, .beside_sleep = true, .timeout_s = 60});
  std::vector<std::vector<float>> data = {{1, 2, 3, 4}, {10, 20, 30, 40}};
  std::int64_t busy = 0;
  {
    const std::jthread early([&] {
      pair.ends[0]->reduce_scatter(0, members, data[0].data(), begin);
      timespec used{};
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      busy = used.tv_sec * 1'000'000'000 + used.tv_nsec;
    });
    std::this_thread::sleep_for(kLate);
    pair.ends[1]->reduce_scatter(0, members, data[1].data(), begin);
  }
  CHECK(busy < 30'000'000);
  CHECK(data[0][0] == 11);
  CHECK(data[1][3] == 44);
}
