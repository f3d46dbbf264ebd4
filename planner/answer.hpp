// From question to answer: the walk of the house in one function.
#pragma once

#include <variant>

#include "core/answers/report.hpp"
#include "core/question/scenario.hpp"
#include "sim/simulate.hpp"

namespace pipewright::planner {

struct AnswerOptions {
  Engine engine = Engine::Auto;
  bool ignore_memory = false;  // answer although it does not fit (Report::fits stays false)
};

// Prices the scenario's plan. Infeasible when it does not fit (unless ignored). Throws InputError on a bad scenario.
std::variant<Answer, Infeasible> answer(const Scenario& scenario, const AnswerOptions& options = {});

}  // namespace pipewright::planner
