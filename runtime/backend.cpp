#include "runtime/backend.hpp"

#include <chrono>

#include "core/check.hpp"
#include "runtime/measurement.hpp"

namespace pipewright {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Backend::dropout(const DropoutMask&, std::int64_t, const void*, void*) {
  PP_CHECK(false);
}

void Backend::mark(std::size_t number) {
  if (number >= marks_.size()) marks_.resize(number + 1);
  marks_[number] = now_ns();
}

std::int64_t Backend::moment(std::size_t number) const {
  return marks_.at(number);
}

std::int64_t Backend::finished() const {
  return now_ns();
}

double Backend::mark_cost() const {
  return clock_cost();
}

Time Backend::probe() {
  return pipewright::probe();
}

}  // namespace pipewright
