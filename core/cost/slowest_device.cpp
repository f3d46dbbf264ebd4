#include "core/cost/slowest_device.hpp"

#include <cmath>

namespace pipewright::core {

double slowest_of(std::int64_t devices, double spread) {
  if (devices < 2 || spread <= 0) return 1;
  constexpr double kFarthest = 8, kStep = 1.0 / 64;  // 1e-15 of the values lie farther; midpoints, exact to 1e-6
  double expected = 0;
  for (double x = kStep / 2; x < kFarthest; x += kStep) {
    const double above = std::erfc(x / std::sqrt(2.0)) / 2, n = static_cast<double>(devices);
    expected += kStep * (-std::expm1(n * std::log1p(-above)) - std::pow(above, n));
  }
  return 1 + spread * expected;
}

}  // namespace pipewright::core
