// What things cost: layers by a cost source, transfers and collectives by the topology.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cluster/topology.hpp"
#include "core/cost/step_costs.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/scenario.hpp"

namespace pipewright {

// Figures of every layer for one micro-batch of a given size, each rounded once.
struct LayerCosts {
  std::vector<Time> forward, backward, backward_input, backward_weight;  // backward = input + weight, to the nanosecond
  std::vector<Bytes> activation, stash;
};

// The seam: where layer times come from. One file per source in cost/sources/, one line in `cost_sources()`.
class CostSource {
 public:
  virtual ~CostSource() = default;
  struct Passes {
    Time forward, backward_input, backward_weight;
  };
  // Times of one layer for a micro-batch of `samples`. Throws InputError when the layer lacks what the source needs.
  virtual Passes price(const Model& model, LayerId layer, std::int64_t samples) const = 0;
  // Added once to every scheduled compute op.
  virtual Time op_overhead() const = 0;
  // Optimizer step over `parameters` of a stage.
  virtual Time update(std::int64_t parameters) const = 0;
  // One line for the report: what the times are and where they come from.
  virtual std::string provenance() const = 0;
};

std::unique_ptr<CostSource> explicit_times(const Scenario& scenario);  // sources/explicit_times.cpp
std::unique_ptr<CostSource> roofline(const Scenario& scenario);        // sources/roofline.cpp
std::unique_ptr<CostSource> uniform(const Scenario& scenario);         // sources/uniform.cpp

class CostModel {
 public:
  explicit CostModel(const Scenario& scenario);  // keeps a reference: the scenario must outlive it
  LayerCosts layers(std::int64_t samples) const;
  const Topology& topology() const { return topology_; }
  const CostSource& source() const { return *source_; }
  const Scenario& scenario() const { return scenario_; }

 private:
  const Scenario& scenario_;
  Topology topology_;
  std::unique_ptr<CostSource> source_;
};

CostModel cost_model(const Scenario& scenario);

// The layers' figures compiled into the prices of one step of `plan`.
StepCosts step_costs(const Plan& plan, const CostModel& cost);

// Shape of the schedule that the plan asks for (buckets counted from its gradient bytes).
ScheduleShape schedule_shape(const Plan& plan, const Model& model, Precision precision);

// Bytes per parameter, by precision and optimizer.   [GPipe19] Table 1: 12 B = fp32 weight + gradient + RMSProp state.
Bytes weight_bytes(Precision precision);    // fp32, tf32: 4; fp16, bf16: 2
Bytes gradient_bytes(Precision precision);  // as the weight
Bytes optimizer_bytes(Precision precision,
                      Optimizer optimizer);  // states in fp32 (+ 4 for the fp32 master of fp16/bf16)

}  // namespace pipewright
