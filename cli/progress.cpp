#include "cli/progress.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "io/utf8.hpp"

namespace pipewright {
namespace {

constexpr std::chrono::milliseconds kQuietTime{500}, kBetween{100};

volatile std::sig_atomic_t interrupted = 0;
std::atomic<std::int64_t> interrupted_at{0};  // ns
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

std::string last_words;  // written before the handler is there

extern "C" void say_last_words(int signal) {
  static_cast<void>(!write(STDERR_FILENO, last_words.data(), last_words.size()));
  _exit(128 + signal);
}

// timeout(1) sends its signal to the program and to its group, mpirun hands on what its ranks got from the terminal:
// two at once are one wish.
extern "C" void remember_interrupt(int signal) {
  constexpr std::int64_t kAtOnce = 1'000'000'000;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now = std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  if (interrupted == 0) {
    interrupted_at = now;
    interrupted = 1;
  } else if (now - interrupted_at > kAtOnce) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

// Whether SIGTERM was free for it.
bool listen(void (*handler)(int)) {
  std::signal(SIGINT, handler);
  struct sigaction now {};
  if (sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return false;
  std::signal(SIGTERM, handler);
  return true;
}

void stop_listening(bool terminations) {
  std::signal(SIGINT, SIG_DFL);
  if (terminations) std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

ProgressLine::ProgressLine()
    : terminal_(isatty(STDERR_FILENO) == 1), begin_(std::chrono::steady_clock::now()), last_(begin_) {}

bool ProgressLine::due() const {
  if (!terminal_) return false;
  const auto now = std::chrono::steady_clock::now();
  return now - begin_ >= kQuietTime && (!shown_ || now - last_ >= kBetween);
}

void ProgressLine::show(std::string_view what, std::int64_t done, std::int64_t all, std::string_view more) {
  if (!due()) return;
  constexpr int kCells = 24;
  const double share = all > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(all)) : 0;
  const int full = static_cast<int>(share * kCells);
  say(fmt::format("{} [{}{}] {}/{}  {}", what, std::string(static_cast<std::size_t>(full), '#'),
                  std::string(static_cast<std::size_t>(kCells - full), '.'), done, all, more));
}

void ProgressLine::say(std::string_view text) {
  if (!due()) return;
  last_ = std::chrono::steady_clock::now(), shown_ = true;
  const std::string line = fmt::format("\r\033[K{}", one_line(text));
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
}

void ProgressLine::clear() {
  if (!std::exchange(shown_, false)) return;
  constexpr std::string_view kErase = "\r\033[K";
  static_cast<void>(!write(STDERR_FILENO, kErase.data(), kErase.size()));
}

LastWords::LastWords(const std::string& text) {
  last_words = (isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "") + printable(text) + "\n";
  terminations_ = listen(say_last_words);
}

LastWords::~LastWords() {
  stop_listening(terminations_);
}

Interruption::Interruption() {
  interrupted = 0;
  terminations_ = listen(remember_interrupt);
}

Interruption::~Interruption() {
  stop_listening(terminations_);
}

bool Interruption::requested() const {
  return interrupted != 0;
}

}  // namespace pipewright
