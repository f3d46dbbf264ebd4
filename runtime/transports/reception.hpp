// Takes the calls of a run's other processes, whoever else calls.
//
// Anybody can open a connection to a port, so a caller is nobody until it has proven that it is of this run (proof.hpp).
// It has a second for that, while others are served: silence, half a message, noise and what was said in an earlier
// meeting end that one connection, and nothing else. At most 256 callers wait at a time; of those that have proven
// nothing the one that came first makes room. A caller costs some 300 bytes.
//
// Who has proven itself and still cannot be right (another number of ranks, a rank that is there) ends the meeting: it is
// a process of this run that was started wrongly.
//
// Tests: tests/runtime/strangers_test.cpp
#pragma once

#include <string_view>
#include <vector>

#include "runtime/transports/sockets.hpp"

namespace pipewright::runtime {

inline constexpr std::size_t kMostCallers = 256;
inline constexpr std::chrono::seconds kPatience{1};  // with whoever has proven nothing

struct Awaited {
  const Launch& launch;
  int first = 1;  // this rank and all above it, but for our own
  std::string_view key;
  Deadline end;
  double timeout_s = 0;  // as `end` was computed from it, for the message
};

// Waits until `peers` has a socket for every rank awaited; `addresses`, by rank: where they listen, unless nullptr.
// Throws InputError.
void take_calls(int listener, const Awaited& awaited, std::vector<Socket>& peers, std::vector<Address>* addresses);

}  // namespace pipewright::runtime
