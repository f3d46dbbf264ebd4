// What the errors of a plan that a scenario states have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.hpp"
#include "core/plan/too_large.hpp"

namespace pipewright {

// Errors of independent parts of the plan, so that one run names them all.
class PlanErrors {
 public:
  void add(const Place& place, const std::string& message) { keep(head(place) + message, false); }
  std::size_t count() const { return lines_.size(); }
  // What `step` throws is kept; the steps after it still run.
  void attempt(const auto& step) {
    try {
      step();
    } catch (const OverflowError&) {
      throw;  // whoever knows the file adds it
    } catch (const TooLarge& error) {
      keep(error.what(), true);
    } catch (const InputError& error) {
      keep(error.what(), false);
    }
  }
  // TooLarge where nothing but the size stands against the plan.
  void throw_if_any() const {
    if (lines_.empty()) return;
    const std::string all = fmt::format("{}", fmt::join(lines_, "\n"));
    if (only_too_large_) throw TooLarge(all);
    throw InputError(all);
  }

 private:
  // Once, however many steps say it.
  void keep(std::string line, bool too_large) {
    if (std::find(lines_.begin(), lines_.end(), line) != lines_.end()) return;
    lines_.push_back(std::move(line));
    only_too_large_ &= too_large;
  }

  std::vector<std::string> lines_;
  bool only_too_large_ = true;
};

// "1 stage", "2 stages"
inline std::string counted(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

// The first line of a message without its place: "plan.yaml:3:7: plan.bucket: buckets of 1 B ..." from the key on.
inline std::string without_place(const std::string& message) {
  const std::string line = message.substr(0, message.find('\n'));
  std::size_t at = std::string::npos;
  for (const char* key : {": plan.", ": plan:", ": training.", ": training:"})
    at = std::min(at, line.find(key));
  return at == std::string::npos ? line : line.substr(at + 2);
}

inline const Place& or_else(const Place& place, const Place& otherwise) {
  return place.file.empty() ? otherwise : place;
}

}  // namespace pipewright
