// Three ways for things to go wrong, kept apart:
//   bad input              -> InputError, caught once in cli/main.cpp, exit status 2;
//   "there is no answer"   -> a value (Infeasible), exit status 1;
//   a bug of our own       -> PP_CHECK, always on, prints the broken condition and aborts.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace pipewright {

// Where a value came from: file, and 1-based line and column. line 0: the whole file; file empty: no file
// (a default, or the command line).
struct Place {
  std::string file;
  int line = 0;
  int column = 0;
  bool operator==(const Place&) const = default;
};

// "file:line:column: ", "file: ", or "" (nothing known): the head of a message.
std::string head(const Place& place);

// A value with the place it was read from, so that a check made later still names file:line:column.
template <class T>
struct Placed {
  T value{};
  Place place{};
};

// Bad input: the message names place, thing, value, law and a way out. It may hold several lines, one per error.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& message) : std::runtime_error(message) {}
  InputError(const Place& place, const std::string& message) : std::runtime_error(head(place) + message) {}
};

// The known name nearest to a wrong one (at most a third of its letters wrong, at least one), or "" if none is near.
std::string nearest(std::string_view wrong, const auto& known);

// `unknown "1fb1"; did you mean "1f1b"? known: naive, gpipe, 1f1b`; names shown in the given order.
std::string unknown_name(std::string_view wrong, const auto& known);

int edit_distance(std::string_view a, std::string_view b);

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

std::string nearest(std::string_view wrong, const auto& known) {
  std::string best;
  int best_distance = static_cast<int>(wrong.size()) / 3 + 2;
  for (const auto& name : known) {
    const int distance = edit_distance(wrong, name);
    if (distance < best_distance) best = std::string(name), best_distance = distance;
  }
  return best;
}

std::string unknown_name(std::string_view wrong, const auto& known) {
  std::string message = "unknown \"" + std::string(wrong) + "\";";
  if (const std::string near = nearest(wrong, known); !near.empty()) message += " did you mean \"" + near + "\"?";
  message += " known:";
  const char* separator = " ";
  for (const auto& name : known)
    message += separator + std::string(name), separator = ", ";
  return message;
}

}  // namespace pipewright

#define PP_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::pipewright::check_failed(#condition, __FILE__, __LINE__))
