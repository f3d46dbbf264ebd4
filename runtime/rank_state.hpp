// What the threads of one process of a run share: slots, mail, who is there, and the thread that receives. Of
// runtime/ranks.* and rank_endpoint.* alone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/ending.hpp"
#include "runtime/rank_home.hpp"
#include "runtime/ranks.hpp"

namespace pipewright::runtime {

// What mail is about; sums and gathers follow: per group terms, sums and parts.
enum About : std::int32_t {
  kMeetUp,
  kMeetDown,
  kGather,
  kBroadcast,
  kClock,
  kSalvage,
  kLetter,
  kRunOver,
  kForget,
  kTakenBack,
  kReduce
};
constexpr int kMailPerGroup = 3;

// Why a rank has stopped: what its kStop says.
enum StopReason : std::int32_t { kFailed, kOutOfArena, kOutOfDevice };

class Ranks::State : public FrameReader {
 public:
  State(std::unique_ptr<Wire> wire, double timeout_s);

  int rank() const { return wire_->rank(); }
  int size() const { return wire_->size(); }

  // ---- the receiving thread

  void begin(const FrameHeader& header) override;
  std::span<std::byte> room(const FrameHeader& header, std::int64_t have) override;
  void end(const FrameHeader& header) override;
  void gone(int rank, const std::string& why) override;

  // ---- everybody else

  void post(int to, FrameHeader header, std::span<const std::span<const std::byte>> parts);
  void post_message(int to, const MessageSlot& at, std::span<const std::span<const std::byte>> parts);
  void post_freed(int to, const MessageSlot& at);
  void post_mail(int to, int about, std::span<const std::byte> body);
  // What lies in a slot of its, as mail about kTakenBack.
  void ask_back(int from, const MessageSlot& at);

  // Waits until `done`, which is asked under the lock; false when the time is over. Nothing else ends it.
  template <class Done>
  bool wait_at_most(double seconds, const Done& done) {
    ++waiting_;
    std::unique_lock lock(mutex_);
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    bool is = done();
    while (!is && Clock::now() < end) {
      changed_.wait_for(lock, std::chrono::milliseconds(5));
      is = done();
    }
    --waiting_;
    return is;
  }
  // Waits until `done` or throws; `what` says what for.
  template <class Done, class What>
  void wait(const Done& done, const What& what) {
    std::string broken;
    bool is_stopped = false;
    const bool over = !wait_at_most(timeout_s_, [&] {
      if (done()) return true;
      if (is_stopped = !stopped_.empty(); is_stopped)
        broken = stopped_;
      else
        broken = why_broken(what);
      return !broken.empty();
    });
    if (over)
      throw PeerSilent(
          fmt::format("nothing heard for {} s while waiting for {}{}", timeout_s_, what(), who_is_silent()));
    if (is_stopped) throw Stopped(broken);
    if (!broken.empty()) throw PeerSilent(broken);
  }
  // Throws what such a wait would end with now, the timeout aside.
  template <class What>
  void check(const What& what) {
    std::string broken;
    bool is_stopped = false;
    {
      const std::lock_guard lock(mutex_);
      is_stopped = !stopped_.empty();
      broken = is_stopped ? stopped_ : why_broken(what);
    }
    if (is_stopped) throw Stopped(broken);
    if (!broken.empty()) throw PeerSilent(broken);
  }
  // By SIGTERM, as a launcher ends its ranks, which it kills a second later.
  static bool is_terminated() { return asked_to_end() == SIGTERM; }
  // Throws where this process was asked to end. A worker that waits for nobody would never notice.
  void check_asked_to_end() const;

  // Ranks wait for one another, and only one of them hangs: whose receiving thread does not answer within a second?
  std::string who_is_silent();
  bool answers(int r);  // within a second

  Blob take_mail(int from, int about);
  // One from every rank; where one does not come, those that came stay where they are.
  std::vector<Blob> take_mail_of_all(int about);
  // Under the lock.
  bool found_mail(int from, int about, Blob& into);

  void stop(const std::string& why, StopReason reason = kFailed) noexcept;
  void throw_if_out_of_memory() const;

  // Slots are those of one run. No memory: what still comes has no place any more.
  void take_slots(const RunPlan& run, const std::vector<std::vector<std::byte*>>& memory);
  // Nothing of the run is on its way, so another one may follow.
  void forget_slots();
  // Under the lock.
  std::int64_t filled(const MessageSlot& at) const { return slot_at(at).filled; }
  std::int64_t freed(const MessageSlot& at) const { return slot_at(at).freed; }
  std::byte* memory(const MessageSlot& at) const { return slot_at(at).memory; }
  void fill_own(const MessageSlot& at) { change(at, &Slot::filled); }
  void free_own(const MessageSlot& at) { change(at, &Slot::freed); }

  bool is_gone(int r) const;
  // Its end has been seen, or its process is no more. Under no lock.
  bool has_ended(int r) const;
  // For `done` of a wait.
  bool gone_in_wait(int r) const { return !gone_[static_cast<std::size_t>(r)].empty(); }
  bool failed() const;

  bool recovered();
  int leave(int status, const std::function<void()>& left_alone) noexcept;

  std::vector<Home> homes;
  ClockOffset clock;
  std::vector<ClockOffset> clocks;  // of all ranks, at rank 0

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;  // it holds
    std::int64_t filled = 0, freed = 0;
  };

  static void fill(Slot& slot, const Blob& body, std::int64_t number);
  void give_back(const FrameHeader& asked);
  Slot& slot_of(const FrameHeader& header);
  const Slot& slot_at(const MessageSlot& at) const {
    return slots_[static_cast<std::size_t>(at.channel)][static_cast<std::size_t>(at.slot)];
  }
  // Of `from`, all but what it has sent of its results, if `spare`. Under the lock.
  void forget_mail(int from, bool spare);
  void change(const MessageSlot& at, std::int64_t Slot::*what);
  int status_of(int r) const { return status_[static_cast<std::size_t>(r)]; }
  // "" or why no wait can end well. Under the lock.
  template <class What>
  std::string why_broken(const What& what) const {
    for (int r = 0; r < size(); ++r)
      if (const std::string& why = gone_[static_cast<std::size_t>(r)]; !why.empty() && status_of(r) < 0)
        return fmt::format("worker {} is gone ({}) while this one waited for {}", r, why, what());
    // One that gives up says so to all at once; why, another one may be about to say.
    for (int r = 0; r < size(); ++r)
      if (status_of(r) > 0 && Clock::now() > left_at_[static_cast<std::size_t>(r)] + std::chrono::seconds(1))
        return fmt::format("worker {} has given up; its own message says why", r);
    const int signal = asked_to_end();
    return signal == 0 ? ""
                       : fmt::format("{} ended the run while this worker waited for {}{}", signal_name(signal), what(),
                                     ended_processes());
  }
  std::string ended_processes() const;
  // One rank that cannot be told keeps nobody from telling the next.
  void tell(int to, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) noexcept;

  std::unique_ptr<Wire> wire_;
  double timeout_s_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> waiting_{0};
  std::vector<std::vector<Slot>> slots_;  // [channel][slot]; of a channel to others only `freed` is used
  std::map<std::pair<int, int>, std::deque<Blob>> mail_;
  bool forgetting_ = false;                 // what comes from a rank before its kForget is of the run that has failed
  std::map<int, Blob> bodies_;              // by rank, of the frame that is coming
  std::vector<std::string> gone_;           // by rank: why
  std::vector<int> status_;                 // by rank: -1 until it has said goodbye
  std::vector<Clock::time_point> left_at_;  // by rank: when it did
  std::vector<std::int64_t> alive_;         // by rank: the last question that it answered
  std::atomic<std::int64_t> questions_{0};
  std::string stopped_;  // the first failure's message
  std::int32_t stop_reason_ = kFailed;
  std::jthread receiver_;
};

}  // namespace pipewright::runtime
