#include "core/answers/expectation.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright::core {

Dimension dimension(Figure figure) {
  switch (figure) {
    case Figure::StepTime:
    case Figure::ForwardTime:
    case Figure::BackwardTime: return Dimension::Duration;
    case Figure::SamplesPerS:
    case Figure::SamplesPerSDevice:
    case Figure::TokensPerS:
    case Figure::TokensPerSDevice:
    case Figure::TflopsDevice:
    case Figure::TflopsDeviceAllPairs: return Dimension::Rate;
    case Figure::Mfu:
    case Figure::BubbleFraction:
    case Figure::BubbleFractionSpan:
    case Figure::BubbleFractionKthWrap: return Dimension::Share;
    case Figure::Parameters:
    case Figure::Layers:
    case Figure::Capacity: return Dimension::Count;
    case Figure::Memory: return Dimension::Size;
    case Figure::Fits: return Dimension::Truth;
  }
  return Dimension::Count;
}

Bytes memory_part(const MemoryBytes& bytes, std::string_view part) {
  const Bytes state = bytes.weights + bytes.gradients + bytes.optimizer;
  if (part == "total") return bytes.total();
  if (part == "allocated") return bytes.model();
  if (part == "training_state" || part == "held")
    return state;  // held: with what a framework holds, in planner/figures.cpp
  if (part == "activations") return bytes.total() - state - bytes.reserve;
  const auto found = std::ranges::find(kMemoryCategories, part);
  PP_CHECK(found != kMemoryCategories.end());
  return category(bytes, at(found - kMemoryCategories.begin()));
}

// tau-b = (concordant - discordant) / sqrt((pairs - ties in a) (pairs - ties in b))
std::optional<double> kendall_tau(const std::vector<double>& a, const std::vector<double>& b) {
  double balance = 0, untied_a = 0, untied_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const int x = (a[i] > a[j]) - (a[i] < a[j]), y = (b[i] > b[j]) - (b[i] < b[j]);
      balance += x * y;
      untied_a += x != 0;
      untied_b += y != 0;
    }
  if (untied_a < 2 || untied_b < 2) return std::nullopt;
  return balance / std::sqrt(untied_a * untied_b);
}

namespace {

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double error) { sum += std::abs(error), ++count; }
  std::optional<double> value() const { return count > 0 ? std::optional(sum / count) : std::nullopt; }
};

void add_means_of_all(const std::vector<Cell>& cells, Accuracy& result) {
  Mean all, with_references, predicted, beside_predicted, stated, beside_stated;
  for (const Cell& cell : cells) {
    if (!cell.error) continue;
    if (cell.predicts()) with_references.add(*cell.error);
    if (cell.predicts() && !cell.reference) all.add(*cell.error);
    if (!cell.baseline_error) continue;
    stated.add(*cell.baseline_error), beside_stated.add(*cell.error);
    if (cell.predicts()) predicted.add(*cell.baseline_error), beside_predicted.add(*cell.error);
  }
  result.all = all.count, result.with_references = with_references.count;
  result.predicted_baselines = predicted.count, result.all_baselines = stated.count;
  result.mean_of_all = all.value(), result.mean_with_references = with_references.value();
  result.baseline_of_predicted = predicted.value(), result.beside_predicted = beside_predicted.value();
  result.baseline_of_all = stated.value(), result.beside_all = beside_stated.value();
}

}  // namespace

Accuracy TableResult::accuracy() const {
  Accuracy result;
  double sum = 0, baseline_sum = 0, beside = 0;
  int errors = 0, baselines = 0;
  std::vector<double> published, predicted;
  const auto raise = [](std::optional<double>& most, double value) { most = std::max(most.value_or(0), value); };
  double misses = 0;
  int known_misses = 0;
  for (const Cell& cell : cells) {
    if (cell.row.status == CellStatus::KnownMiss && cell.error) ++known_misses, misses += std::abs(*cell.error);
    if (!cell.counts()) continue;
    ++result.cells;
    result.missed += cell.missed();
    if (!cell.row.ratio_to.empty() && cell.predicted) {
      published.push_back(*cell.row.published);
      predicted.push_back(*cell.predicted);
    }
    if (!cell.error) continue;
    ++errors;
    sum += std::abs(*cell.error);
    raise(result.largest, std::abs(*cell.error));
    if (!cell.baseline_error) continue;
    ++baselines;
    beside += std::abs(*cell.error);
    baseline_sum += std::abs(*cell.baseline_error);
    raise(result.baseline_largest, std::abs(*cell.baseline_error));
  }
  if (errors > 0) result.mean = sum / errors;
  if (known_misses > 0) result.mean_with_misses = (sum + misses) / (errors + known_misses);
  if (baselines > 0) result.baseline_mean = baseline_sum / baselines, result.mean_beside_baseline = beside / baselines;
  result.tau = kendall_tau(published, predicted);
  add_means_of_all(cells, result);
  return result;
}

}  // namespace pipewright::core
