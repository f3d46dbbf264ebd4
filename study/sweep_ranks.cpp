#include "study/sweep_ranks.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sched.h>

#include "core/check.hpp"
#include "core/ending.hpp"
#include "core/plain_words.hpp"
#include "io/console.hpp"
#include "io/store/sweep_store.hpp"
#include "runtime/bytes.hpp"
#include "runtime/signals.hpp"

namespace pipewright::study {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBetweenSigns{1}, kPatience{60}, kLeaving{5};
constexpr std::int64_t kLargestFrame = std::int64_t{1} << 30;

enum SweepMail : std::int32_t { kAsk = 1, kWork, kFound, kEnded, kStop, kBye };

// mpirun ends all processes by SIGTERM when one has died, and on Ctrl-C.
bool is_terminated() {
  return asked_to_end() == SIGTERM;
}

// ---- rows as bytes --------------------------------------------------------------------------------------------------

void put(BytesOut& out, const StoreValue& value) {
  out.put(static_cast<std::int32_t>(value.index()));
  if (const auto* whole = std::get_if<std::int64_t>(&value)) out.put(*whole);
  if (const auto* real = std::get_if<double>(&value)) out.put(*real);
  if (const auto* text = std::get_if<std::string>(&value)) out.put(*text);
}

StoreValue value_in(BytesIn& in) {
  switch (in.get<std::int32_t>()) {
    case 1: return in.get<std::int64_t>();
    case 2: return in.get<double>();
    case 3: return in.text();
    default: return std::monostate{};
  }
}

Blob bytes_of(const SweepQuestion& question, const std::vector<SweepFinding>& findings) {
  BytesOut out;
  out.put(static_cast<std::uint64_t>(findings.size()));
  for (const SweepFinding& finding : findings) {
    const std::vector<StoreValue> values = values_of(question, finding);
    out.put(static_cast<std::uint64_t>(values.size()));
    for (const StoreValue& value : values)
      put(out, value);
  }
  return out.bytes();
}

std::vector<SweepFinding> findings_in(const Blob& bytes) {
  BytesIn in(bytes);
  std::vector<SweepFinding> findings(in.counted(1));
  for (SweepFinding& finding : findings) {
    std::vector<StoreValue> values(in.counted(1));
    for (StoreValue& value : values)
      value = value_in(in);
    finding = finding_of(values);
  }
  return findings;
}

int number_of(const Environment& variables, const char* name, int otherwise) {
  const char* const text = variables(name);
  const int value = text == nullptr ? otherwise : std::atoi(text);
  return value > 0 ? value : otherwise;
}

// Rank 0's view of the others.
struct Others {
  explicit Others(int size) : heard(at(size), Clock::now()), ended(heard.size()) { ended[0] = true; }
  bool all_ended() const {
    return std::ranges::all_of(ended, [](bool each) { return each; });
  }
  std::string silent() const {
    for (std::size_t r = 1; r < heard.size(); ++r)
      if (!ended[r] && Clock::now() - heard[r] > kPatience)
        return fmt::format("rank {} has not been heard of for {} s", r, kPatience.count());
    return "";
  }

  std::vector<Clock::time_point> heard;
  std::vector<bool> ended;
};

}  // namespace

std::optional<Launch> sweep_launch(const Environment& variables) {
  const auto of_launchers = [&](const char* name) -> const char* {
    for (const char* const other : {"RANK", "WORLD_SIZE", "SLURM_NTASKS"})
      if (std::strcmp(name, other) == 0) return nullptr;
    if (std::strcmp(name, "SLURM_PROCID") == 0 && variables("SLURM_STEP_NUM_TASKS") == nullptr) return nullptr;
    return variables(name);
  };
  const std::optional<Launch> launch = runtime::launched(of_launchers);
  return launch && launch->size > 1 ? launch : std::nullopt;
}

int usual_jobs(const Environment& variables) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  cpu_set_t set;
  CPU_ZERO(&set);
  const int mine = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : cores;
  if (mine < cores) return std::max(1, mine);
  int beside = 1;
  for (const char* const name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    beside = std::max(beside, number_of(variables, name, 1));
  return std::max(1, cores / beside);
}

// What has come, one body at a time; rank 0 handles it in its only thread, the others in one of their own.
class SweepRanks::State : public FrameReader {
 public:
  struct Frame {
    int kind = 0, from = 0;
    Blob body;
  };

  explicit State(const Launch& launch) : wire_(mpi_wire(launch)) {}

  void begin(const FrameHeader& header) override {
    if (header.bytes < 0 || header.bytes > kLargestFrame) throw std::runtime_error("a message of no possible size");
    body_.resize(at(header.bytes));
  }
  std::span<std::byte> room(const FrameHeader&, std::int64_t have) override {
    return std::span(body_).subspan(at(have));
  }
  void end(const FrameHeader& header) override { frames_.push_back({header.kind, header.from, std::move(body_)}); }
  void gone(int rank, const std::string& why) override { gone_ = fmt::format("rank {} is gone ({})", rank, why); }

  void post(int to, int kind, const Blob& body = {}) {
    const FrameHeader header{.kind = kind,
                             .id = 0,
                             .number = 0,
                             .slot = 0,
                             .from = wire_->rank(),
                             .bytes = static_cast<std::int64_t>(body.size())};
    const std::span<const std::byte> part(body);
    wire_->send(to, header, std::span(&part, body.empty() ? 0 : 1));
  }
  void post_all(int kind) {
    for (int to = 1; to < wire_->size(); ++to)
      post(to, kind);
  }

  // What has come meanwhile; waits some milliseconds at most.
  std::deque<Frame> received() {
    wire_->receive(*this, false);
    return std::exchange(frames_, {});
  }

  // ---- other ranks than 0: a thread listens

  void listen() {
    listener_ = std::jthread([this](const std::stop_token& enough) {
      while (!enough.stop_requested()) {
        std::deque<Frame> frames = received();
        const std::lock_guard lock(mutex_);
        for (Frame& frame : frames) {
          if (frame.kind == kWork) given_.push_back(BytesIn(frame.body).list<std::int64_t>());
          if (frame.kind == kStop) stopped_ = true;
          if (frame.kind == kBye) stopped_ = bye_ = true;
        }
        if (is_terminated() || !gone_.empty()) stopped_ = lost_ = true;
        changed_.notify_all();
      }
    });
  }
  std::vector<std::int64_t> given() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !given_.empty() || bye_ || lost_; });
    if (given_.empty()) return {};
    std::vector<std::int64_t> points = std::move(given_.front());
    given_.pop_front();
    return points;
  }
  // False: rank 0 is lost. It waits for the slowest rank, which may take long.
  bool wait_for_bye() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return bye_ || lost_; });
    }
    listener_.request_stop();
    listener_.join();
    return bye_;
  }
  bool is_stopped() const { return stopped_; }

  // ---- all

  Wire& wire() { return *wire_; }
  const std::string& whats_gone() const { return gone_; }
  void leave(bool orderly, int status) {
    if (!std::exchange(left_, true)) wire_->close(orderly, status);
  }
  // Ranks are lost: the process ends without a farewell, once it has said what happened, and mpirun ends the others.
  void leave_without_farewell() { left_ = true; }
  bool left() const { return left_; }

 private:
  const Interruption listening_;  // rank 0 ends the sweep, on all ranks
  std::unique_ptr<Wire> wire_;
  Blob body_;
  std::deque<Frame> frames_;
  std::string gone_;
  bool left_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::int64_t>> given_;
  std::atomic<bool> stopped_{false};
  bool bye_ = false, lost_ = false;
  std::jthread listener_;
};

SweepRanks::SweepRanks(const Launch& launch) : state_(std::make_unique<State>(launch)) {}
SweepRanks::~SweepRanks() {
  if (state_->left()) return;
  if (first()) state_->post_all(kBye);  // there was no work for anybody
  state_->leave(true, kDone);
}
bool SweepRanks::first() const {
  return state_->wire().rank() == 0;
}
int SweepRanks::size() const {
  return state_->wire().size();
}

void SweepRanks::serve(const SweepOptions& options, const std::string& identity) {
  Others others(size());
  std::string failure;
  bool stopped = false;
  auto told = Clock::now();
  std::vector<SweepFinding> news;
  const auto stop = [&] {
    if (!std::exchange(stopped, true)) state_->post_all(kStop);
  };
  const auto take = [&](State::Frame& frame) {
    const auto r = at(frame.from);
    others.heard[r] = Clock::now();
    if (frame.kind == kAsk) {
      const bool same = BytesIn(frame.body).text() == identity;
      if (!same && failure.empty())
        failure = fmt::format("rank {} has read another sweep than rank 0: its files differ, or its program", r);
      state_->post(frame.from, kWork,
                   BytesOut().put(stopped || !same ? std::vector<std::int64_t>{} : options.next()).bytes());
    } else if (frame.kind == kFound) {
      std::vector<SweepFinding> found = findings_in(frame.body);
      news.insert(news.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
    } else if (frame.kind == kEnded) {
      others.ended[r] = true;
      const std::string why = BytesIn(frame.body).text();
      if (!why.empty() && failure.empty()) failure = why;
    }
  };
  const auto tell = [&] {
    try {
      options.found(std::exchange(news, {}));
    } catch (const InputError& error) {
      if (failure.empty()) failure = error.what();
    }
  };
  std::optional<Clock::time_point> give_up;  // a rank that is lost does not say that it has ended
  while (!others.all_ended()) {
    for (State::Frame& frame : state_->received())
      take(frame);
    if (Clock::now() - told >= std::chrono::milliseconds(100)) tell(), told = Clock::now();
    if (failure.empty() && is_terminated())
      failure =
          "mpirun has ended the run: a process has died, or it was told to; rows in a database are kept: go on with "
          "--resume";
    if (failure.empty() && !state_->whats_gone().empty()) failure = state_->whats_gone();
    if (failure.empty()) failure = others.silent();
    if (!failure.empty() || options.stopped()) stop();
    if (failure.empty()) continue;
    if (!give_up) give_up = Clock::now() + kLeaving;
    if (is_terminated() || Clock::now() > *give_up) break;
  }
  tell();
  if (others.all_ended()) {
    state_->post_all(kBye);
    state_->leave(true, kDone);
  } else {
    state_->leave_without_farewell();
  }
  if (failure.empty()) return;
  throw InputError(failure);
}

int SweepRanks::work(const SweepQuestion& question, SweepOptions options, const std::string& identity) {
  state_->listen();
  auto told = Clock::now();
  options.stopped = [&] { return stopped(); };
  options.next = [&]() -> std::vector<std::int64_t> {
    state_->post(0, kAsk, BytesOut().put(identity).bytes());
    return state_->given();
  };
  options.found = [&](const std::vector<SweepFinding>& news) {
    if (news.empty() && Clock::now() - told < kBetweenSigns) return;
    state_->post(0, kFound, bytes_of(question, news));
    told = Clock::now();
  };
  try {
    price_points(question, options);
  } catch (const std::exception& error) {
    return end(fmt::format("rank {}: {}", state_->wire().rank(), plain_words(error)));
  }
  return end("");
}

int SweepRanks::refuse(const std::string& why) {
  state_->listen();
  return end(fmt::format("rank {}: {}", state_->wire().rank(), why));
}

bool SweepRanks::stopped() const {
  return state_->is_stopped();
}

// Says so, and leaves when all may.
int SweepRanks::end(const std::string& failure) {
  state_->post(0, kEnded, BytesOut().put(failure).bytes());
  const bool orderly = state_->wait_for_bye();
  const int status = failure.empty() && orderly ? kDone : kBadInput;
  state_->leave(orderly, status);
  return status;
}

}  // namespace pipewright::study
