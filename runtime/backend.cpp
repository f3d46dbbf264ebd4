#include "runtime/backend.hpp"

#include "core/check.hpp"
#include "runtime/clock.hpp"
#include "runtime/measurement.hpp"

namespace pipewright::runtime {

void Backend::dropout(const DropoutMask&, std::int64_t, const void*, void*) {
  PP_CHECK(false);
}

void Backend::no_parts(const void*) {
  PP_CHECK(false);
}

void Backend::mark(std::size_t number) {
  if (number >= marks_.size()) marks_.resize(number + 1);
  marks_[number] = steady_ns();
}

std::int64_t Backend::moment(std::size_t number) const {
  return marks_.at(number);
}

std::int64_t Backend::finished() const {
  return steady_ns();
}

double Backend::mark_cost() const {
  return clock_cost();
}

Time Backend::probe() {
  return runtime::probe();
}

}  // namespace pipewright::runtime
