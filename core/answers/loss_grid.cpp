#include "core/answers/loss_grid.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace pipewright::core {

std::vector<LossWindow> loss_windows(const std::vector<double>& losses, std::size_t steps,
                                     std::int64_t samples_per_step, std::size_t most) {
  std::vector<LossWindow> windows;
  const std::size_t count = std::min(most, steps);
  std::size_t begin = 0;
  for (std::size_t w = 0; w < count; ++w) {
    std::size_t end = begin;
    while (end < steps && end * count / steps == w)
      ++end;
    if (end > losses.size()) break;
    double sum = 0;
    for (std::size_t s = begin; s < end; ++s)
      sum += losses[s];
    windows.push_back({static_cast<std::int64_t>(end) * samples_per_step, sum / static_cast<double>(end - begin)});
    begin = end;
  }
  return windows;
}

std::vector<std::size_t> axes_beside_seed(const SweepQuestion& question) {
  std::vector<std::size_t> axes;
  for (std::size_t i = 0; i < question.axes.size(); ++i)
    if (question.axes[i].key != kSeedKey) axes.push_back(i);
  return axes;
}

std::vector<LossCurve> loss_curves(const LossGrid& grid) {
  const std::vector<std::size_t> axes = axes_beside_seed(grid.question);
  std::map<std::pair<std::vector<std::size_t>, std::size_t>, LossCurve> curves;
  for (const LossRow& row : grid.rows) {
    const std::vector<std::size_t> values = grid.question.values(row.point);
    std::vector<std::size_t> place;
    for (const std::size_t axis : axes)
      place.push_back(values[axis]);
    const std::size_t variant = grid.question.variant(row.point);
    LossCurve& curve = curves[{place, variant}];
    curve.variant = variant, curve.values = place;
    ++curve.runs;
    curve.failed += !row.failed.empty();
    for (std::size_t i = 0; i < row.windows.size(); ++i) {
      const double loss = row.windows[i].loss;
      if (i == curve.at.size()) curve.at.push_back({row.windows[i].samples, 0, loss, loss, 0});
      LossCurve::At& at = curve.at[i];
      at.least = std::min(at.least, loss), at.largest = std::max(at.largest, loss);
      at.mean += (loss - at.mean) / ++at.runs;
    }
  }
  std::vector<LossCurve> list;
  for (auto& [key, curve] : curves)
    list.push_back(std::move(curve));
  return list;
}

}  // namespace pipewright::core
