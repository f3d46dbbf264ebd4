// What handing a message from one core to another costs: the sender's copy, the receiver's first read, and how long it
// takes until the receiver has noticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/question/profile.hpp"
#include "runtime/backend.hpp"
#include "runtime/ranks.hpp"

namespace pipewright::calibrate {

// Whether messages go through the host's memory.
enum class Staging : std::uint8_t { None, Host };

struct Handoff {
  LinearTime send, first_read;
  Time noticed;
};

// ns, of each message: the sender's copy, until the receiver saw it, and what its first read took more.
struct HandoffTimes {
  std::vector<double> copied, noticed, first_read;
};
// `rounds` messages of so many bytes from worker 0's memory to worker 1's, by their movers; the first five do not
// count. Throws what they throw.                                                tests/calibrate/handoff_test.cpp
HandoffTimes hand_over(const BackendMaker& backend, Staging staging, std::size_t bytes, int rounds);

// What messages of 1 KiB to 4 MiB cost; `series_of`: of so many messages of so many bytes.
Handoff fitted_handoff(const std::function<HandoffTimes(std::size_t bytes, int rounds)>& series_of);

// Two threads on two cores hand blocks of 1 KiB to 4 MiB to and fro. Without a second core: the copy is measured on
// one, the rest is 0. About half a second. Where the backends' memory is not the host's, and where messages are staged,
// the blocks lie in the workers' memory and are moved by their movers, as messages are: `send` is what the sender waits
// for, a download where they are staged, `first_read` is then the receiver's upload, else 0.
Handoff measure_handoff(const BackendMaker& backend, Staging staging);
// The same from rank 0 to rank 1, by their wire. Others than rank 0 get nothing, without a second rank all do. Where
// the backends' memory is not the host's, `send` begins with the download and `first_read` is the upload, as in a run.
Handoff measure_handoff(Ranks& ranks, const BackendMaker& backend);
// `rounds` messages of so many bytes from rank 0 to rank 1, likewise; of rank 1: empty.
HandoffTimes hand_over(Ranks& ranks, const BackendMaker& backend, std::size_t bytes, int rounds);

}  // namespace pipewright::calibrate
