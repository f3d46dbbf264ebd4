#include "core/answers/sweep.hpp"

#include <algorithm>

#include "core/ids.hpp"

namespace pipewright::core {

const SweepFigureName* find_sweep_figure(std::string_view name) {
  const auto* found =
      std::ranges::find_if(kSweepFigures, [&](const SweepFigureName& each) { return each.name == name; });
  return found == kSweepFigures.end() ? nullptr : found;
}

const SweepFigureName& name_of(SweepFigure figure) {
  const auto* found =
      std::ranges::find_if(kSweepFigures, [&](const SweepFigureName& each) { return each.figure == figure; });
  PP_CHECK(found != kSweepFigures.end());
  return *found;
}

std::int64_t SweepQuestion::combinations() const {
  std::int64_t count = 1;
  for (const SweepAxis& axis : axes)
    count = checked_product(count, static_cast<std::int64_t>(axis.texts.size()), "grid: the number of its points");
  return count;
}

std::int64_t SweepQuestion::points() const {
  return checked_product(combinations(), static_cast<std::int64_t>(variants.size()), "the number of points of a sweep");
}

std::size_t SweepQuestion::variant(std::int64_t point) const {
  return at(point / combinations());
}

std::vector<std::size_t> SweepQuestion::values(std::int64_t point) const {
  std::vector<std::size_t> chosen(axes.size());
  auto rest = at(point % combinations());
  for (std::size_t i = axes.size(); i-- > 0;) {
    chosen[i] = rest % axes[i].texts.size();
    rest /= axes[i].texts.size();
  }
  return chosen;
}

std::int64_t SweepQuestion::baseline_of(std::int64_t point) const {
  return static_cast<std::int64_t>(baseline) * combinations() + point % combinations();
}

std::optional<double> figure(const SweepRow& row, SweepFigure figure) {
  if (!row.has_figures()) return std::nullopt;
  const auto per_device = [&](std::optional<double> rate) {
    if (rate && row.devices > 0) *rate /= static_cast<double>(row.devices);
    return rate;
  };
  const auto with_failures = [&](std::optional<double> alone) {
    return alone && row.goodput && *row.goodput > 0 ? std::optional(*alone / *row.goodput) : std::nullopt;
  };
  switch (figure) {
    case SweepFigure::StepTime: return seconds(row.step_time);
    case SweepFigure::SamplesPerS: return row.samples_per_s;
    case SweepFigure::SamplesPerSDevice: return per_device(row.samples_per_s);
    case SweepFigure::TokensPerS: return row.tokens_per_s;
    case SweepFigure::TokensPerSDevice: return per_device(row.tokens_per_s);
    case SweepFigure::Mfu: return row.mfu;
    case SweepFigure::Bubble: return row.bubble;
    case SweepFigure::PeakMemory: return static_cast<double>(row.peak_memory.value);
    case SweepFigure::Headroom: return static_cast<double>((row.capacity - row.peak_memory).value);
    case SweepFigure::Devices: return static_cast<double>(row.devices);
    case SweepFigure::SpeedUp: return row.speed_up;
    case SweepFigure::Hfu: return row.hfu;
    case SweepFigure::LongestSpan: return row.longest_span;
    case SweepFigure::WeightsMemory: return row.weights_memory;
    case SweepFigure::Days: return row.days;
    case SweepFigure::DeviceHours: return row.device_hours;
    case SweepFigure::Cost: return row.cost;
    case SweepFigure::EnergyKwh: return row.energy_kwh;
    case SweepFigure::Goodput: return row.goodput;
    case SweepFigure::DaysExpected: return with_failures(row.days);
    case SweepFigure::CostExpected: return with_failures(row.cost);
  }
  return std::nullopt;
}

int shard_of(std::int64_t point, std::int64_t points, int shards) {
  constexpr std::int64_t kTurns = 8, kMostAtOnce = 16;
  const std::int64_t at_once = std::clamp<std::int64_t>(points / (kTurns * shards), 1, kMostAtOnce);
  return static_cast<int>(point / at_once % shards) + 1;
}

std::vector<std::int64_t> points_of(const SweepShard& shard, std::int64_t points) {
  std::vector<std::int64_t> mine;
  for (std::int64_t point = 0; point < points; ++point)
    if (shard_of(point, points, shard.of) == shard.number) mine.push_back(point);
  return mine;
}

namespace {

// Fills `speed_up` and `plan_changes` of all rows that have figures. Compared is with the baseline's row at the same
// place of the grid; where there is one variant only, with the first row that has figures.
void compare_with_baseline(Sweep& sweep) {
  const auto row_of = [&](std::int64_t point) -> const SweepRow* {
    const auto found = std::ranges::lower_bound(sweep.rows, point, {}, &SweepRow::point);
    return found == sweep.rows.end() || found->point != point ? nullptr : &*found;
  };
  const auto first = std::ranges::find_if(sweep.rows, [](const auto& r) { return r.has_figures(); });
  const SweepRow* only = first == sweep.rows.end() ? nullptr : &*first;
  const bool variants = sweep.question.variants.size() > 1;
  for (SweepRow& row : sweep.rows) {
    const SweepRow* base = variants ? row_of(sweep.question.baseline_of(row.point)) : only;
    if (!base || !base->has_figures() || !row.has_figures()) continue;
    if (base->samples_per_s > 0) row.speed_up = row.samples_per_s / base->samples_per_s;
    row.plan_changes = row.plan != base->plan || row.layers != base->layers;
  }
}

}  // namespace

Sweep swept(const SweepQuestion& question, std::vector<SweepFinding> findings, std::int64_t asked,
            const SweepShard& shard) {
  std::ranges::sort(findings, [](const SweepFinding& a, const SweepFinding& b) { return a.point < b.point; });
  Sweep result;
  result.question = question;
  result.shard = shard;
  result.not_run = asked - static_cast<std::int64_t>(findings.size());
  for (SweepFinding& finding : findings)
    if (finding.row)
      result.rows.push_back(std::move(*finding.row));
    else
      ++result.left_out;
  compare_with_baseline(result);
  return result;
}

}  // namespace pipewright::core
