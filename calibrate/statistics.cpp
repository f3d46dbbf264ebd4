#include "calibrate/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.hpp"
#include "core/folds.hpp"

namespace pipewright::calibrate {
namespace {

double rank(const std::vector<double>& sorted, double share) {
  const auto r = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(r, 1, sorted.size()) - 1];
}

}  // namespace

Statistics statistics(std::vector<double> ns) {
  PP_CHECK(!ns.empty());
  std::ranges::sort(ns);
  Statistics s;
  s.count = ns.size();
  s.least = ns.front(), s.median = rank(ns, 0.5), s.p5 = rank(ns, 0.05), s.p95 = rank(ns, 0.95);
  s.p25 = rank(ns, 0.25), s.p75 = rank(ns, 0.75);
  const auto dropped = static_cast<std::size_t>(std::ceil(0.05 * static_cast<double>(ns.size())));
  const std::size_t kept = ns.size() > dropped ? ns.size() - dropped : 1;
  auto sum = sum_over<double>(counted_to(kept), [&](std::size_t i) { return ns[i]; });
  s.mean = sum / static_cast<double>(kept);
  return s;
}

double mean(const std::vector<double>& ns) {
  PP_CHECK(!ns.empty());
  return std::accumulate(ns.begin(), ns.end(), 0.0) / static_cast<double>(ns.size());
}

std::vector<char> middle_half(const std::vector<double>& lengths) {
  if (lengths.size() < 4) return std::vector<char>(lengths.size(), 1);
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return lengths[a] < lengths[b]; });
  const std::size_t outside = lengths.size() / 4;
  std::vector<char> inside(lengths.size(), 0);
  for (std::size_t i = outside; i < order.size() - outside; ++i)
    inside[order[i]] = 1;
  return inside;
}

Line line_through(const std::vector<std::pair<double, double>>& points) {
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [px, py] : points) {
    const double weight = py > 0 ? 1 / (py * py) : 0;
    w += weight, x += weight * px, y += weight * py, xx += weight * px * px, xy += weight * px * py;
  }
  const Line constant{w > 0 ? y / w : 0, 0};
  const double determinant = w * xx - x * x;
  Line line =
      std::abs(determinant) < 1e-300 ? constant : Line{(y * xx - x * xy) / determinant, (w * xy - x * y) / determinant};
  if (line.fixed < 0) line = {0, xx > 0 ? xy / xx : 0};
  return line.per_unit < 0 ? constant : line;
}

}  // namespace pipewright::calibrate
