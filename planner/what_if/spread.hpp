// How far the step time and the memory may lie from the prediction: drawn again and again from what is known of their
// errors (Monte Carlo), with a seed.
//
// Step time, per trial, independent of one another:
//     each cause of the interval   a figure with a band, a measured device, what the model leaves out: somewhere in its
//                                  90 %, normal on the logarithm of the rate (core/cluster/bands.hpp)
//     a measured profile           all ops by 1 + common error * normal, each kind of op of a stage by 1 + independent
//                                  error * normal
//     campaign.device_spread s     a device is 1 + s * normal times slower, for the whole trial; a group of t is as slow
//                                  as its slowest device, and so is a stage with replicas; of several copies of the
//                                  pipeline each is drawn, and the slowest is waited for
//     campaign.op_spread s         an op takes 1 + s * normal times as long; absent: of a measured profile or device
//                                  (p95 - p5) / mean of its readings / 3.29, as of a normal distribution
// Normal draws farther than three standard deviations are drawn again.
// Memory: uniform over the stated band, MemoryNeed::low .. high, at the same place of it on every stage.
// A need between 60 and 100 on devices of 90 does not fit with probability 1/4.   tests/planner/spread_test.cpp
#pragma once

#include "core/answers/campaign.hpp"
#include "core/answers/report.hpp"
#include "sim/simulate.hpp"

namespace pipewright::planner {

// Draws by answer.scenario->campaign, which there is. Runs too long to be repeated 20 times within some seconds leave
// step_time out, with the reason in its place.
SpreadReport spread(const Answer& answer, Engine engine);

// The whole training of an answer, with what is simulated and drawn of it; nullptr: not asked for.
std::shared_ptr<const Campaign> whole_training(const Answer& answer, Engine engine);

}  // namespace pipewright::planner
