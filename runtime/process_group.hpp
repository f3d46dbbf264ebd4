// Another program and all that it starts, as one: a group of processes that ends together.
//
// Tests: tests/cli/process_group_test.cpp
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::runtime {

struct GroupEnd {
  std::string not_started;    // why, or ""
  std::optional<int> status;  // of the first process, 128 + the signal that ended it; nothing: it took too long
};

// Runs `command`, its first word a path, in a group of processes of its own, for at most `seconds`; what it prints goes
// to the file `log`, and there is nothing to read. Once the first process has ended or the time is up, what is left of
// the group is killed; so it is where a signal ends this program (runtime/signals.hpp), which a terminal or a shell
// sends to this program's own group only.
GroupEnd run_in_group(const std::vector<std::string>& command, const std::string& log, double seconds);

}  // namespace pipewright::runtime
