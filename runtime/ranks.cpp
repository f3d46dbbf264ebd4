#include "runtime/ranks.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "core/check.hpp"
#include "runtime/measurement.hpp"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

enum Kind : std::int32_t { kMessage = 1, kFreed, kMail, kStop, kAsk, kAlive, kBye };
// What mail is about; all-reduces follow, two per group.
enum About : std::int32_t { kMeetUp, kMeetDown, kGather, kBroadcast, kClock, kSalvage, kLetter, kReduce };

constexpr std::int64_t kLargestMail = std::int64_t{1} << 36;

std::atomic<bool> terminated{false};
extern "C" void note_termination(int) {
  terminated = true;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Where a process is.
struct Home {
  std::string boot;       // of the machine's system: processes with the same one share a clock
  std::string processes;  // the space that process numbers are from
  std::int64_t process = 0;
  std::vector<int> cores;
};

Home home() {
  Home here;
  here.boot = first_line("/proc/sys/kernel/random/boot_id");
  std::array<char, 64> link{};
  if (readlink("/proc/self/ns/pid", link.data(), link.size() - 1) > 0) here.processes = here.boot + link.data();
  here.process = getpid();
  here.cores = allowed_cores();
  return here;
}
Blob bytes_of(const Home& home) {
  return BytesOut().put(home.boot).put(home.processes).put(home.process).put(home.cores).bytes();
}
Home home_of(BytesIn in) {
  Home home;
  home.boot = in.text(), home.processes = in.text(), home.process = in.get<std::int64_t>(), home.cores = in.list<int>();
  return home;
}

// Ended, and not only silent. Of a process of another machine nothing is known.
bool process_is_gone(const Home& there, const Home& here) {
  if (there.processes.empty() || there.processes != here.processes) return false;
  const std::string stat = first_line(fmt::format("/proc/{}/stat", there.process));
  const auto name_ends = stat.rfind(") ");
  return name_ends == std::string::npos || stat.substr(name_ends + 2, 1) == "Z";
}

Blob joined(const std::vector<Blob>& blobs) {
  BytesOut out;
  for (const Blob& blob : blobs)
    out.put(blob);
  return out.bytes();
}

}  // namespace

ClockOffset clock_offset(const std::vector<ClockReading>& readings) {
  PP_CHECK(!readings.empty());
  const auto fastest = std::min_element(readings.begin(), readings.end(), [](const auto& a, const auto& b) {
    return a.answered - a.asked < b.answered - b.asked;
  });
  const std::int64_t half = (fastest->answered - fastest->asked) / 2;
  return {fastest->said - (fastest->asked + half), half};
}

std::string difference(const std::vector<MustMatch>& ours, const std::vector<MustMatch>& theirs, int rank) {
  for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    if (i >= ours.size() || i >= theirs.size() || ours[i].what != theirs[i].what)
      return fmt::format("rank {} runs another version of pipewright than rank 0; start the same one everywhere", rank);
    if (ours[i].hash == theirs[i].hash && ours[i].text == theirs[i].text) continue;
    const std::string how =
        ours[i].text == theirs[i].text
            ? fmt::format("{}; hashes {:016x} there, {:016x} here", ours[i].text, theirs[i].hash, ours[i].hash)
            : fmt::format("{} there, {} here", theirs[i].text, ours[i].text);
    return fmt::format(
        "rank {} differs from rank 0 in its {} ({}); start all ranks with the same program, scenario and "
        "options",
        rank, ours[i].what, how);
  }
  return "";
}

Ranks::Termination::Termination() {
  terminated = false;
  struct sigaction action {};
  action.sa_handler = note_termination;
  sigaction(SIGTERM, &action, nullptr);
}
Ranks::Termination::~Termination() {
  std::signal(SIGTERM, SIG_DFL);
}

// What the threads of this process share, and the thread that receives.
class Ranks::State : public FrameReader {
 public:
  State(std::unique_ptr<Wire> wire, double timeout_s)
      : wire_(std::move(wire)),
        timeout_s_(timeout_s),
        gone_(static_cast<std::size_t>(wire_->size())),
        status_(static_cast<std::size_t>(wire_->size()), -1),
        alive_(static_cast<std::size_t>(wire_->size())) {
    receiver_ = std::jthread([this](const std::stop_token& token) {
      try {
        while (!token.stop_requested())
          wire_->receive(*this, waiting_.load() > 0);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        if (stopped_.empty()) stopped_ = fmt::format("rank {} cannot receive: {}", wire_->rank(), error.what());
      }
    });
  }

  int rank() const { return wire_->rank(); }
  int size() const { return wire_->size(); }

  // ---- the receiving thread

  std::byte* begin(const FrameHeader& header) override {
    const std::lock_guard lock(mutex_);
    const auto sane = [](bool condition) {
      if (!condition) throw std::runtime_error("it sent what is no message of ours");
    };
    sane(header.from >= 0 && header.from < size() && header.bytes >= 0);
    if (header.kind == kMessage)
      sane(header.bytes <= slot_of(header).bytes);
    else
      sane(header.kind > kMessage && header.kind <= kBye && header.bytes <= kLargestMail);
    Blob& body = bodies_[header.from];
    body.resize(static_cast<std::size_t>(header.bytes));
    return body.data();
  }
  void end(const FrameHeader& header) override {
    if (header.kind == kAsk) return tell(header.from, {.kind = kAlive, .number = header.number}, {});
    const std::lock_guard lock(mutex_);
    switch (header.kind) {
      case kMessage: fill(slot_of(header), bodies_[header.from], header.number); break;
      case kFreed: slot_of(header).freed = header.number; break;
      case kMail: mail_[{header.from, header.id}].push_back(std::move(bodies_[header.from])); break;
      case kAlive: alive_[static_cast<std::size_t>(header.from)] = header.number; break;
      case kStop:
        if (stopped_.empty())
          stopped_.assign(reinterpret_cast<const char*>(bodies_[header.from].data()), bodies_[header.from].size());
        break;
      default: status_[static_cast<std::size_t>(header.from)] = static_cast<int>(header.number);
    }
    changed_.notify_all();
  }
  void gone(int rank, const std::string& why) override {
    const std::lock_guard lock(mutex_);
    gone_[static_cast<std::size_t>(rank)] = why;
    changed_.notify_all();
  }

  // ---- everybody else

  void post(int to, FrameHeader header, std::span<const std::span<const std::byte>> parts) {
    header.from = rank();
    header.bytes = 0;
    for (const auto part : parts)
      header.bytes += static_cast<std::int64_t>(part.size());
    wire_->send(to, header, parts);
  }
  void post_mail(int to, int about, std::span<const std::byte> body) {
    if (to == rank()) {
      const std::lock_guard lock(mutex_);
      mail_[{to, about}].emplace_back(body.begin(), body.end());
      return;
    }
    const std::array<std::span<const std::byte>, 1> parts = {body};
    post(to, {.kind = kMail, .id = about}, parts);
  }

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
      if (is_stopped = !stopped_.empty(); is_stopped) broken = stopped_;
      for (int r = 0; r < size() && broken.empty(); ++r)
        if (const std::string& why = gone_[static_cast<std::size_t>(r)]; !why.empty() && status_of(r) < 0)
          broken = fmt::format("worker {} is gone ({}) while this one waited for {}", r, why, what());
      for (int r = 0; r < size() && broken.empty(); ++r)
        if (status_of(r) > 0) broken = fmt::format("worker {} has given up; its own message says why", r);
      if (broken.empty() && terminated)
        broken = fmt::format("the launcher ended the run (SIGTERM) while this worker waited for {}{}", what(),
                             ended_processes());
      return !broken.empty();
    });
    if (over)
      throw PeerSilent(
          fmt::format("nothing heard for {} s while waiting for {}{}", timeout_s_, what(), who_is_silent()));
    if (is_stopped) throw Stopped(broken);
    if (!broken.empty()) throw PeerSilent(broken);
  }

  // Ranks wait for one another, and only one of them hangs: whose receiving thread does not answer within a second?
  std::string who_is_silent() {
    const std::int64_t question = ++questions_;
    for (int r = 0; r < size(); ++r)
      if (r != rank()) tell(r, {.kind = kAsk, .number = question}, {});
    const auto answers = [&](int r) {
      return r == rank() || alive_[static_cast<std::size_t>(r)] >= question || status_of(r) >= 0;
    };
    std::string silent;
    wait_at_most(1, [&] {
      silent.clear();
      for (int r = 0; r < size(); ++r)
        if (!answers(r)) silent += fmt::format("; the process of worker {} does not answer", r);
      return silent.empty();
    });
    return silent;
  }

  Blob take_mail(int from, int about) {
    Blob got;
    wait([&] { return found_mail(from, about, got); }, [&] { return fmt::format("worker {}", from); });
    return got;
  }
  // Under the lock.
  bool found_mail(int from, int about, Blob& into) {
    const auto found = mail_.find({from, about});
    if (found == mail_.end() || found->second.empty()) return false;
    into = std::move(found->second.front());
    found->second.pop_front();
    return true;
  }

  void stop(const std::string& why) noexcept {
    try {
      {
        const std::lock_guard lock(mutex_);
        if (!stopped_.empty()) return;  // the others know
        stopped_ = why.empty() ? fmt::format("worker {} has failed", rank()) : why;
      }
      changed_.notify_all();
      wire_->hasten();
      const std::array<std::span<const std::byte>, 1> text = {std::as_bytes(std::span(stopped_))};
      for (int r = 0; r < size(); ++r)
        if (r != rank()) tell(r, {.kind = kStop}, text);
    } catch (...) {  // whoever cannot be told finds out by its timeout
    }
  }

  // Slots are those of one run. No memory: the run is over, and what still comes has no place any more.
  void take_slots(const RunPlan& run, const std::vector<std::vector<std::byte*>>& memory) {
    const std::lock_guard lock(mutex_);
    if (memory.empty()) {
      for (auto& channel : slots_)
        for (Slot& slot : channel)
          slot.memory = nullptr;
      return;
    }
    PP_CHECK(slots_.empty());
    slots_.resize(run.channels.size());
    for (std::size_t c = 0; c < slots_.size(); ++c) {
      slots_[c].resize(static_cast<std::size_t>(run.channels[c].slots));
      for (std::size_t s = 0; s < slots_[c].size(); ++s) {
        slots_[c][s].bytes = std::max(run.channels[c].bytes[0], run.channels[c].bytes[1]);
        if (s < memory[c].size()) slots_[c][s].memory = memory[c][s];
      }
    }
  }
  // Under the lock.
  std::int64_t filled(const MessageSlot& at) const { return slot_at(at).filled; }
  std::int64_t freed(const MessageSlot& at) const { return slot_at(at).freed; }
  std::byte* memory(const MessageSlot& at) const { return slot_at(at).memory; }
  void fill_own(const MessageSlot& at) { change(at, &Slot::filled); }
  void free_own(const MessageSlot& at) { change(at, &Slot::freed); }

  bool is_gone(int r) const {
    const std::lock_guard lock(mutex_);
    return !gone_[static_cast<std::size_t>(r)].empty();
  }
  // Its end has been seen, or its process is no more. Under no lock.
  bool has_ended(int r) const {
    return is_gone(r) || (static_cast<std::size_t>(r) < homes.size() &&
                          process_is_gone(homes[static_cast<std::size_t>(r)], homes[static_cast<std::size_t>(rank())]));
  }
  // For `done` of a wait.
  bool gone_in_wait(int r) const { return !gone_[static_cast<std::size_t>(r)].empty(); }
  bool failed() const {
    const std::lock_guard lock(mutex_);
    return !stopped_.empty();
  }

  int leave(int status) noexcept {
    const bool failed_here = failed() || terminated;
    const std::string none;
    for (int r = 0; r < size(); ++r)
      if (r != rank()) tell(r, {.kind = kBye, .number = status}, {});
    // Rank 0 prints and writes, for as long as it takes; then all end at once, so that no launcher ends it before.
    const auto said_goodbye = [&](int r) {
      return r == rank() || status_of(r) >= 0 || !gone_[static_cast<std::size_t>(r)].empty();
    };
    wait_at_most(failed_here || status != 0 ? 5 : 1e6, [&] { return said_goodbye(0); });
    wait_at_most(failed_here ? 2 : 10, [&] {
      for (int r = 0; r < size(); ++r)
        if (!said_goodbye(r)) return false;
      return true;
    });
    bool orderly = true;
    {
      const std::lock_guard lock(mutex_);
      for (int r = 0; r < size(); ++r)
        orderly = orderly && (r == rank() || status_of(r) >= 0);
      if (status == 0 && rank() != 0) status = status_of(0) >= 0 ? status_of(0) : 2;
    }
    receiver_.request_stop();
    receiver_.join();
    wire_->close(orderly, status == 0 ? 2 : status);
    return status;
  }

  std::vector<Home> homes;
  ClockOffset clock;
  std::vector<ClockOffset> clocks;  // of all ranks, at rank 0

 private:
  struct Slot {
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;  // it holds
    std::int64_t filled = 0, freed = 0;
  };

  // From a buffer of the receiving thread: the slot's memory may be given back while a message is on its way.
  static void fill(Slot& slot, const Blob& body, std::int64_t number) {
    if (slot.memory == nullptr) return;
    if (!body.empty()) std::memcpy(slot.memory, body.data(), body.size());
    slot.filled = number;
  }
  Slot& slot_of(const FrameHeader& header) {
    if (header.id < 0 || static_cast<std::size_t>(header.id) >= slots_.size() || header.slot < 0 ||
        static_cast<std::size_t>(header.slot) >= slots_[static_cast<std::size_t>(header.id)].size())
      throw std::runtime_error("it sent what is no message of ours");
    return slots_[static_cast<std::size_t>(header.id)][static_cast<std::size_t>(header.slot)];
  }
  const Slot& slot_at(const MessageSlot& at) const {
    return slots_[static_cast<std::size_t>(at.channel)][static_cast<std::size_t>(at.slot)];
  }
  void change(const MessageSlot& at, std::int64_t Slot::*what) {
    const std::lock_guard lock(mutex_);
    slots_[static_cast<std::size_t>(at.channel)][static_cast<std::size_t>(at.slot)].*what = at.number;
    changed_.notify_all();
  }
  int status_of(int r) const { return status_[static_cast<std::size_t>(r)]; }
  std::string ended_processes() const {
    std::string text;
    for (std::size_t r = 0; r < homes.size(); ++r)
      if (process_is_gone(homes[r], homes[static_cast<std::size_t>(rank())]))
        text += fmt::format("; worker {}'s process has ended", r);
    return text;
  }
  // One rank that cannot be told keeps nobody from telling the next.
  void tell(int to, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) noexcept {
    try {
      post(to, header, parts);
    } catch (...) {
    }
  }

  std::unique_ptr<Wire> wire_;
  double timeout_s_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> waiting_{0};
  std::vector<std::vector<Slot>> slots_;  // [channel][slot]; of a channel to others only `freed` is used
  std::map<std::pair<int, int>, std::deque<Blob>> mail_;
  std::map<int, Blob> bodies_;       // by rank, of the frame that is coming
  std::vector<std::string> gone_;    // by rank: why
  std::vector<int> status_;          // by rank: -1 until it has said goodbye
  std::vector<std::int64_t> alive_;  // by rank: the last question that it answered
  std::atomic<std::int64_t> questions_{0};
  std::string stopped_;  // the first failure's message
  std::jthread receiver_;
};

namespace {

// Between a float segment of all members.
std::int64_t segment(std::int64_t elements, std::size_t i, std::size_t count) {
  return elements * static_cast<std::int64_t>(i) / static_cast<std::int64_t>(count);
}

template <class State>
class RankEndpoint : public Transport {
 public:
  RankEndpoint(State& state, const RunPlan& run) : state_(state), run_(run) {
    first_ = state.rank() / run.plan->positions() * run.plan->positions();
  }

  void bind(std::vector<std::vector<std::byte*>> slots) override { state_.take_slots(run_, slots); }

  Sent send(const MessageSlot& message, std::span<const Piece> pieces) override {
    const int to = first_ + run_.channels[static_cast<std::size_t>(message.channel)].to;
    const std::int64_t begin = now_ns();
    bool waited = false;
    state_.wait(
        [&] {
          const bool free = state_.freed(message) >= message.before;
          waited = waited || !free;
          return free;
        },
        [&] { return fmt::format("worker {} to read", to); });
    const Sent sent{waited ? now_ns() - begin : 0, 0};
    if (to == state_.rank()) {
      for (const Piece& piece : pieces)
        std::memcpy(state_.memory(message) + piece.offset, piece.from, static_cast<std::size_t>(piece.bytes));
      state_.fill_own(message);
      return sent;
    }
    // The body is the slot as it will be: gaps between tensors are sent as zeros.
    static constexpr std::array<std::byte, 64> kZeros{};
    std::vector<std::span<const std::byte>> parts;
    std::int64_t at = 0;
    for (const Piece& piece : pieces) {
      for (; at < piece.offset; at += static_cast<std::int64_t>(parts.back().size()))
        parts.emplace_back(kZeros.data(), static_cast<std::size_t>(std::min<std::int64_t>(64, piece.offset - at)));
      parts.emplace_back(piece.from, static_cast<std::size_t>(piece.bytes));
      at += piece.bytes;
    }
    state_.post(to, {.kind = kMessage, .id = message.channel, .number = message.number, .slot = message.slot}, parts);
    return sent;
  }

  std::byte* receive(const MessageSlot& message) override {
    const int from = first_ + run_.channels[static_cast<std::size_t>(message.channel)].from;
    state_.wait([&] { return state_.filled(message) >= message.number; },
                [&] { return fmt::format("a message of worker {}", from); });
    return state_.memory(message);
  }

  void release(const MessageSlot& message) override {
    const int from = first_ + run_.channels[static_cast<std::size_t>(message.channel)].from;
    if (from == state_.rank())
      state_.free_own(message);
    else
      state_.post(from, {.kind = kFreed, .id = message.channel, .number = message.number, .slot = message.slot}, {});
  }

  void all_reduce(int group, std::span<const WorkerId> members, float* data, std::int64_t elements) override {
    const std::size_t count = members.size();
    const auto self =
        static_cast<std::size_t>(std::find(members.begin(), members.end(), state_.rank()) - members.begin());
    const auto part = [&](std::size_t i) {
      const std::int64_t begin = segment(elements, i, count);
      return std::span(data + begin, static_cast<std::size_t>(segment(elements, i + 1, count) - begin));
    };
    const auto everybody_else = [&](const auto& act) {
      for (std::size_t i = 0; i < count; ++i)
        if (i != self) act(i);
    };
    const int up = kReduce + 2 * group, down = up + 1;
    everybody_else([&](std::size_t i) { state_.post_mail(members[i], up, std::as_bytes(part(i))); });
    std::vector<float> sum, term;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<float>& into = i == 0 ? sum : term;
      if (i == self)
        into.assign(part(self).begin(), part(self).end());
      else
        into = floats(state_.take_mail(members[i], up), part(self).size());
      for (std::size_t j = 0; i > 0 && j < sum.size(); ++j)
        sum[j] += term[j];
    }
    everybody_else([&](std::size_t i) { state_.post_mail(members[i], down, std::as_bytes(std::span(sum))); });
    std::copy(sum.begin(), sum.end(), part(self).begin());
    everybody_else([&](std::size_t i) {
      const std::vector<float> got = floats(state_.take_mail(members[i], down), part(i).size());
      std::copy(got.begin(), got.end(), part(i).begin());
    });
  }

  void meet() override {
    if (state_.rank() == 0) {
      for (int r = 1; r < state_.size(); ++r)
        state_.take_mail(r, kMeetUp);
      for (int r = 1; r < state_.size(); ++r)
        state_.post_mail(r, kMeetDown, {});
    } else {
      state_.post_mail(0, kMeetUp, {});
      state_.take_mail(0, kMeetDown);
    }
  }

  void stop(const std::string& why) noexcept override { state_.stop(why); }

 private:
  static std::vector<float> floats(const Blob& bytes, std::size_t count) {
    PP_CHECK(bytes.size() == count * sizeof(float));
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  State& state_;
  const RunPlan& run_;
  int first_;  // worker of this copy
};

}  // namespace

Ranks::Ranks(std::unique_ptr<Wire> wire, double timeout_s)
    : state_(std::make_unique<State>(std::move(wire), timeout_s)) {
  const Blob all = broadcast(joined(gathered(bytes_of(home()))));
  BytesIn in(all);
  for (int r = 0; r < size(); ++r) {
    const Blob one = in.list<std::byte>();
    state_->homes.push_back(home_of(BytesIn(one)));
  }
  // Ranks of other machines ask rank 0's clock, one after the other.
  for (int r = 1; r < size(); ++r) {
    if (state_->homes[static_cast<std::size_t>(r)].boot == state_->homes[0].boot) continue;
    std::vector<ClockReading> readings;
    for (int i = 0; i < 64; ++i) {
      if (rank() == 0) {
        state_->take_mail(r, kClock);
        state_->post_mail(r, kClock, BytesOut().put(now_ns()).bytes());
      } else if (rank() == r) {
        const std::int64_t asked = now_ns();
        state_->post_mail(0, kClock, {});
        const Blob said = state_->take_mail(0, kClock);
        readings.push_back({asked, BytesIn(said).get<std::int64_t>(), now_ns()});
      }
    }
    if (rank() == r) state_->clock = clock_offset(readings);
  }
  for (const Blob& one : gathered(BytesOut().put(state_->clock).bytes()))
    state_->clocks.push_back(BytesIn(one).get<ClockOffset>());
}

Ranks::~Ranks() = default;

int Ranks::rank() const {
  return state_->rank();
}
int Ranks::size() const {
  return state_->size();
}

void Ranks::agree(const std::vector<MustMatch>& ours) {
  BytesOut out;
  out.put(static_cast<std::uint64_t>(ours.size()));
  for (const MustMatch& one : ours)
    out.put(one.what).put(one.text).put(one.hash);
  std::string verdict;
  const std::vector<Blob> all = gathered(out.bytes());
  for (std::size_t r = 1; r < all.size() && verdict.empty(); ++r) {
    BytesIn in(all[r]);
    std::vector<MustMatch> theirs(in.counted(1));
    for (MustMatch& one : theirs)
      one.what = in.text(), one.text = in.text(), one.hash = in.get<std::uint64_t>();
    verdict = difference(ours, theirs, static_cast<int>(r));
  }
  const Blob told = broadcast(BytesOut().put(verdict).bytes());
  if (const std::string text = BytesIn(told).text(); !text.empty()) throw InputError(text);
}

std::vector<Blob> Ranks::gathered(const Blob& ours) {
  state_->post_mail(0, kGather, ours);
  std::vector<Blob> all;
  for (int r = 0; rank() == 0 && r < size(); ++r)
    all.push_back(state_->take_mail(r, kGather));
  return all;
}

Blob Ranks::broadcast(const Blob& ours) {
  if (rank() != 0) return state_->take_mail(0, kBroadcast);
  for (int r = 1; r < size(); ++r)
    state_->post_mail(r, kBroadcast, ours);
  return ours;
}

std::unique_ptr<Transport> Ranks::endpoint(const RunPlan& run) {
  PP_CHECK(run.plan->workers() == size());
  return std::make_unique<RankEndpoint<State>>(*state_, run);
}

std::vector<Blob> Ranks::salvaged(const Blob& ours) {
  std::vector<Blob> all(rank() == 0 ? static_cast<std::size_t>(size()) : 0);
  if (!gone(0)) try {
      state_->post_mail(0, kSalvage, ours);
    } catch (const std::exception&) {  // rank 0 hangs: this rank tells for itself
    }
  if (rank() != 0) return all;
  // The launcher that has sent SIGTERM kills a second later.
  const auto end = Clock::now() + std::chrono::milliseconds(terminated ? 300 : 2000);
  for (int r = 0; r < size(); ++r)
    state_->wait_at_most(std::chrono::duration<double>(end - Clock::now()).count(), [&] {
      return state_->found_mail(r, kSalvage, all[static_cast<std::size_t>(r)]) || state_->gone_in_wait(r);
    });
  return all;
}

bool Ranks::gone(int rank) const {
  return state_->has_ended(rank);
}

int Ranks::cores() const {
  std::map<std::string, std::set<int>> all;
  for (const Home& home : state_->homes)
    all[home.boot].insert(home.cores.begin(), home.cores.end());
  std::size_t count = 0;
  for (const auto& [boot, cores] : all)
    count += cores.size();
  return static_cast<int>(count);
}

int Ranks::machines() const {
  std::set<std::string> boots;
  for (const Home& home : state_->homes)
    boots.insert(home.boot);
  return static_cast<int>(boots.size());
}

int Ranks::own_core(int threads) const {
  const Home& here = state_->homes[static_cast<std::size_t>(rank())];
  int neighbours = 0, before = 0;
  bool alike = true;
  for (std::size_t r = 0; r < state_->homes.size(); ++r) {
    if (state_->homes[r].boot != here.boot) continue;
    alike = alike && state_->homes[r].cores == here.cores;
    before += static_cast<int>(r) < rank() ? 1 : 0;
    ++neighbours;
  }
  // Cores that the launcher has given out differ from rank to rank, and are the launcher's choice.
  if (!alike || neighbours * threads > static_cast<int>(here.cores.size())) return -1;
  return here.cores[static_cast<std::size_t>(before)];
}

ClockOffset Ranks::clock() const {
  return state_->clock;
}

std::string Ranks::clocks() const {
  std::int64_t error = 0;
  for (const ClockOffset& one : state_->clocks)
    error = std::max(error, one.error);
  if (machines() < 2) return "";
  return fmt::format("times of {} machines are on rank 0's clock, to within {:.3g} us", machines(),
                     static_cast<double>(error) / 1000);
}

void Ranks::send(int to, const Blob& bytes) {
  state_->post_mail(to, kLetter, bytes);
}
Blob Ranks::receive(int from) {
  return state_->take_mail(from, kLetter);
}

int Ranks::leave(int status) noexcept {
  return state_->leave(status);
}

}  // namespace pipewright
