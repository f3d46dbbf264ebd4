// A run whose workers are the processes of `Ranks`: the executor walks one worker's list in each, as it does in a
// thread, and rank 0 gets what all have measured.
//
// Tests: tests/runtime/ranks_test.cpp, tests/cli/ranks_test.cpp
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/bytes.hpp"
#include "runtime/executor.hpp"
#include "runtime/ranks.hpp"

namespace pipewright::runtime {

// What must be alike: workers, plan, schedule, layers, settings and samples, the backend.
std::vector<MustMatch> must_match(const RunPlan& run, const RunSettings& settings, const Data& data,
                                  const Backend& backend);

// A rank's endpoint around that of its wire. Throws nothing; what it needs of others was settled before.
using AroundWire = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>;

// What all ranks do at once. Where one has not the memory for its worker, all throw its OutOfArena.
template <class Body>
auto with_memory_of_all(Ranks& ranks, const Body& body) {
  try {
    return body();
  } catch (const OutOfArena& error) {
    ranks.stop(error);
    throw;
  } catch (const std::exception&) {
    ranks.throw_if_out_of_memory();
    throw;
  }
}

// Rank 0 gets the results of all workers, on its own clock; other ranks have that of their worker, others empty. Throws
// RunFailed on every rank: at rank 0 with the steps that all workers it heard of have finished (a worker that is gone
// has none), elsewhere with this worker's; OutOfArena on every rank, where one has not the memory. `around`: how
// messages and sums travel; empty: by the wire, from and to the host's memory.
std::vector<WorkerResult> execute(Ranks& ranks, const RunPlan& run, const BackendMaker& backend, const Data& data,
                                  RunSettings settings, const std::function<void(int)>& after_step = {},
                                  const AroundWire& around = {});

// measure_layers, every rank its worker, all at once. Others than rank 0 get an empty list.
std::vector<WorkerResult> measure_layers(Ranks& ranks, const RunPlan& run, const BackendMaker& backend,
                                         const Data& data, RunSettings settings, double seconds);

// A result as it travels; `shift`: ns added to its times.
Blob bytes_of(const WorkerResult& result);
WorkerResult worker_result(const Blob& bytes, std::int64_t shift = 0);

}  // namespace pipewright::runtime
