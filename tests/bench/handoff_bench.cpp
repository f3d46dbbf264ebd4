// What a real run takes beside its arithmetic: a message from core to core, and the executor's own work per op. Not
// part of `meson test`: run build/tests/bench/bench_handoff.
//
//   of_memcpy  the time of a message over that of a plain memcpy and a flag between the same two cores, in the same run
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/measurement.hpp"
#include "runtime/transports/local.hpp"
#include "tests/runtime/run_case.hpp"

namespace pipewright::tests {
namespace {

using runtime_test::RunCase;

// Asked once: a pinned thread may use its core alone.
const std::vector<int>& cores() {
  static const std::vector<int> list = allowed_cores();
  return list;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Whether the other thread is on its core: it begins on this one, and what it takes to leave is no message's.
class Start {
 public:
  void here() { here_.store(true, std::memory_order_release); }
  void wait() const {
    while (!here_.load(std::memory_order_acquire))
      std::this_thread::yield();
  }

 private:
  std::atomic<bool> here_{false};
};

// Two threads on two cores, a block to and fro `rounds` times: seconds per way.
double plain_way(std::size_t bytes, int rounds) {
  std::vector<std::byte> a(bytes), b(bytes), at_b(bytes), at_a(bytes);
  alignas(64) std::atomic<int> there{0};
  alignas(64) std::atomic<int> back{0};
  Start start;
  std::jthread other([&] {
    pin_to(cores()[1]);
    start.here();
    for (int i = 1; i <= rounds; ++i) {
      while (there.load(std::memory_order_acquire) < i) {
      }
      std::memcpy(at_a.data(), b.data(), bytes);
      back.store(i, std::memory_order_release);
    }
  });
  pin_to(cores()[0]);
  start.wait();
  const double begin = seconds_now();
  for (int i = 1; i <= rounds; ++i) {
    std::memcpy(at_b.data(), a.data(), bytes);
    there.store(i, std::memory_order_release);
    while (back.load(std::memory_order_acquire) < i) {
    }
  }
  return (seconds_now() - begin) / rounds / 2;
}

// The same through the local transport's channels between stage 0 and stage 1.
struct Channels {
  explicit Channels(std::int64_t micro_batch_size)
      : run({"training.micro_batch_size=" + std::to_string(micro_batch_size)}, {}, "small-ops.yaml"),
        ends(local_transport(run.run_plan, {.spin = true})) {
    const auto& channels = run.run_plan.channels;
    for (int c = 0; c < static_cast<int>(channels.size()); ++c)
      (channels[static_cast<std::size_t>(c)].from == 0 ? there : back) = c;
    for (int w = 0; w < 2; ++w) {
      std::vector<std::vector<std::byte*>> slots(channels.size());
      const auto in = static_cast<std::size_t>(w == 0 ? back : there);
      for (int s = 0; s < channels[in].slots; ++s)
        slots[in].push_back(memory.emplace_back(std::make_unique<std::byte[]>(bytes())).get());
      ends[static_cast<std::size_t>(w)]->bind(std::move(slots), {mover.get(), mover.get(), mover.get()});
    }
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(run.run_plan.channels[static_cast<std::size_t>(there)].bytes[0]);
  }
  MessageSlot message(int channel, std::int64_t number) const {
    const int slots = run.run_plan.channels[static_cast<std::size_t>(channel)].slots;
    return {channel, static_cast<int>((number - 1) % slots), number, number > slots ? number - slots : 0};
  }
  // Seconds per way. Without `copied` the message is there already and its place is all that is handed over.
  double way(int rounds, bool copied = true) {
    std::vector<std::byte> a(bytes()), b(bytes());
    const auto size = static_cast<std::int64_t>(bytes());
    const std::size_t pieces = copied ? 1 : 0;
    Start start;
    std::jthread other([&, first = sent] {
      pin_to(cores()[1]);
      start.here();
      for (std::int64_t i = first + 1; i <= first + rounds; ++i) {
        ends[1]->receive(message(there, i));
        ends[1]->release(message(there, i));
        const Piece piece{b.data(), 0, size};
        ends[1]->send(message(back, i), {&piece, pieces});
      }
    });
    pin_to(cores()[0]);
    start.wait();
    const double begin = seconds_now();
    for (int i = 0; i < rounds; ++i) {
      const Piece piece{a.data(), 0, size};
      ends[0]->send(message(there, ++sent), {&piece, pieces});
      ends[0]->receive(message(back, sent));
      ends[0]->release(message(back, sent));
    }
    return (seconds_now() - begin) / rounds / 2;
  }

  RunCase run;
  std::unique_ptr<Mover> mover = host_mover();
  std::vector<std::unique_ptr<Transport>> ends;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  int there = 0, back = 0;
  std::int64_t sent = 0;
};

void message(benchmark::State& state) {
  if (cores().size() < 2) {
    state.SkipWithError("needs two cores");
    return;
  }
  Channels channels(state.range(0));
  const int rounds = channels.bytes() < 65536 ? 2000 : 100;
  double ours = 1e9, plain = 1e9;
  for (auto _ : state) {
    const double way = channels.way(rounds);
    state.SetIterationTime(way);
    ours = std::min(ours, way), plain = std::min(plain, plain_way(channels.bytes(), rounds));
  }
  state.counters["bytes"] = static_cast<double>(channels.bytes());
  state.counters["of_memcpy"] = ours / plain;
}
// The floor below every message: its place through the same channel, nothing copied, as a hand-off by pointer would be.
void pointer(benchmark::State& state) {
  if (cores().size() < 2) {
    state.SkipWithError("needs two cores");
    return;
  }
  Channels channels(1);
  for (auto _ : state)
    state.SetIterationTime(channels.way(2000, false));
}
BENCHMARK(pointer)->UseManualTime()->Iterations(40)->Unit(benchmark::kMicrosecond);

BENCHMARK(message)->Arg(1)->Arg(32)->Arg(512)->UseManualTime()->Iterations(40)->Unit(benchmark::kMicrosecond);

// One worker, 2048 ops of almost no arithmetic: what an op takes in all.
void op(benchmark::State& state) {
  const RunCase run(
      {"model={name: least, input_tokens: 1, layers: [{op: embedding, vocabulary: 4, features: 4}, {op: linear, "
       "features: 4}, {op: cross_entropy}]}",
       "plan={stages: 1, schedule: gpipe, partition: balanced}", "cluster.node.devices=1",
       "training={micro_batch_size: 1, micro_batches: 1024, precision: fp32, optimizer: sgd}"},
      {}, "small-ops.yaml");
  RunSettings settings;
  settings.steps = 20, settings.warmup = 5;
  for (auto _ : state) {
    const auto workers = run.run(settings);
    state.SetIterationTime(static_cast<double>(step_times(workers, settings.warmup).median.value) * 1e-9 / 2048);
  }
}
BENCHMARK(op)->UseManualTime()->Iterations(10)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
