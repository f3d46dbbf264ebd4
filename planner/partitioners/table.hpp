// Every way to cut a model into stages that pipewright knows: one line each in the table of table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::planner {

struct Partitioner {
  // What it is asked with, and what it settles.
  enum class Kind : std::uint8_t {
    Cut,            // number of stages and replicas -> layers, by layer times alone
    CutOnDevices,   // the same, for a plan that has its devices: it simulates, or counts memory
    StagesAndCuts,  // workers -> stages, replicas, layers and devices
  };
  std::string_view name;    // as written in YAML, plan.partition
  std::string_view what;    // one line
  std::string_view source;  // key of docs/reference/references.md, or ""
  Kind kind = Kind::Cut;
  // Cut, CutOnDevices: fills in plan.layers (and plan.cut). Throws InputError at plan.partition where it is not for the
  // plan. The others: null.
  void (*cut)(const Scenario& scenario, const CostModel& cost, Plan& plan) = nullptr;
  // StagesAndCuts: whole plans for a shell (planner/replicated.hpp); the best first; none: nothing fits.
  // The others: null.
  std::vector<Plan> (*plans)(const Plan& shell, const CostModel& cost) = nullptr;
  // Right on a cluster of several device classes: it looks at no layer's time, or at those of every class.
  bool several_classes = false;
};

std::span<const Partitioner> partitioners();

// The one of that name, or nullptr.
const Partitioner* find_partitioner(std::string_view name);

// The one that a scenario asks for; nullptr where it gives the layers itself.
const Partitioner* partitioner_of(const Partition& request);

}  // namespace pipewright::planner
