#include "core/cluster/measured_device.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace pipewright::core {
namespace {

double tiles_of(std::int64_t size, std::int64_t tile) {
  return std::ceil(static_cast<double>(size) / static_cast<double>(tile));
}

// |ln(x / nearest of least and most)|, 0 between them; what is 0 on both sides has no distance.
double outside(double x, double least, double most) {
  if (x > most) return most > 0 ? std::log(x / most) : 1;
  if (x < least) return x > 0 ? std::log(least / x) : 1;
  return 0;
}

}  // namespace

std::size_t coefficients_of(SizeTerms terms) {
  return terms == SizeTerms::Values ? 2 : 3;
}

double OperationSize::work() const {
  return 2.0 * static_cast<double>(count) * static_cast<double>(rows) * static_cast<double>(columns) *
         static_cast<double>(depth);
}

double waves(const TimeFormula& f, const OperationSize& size, int sms) {
  const double tiles =
      static_cast<double>(size.count) * tiles_of(size.rows, f.tile_rows) * tiles_of(size.columns, f.tile_columns);
  return std::ceil(tiles / std::max(1, sms));
}

double TimeFormula::at(const OperationSize& size, int sms) const {
  switch (terms) {
    case SizeTerms::Waves:
      return std::max(
          fixed_ns + waves(*this, size, sms) * (per_wave_ns + per_wave_depth_ns * static_cast<double>(size.depth)),
          floor_ns_per_value * size.values);
    case SizeTerms::Work: return fixed_ns + per_flop_ns * size.work() + per_value_ns * size.values;
    case SizeTerms::Values: return fixed_ns + per_value_ns * size.values;
  }
  return 0;
}

double hops_of(const MeasuredCollective& c) {
  if (c.operation.ends_with("all-reduce")) return 2.0 * (c.members - 1);
  return c.operation.ends_with("all-gather") ? c.members - 1 : 1;
}

double bus_share(const MeasuredCollective& c) {
  const bool all = c.operation.ends_with("all-reduce") || c.operation.ends_with("all-gather");
  return all ? hops_of(c) / c.members : 1;
}

double alpha_ns(const MeasuredCollective& c) {
  return c.formula ? c.formula->fixed_ns / hops_of(c) : 0;
}

double bus_bandwidth(const MeasuredCollective& c) {
  return c.formula && c.formula->per_value_ns > 0 ? bus_share(c) / c.formula->per_value_ns : 0;
}

double MeasuredPrice::error() const {
  return std::hypot(common, independent);
}

const MeasuredSeries* find_series(const MeasuredDevice& device, const MeasuredQuestion& q) {
  const auto find = [&](Precision precision) {
    const MeasuredSeries* more = nullptr;  // with the fewest busy groups, but at least as many as asked for
    const MeasuredSeries* most = nullptr;
    for (const MeasuredSeries& series : device.series) {
      if (series.operation != q.operation || series.pass != q.pass || series.precision != precision ||
          series.virtual_devices != q.virtual_devices)
        continue;
      if (series.busy >= q.busy && (more == nullptr || series.busy < more->busy)) more = &series;
      if (most == nullptr || series.busy > most->busy) most = &series;
    }
    return more != nullptr ? more : most;
  };
  const MeasuredSeries* const found = find(q.precision);
  if (found != nullptr || q.precision != Precision::Tf32) return found;
  const MeasuredSeries* const single = find(Precision::Fp32);
  const bool moves =
      single != nullptr && std::ranges::all_of(single->sizes, [](const MeasuredSize& m) { return m.size.depth == 0; });
  return moves ? single : nullptr;
}

double distance(const MeasuredSeries& series, const OperationSize& size) {
  const auto of = [&](const auto& dimension) {
    double least = dimension(series.sizes.front().size), most = least;
    for (const MeasuredSize& each : series.sizes) {
      least = std::min(least, dimension(each.size));
      most = std::max(most, dimension(each.size));
    }
    return outside(dimension(size), least, most);
  };
  if (series.sizes.empty()) return 0;
  double sum = of([](const OperationSize& s) { return s.values; });
  if (size.depth == 0) return sum;  // of what moves values their number alone counts
  sum += of([](const OperationSize& s) { return static_cast<double>(s.count); });
  sum += of([](const OperationSize& s) { return static_cast<double>(s.rows); });
  sum += of([](const OperationSize& s) { return static_cast<double>(s.columns); });
  return sum + of([](const OperationSize& s) { return static_cast<double>(s.depth); });
}

std::optional<MeasuredPrice> measured_price(const MeasuredDevice& device, const MeasuredQuestion& question,
                                            const OperationSize& size) {
  const MeasuredSeries* const series = find_series(device, question);
  if (series == nullptr) return std::nullopt;
  MeasuredPrice price;
  double shared = device.repeat_error, formula = 0;
  for (const MeasuredSize& each : series->sizes)
    if (each.size == size) {
      price = {each.ns, shared, each.error, true, 0};
      break;
    }
  if (!price.exact) {
    if (!series->formula) return std::nullopt;
    price.beyond = distance(*series, size);
    price.ns = series->formula->at(size, series->sms);
    shared *= 1 + price.beyond, formula = series->errors.common * (1 + price.beyond);
    price.common = std::hypot(formula, shared);
    price.independent = series->errors.independent * (1 + price.beyond);
  }
  const auto own = device.sigmas_of.find(std::string(question.operation));
  const double sigmas = own == device.sigmas_of.end() ? 0 : own->second;
  // Errors are those of logarithms.
  price.ns *= std::exp(device.sigmas * shared + sigmas * std::hypot(formula, price.independent));
  return price;
}

std::vector<int> measured_loads(const MeasuredDevice& device, int virtual_devices) {
  std::set<int> loads;
  for (const MeasuredSeries& series : device.series)
    if (series.virtual_devices == virtual_devices) loads.insert(series.busy);
  return {loads.begin(), loads.end()};
}

std::vector<int> measured_splits(const MeasuredDevice& device) {
  std::set<int> splits;
  for (const MeasuredSeries& series : device.series)
    splits.insert(series.virtual_devices);
  return {splits.begin(), splits.end()};
}

std::shared_ptr<const MeasuredDevice> moved(const MeasuredDevice& device, double sigmas, const std::string& operation) {
  auto other = std::make_shared<MeasuredDevice>(device);
  (operation.empty() ? other->sigmas : other->sigmas_of[operation]) = sigmas;
  return other;
}

}  // namespace pipewright::core
