// Schedules drawn as text, so that a test's expected value is the picture of the schedule.
#pragma once

#include <string>

#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright::tests {

// One line per worker, one character per `unit` of time, between a leading and a trailing newline:
//   '0'..'9' forward of that micro-batch (mod 10), 'a'.. its backward (mod 26; also B), 'A'.. its recomputation,
//   'w' a weight gradient, 'u' an update, '.' idle.  Ops must start and end on whole units.
std::string picture(const Schedule& schedule, const Timeline& timeline, Time unit);

}  // namespace pipewright::tests
