// A schedule in PyTorch's file format: io/import/schedule_csv.hpp has its grammar.                     [PyTorchPP26]
#pragma once

#include <string>

#include "core/plan/schedule.hpp"

namespace pipewright::io {

enum class ScheduleActions {
  Compute,      // forwards and backwards: PyTorch's "compute_only"
  WithMessages  // and sends and receives, each pair of ranks in one order: PyTorch's "compute_comms"
};

// "", or why the format has no words for this schedule: it knows a flush at the end and one rank per stage.
std::string not_in_schedule_csv(const Schedule& schedule);

// One row per worker of a copy. Recomputations, all-reduces and updates are not in the format: the framework's settings
// say them. Of a schedule that was read from a file, actions that stood in one cell do so again. Throws InputError
// where `not_in_schedule_csv` has a reason.
std::string schedule_csv(const Schedule& schedule, ScheduleActions actions = ScheduleActions::Compute);

}  // namespace pipewright::io
