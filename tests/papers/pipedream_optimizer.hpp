// PipeDream's optimizer, as a baseline: contiguous stages with replicas, by dynamic programming over levels of
// machines.
//
// It minimises the time of the slowest stage or transfer in the steady state; it knows no fill and drain, no memory of
// the last stage, and no link that two kinds of traffic share.                               [PipeDream19] section 3.1
//
//     A(i..j, m) = min( T(i..j, m),  min over s, m' of max( A(i..s, m - m'),  transfer(s, m'),  T(s+1..j, m') ) )
//
// T: one stage of layers i..j on m machines of this level. Its compute is the layers' own on the lowest level, and
// A(i..j, all machines) of the level below on the others. Three rules are in use, kept apart by name:
//     sosp      (1/m) max(compute, 2 (m-1) |w| / B)             as printed in the paper: m times a ring's volume
//     released  (1/m) (compute + 4 (m-1)/m |w| / B)             the published program: a sum, no overlap
//     ring      (1/m) max(compute, 2 (m-1)/m |w| / B)           a ring all-reduce that overlaps
// The printed transfer is 2 a / B; the program divides by the receiving replicas, and leaves it out unless asked.
//
// VGG-16's published profile, flat, 16 workers at 1.25 GB/s: sosp with transfers 15-1; released without them
// 9-1-2-1-2-1.                            tests/papers/published_profiles_test.cpp "PipeDream's rules choose"
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright::tests {

// A chain of layers (or cells) for one mini-batch.
struct ChainCosts {
  std::vector<Time> compute;      // forward + backward
  std::vector<Bytes> parameters;  // gradient bytes
  std::vector<Bytes> boundary;    // [i]: bytes over the cut behind i, one direction; the last is not used
};

struct MachineLevel {
  int machines = 1;     // components of the level below (or devices) that this level joins
  Bandwidth bandwidth;  // between them
};

enum class PipeDreamRule : std::uint8_t { Sosp, Released, Ring };
enum class PipeDreamTransfer : std::uint8_t { None, Whole, OverReceivers };

struct PipeDreamStage {
  LayerRange layers;
  int replicas = 1;
  int servers = 1;  // machines of the levels above the innermost that it is on; on one level alone 1
  bool operator==(const PipeDreamStage&) const = default;
};
struct PipeDreamPlan {
  std::vector<PipeDreamStage> stages;  // in order; replicas multiply over the levels
  double time = 0;                     // seconds per mini-batch, by the rule
};

// `levels` from the innermost to the outermost; every machine is used. Ties go to the fewest stages, then to the
// earliest cut found. O(L^3 N^2) time for L layers and N machines of a level, O(L^2 N) memory.
PipeDreamPlan pipedream(const ChainCosts& chain, std::span<const MachineLevel> levels, PipeDreamRule rule,
                        PipeDreamTransfer transfer);

}  // namespace pipewright::tests
