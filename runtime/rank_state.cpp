#include "runtime/rank_state.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "core/check.hpp"
#include "core/plain_words.hpp"

namespace pipewright::runtime {
namespace {

enum MailKind : std::int32_t { kMessage = 1, kFreed, kMail, kStop, kAsk, kAlive, kTakeBack, kBye };

constexpr std::int64_t kLargestMail = std::int64_t{1} << 36;
// Memory for mail grows with the bytes that have come: a header alone, whatever length it states, costs this at most.
constexpr std::int64_t kFirstRoom = std::int64_t{1} << 24;

}  // namespace

Ranks::State::State(std::unique_ptr<Wire> wire, double timeout_s)
    : wire_(std::move(wire)),
      timeout_s_(timeout_s),
      gone_(static_cast<std::size_t>(wire_->size())),
      status_(static_cast<std::size_t>(wire_->size()), -1),
      left_at_(static_cast<std::size_t>(wire_->size())),
      alive_(static_cast<std::size_t>(wire_->size())) {
  receiver_ = std::jthread([this](const std::stop_token& token) {
    try {
      while (!token.stop_requested())
        wire_->receive(*this, waiting_.load() > 0);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      if (stopped_.empty()) stopped_ = fmt::format("rank {} cannot receive: {}", wire_->rank(), plain_words(error));
    }
  });
}

void Ranks::State::begin(const FrameHeader& header) {
  const std::lock_guard lock(mutex_);
  const auto sane = [](bool condition) {
    if (!condition) throw std::runtime_error("it sent what is not a message of ours");
  };
  sane(header.from >= 0 && header.from < size() && header.bytes >= 0);
  if (header.kind == kMessage)
    sane(header.bytes <= slot_of(header).bytes);
  else
    sane(header.kind > kMessage && header.kind <= kBye && header.bytes <= kLargestMail);
  const std::int64_t first = header.kind == kMessage ? header.bytes : std::min(header.bytes, kFirstRoom);
  bodies_[header.from].resize(static_cast<std::size_t>(first));
}
std::span<std::byte> Ranks::State::room(const FrameHeader& header, std::int64_t have) {
  Blob& body = bodies_[header.from];
  const std::int64_t least = std::min(header.bytes, have + kFirstRoom);
  if (static_cast<std::int64_t>(body.size()) < least)
    body.resize(static_cast<std::size_t>(std::min(header.bytes, std::max(2 * have, least))));
  return std::span(body).subspan(static_cast<std::size_t>(have));
}
void Ranks::State::end(const FrameHeader& header) {
  if (header.kind == kTakeBack) return give_back(header);
  if (header.kind == kAsk) return tell(header.from, {.kind = kAlive, .number = header.number}, {});
  const std::lock_guard lock(mutex_);
  switch (header.kind) {
    case kMessage: fill(slot_of(header), bodies_[header.from], header.number); break;
    case kFreed: slot_of(header).freed = header.number; break;
    case kMail:
      if (header.id == kForget) forget_mail(header.from, !forgetting_);
      mail_[{header.from, header.id}].push_back(std::move(bodies_[header.from]));
      break;
    case kAlive: alive_[static_cast<std::size_t>(header.from)] = header.number; break;
    case kStop:
      if (!stopped_.empty()) break;
      stopped_.assign(reinterpret_cast<const char*>(bodies_[header.from].data()), bodies_[header.from].size());
      stop_reason_ = header.id;
      break;
    default:
      status_[static_cast<std::size_t>(header.from)] = static_cast<int>(header.number);
      left_at_[static_cast<std::size_t>(header.from)] = Clock::now();
  }
  changed_.notify_all();
}
void Ranks::State::gone(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  gone_[static_cast<std::size_t>(rank)] = why;
  changed_.notify_all();
}

void Ranks::State::post(int to, FrameHeader header, std::span<const std::span<const std::byte>> parts) {
  header.from = rank();
  header.bytes = 0;
  for (const auto part : parts)
    header.bytes += static_cast<std::int64_t>(part.size());
  wire_->send(to, header, parts);
}
void Ranks::State::post_message(int to, const MessageSlot& at, std::span<const std::span<const std::byte>> parts) {
  post(to, {.kind = kMessage, .id = at.channel, .number = at.number, .slot = at.slot}, parts);
}
void Ranks::State::post_freed(int to, const MessageSlot& at) {
  post(to, {.kind = kFreed, .id = at.channel, .number = at.number, .slot = at.slot}, {});
}
void Ranks::State::post_mail(int to, int about, std::span<const std::byte> body) {
  if (to == rank()) {
    const std::lock_guard lock(mutex_);
    mail_[{to, about}].emplace_back(body.begin(), body.end());
    return;
  }
  const std::array<std::span<const std::byte>, 1> parts = {body};
  post(to, {.kind = kMail, .id = about}, parts);
}

void Ranks::State::ask_back(int from, const MessageSlot& at) {
  post(from, {.kind = kTakeBack, .id = at.channel, .number = at.number, .slot = at.slot}, {});
}
// By the receiving thread: frames come in order, so the message is there. Who asks receives always, so it is soon gone.
void Ranks::State::give_back(const FrameHeader& asked) {
  Blob body;
  {
    const std::lock_guard lock(mutex_);
    const Slot& slot = slot_of(asked);
    if (slot.memory != nullptr && slot.filled == asked.number) body.assign(slot.memory, slot.memory + slot.bytes);
  }
  const std::array<std::span<const std::byte>, 1> parts = {body};
  tell(asked.from, {.kind = kMail, .id = kTakenBack}, parts);
}

void Ranks::State::check_asked_to_end() const {
  if (const int signal = asked_to_end(); signal != 0)
    throw PeerSilent(fmt::format("{} ended the run{}", signal_name(signal), ended_processes()));
}

std::string Ranks::State::who_is_silent() {
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

bool Ranks::State::answers(int r) {
  const std::int64_t question = ++questions_;
  if (r != rank()) tell(r, {.kind = kAsk, .number = question}, {});
  return r == rank() || wait_at_most(1, [&] {
           return alive_[static_cast<std::size_t>(r)] >= question || status_of(r) >= 0 || gone_in_wait(r);
         });
}

Blob Ranks::State::take_mail(int from, int about) {
  Blob got;
  wait([&] { return found_mail(from, about, got); }, [&] { return fmt::format("worker {}", from); });
  return got;
}
std::vector<Blob> Ranks::State::take_mail_of_all(int about) {
  for (int r = 0; r < size(); ++r)
    wait(
        [&] {
          const auto found = mail_.find({r, about});
          return found != mail_.end() && !found->second.empty();
        },
        [&] { return fmt::format("worker {}", r); });
  std::vector<Blob> all(static_cast<std::size_t>(size()));
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < size(); ++r)
    found_mail(r, about, all[static_cast<std::size_t>(r)]);
  return all;
}
bool Ranks::State::found_mail(int from, int about, Blob& into) {
  const auto found = mail_.find({from, about});
  if (found == mail_.end() || found->second.empty()) return false;
  into = std::move(found->second.front());
  found->second.pop_front();
  return true;
}

void Ranks::State::stop(const std::string& why, StopReason reason) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_.empty()) return;  // the others know
      stopped_ = why.empty() ? fmt::format("worker {} has failed", rank()) : why;
      stop_reason_ = reason;
    }
    changed_.notify_all();
    wire_->hasten();
    const std::array<std::span<const std::byte>, 1> text = {std::as_bytes(std::span(stopped_))};
    for (int r = 0; r < size(); ++r)
      if (r != rank()) tell(r, {.kind = kStop, .id = reason}, text);
  } catch (...) {  // whoever cannot be told finds out by its timeout
  }
}

void Ranks::State::throw_if_out_of_memory() const {
  const std::lock_guard lock(mutex_);
  if (stopped_.empty()) return;
  if (stop_reason_ == kOutOfArena) throw OutOfArena(stopped_);
  if (stop_reason_ == kOutOfDevice) throw OutOfDevice(stopped_);
}

void Ranks::State::take_slots(const RunPlan& run, const std::vector<std::vector<std::byte*>>& memory) {
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
void Ranks::State::forget_slots() {
  const std::lock_guard lock(mutex_);
  slots_.clear();
}

bool Ranks::State::is_gone(int r) const {
  const std::lock_guard lock(mutex_);
  return !gone_[static_cast<std::size_t>(r)].empty();
}
bool Ranks::State::has_ended(int r) const {
  return is_gone(r) || (static_cast<std::size_t>(r) < homes.size() &&
                        process_is_gone(homes[static_cast<std::size_t>(r)], homes[static_cast<std::size_t>(rank())]));
}
bool Ranks::State::failed() const {
  const std::lock_guard lock(mutex_);
  return !stopped_.empty();
}

// A rank sends nothing of a next run before it has everybody's kForget, and a rank's messages keep their order.
bool Ranks::State::recovered() {
  {
    const std::lock_guard lock(mutex_);
    for (int r = 0; r < size(); ++r)
      forget_mail(r, false);
    forgetting_ = true;
  }
  bool all_here = false;
  for (int r = 0; r < size(); ++r)
    if (r != rank()) tell(r, {.kind = kMail, .id = kForget}, {});
  const bool over = !wait_at_most(timeout_s_, [&] {
    all_here = true;
    bool hopeless = is_terminated();
    for (int r = 0; r < size(); ++r) {
      const auto found = mail_.find({r, kForget});
      const bool here = r == rank() || (found != mail_.end() && !found->second.empty());
      all_here = all_here && here;
      hopeless = hopeless || (!here && (gone_in_wait(r) || status_of(r) >= 0));
    }
    return all_here || hopeless;
  });
  if (over || !all_here) return false;
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < size(); ++r)
    mail_.erase({r, kForget});
  forgetting_ = false;
  slots_.clear();
  stopped_.clear();
  stop_reason_ = kFailed;
  wire_->calm();
  return true;
}

int Ranks::State::leave(int status, const std::function<void()>& left_alone) noexcept {
  const bool failed_here = failed() || asked_to_end() != 0;
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
  bool orderly = true, is_left_alone = false;
  {
    const std::lock_guard lock(mutex_);
    for (int r = 0; r < size(); ++r)
      orderly = orderly && (r == rank() || status_of(r) >= 0);
    is_left_alone = status == 0 && rank() != 0 && status_of(0) < 0;
    if (status == 0 && rank() != 0) status = status_of(0) >= 0 ? status_of(0) : 2;
  }
  if (is_left_alone && left_alone) left_alone();
  receiver_.request_stop();
  receiver_.join();
  wire_->close(orderly, status == 0 ? 2 : status);
  return status;
}

// From a buffer of the receiving thread: the slot's memory may be given back while a message is on its way.
void Ranks::State::fill(Slot& slot, const Blob& body, std::int64_t number) {
  if (slot.memory == nullptr) return;
  if (!body.empty()) std::memcpy(slot.memory, body.data(), body.size());
  slot.filled = number;
}
Ranks::State::Slot& Ranks::State::slot_of(const FrameHeader& header) {
  if (header.id < 0 || static_cast<std::size_t>(header.id) >= slots_.size() || header.slot < 0 ||
      static_cast<std::size_t>(header.slot) >= slots_[static_cast<std::size_t>(header.id)].size())
    throw std::runtime_error("it sent what is not a message of ours");
  return slots_[static_cast<std::size_t>(header.id)][static_cast<std::size_t>(header.slot)];
}
void Ranks::State::forget_mail(int from, bool spare) {
  std::erase_if(mail_, [&](const auto& one) {
    const auto [sender, about] = one.first;
    return sender == from && about != kForget && !(spare && (about == kGather || about == kSalvage));
  });
}
void Ranks::State::change(const MessageSlot& at, std::int64_t Slot::*what) {
  const std::lock_guard lock(mutex_);
  slots_[static_cast<std::size_t>(at.channel)][static_cast<std::size_t>(at.slot)].*what = at.number;
  changed_.notify_all();
}
std::string Ranks::State::ended_processes() const {
  std::string text;
  for (std::size_t r = 0; r < homes.size(); ++r)
    if (process_is_gone(homes[r], homes[static_cast<std::size_t>(rank())]))
      text += fmt::format("; worker {}'s process has ended", r);
  return text;
}
void Ranks::State::tell(int to, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) noexcept {
  try {
    post(to, header, parts);
  } catch (...) {
  }
}

}  // namespace pipewright::runtime
