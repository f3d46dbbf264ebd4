#include "runtime/signals.hpp"

#include <array>
#include <chrono>
#include <mutex>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "core/ending.hpp"

namespace pipewright::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<int, 4> kCaught = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array<int, 2> kIgnored = {SIGXFSZ, SIGPIPE};
constexpr int kWake = SIGURG;  // ends the wait of the guard's thread; by itself it does nothing to a process
constexpr std::chrono::milliseconds kOneWish{250};

struct Shared {
  std::mutex mutex;
  std::string words;
  int listeners = 0;  // Interruptions
  Clock::time_point asked_at;
};

// Never destroyed: a signal may come while the program's last objects go.
Shared& shared() {
  static Shared& one = *new Shared;
  return one;
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void say(const std::string& words) {
  const std::string line = (isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "") + words + "\n";
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
}

[[noreturn]] void end_at_once(int signal) {
  clear_at_end();
  if (signal == SIGQUIT) {
    std::signal(signal, SIG_DFL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    raise(signal);
  }
  say("interrupted (" + signal_name(signal) + "): " + shared().words);
  _exit(128 + signal);
}

void heed(int signal) {
  Shared& s = shared();
  const std::lock_guard lock(s.mutex);
  const auto now = Clock::now();
  if (signal == SIGQUIT) end_at_once(signal);
  if (asked_to_end() != 0) {
    if (now - s.asked_at > kOneWish) end_at_once(signal);
    return;
  }
  if (s.listeners == 0) end_at_once(signal);
  s.asked_at = now;
  ask_to_end(signal);
}

}  // namespace

SignalGuard::SignalGuard(const std::string& words) {
  shared().words = words;
  for (const int signal : kIgnored)
    std::signal(signal, SIG_IGN);
  sigemptyset(&caught_);
  for (const int signal : kCaught)
    if (!is_ignored(signal)) sigaddset(&caught_, signal);
  sigaddset(&caught_, kWake);
  pthread_sigmask(SIG_BLOCK, &caught_, &before_);
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {  // no thread to be had: signals do what they do by themselves
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
}

SignalGuard::~SignalGuard() {
  if (!thread_.joinable()) return;
  over_ = true;
  pthread_kill(thread_.native_handle(), kWake);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalGuard::watch() {
  for (int signal = 0;;) {
    if (sigwait(&caught_, &signal) != 0) continue;
    if (over_) return;
    if (signal != kWake) heed(signal);
  }
}

Interruption::Interruption() {
  const std::lock_guard lock(shared().mutex);
  ++shared().listeners;
}

Interruption::~Interruption() {
  const std::lock_guard lock(shared().mutex);
  --shared().listeners;
}

bool Interruption::requested() const {
  return asked_to_end() != 0;
}

LastWords::LastWords(const std::string& words) {
  const std::lock_guard lock(shared().mutex);
  before_ = std::exchange(shared().words, words);
}

LastWords::~LastWords() {
  const std::lock_guard lock(shared().mutex);
  shared().words.swap(before_);
}

}  // namespace pipewright::runtime
