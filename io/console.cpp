#include "io/console.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "core/plain_words.hpp"
#include "io/text/utf8.hpp"

namespace pipewright::io {
namespace {

constexpr std::chrono::milliseconds kQuietTime{500}, kBetween{100};

int& output_error() {
  static int error = 0;  // errno of the first write that failed
  return error;
}

std::atomic<bool> quiet{false};

}  // namespace

void keep_quiet() {
  quiet = true;
}

void print(std::string_view text) {
  const std::string shown = for_terminal(text);
  const bool whole = std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size();
  if ((std::fflush(stdout) != 0 || !whole) && output_error() == 0) output_error() = errno != 0 ? errno : EIO;
}

void note(std::string_view line) {
  if (!quiet) std::fprintf(stderr, "%s\n", for_terminal(line).c_str());
}

int flush_output(int status) {
  if (output_error() == 0 || output_error() == EPIPE) return status;
  note("error: standard output: " + system_words(output_error()) +
       "; the output is not complete: free some space, or write elsewhere");
  return kBadInput;
}

ProgressLine::ProgressLine()
    : terminal_(!quiet && isatty(STDERR_FILENO) == 1), begin_(std::chrono::steady_clock::now()), last_(begin_) {}

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

}  // namespace pipewright::io
