#include "cli/terminal.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/option_values.hpp"

namespace pipewright {
namespace {

constexpr int kNarrowest = 40, kWidest = 1000, kDefaultWidth = 100;

bool set_and_true(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

}  // namespace

bool use_colour(const Arguments& arguments) {
  constexpr std::array<std::string_view, 3> known = {"auto", "always", "never"};
  const std::size_t when = option_word(arguments, "--color", known.front(), known);
  if (when > 0) return when == 1;
  if (set_and_true("CLICOLOR_FORCE") || set_and_true("FORCE_COLOR")) return true;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool refused =
      (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::strcmp(term, "dumb") == 0);
  return !refused && isatty(STDOUT_FILENO) == 1;
}

int output_width(const Arguments& arguments) {
  if (const auto width = option_number(arguments, "--width", {kNarrowest, kWidest}, "100"))
    return static_cast<int>(*width);
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::clamp(static_cast<int>(size.ws_col), kNarrowest, kWidest);
  return kDefaultWidth;
}

}  // namespace pipewright
