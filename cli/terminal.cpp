#include "cli/terminal.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/ranks.hpp"
#include "core/check.hpp"
#include "core/ending.hpp"
#include "core/plain_words.hpp"
#include "io/utf8.hpp"

namespace pipewright {
namespace {

constexpr int kNarrowest = 40, kWidest = 1000, kDefaultWidth = 100;

int& output_error() {
  static int error = 0;  // errno of the first write that failed
  return error;
}

bool set_and_true(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

}  // namespace

void print(std::string_view text) {
  const std::string shown = for_terminal(text);
  const bool whole = std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size();
  if ((std::fflush(stdout) != 0 || !whole) && output_error() == 0) output_error() = errno != 0 ? errno : EIO;
}

void note(std::string_view line) {
  std::fprintf(stderr, "%s\n", for_terminal(line).c_str());
}

int interrupted(const std::string& what) {
  note(interrupted_by() + ": " + rank_name() + what);
  return 128 + asked_to_end();
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code missing;
  return std::filesystem::equivalent(a, b, missing) && !missing;
}

int flush_output(int status) {
  if (output_error() == 0 || output_error() == EPIPE) return status;
  note("error: standard output: " + system_words(output_error()) +
       "; the output is not complete: free some space, or write elsewhere");
  return kBadInput;
}

bool use_colour(const Arguments& arguments) {
  constexpr std::array<std::string_view, 3> known = {"auto", "always", "never"};
  const std::string when = arguments.last("--color", "auto");
  if (std::find(known.begin(), known.end(), when) == known.end())
    throw InputError("--color: " + unknown_name(when, known));
  if (when != "auto") return when == "always";
  if (set_and_true("CLICOLOR_FORCE") || set_and_true("FORCE_COLOR")) return true;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool refused =
      (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::strcmp(term, "dumb") == 0);
  return !refused && isatty(STDOUT_FILENO) == 1;
}

int output_width(const Arguments& arguments) {
  if (const std::string text = arguments.last("--width", ""); !text.empty() || arguments.has("--width")) {
    int width = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
    if (error != std::errc{} || end != text.data() + text.size() || width < kNarrowest || width > kWidest)
      throw InputError("--width: \"" + text + "\" is not a whole number from " + std::to_string(kNarrowest) + " to " +
                       std::to_string(kWidest));
    return width;
  }
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::clamp(static_cast<int>(size.ws_col), kNarrowest, kWidest);
  return kDefaultWidth;
}

}  // namespace pipewright
