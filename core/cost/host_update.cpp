#include "core/cost/host_update.hpp"

#include <cmath>

#include "core/cost/cost_model.hpp"

namespace pipewright::core {

std::int64_t updated_by_host(std::int64_t parameters, const Training& training) {
  return std::llround(training.offload_optimizer.value * static_cast<double>(parameters));
}

Bytes host_state_bytes(const Training& training) {
  const Bytes states = optimizer_bytes(training);
  const bool own = training.precision == Precision::Fp32 || training.precision == Precision::Tf32;
  return own ? states + weight_bytes(training.precision) : states;
}

Time host_update(std::int64_t parameters, const Training& training, const Device& device) {
  if (parameters == 0) return {};
  const Bytes gradient = gradient_bytes(training), weight = weight_bytes(training.precision);
  const auto bytes = [&](Bytes each) { return static_cast<double>(parameters) * static_cast<double>(each.value); };
  const Time there = transfer_time(bytes(gradient), *device.host_link),
             back = transfer_time(bytes(weight), *device.host_link);
  const Time update = transfer_time(bytes(gradient + 2 * host_state_bytes(training) + weight), *device.host_update);
  return checked_sum(checked_sum(there, update), back);
}

Bytes states_on_device(Bytes states, const Training& training) {
  return states - Bytes{updated_by_host(states.value, training)};
}

}  // namespace pipewright::core
