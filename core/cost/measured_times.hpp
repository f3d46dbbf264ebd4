// Layer times of a device that was measured (`calibrate --backend cuda`): the sum over the steps of a layer's program
// of what each pass of it takes at its size (core/cluster/measured_device.hpp).
//
// A layer one of whose steps was not measured on such a virtual device is priced as before, by FLOPs, bytes and
// efficiencies; so are layers that a tensor-parallel group shares, whose products are parts of the measured ones. The
// report says which layers are.  tests/core/measured_device_test.cpp "A layer takes"
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/measured_device.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/operation_size.hpp"

namespace pipewright::core {

class MeasuredTimes {
 public:
  // Both are kept. Throws InputError where the device was not measured as so many virtual devices.
  MeasuredTimes(const Scenario& scenario, const Device& device);

  // While `busy` workers compute; 0: all virtual devices. Nothing: see above.
  std::optional<CostSource::Passes> price(const Work& work, std::int64_t samples, int busy) const;
  // Nothing: that optimizer was not measured.
  std::optional<Time> update(std::int64_t parameters) const;
  // Whether none of its layers is priced by FLOPs, bytes and efficiencies.
  bool all_of(const Model& model, std::int64_t samples) const;
  std::vector<int> loads() const;
  std::string caution(const Model& model, std::int64_t samples) const;
  std::string provenance() const;

 private:
  std::optional<MeasuredPrice> price(const Program& program, const ProgramStep& step, std::int64_t samples,
                                     MeasuredPass pass, int busy) const;

  const Scenario& scenario_;
  const Device& device_;
  const MeasuredDevice& measured_;
};

// Operation of an optimizer's step in a device's series; its values are the parameters. "update adam"
std::string update_operation(Optimizer optimizer);

}  // namespace pipewright::core
