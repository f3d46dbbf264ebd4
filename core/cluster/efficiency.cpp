#include <algorithm>
#include <cmath>

#include "core/cluster/cluster.hpp"

namespace pipewright {
namespace {

double interpolated(const std::vector<std::pair<double, double>>& curve, double work) {
  const auto above = std::upper_bound(curve.begin(), curve.end(), work,
                                      [](double value, const auto& point) { return value < point.first; });
  if (above == curve.begin()) return curve.front().second;
  if (above == curve.end()) return curve.back().second;
  const auto& [low, low_share] = *(above - 1);
  const auto& [high, high_share] = *above;
  return low_share + (high_share - low_share) * std::log(work / low) / std::log(high / low);
}

}  // namespace

double Efficiency::at(double work) const {
  PP_CHECK(!curve.empty());
  const double share = interpolated(curve, work);
  return half_work > 0 && work > 0 ? share * work / (work + half_work) : share;
}

}  // namespace pipewright
