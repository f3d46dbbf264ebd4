// A sweep over the processes that mpirun has started: rank 0 hands out points and keeps the rows, the others price.
//
//     ask      rank r -> 0   I have nothing to do; and which sweep I have read
//     work     0 -> r        these points; none: there are no more
//     found    r -> 0        rows, or nothing but a sign of life, every second
//     ended    r -> 0        I am done, or this is what went wrong
//     stop     0 -> r        take no further point
//     bye      0 -> r        all may leave
//
// A process that dies ends the run: mpirun ends the others, rank 0 commits what it has and leaves. One that hangs is
// given up after a minute.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/answers/sweep.hpp"
#include "planner/what_if/sweep.hpp"
#include "runtime/launch.hpp"
#include "runtime/wire.hpp"

namespace pipewright::study {

// The processes of one sweep: nothing where this is the only one. Variables of MPI launchers count; RANK and
// WORLD_SIZE, and the number of tasks of a whole Slurm job, say nothing about a sweep.
std::optional<Launch> sweep_launch(const Environment& variables = environment);

// Threads of a process that were not tried for by number: the cores that it may use, shared with the processes of this
// machine where none is bound to its own.
int usual_jobs(const Environment& variables = environment);

class SweepRanks {
 public:
  // Throws InputError: this program was built without MPI, or the launcher's variables and MPI differ.
  explicit SweepRanks(const Launch& launch);
  ~SweepRanks();
  SweepRanks(const SweepRanks&) = delete;
  SweepRanks& operator=(const SweepRanks&) = delete;

  bool first() const;
  int size() const;

  // Rank 0: `options.next` is handed out, `options.found` gets the rows. Throws InputError with the first failure of a
  // rank. `identity`: of the sweep; a rank that has read another one is such a failure.
  void serve(const SweepOptions& options, const std::string& identity);
  // The others: prices what rank 0 gives. Returns what the process has to end with.
  int work(const SweepQuestion& question, SweepOptions options, const std::string& identity);
  bool stopped() const;  // rank 0 wants no further point
  // The others: they cannot. Rank 0 tells it.
  int refuse(const std::string& why);

 private:
  class State;
  int end(const std::string& failure);
  std::unique_ptr<State> state_;
};

}  // namespace pipewright::study
