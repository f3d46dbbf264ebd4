// What handing a message from one core to another costs: the sender's copy, the receiver's first read, and how long it
// takes until the receiver has noticed.
#pragma once

#include "core/cost/profile.hpp"
#include "runtime/ranks.hpp"

namespace pipewright {

struct Handoff {
  LinearTime send, first_read;
  Time noticed;
};

// Two threads on two cores hand blocks of 1 KiB to 4 MiB to and fro. Without a second core: the copy is measured on
// one, the rest is 0. About half a second.
Handoff measure_handoff();
// The same from rank 0 to rank 1, by their wire. Others than rank 0 get nothing, without a second rank all do.
Handoff measure_handoff(Ranks& ranks);

}  // namespace pipewright
