// The processes of one run, a worker each: rank w is worker w.
//
// What the seam between workers (transport.hpp) needs is built from frames of a wire (wire.hpp), the same for sockets
// and MPI: messages into slots, a word back when a slot is free, mail. A thread of each process receives, always.
//
// Every wait ends: with what it waited for; with `Stopped` when a worker has failed, its message being that worker's;
// with `PeerSilent` after the timeout, when a process is gone, or when this one is asked to end (core/ending.hpp), as a
// launcher does with SIGTERM because another one is gone.
//
//     all-reduce   member i sums segment i of n over all members in their order, then sends the sum to the others:
//                  the same bits as the local transport's                   tests/runtime/ranks_test.cpp
//     clocks       processes on one machine share its monotonic clock (same boot). Elsewhere the offset to rank 0's is
//                  estimated when the ranks meet: of 64 questions the one that was answered fastest counts, half of the
//                  round trip is the error [Mills91]
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/bytes.hpp"
#include "runtime/run_plan.hpp"
#include "runtime/transport.hpp"
#include "runtime/wire.hpp"

namespace pipewright::runtime {

// One question to another clock, ns: asked and answered by ours, and what the other one said.
struct ClockReading {
  std::int64_t asked = 0, said = 0, answered = 0;
};
struct ClockOffset {
  std::int64_t offset = 0;  // ns to add to our time
  std::int64_t error = 0;   // at most, ns
};
// Asked at 100, answered at 140: the other clock said 1000 at 120 +- 20: offset 880 +- 20.
ClockOffset clock_offset(const std::vector<ClockReading>& readings);

// What all ranks must have alike before they start, e.g. {"schedule", "gpipe, 2 stages", hash}.
struct MustMatch {
  std::string what, text;
  std::uint64_t hash = 0;
};
// "" or the first difference: "rank 1 differs from rank 0 in its schedule (1f1b there, gpipe here)".
std::string difference(const std::vector<MustMatch>& ours, const std::vector<MustMatch>& theirs, int rank);

class Ranks {
 public:
  // All ranks construct theirs at once: they tell each other where they are.
  Ranks(std::unique_ptr<Wire> wire, double timeout_s);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const;
  int size() const;
  bool first() const { return rank() == 0; }

  // Throws InputError on every rank, with the same text, when one differs from rank 0.
  void agree(const std::vector<MustMatch>& ours);
  // Rank 0 gets everybody's bytes by rank, others nothing.
  std::vector<Blob> gathered(const Blob& ours);
  // Everybody gets rank 0's.
  Blob broadcast(const Blob& ours);

  // One rank to another; in order.
  void send(int to, const Blob& bytes);
  Blob receive(int from);

  // This rank's worker of one run, of which it keeps a reference.
  std::unique_ptr<Transport> endpoint(const RunPlan& run);
  std::unique_ptr<Transport> endpoint(RunPlan&&) = delete;
  // Behind a run that went well: waits until all ranks are here. What is left of it has come then, so that another run
  // may follow.
  void run_is_over();
  // Behind a run that failed on all ranks: the same; false where one is gone, hangs, or the launcher has ended the run.
  bool recovered();
  // What some rank cannot do none does: "" or, on all ranks, the first rank's reason.
  std::string first_failure(const std::string& ours);
  // This rank has not the memory for its worker: the others' waits end with Stopped, and they learn why.
  void stop(const OutOfArena& error) noexcept;
  // Throws OutOfArena or OutOfDevice with the words of the rank that has ended the run so.
  void throw_if_out_of_memory() const;
  // Behind a run that failed: rank 0 gets what is left in about two seconds; empty: of a rank that is gone or hangs.
  std::vector<Blob> salvaged(const Blob& ours);
  bool gone(int rank) const;
  bool answers(int rank);  // its process does, within a second

  int cores() const;  // of all machines that these processes may use
  int machines() const;
  // The core that this worker's thread should stay on; -1: wherever it is put. `threads`: of a worker.
  int own_core(int threads) const;
  ClockOffset clock() const;   // to rank 0's
  std::string clocks() const;  // "" or how clocks of several machines were put on one scale

  // The last call: all ranks end together, with rank 0's status where their own is 0. Returns it. Ends the process
  // itself where MPI must be aborted. `left_alone` is called where rank 0 is gone and has not said how the run ended.
  int leave(int status, const std::function<void()>& left_alone = {}) noexcept;

  class State;  // rank_state.hpp

 private:
  std::unique_ptr<State> state_;
};

}  // namespace pipewright::runtime
