// The last line of `calibrate`: whose measurement would make the interval of a scenario's step time smallest.
#pragma once

#include <string>

#include "core/question/scenario.hpp"

namespace pipewright::study {

// "to measure next for two-stage: measured times of linear on h100, by calibrate with more sizes and a larger --budget:
// the step of 3.1 ms, 90 % within 3.0 ms to 3.2 ms, would have 90 % within ...". Where every operation is measured it
// says so, and what is then the least sure may be links, the network or the host. tests/study/what_to_measure_test.cpp
std::string what_to_measure(const Scenario& priced);

}  // namespace pipewright::study
