// What share of the devices' peak rate a training uses.
#pragma once

#include <optional>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright {

// Hardware FLOPs utilization: model FLOPs utilization with the forwards that the plan repeats counted, too:
//     HFU = MFU * (3 F + R) / (3 F)               [Korthikanti22] section 6.3
// F: FLOPs of a sample's forward, of which the backward takes twice as many; R: of them, those that are repeated (under
// `selective` the attention cores). Full recomputation, MFU 30 %: 40 %.   tests/core/campaign_test.cpp "HFU"
// What a fused attention kernel computes again by itself is not counted. Nothing where the plan repeats nothing, or a
// layer's FLOPs are not known.
std::optional<double> hardware_flop_utilization(const Scenario& scenario, const Plan& plan, std::optional<double> mfu);

}  // namespace pipewright
