// The passes over a layer that is built from operators: their kernels one after the other, what devices that share the layer
// exchange among them, and the host that issues both. roofline.cpp has the formulas.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/cost/context_exchange.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/expert_exchange.hpp"
#include "core/cost/pass_kernels.hpp"
#include "core/cost/sources/operator_times.hpp"
#include "core/cost/tensor_exchange.hpp"

namespace pipewright::core {

class WorkPasses {
 public:
  WorkPasses(const Scenario& scenario, int device_class, const Topology& topology);

  // Over a device's part of so many samples' tokens.
  CostSource::Passes price(const Work& work, double samples) const;

  const OperatorTimes& operators() const { return times_; }
  bool host_limits() const;
  bool overlaps() const;  // exchanges of tensor parallelism, with the products next to them
  bool in_parts() const;  // those that products need or make, too
  bool in_bulk() const;   // those of a backward that products do not need beside them in one piece
  // Of what runs beside a collective (Device::contention).
  const OperatorTimes& beside_collectives() const { return beside_ ? *beside_ : times_; }
  // Nanoseconds that the group of a worker spends on `reductions` all-reduces of one pass, of the bytes that so many samples
  // have. With sequence parallelism the half that gathers moves what products in fewer bits read.   [TransformerEngine26]
  double collectives(const Work& work, const Amount& reduced, int reductions, double samples) const;
  // Of what a pass exchanges, the share that is left to wait for; the wait for the slowest member is.
  double left_of(const PassKernels& pass, double exchanged, int count) const;
  // Likewise of a backward, in ns. `columns`: its products whose columns are divided.
  LeftOfBackward left_of(const PassKernels& input, const std::vector<ColumnGradients>& columns, double exchanged,
                         int count) const;
  double slowed_exchange() const { return in_bulk() ? device_.contention.collective : 1; }  // times as long
  // One way of the tokens to or from their experts, of so many samples.
  double exchange_time(const Operator& op, double samples) const;

 private:
  friend class PassesOfWork;

  const Scenario& scenario_;
  const Device& device_;
  OperatorTimes times_;
  std::shared_ptr<const Scenario> slowed_;
  std::optional<OperatorTimes> beside_;
  TensorExchange tensor_;
  ContextAttention context_;
  TokenExchange sent_;
};

}  // namespace pipewright::core
