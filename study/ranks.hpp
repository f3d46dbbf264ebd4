// The processes of one run: who this one is, and that all of them end together.
#pragma once

#include <functional>
#include <string>

#include "core/question/scenario.hpp"
#include "runtime/bytes.hpp"
#include "runtime/ranks.hpp"

namespace pipewright::study {

// Joins the other processes where the scenario's transport is tcp or mpi; nullptr: workers are threads of this one.
// Throws InputError: a launcher has started several processes and the transport is one of threads; no launcher where
// one is needed; not all came. Call it once, before a long computation.
Ranks* joined_ranks(const Scenario& scenario);

// Where workers are threads. Throws InputError: a launcher has started several processes.
void check_one_process(const Scenario& scenario);

// Another scenario of the same command: as many processes as for the first. Throws InputError.
void check_like_first(const Scenario& first, const Scenario& scenario);
// The plan of the scenario has as many workers as there are processes. Throws InputError.
void check_size(const Ranks& ranks, const Scenario& scenario, int workers);

// Runs `body`, which may join the others. Where one rank has not the memory for its worker, all throw its OutOfArena.
int with_memory_of_ranks(const std::function<int()>& body);

// A number that rank 0 knows. `ranks` null: this process does.
template <class Number>
Number told_by_first(Ranks* ranks, Number value) {
  return ranks == nullptr ? value : BytesIn(ranks->broadcast(BytesOut().put(value).bytes())).template get<Number>();
}

bool prints();  // rank 0, or the only process
// Likewise, or rank 0 is gone or hangs: then this rank reports in its place.
bool reports_itself();
std::string rank_name();  // "rank 1: "; "" at rank 0

// The last line of a command that was asked to end (core/ending.hpp), "interrupted (SIGTERM): " and `what`, and its
// exit status: 128 + the signal.
int interrupted(const std::string& what);
int leave_ranks(int status) noexcept;  // the last call of the program; the status to end with

}  // namespace pipewright::study
