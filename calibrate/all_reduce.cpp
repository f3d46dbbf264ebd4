#include "calibrate/all_reduce.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>

#include "calibrate/clock.hpp"
#include "calibrate/statistics.hpp"
#include "core/check.hpp"
#include "runtime/measurement.hpp"
#include "runtime/transports/local.hpp"
#include "runtime/transports/staged.hpp"

namespace pipewright::calibrate {
namespace {

int members_of(const RunPlan& run, VirtualStageId v) {
  return run.schedule->seating().members(v);
}

// A worker's compute stream and its collective stream, on one core.
struct Member {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Mover> mover, beside;
  std::unique_ptr<DeviceMemory> memory;
  std::atomic<int> ready{0}, done{0};
  double asked = 0, over = 0;  // ns of the clock
};

void wait_for(const std::atomic<int>& counter, int value) {
  for (int now = counter.load(std::memory_order_acquire); now < value; now = counter.load(std::memory_order_acquire))
    counter.wait(now, std::memory_order_acquire);
}

// Times of all-reduces of so many bytes, for about `seconds`, at least eight: from the last worker's word to the last
// one's going on.
std::vector<double> rounds_of(const RunPlan& run, VirtualStageId stage, int members, const BackendMaker& backend,
                              Staging staging, std::size_t bytes, double seconds) {
  constexpr int kLeast = 8;
  auto endpoints = local_transport(run, {.spin = threads_of(run) <= available_cores(), .beside_sleep = true});
  if (staging == Staging::Host)
    for (auto& endpoint : endpoints)
      endpoint = staged_transport(std::move(endpoint), run, Takes::WithMover);
  const std::vector<int> cores = allowed_cores();
  std::vector<WorkerId> ids;
  std::vector<Member> all(at(members));
  for (int m = 0; m < members; ++m) {
    Member& member = all[at(m)];
    ids.push_back(m);
    member.backend = backend(m);
    member.mover = member.backend->mover(MoverFor::Worker), member.beside = member.backend->mover(MoverFor::Sums);
    member.memory = member.backend->reserve({static_cast<std::int64_t>(bytes)});
    const std::vector<float> ones(bytes / sizeof(float), 1.0F);
    member.mover->upload(member.memory->base(), ones.data(), {static_cast<std::int64_t>(bytes)});
    endpoints[at(m)]->bind({}, {member.mover.get(), member.beside.get(), member.mover.get()});
  }
  std::atomic<int> arrived{0};
  std::atomic<bool> over{false};  // told by member 0 between two meetings
  const auto meet = [&](int times) {
    for (++arrived; arrived.load() < times * members;) {
      std::this_thread::yield();
    }
  };
  std::vector<double> ns;
  const double end = now_ns() + seconds * 1e9;
  {
    std::vector<std::jthread> threads;
    for (std::size_t m = 0; m < all.size(); ++m)
      threads.emplace_back([&, m] {
        pin_to(cores[m % cores.size()]);
        Member& self = all[m];
        auto* const gradients = reinterpret_cast<float*>(self.memory->base());
        const auto elements = static_cast<std::int64_t>(bytes / sizeof(float));
        std::jthread beside([&, m] {  // inherits the core
          for (int round = 1;; ++round) {
            wait_for(self.ready, round);
            if (over) return;
            endpoints[m]->all_reduce(static_cast<int>(stage), ids, gradients, elements);
            self.done.store(round, std::memory_order_release);
            self.done.notify_all();
          }
        });
        for (int round = 1;; ++round) {
          // As a backward that has just completed them.
          self.backend->scale(gradients, elements, 1.0F / static_cast<float>(members));
          self.backend->finish();
          meet(2 * round - 1);
          self.asked = now_ns();
          self.ready.store(round, std::memory_order_release);
          self.ready.notify_all();
          if (over) return;
          wait_for(self.done, round);
          self.over = now_ns();
          meet(2 * round);
          if (m > 0) continue;
          double asked = 0, gone_on = 0;
          for (const Member& each : all)
            asked = std::max(asked, each.asked), gone_on = std::max(gone_on, each.over);
          ns.push_back(gone_on - asked);
          over = round >= kLeast && now_ns() >= end;  // before member 0 comes to the next meeting
        }
      });
  }
  return ns;
}

}  // namespace

std::vector<int> group_sizes(const RunPlan& run) {
  std::set<int> sizes;
  for (VirtualStageId v = 0; v < run.plan->chunks(); ++v)
    if (members_of(run, v) > 1) sizes.insert(members_of(run, v));
  if (run.plan->split().sends_tokens() && run.plan->expert_copies() > 1) sizes.insert(run.plan->expert_copies());
  return {sizes.begin(), sizes.end()};
}

LinearTime measure_all_reduce(const RunPlan& run, int members, const BackendMaker& backend, Staging staging) {
  VirtualStageId stage = 0;
  while (stage < run.plan->chunks() && members_of(run, stage) != members)
    ++stage;  // behind the chunks: the group of those that hold the same experts
  std::vector<std::pair<double, double>> times;
  for (std::size_t bytes = 4096; bytes <= (std::size_t{4} << 20); bytes *= 4) {
    const std::vector<double> ns = rounds_of(run, stage, members, backend, staging, bytes, 0.05);
    const std::vector<char> inside = middle_half(ns);
    std::vector<double> counted;
    for (std::size_t i = 2; i < ns.size(); ++i)  // the first ones touch fresh pages
      if (inside[i] != 0) counted.push_back(ns[i]);
    if (!counted.empty()) times.emplace_back(static_cast<double>(bytes), mean(counted));
  }
  PP_CHECK(!times.empty());
  const Line line = line_through(times);
  return {line.fixed, line.per_unit};
}

}  // namespace pipewright::calibrate
