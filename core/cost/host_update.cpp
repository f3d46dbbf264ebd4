#include "core/cost/host_update.hpp"

#include <cmath>

#include "core/cost/cost_model.hpp"
#include "core/cost/host_copies.hpp"

namespace pipewright::core {

std::int64_t updated_by_host(std::int64_t parameters, const Training& training) {
  return std::llround(training.offload_optimizer.value * static_cast<double>(parameters));
}

Bytes host_state_bytes(const Training& training) {
  const Bytes states = optimizer_bytes(training);
  const bool own = training.precision == Precision::Fp32 || training.precision == Precision::Tf32;
  return own ? states + weight_bytes(training.precision) : states;
}

Time host_update(std::int64_t parameters, const Training& training, const Cluster& cluster, const Device& device) {
  if (parameters == 0) return {};
  const Bytes gradient = gradient_bytes(training), weight = weight_bytes(training.precision);
  const auto bytes = [&](Bytes each) { return static_cast<double>(parameters) * static_cast<double>(each.value); };
  const Time update = transfer_time(bytes(gradient + 2 * host_state_bytes(training) + weight), *device.host_update);
  if (training.offload_weights.value) return update;
  const Bandwidth link = to_host(cluster, device);
  const Time there = transfer_time(bytes(gradient), link), back = transfer_time(bytes(weight), link);
  return checked_sum(checked_sum(there, update), back);
}

Bytes states_on_device(Bytes states, const Training& training) {
  return states - Bytes{updated_by_host(states.value, training)};
}

}  // namespace pipewright::core
