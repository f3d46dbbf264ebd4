#include "runtime/transports/local.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/folds.hpp"
#include "runtime/clock.hpp"

namespace pipewright::runtime {
namespace {

using Clock = std::chrono::steady_clock;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// What the sender writes and what the receiver writes lie in lines of their own, or each would wait for the other's.
struct Slot {
  alignas(64) std::atomic<std::int64_t> filled{0};  // number of the last message written
  std::atomic<std::int64_t> readable{0};            // ns of the clock; throttled links
  std::byte* memory = nullptr;
  alignas(64) std::atomic<std::int64_t> freed{0};  // number of the last message read
};

struct Meeting {
  std::atomic<int> arrived{0};
  std::atomic<std::int64_t> round{0};
};

struct Group {
  std::vector<const std::byte*> data;  // by rank
  Meeting meeting;
};

// What the threads share.
class World {
 public:
  World(const RunPlan& run, WaitSettings settings, Throttles throttles)
      : settings_(settings),
        throttles_(std::move(throttles)),
        workers_(run.plan->workers()),
        positions_(run.plan->positions()) {
    const std::size_t channels = run.channels.size();
    slots_.resize(channels * at(run.plan->copies()));
    for (std::size_t c = 0; c < slots_.size(); ++c) {
      const RunChannel& channel = run.channels[c % channels];
      slots_[c] = std::vector<Slot>(at(channel.slots));
      const int copy = static_cast<int>(c / channels);
      ends_.push_back({run.sender(channel, copy), copy * positions_ + channel.to});
      target_.push_back(run.receiver(channel, copy) / positions_);
    }
    channels_ = static_cast<int>(channels);
    // Of chunks, then of the experts of each device, then of the tied tables of each copy.
    for (std::size_t v = 0;
         v < run.chunks.size() * (1 + at(run.plan->expert_parallel)) + run.tied_bytes.size() * at(run.plan->copies());
         ++v)
      groups_.push_back(std::make_unique<Group>()), gathers_.push_back(std::make_unique<Group>());
    link_free_ = std::vector<std::atomic<std::int64_t>>(at(workers_) * at(workers_));
  }

  // Waits until `done`; `what` says what for. `beside`: in a meeting of threads beside the workers'.
  template <class Done, class What>
  void wait(const Done& done, const What& what, bool beside = false) {
    if (done()) return;
    const auto late = Clock::now() + std::chrono::duration<double>(settings_.timeout_s);
    for (std::int64_t round = 0;; ++round) {
      if (done()) return;
      if (stopped_.load(std::memory_order_relaxed)) throw Stopped("another worker has failed");
      if (spins(beside) || round < 200) {
        pause();
        if ((round & 4095) != 4095) continue;
      } else {
        std::unique_lock lock(mutex_);
        if (done()) return;
        (beside ? met_ : changed_).wait_for(lock, std::chrono::milliseconds(5));
      }
      if (Clock::now() > late)
        throw PeerSilent(fmt::format("nothing heard for {} s while waiting for {}", settings_.timeout_s, what()));
    }
  }
  // A message on a slow link: its time is known. A core that sleeps wakes up slower than it was (halted, its caches
  // taken by others), and what it computes next is charged with that: only where cores are short does it sleep.
  void wait_until(std::int64_t ns) {
    while (steady_ns() < ns) {
      if (stopped_.load(std::memory_order_relaxed)) throw Stopped("another worker has failed");
      if (!settings_.spin && ns - steady_ns() > 200'000)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      else
        pause();
    }
  }
  void notify(bool beside = false) {
    if (spins(beside)) return;
    const std::lock_guard lock(mutex_);
    (beside ? met_ : changed_).notify_all();
  }

  void stop() noexcept {
    stopped_ = true;
    changed_.notify_all(), met_.notify_all();
  }

  // At the receiver's copy.
  Slot& slot(int copy, const MessageSlot& message) { return slots_[index(copy, message.channel)][at(message.slot)]; }
  int receiver(int copy, int channel) const { return target_[index(copy, channel)]; }
  std::size_t index(int copy, int channel) const { return at(copy) * at(channels_) + at(channel); }
  // Who sends, and who receives in that copy.
  const std::pair<WorkerId, WorkerId>& ends(int copy, int channel) const { return ends_[index(copy, channel)]; }

  // When a message that is copied now may be read. Besides the sender's thread those that move activations use a link.
  std::int64_t readable(WorkerId from, WorkerId to, std::int64_t bytes) {
    if (throttles_.empty() || from == to) return 0;
    const std::size_t link = at(from) * at(workers_) + at(to);
    const Throttle& throttle = throttles_[link];
    const std::int64_t taken = throttle.bandwidth.value > 0 ? transfer_time(Bytes{bytes}, throttle.bandwidth).value : 0;
    std::int64_t free = link_free_[link], until = 0;
    do
      until = std::max(free, steady_ns()) + taken;
    while (!link_free_[link].compare_exchange_weak(free, until));
    return until + throttle.latency.value;
  }

  Group& group(int id) { return *groups_[at(id)]; }
  Group& gathers(int id) { return *gathers_[at(id)]; }
  int workers() const { return workers_; }
  int positions() const { return positions_; }

  // A meeting of `count` threads around one counter: all of workers, or all beside them.
  void meet(Meeting& meeting, int count, const char* what, bool beside = false) {
    const std::int64_t mine = meeting.round.load(std::memory_order_acquire);
    if (meeting.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
      meeting.arrived.store(0, std::memory_order_relaxed);
      meeting.round.store(mine + 1, std::memory_order_release);
      notify(beside);
      return;
    }
    wait([&] { return meeting.round.load(std::memory_order_acquire) != mine; }, [&] { return std::string(what); },
         beside);
  }

  Meeting everybody;
  std::mutex group_mutex;

 private:
  bool spins(bool beside) const { return settings_.spin && !(beside && settings_.beside_sleep); }

  WaitSettings settings_;
  Throttles throttles_;
  int workers_, positions_, channels_ = 0;
  std::vector<std::vector<Slot>> slots_;
  std::vector<std::pair<WorkerId, WorkerId>> ends_;
  std::vector<int> target_;  // copies
  std::vector<std::unique_ptr<Group>> groups_, gathers_;
  std::vector<std::atomic<std::int64_t>> link_free_;
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::condition_variable changed_, met_;  // the latter: of meetings beside the workers' threads
};

class Endpoint : public Transport {
 public:
  Endpoint(std::shared_ptr<World> world, WorkerId self) : world_(std::move(world)), self_(self) {}

  void bind(std::vector<std::vector<std::byte*>> slots, Movers movers) override {
    movers_ = movers;
    for (std::size_t c = 0; c < slots.size(); ++c)
      for (std::size_t s = 0; s < slots[c].size(); ++s)
        world_->slot(copy_, {static_cast<int>(c), static_cast<int>(s), 0, 0}).memory = slots[c][s];
  }

  Sent send(const MessageSlot& message, std::span<const Piece> pieces) override {
    const int to_copy = world_->receiver(copy_, message.channel);
    Slot& slot = world_->slot(to_copy, message);
    std::int64_t waited = 0;
    if (slot.freed.load(std::memory_order_acquire) < message.before) {
      movers_.worker->finish();  // what the device still computes is no waiting
      const std::int64_t begin = steady_ns();
      world_->wait([&] { return slot.freed.load(std::memory_order_acquire) >= message.before; },
                   [&] { return fmt::format("worker {} to read", world_->ends(to_copy, message.channel).second); });
      waited = steady_ns() - begin;
    }
    std::int64_t bytes = 0;
    for (const Piece& piece : pieces) {
      movers_.worker->copy(slot.memory + piece.offset, piece.from, {piece.bytes});
      bytes += piece.bytes;
    }
    movers_.worker->finish();
    const auto& [from, to] = world_->ends(to_copy, message.channel);
    const std::int64_t readable = world_->readable(from, to, bytes);
    slot.readable.store(readable, std::memory_order_relaxed);
    slot.filled.store(message.number, std::memory_order_release);
    world_->notify();
    return {waited, readable};
  }

  std::byte* receive(const MessageSlot& message) override {
    Slot& slot = world_->slot(copy_, message);
    world_->wait([&] { return slot.filled.load(std::memory_order_acquire) >= message.number; },
                 [&] { return fmt::format("a message of worker {}", world_->ends(copy_, message.channel).first); });
    if (const std::int64_t readable = slot.readable.load(std::memory_order_relaxed); readable > 0)
      world_->wait_until(readable);
    return slot.memory;
  }

  void release(const MessageSlot& message) override {
    world_->slot(copy_, message).freed.store(message.number, std::memory_order_release);
    world_->notify();
  }

  void take_back(const MessageSlot& message, std::span<const Room> rooms) override {
    const Slot& slot = world_->slot(world_->receiver(copy_, message.channel), message);
    PP_CHECK(slot.filled.load(std::memory_order_acquire) == message.number);
    std::int64_t bytes = 0;
    for (const Room& room : rooms) {
      std::memcpy(room.to, slot.memory + room.offset, at(room.bytes));
      bytes += room.bytes;
    }
    const auto& [to, keeper] = world_->ends(world_->receiver(copy_, message.channel), message.channel);
    if (const std::int64_t readable = world_->readable(keeper, to, bytes); readable > 0) world_->wait_until(readable);
  }

  void all_reduce(int id, std::span<const WorkerId> members, float* data, std::int64_t elements) override {
    const Group& group = world_->group(id);
    // Each member sums one segment over all, then fetches the others' segments.
    // Segments begin at multiples of 16 bytes, which a GPU moves by one instruction.
    const auto count = static_cast<std::int64_t>(members.size());
    auto begin = mapped<std::int64_t>(counted_to(count), [&](std::int64_t r) { return elements * r / count / 4 * 4; });
    begin.push_back(elements);
    reduce_scatter(id, members, data, begin);
    for (std::size_t r = 0; r < members.size(); ++r)
      if (members[r] != self_)
        movers_.collective->copy(data + begin[r], reinterpret_cast<const float*>(group.data[r]) + begin[r],
                                 {(begin[r + 1] - begin[r]) * static_cast<std::int64_t>(sizeof(float))});
    movers_.collective->finish();
    meet_to_reduce(id, members);
  }

  void reduce_scatter(int id, std::span<const WorkerId> members, float* data,
                      std::span<const std::int64_t> begin) override {
    Group& group = world_->group(id);
    const std::size_t rank = bring(group, members, reinterpret_cast<const std::byte*>(data));
    meet_to_reduce(id, members);
    std::vector<const float*> terms;
    for (const std::byte* const member : group.data)
      terms.push_back(reinterpret_cast<const float*>(member) + begin[rank]);
    movers_.collective->sum(data + begin[rank], terms, begin[rank + 1] - begin[rank]);
    movers_.collective->finish();
    meet_to_reduce(id, members);
  }

  void all_gather(int id, std::span<const WorkerId> members, std::byte* data,
                  std::span<const std::int64_t> begin) override {
    Group& group = world_->gathers(id);
    const std::size_t rank = bring(group, members, data);
    const auto meet = [&] {
      world_->meet(group.meeting, static_cast<int>(members.size()), "the other members of an all-gather",
                   movers_.gathers != movers_.worker);
    };
    meet();
    for (std::size_t r = 0; r < members.size(); ++r)
      if (r != rank) movers_.gathers->copy(data + begin[r], group.data[r] + begin[r], {begin[r + 1] - begin[r]});
    movers_.gathers->finish();
    meet();  // nobody writes what another one still reads
  }

  void meet() override { world_->meet(world_->everybody, world_->workers(), "the other workers"); }
  void stop(const std::string&) noexcept override { world_->stop(); }

 private:
  void meet_to_reduce(int id, std::span<const WorkerId> members) {
    world_->meet(world_->group(id).meeting, static_cast<int>(members.size()), "the other members of an all-reduce",
                 true);
  }

  // Tells the other members where this one's data lie; its place among them.
  std::size_t bring(Group& group, std::span<const WorkerId> members, const std::byte* data) {
    const auto rank = at(std::ranges::find(members, self_) - members.begin());
    const std::lock_guard lock(world_->group_mutex);
    group.data.resize(members.size());
    group.data[rank] = data;
    return rank;
  }

  std::shared_ptr<World> world_;
  WorkerId self_;
  int copy_ = self_ / world_->positions();
  Movers movers_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> local_transport(const RunPlan& run, WaitSettings settings,
                                                        Throttles throttles) {
  PP_CHECK(throttles.empty() || throttles.size() == at(run.plan->workers()) * at(run.plan->workers()));
  const auto world = std::make_shared<World>(run, settings, std::move(throttles));
  return mapped<std::unique_ptr<Transport>>(counted_to(run.plan->workers()),
                                            [&](WorkerId worker) { return std::make_unique<Endpoint>(world, worker); });
}

}  // namespace pipewright::runtime
