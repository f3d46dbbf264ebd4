// Contiguous stages with replicas, the least bottleneck among those that fit, by dynamic programming from the last
// stage backwards.
//
// Backwards, because the devices behind a stage fix how many micro-batches are in flight on it. Under 1F1B with
// round-robin replicas every device from the stage to the end of the pipeline works on a micro-batch of its own; those
// that a stage's r replicas share, with n' devices behind it, are per replica
//     in flight = ceil((r + n') / r)                              [PipeDream19] section 3.2: NOAM at the input stage
// r = 2 with 3 devices behind: ceil(5 / 2) = 3.                    tests/planner/suffix_dp_test.cpp "in flight"
// So whether layers i..j fit is known when the stage is placed, and memory is a hard constraint:
//     memory = sum resident + in flight (sum stash + entry_i)  <=  capacity
//
// Time per micro-batch of layers i..j on r replicas: work, all-reduce and messages side by side, each replica with a
// link of its own in either direction,
//     T(i..j, r) = max( ceil(sum compute / r),                    each replica takes every r-th micro-batch
//                       ceil(ring(r, sum gradients) / r),         one all-reduce per round of r micro-batches
//                       ceil(a_in / B / r), ceil(a_out / B / r) ) the messages over its two cuts
//     ring(r, S) = 2 (r - 1) / r S / B                            [Thakur05], without latency
// A cut between r and s replicas thus takes a / (B min(r, s)). [PipeDream19] section 3.1 prints m times that ring, and
// 2 a / B for both directions of a cut whatever the replicas (partitioners/pipedream.hpp keeps its rules as they are).
//     compute 60 ns, r = 2, gradients 100 B, a_in = 40 B, a_out = 0, B = 1 GB/s: max(30, 100/2, 40/2) = 50 ns
//
// D(i, n), the least bottleneck of layers i..L-1 on n devices:
//     D(L, 0) = 0,   D(i, n) = min over j, r of max( T(i..j, r), D(j + 1, n - r) ),   if i..j fits with n - r behind it
// and D_q(i, n) with exactly q stages where the number of stages is given. It is the steady state that is minimised:
// fill and drain, and hops that 1F1B leaves exposed, are the simulator's business (planner/partitioners/exact.hpp).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright {

// A chain of layers (or cells), figures of one micro-batch. Lists have one entry per layer, or none: all zero.
struct SuffixProblem {
  std::vector<Time> compute;     // forward + backward, and the recomputation if any; never empty
  std::vector<Bytes> resident;   // held once per replica: weights, gradients, optimizer state, working set
  std::vector<Bytes> stash;      // held per micro-batch in flight; a stashed version of the weights belongs here, too
  std::vector<Bytes> entry;      // held per micro-batch in flight by a stage that begins with this layer: its input
  std::vector<Bytes> gradients;  // all-reduced between the replicas
  std::vector<Bytes> boundary;   // over the cut behind this layer, in either direction; the last is not used
  Bytes capacity{kLargest};      // of every device
  Bandwidth bandwidth{std::numeric_limits<double>::infinity()};  // of a device's link, per direction
  int devices = 1;                                               // at most so many are used
  std::vector<int> replicas;                                     // that a stage may have, ascending; none: any number
  int stages = 0;                                                // exactly; 0: any number
};

struct SuffixStage {
  LayerRange layers;
  int replicas = 1;
  std::int64_t in_flight = 1;  // per replica
  Time time;                   // T, per micro-batch
  Bytes memory;                // of one replica
  bool operator==(const SuffixStage&) const = default;
};

struct SuffixAnswer {
  std::vector<SuffixStage> stages;  // in order; none: nothing fits
  Time bottleneck;
  int devices = 0;  // used
  // Where nothing fits: of the plan whose hungriest stage needs least, that stage. With `missing` more on every device
  // it fits, with less nothing does. None where the numbers of replicas cannot be combined at all.
  std::optional<SuffixStage> hungriest;
  Bytes missing;
  std::int64_t states = 0;  // (stages,) first layer and devices for which a plan was found
};

// Ties: fewest stages, then the earliest cuts, then the fewest devices, then fewest replicas on the early stages.
// O(L^2 N R) for L layers, N devices and R numbers of replicas, times `stages` where given; O(L N) memory, times the
// same. Equal to brute force, and to min_max without replicas: tests/planner/suffix_dp_test.cpp
SuffixAnswer suffix_dp(const SuffixProblem& problem);

// T(layers, replicas) and the memory of one replica, as above.
Time stage_time(const SuffixProblem& problem, LayerRange layers, int replicas);
Bytes stage_memory(const SuffixProblem& problem, LayerRange layers, std::int64_t in_flight);

// ceil((replicas + behind) / replicas)
std::int64_t replica_in_flight(int replicas, int behind);

}  // namespace pipewright
