// A small run that was measured, and what it says of other plans: `training.framework.anchor`.
//
// The small run is priced by the same model. Of its fullest device (or that of `where`) let h be what is held between
// steps, a the most that was allocated, r reserved and u in use, all measured; H and H + A the first two as predicted.
// Then, for every other plan of the scenario:
//
//     held           + (h - H)                     workspaces, tables: states are known to the byte, so this is the rest
//     A              x f                           activations: what a kernel keeps, it keeps in every layer
//     fragmentation  (r - a - rounding) / a        in place of the device's
//     reserve        u - r - communicators         in place of the device's; those of the asked plan are added. A run of
//                      - reserve_pipeline          several stages has its own; that of the asked plan is added
//
// One run differs from another by its containers and kernels, so that a small difference says nothing of the next plan.
// With x = (a - h) / A - 1, and n = kRunNoise, the spread of runs that differ in nothing that is known:
//
//     f = 1 + x max(0, 1 - (n / x)^2)              the non-negative garrote [Breiman95]
//
// and the range of the corrected activations is f A x max(the model's, |f - 1| / 2): what was not known of a small run
// is not known to grow with A alone.
// H = 20 GiB, A = 30, h = 20.5, a = 53.5: x = 0.1, f = 1.075. A plan of H = 40, A = 100 GiB gets 0.5 + 7.5 GiB more.
//                                                       tests/planner/anchor_test.cpp "held apart from the rest"
// Of four rules (h - H apart from f; f without n; all by one factor; all by one sum) this is the one that leaves the
// predictions of known frameworks alone and repairs those of unknown ones: docs/how-it-works/memory.md
#pragma once

#include "core/question/scenario.hpp"

namespace pipewright::planner {

constexpr double kRunNoise = 0.05;  // of a layer: which kernel an attention runs on, docs/how-it-works/memory.md

// f above, for x. 0.1: 1.075; 0.05 and less: 1.
double activations_carried(double x);

// The scenario with what its anchor says (FrameworkMemory::correction); without one, as it is. Every command that
// prices a scenario calls it on what it has read. Throws InputError, at the anchor's place: the run cannot be priced,
// does not say its plan, or differs so much from the prediction that it is another run.
Scenario anchored(Scenario scenario);

}  // namespace pipewright::planner
