// Contiguous partition whose stages all fit their devices, and among those the one with the least bottleneck.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright::planner {

// Whether layers [begin, end) fit as stage k. Must be monotone in `end`: what a range needs, a longer one needs, too.
using StageFits = std::function<bool(StageId, LayerRange)>;

// Largest end of a range [begin, end), begin < end <= most, that fits; `begin`: not even one layer does. `guess`, where
// it lies there, is tried first, as neighbouring ranges are of like length; from there doubling, then bisection: as
// many questions as the logarithm of the difference.
LayerId longest_fit(LayerId begin, LayerId most, LayerId guess, const auto& fits) {
  LayerId good = begin, bad = most + 1;
  if (guess > begin && guess <= most) (fits(guess) ? good : bad) = guess;
  for (int step = 1; bad - good > 1; step *= 2) {
    const bool up = bad > most;
    const LayerId next = up ? std::min<int>(most, good + step) : std::max(good + 1, bad - step);
    const bool fitting = fits(next);
    (fitting ? good : bad) = next;
    if (up != fitting) break;
  }
  while (bad - good > 1) {
    const LayerId middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

struct CutProblem {
  std::vector<Time> load;     // per layer
  std::vector<int> replicas;  // per stage: its time per micro-batch is ceil(load / replicas)
  StageFits fits;
  // A range that begins later and ends alike never needs more. True for chains whose tensors do not grow: then stages
  // that take as much as fits and leave layers over are proof that no cut fits. Else every reachable cut is looked at.
  bool later_needs_less = false;
};

// The cut into replicas.size() non-empty ranges that all fit, with the least largest time; nothing when no cut fits.
// Equal to brute force: tests/planner/fitting_test.cpp
std::optional<std::vector<LayerRange>> fitting_cut(const CutProblem& problem);

// What layers [begin, end) need as stage k. Monotone in `end`.
using StageNeed = std::function<Bytes(StageId, LayerRange)>;

// The cut whose fullest stage needs least, and what that needs: less than `fine` (at least 1 byte) more than the least.
// No layers: every cut needs more than `most`, and at least `memory`. Of the problem, `fits` is not asked.
// Equal to brute force: tests/planner/fitting_test.cpp "The cut that needs least"
struct LeastCut {
  std::vector<LayerRange> layers;
  Bytes memory;
};
LeastCut least_cut(CutProblem problem, const StageNeed& need, Bytes fine, Bytes most = Bytes{kLargest});

// The cut for a plan that has everything but its layers: bytes of a stage as the memory model counts them over the
// stage's own list of ops (`peak`). Buffers need a clock: the cut is simulated, and what they take at the peak of a
// stage that then does not fit is set aside before the next try.
struct FittingPlan {
  std::vector<LayerRange> layers;
  bool fits = false;
  Bytes least_memory;  // where it does not fit: what every device would have to have; `layers` is the cut for that
};
FittingPlan fitting_layers(const Plan& plan, const CostModel& cost);

// Whether some cut fits, buffers left out: never wrong about what does not fit.
bool some_cut_fits(const Plan& plan, const CostModel& cost);

// The memory that every device must have so that some cut fits (found to a 2^14th of a device), where buffers take as
// much on every stage as they do in the plan as it stands.
Bytes least_memory(const Plan& plan, const CostModel& cost);

}  // namespace pipewright::planner
