// Three ways for things to go wrong, kept apart:
//   bad input              -> InputError, caught once in cli/main.cpp, exit status 2;
//   "there is no answer"   -> a value (Infeasible), exit status 1;
//   a bug of our own       -> PP_CHECK, always on, prints the broken condition and aborts.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::core {

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

// What kind of fault it is, where somebody decides by it.
enum class ErrorCode : std::uint8_t {
  Other,
  UnknownKey,
  // A plan that may exist, but is larger than what this program simulates: its limit, not a flaw of the scenario. A
  // search that meets one keeps the layout in its bound.                 tests/planner/search_limits_test.cpp
  TooLarge,
  NoCombination,  // the values that a search may choose among make no layout
};

// One fault of an input: where, of which key or option, and in words: the value, the law and a way out.
struct Fault {
  Place place;
  std::string key;   // "plan.bucket", "--nodes"; "": of no one key
  std::string text;  // without place and key
  ErrorCode code = ErrorCode::Other;
  bool operator==(const Fault&) const = default;
};
// "plan.bucket: buckets of 1 B ...": all but the place.
std::string words(const Fault& fault);
// The same with its place.
std::string line(const Fault& fault);

// Bad input: one fault or several; what() has a line for each, with its place.
class InputError : public std::runtime_error {
 public:
  explicit InputError(std::string text) : InputError(Place{}, std::move(text)) {}
  InputError(Place place, std::string text) : InputError(std::move(place), std::string(), std::move(text)) {}
  InputError(Place place, std::string key, std::string text, ErrorCode code = ErrorCode::Other);
  explicit InputError(std::vector<Fault> faults);  // at least one
  const std::vector<Fault>& faults() const { return *faults_; }
  const Fault& first() const { return faults_->front(); }
  bool is(ErrorCode code) const;  // every fault is

 private:
  std::shared_ptr<const std::vector<Fault>> faults_;  // copying an exception must not throw
};

// The known name nearest to a wrong one (at most a third of its letters wrong, at least one), or "" if none is near.
std::string nearest(std::string_view wrong, const auto& known);

// `unknown "1fb1"; did you mean "1f1b"? known: naive, gpipe, 1f1b`; names shown in the given order.
std::string unknown_name(std::string_view wrong, const auto& known);

// As unknown_name, and where none is near, the known names that begin with the wrong one (three at most): "h100" for
// "h100-sxm-80g".
std::string unknown_or_begun(std::string_view wrong, const auto& known);

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

std::string unknown_or_begun(std::string_view wrong, const auto& known) {
  std::string message = unknown_name(wrong, known);
  constexpr std::size_t kLeast = 3, kShown = 3;  // letters, names
  if (wrong.size() < kLeast || !nearest(wrong, known).empty()) return message;
  std::string begun;
  std::size_t shown = 0;
  for (const auto& name : known)
    if (std::string_view(name).starts_with(wrong) && ++shown <= kShown)
      begun += (shown == 1 ? "\"" : " or \"") + std::string(name) + "\"";
  if (begun.empty()) return message;
  const std::string head = "unknown \"" + std::string(wrong) + "\";";
  return head + " did you mean " + begun + "?" + message.substr(head.size());
}

}  // namespace pipewright::core

#define PP_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::pipewright::core::check_failed(#condition, __FILE__, __LINE__))
