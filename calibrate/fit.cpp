#include "calibrate/fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <Eigen/Core>
#include <Eigen/LU>
#include <Eigen/QR>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/folds.hpp"

namespace pipewright::calibrate {
namespace {

constexpr double kStopsAt = 0.005;  // calibrate/sampling.hpp: the error that sampling asks for
constexpr int kParts = 5;
constexpr int kSteps = 50;  // of Gauss-Newton; it takes three to ten

struct Tile {
  std::int64_t rows, columns;
  bool operator==(const Tile&) const = default;
};
// Of matrix products on GPUs: those of this project's kernels, and sizes that CUTLASS and cuBLASLt have.
constexpr std::array<Tile, 7> kTiles = {
    {{128, 128}, {64, 64}, {64, 128}, {128, 64}, {128, 256}, {256, 128}, {256, 256}}};

using Row = std::array<double, 3>;

// What the coefficients are multiplied with, in the order of `with_coefficients`.
Row terms_at(const TimeFormula& f, const OperationSize& size, int sms) {
  switch (f.terms) {
    case SizeTerms::Waves: {
      const double w = waves(f, size, sms);
      return {1, w, w * static_cast<double>(size.depth)};
    }
    case SizeTerms::Work: return {1, size.work(), size.values};
    case SizeTerms::Values: return {1, size.values, 0};
  }
  return {};
}

TimeFormula with_coefficients(TimeFormula f, const std::vector<double>& theta) {
  f.fixed_ns = theta[0];
  switch (f.terms) {
    case SizeTerms::Waves: f.per_wave_ns = theta[1], f.per_wave_depth_ns = theta[2]; break;
    case SizeTerms::Work: f.per_flop_ns = theta[1], f.per_value_ns = theta[2]; break;
    case SizeTerms::Values: f.per_value_ns = theta[1]; break;
  }
  return f;
}

Row coefficients_in(const TimeFormula& f) {
  switch (f.terms) {
    case SizeTerms::Waves: return {f.fixed_ns, f.per_wave_ns, f.per_wave_depth_ns};
    case SizeTerms::Work: return {f.fixed_ns, f.per_flop_ns, f.per_value_ns};
    case SizeTerms::Values: return {f.fixed_ns, f.per_value_ns, 0};
  }
  return {};
}

// Without the memory's floor.
double sum_of_terms(const Row& row, const TimeFormula& f) {
  const Row theta = coefficients_in(f);
  return row[0] * theta[0] + row[1] * theta[1] + row[2] * theta[2];
}

double weight_of(const MeasuredSize& size) {
  return 1 / (size.error * size.error + kStopsAt * kStopsAt);
}

// Coefficients by the sizes where they decide; `f` brings terms, tile and floor. Nothing: too few sizes are left.
class LogFit {
 public:
  LogFit(const std::vector<MeasuredSize>& sizes, TimeFormula f, int sms) : sizes_(sizes), f_(std::move(f)), sms_(sms) {
    for (const MeasuredSize& size : sizes)
      rows_.push_back(terms_at(f_, size.size, sms));
  }

  std::optional<TimeFormula> solve() {
    std::vector<char> used(sizes_.size(), 1);
    for (int round = 0; round < 10; ++round) {
      const auto count = static_cast<std::size_t>(std::ranges::count(used, 1));
      if (count < coefficients_of(f_.terms)) return std::nullopt;
      const TimeFormula solved = with_coefficients(f_, coefficients(used));
      std::vector<char> next(sizes_.size(), 1);
      for (std::size_t i = 0; i < sizes_.size(); ++i)
        next[i] = f_.floor_ns_per_value * sizes_[i].size.values <= sum_of_terms(rows_[i], solved) ? 1 : 0;
      f_ = solved;
      if (next == used) break;
      used = std::move(next);
    }
    return f_;
  }

 private:
  std::vector<double> coefficients(const std::vector<char>& used) const {
    const std::size_t n = coefficients_of(f_.terms);
    std::vector<double> at;  // the formula's values; first the measured ones
    for (const MeasuredSize& size : sizes_)
      at.push_back(size.ns);
    std::vector<double> theta(n, 0);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<double> a, b;
      for (std::size_t i = 0; i < sizes_.size(); ++i) {
        if (used[i] == 0) continue;
        const double root = std::sqrt(weight_of(sizes_[i]));
        for (std::size_t j = 0; j < n; ++j)
          a.push_back(root * rows_[i][j] / at[i]);
        b.push_back(root * (1 + std::log(sizes_[i].ns / at[i])));
      }
      const std::vector<double> before = theta;
      theta = non_negative_least_squares(a, b, n);
      auto change = most_over<double>(
          counted_to(n), [&](std::size_t j) { return std::abs(theta[j] - before[j]) / std::max(theta[j], 1e-300); });
      for (std::size_t i = 0; i < sizes_.size(); ++i)
        at[i] = std::max(sum_of_terms(rows_[i], with_coefficients(f_, theta)), 1e-6);
      if (change < 1e-12) break;
    }
    return theta;
  }

  const std::vector<MeasuredSize>& sizes_;
  TimeFormula f_;
  int sms_;
  std::vector<Row> rows_;
};

double residual_of(const MeasuredSize& size, const TimeFormula& formula, int sms) {
  return std::log(size.ns / std::max(formula.at(size.size, sms), 1e-6));
}

double weighted_squares(const std::vector<MeasuredSize>& sizes, const TimeFormula& formula, int sms) {
  return sum_over<double>(
      sizes, [&](const MeasuredSize& size) { return weight_of(size) * std::pow(residual_of(size, formula, sms), 2); });
}

// Columns and depth of a product tell one layer's width from another's; of what moves values, the columns.
std::int64_t width_of(const OperationSize& size) {
  return size.depth == 0 ? size.columns : size.columns * 1'000'003 + size.depth;
}

// Part of every size: the different keys, ascending, are dealt out one after the other.
std::vector<int> dealt(const std::vector<std::int64_t>& keys) {
  const std::set<std::int64_t> different(keys.begin(), keys.end());
  std::map<std::int64_t, int> part;
  int next = 0;
  for (const std::int64_t key : different)
    part[key] = next++ % kParts;
  std::vector<int> parts;
  for (const std::int64_t key : keys)
    parts.push_back(part.at(key));
  return parts;
}

// With the terms and floor of `start`; of waves with the tile that fits these sizes best.
std::optional<TimeFormula> best_of(const std::vector<MeasuredSize>& sizes, TimeFormula start, int sms) {
  if (start.terms != SizeTerms::Waves) return LogFit(sizes, start, sms).solve();
  std::optional<TimeFormula> best;
  double least = std::numeric_limits<double>::infinity();
  std::vector<Tile> tiles(kTiles.begin(), kTiles.end());
  for (const MeasuredSize& size : sizes)  // those that the library tells, too
    if (size.algorithm && size.algorithm->tile_rows > 0 && size.algorithm->tile_columns > 0) {
      const Tile told{size.algorithm->tile_rows, size.algorithm->tile_columns};
      if (std::ranges::find(tiles, told) == tiles.end()) tiles.push_back(told);
    }
  for (const Tile& tile : tiles) {
    start.tile_rows = tile.rows, start.tile_columns = tile.columns;
    const auto solved = LogFit(sizes, start, sms).solve();
    if (!solved) continue;
    const double squares = weighted_squares(sizes, *solved, sms);
    if (squares < least) least = squares, best = solved;
  }
  return best;
}

// ln(measured / predicted) of every size, by formulas that have not seen its part; sizes of parts without which there
// are too few are left out.
std::vector<Residual> unseen_residuals(const std::vector<MeasuredSize>& sizes, const TimeFormula& formula, int sms,
                                       const std::vector<int>& parts) {
  std::vector<Residual> residuals;
  for (int part = 0; part < kParts; ++part) {
    std::vector<MeasuredSize> seen;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (parts[i] != part) seen.push_back(sizes[i]);
    if (seen.size() == sizes.size() || seen.size() < coefficients_of(formula.terms)) continue;
    const auto without = best_of(seen, formula, sms);
    if (!without) continue;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (parts[i] == part) residuals.push_back({width_of(sizes[i].size), residual_of(sizes[i], *without, sms)});
  }
  return residuals;
}

}  // namespace

std::vector<double> non_negative_least_squares(const std::vector<double>& a, const std::vector<double>& b,
                                               std::size_t columns) {
  PP_CHECK(columns > 0 && a.size() == b.size() * columns);
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto n = static_cast<Eigen::Index>(columns), rows = static_cast<Eigen::Index>(b.size());
  Matrix scaled = Eigen::Map<const Matrix>(a.data(), rows, n);
  const Eigen::Map<const Eigen::VectorXd> right(b.data(), rows);
  Eigen::VectorXd scale = scaled.colwise().norm().transpose();
  for (Eigen::Index j = 0; j < n; ++j)
    if (scale[j] > 0) scaled.col(j) /= scale[j];
  Eigen::VectorXd x = Eigen::VectorXd::Zero(n);
  std::vector<char> free(columns, 0);
  // Least squares over the free columns, 0 elsewhere.
  const auto solve = [&] {
    std::vector<Eigen::Index> chosen;
    for (Eigen::Index j = 0; j < n; ++j)
      if (free[static_cast<std::size_t>(j)] != 0) chosen.push_back(j);
    Matrix part(rows, static_cast<Eigen::Index>(chosen.size()));
    for (std::size_t j = 0; j < chosen.size(); ++j)
      part.col(static_cast<Eigen::Index>(j)) = scaled.col(chosen[j]);
    const Eigen::VectorXd solved = part.colPivHouseholderQr().solve(right);
    Eigen::VectorXd whole = Eigen::VectorXd::Zero(n);
    for (std::size_t j = 0; j < chosen.size(); ++j)
      whole[chosen[j]] = solved[static_cast<Eigen::Index>(j)];
    return whole;
  };
  const double tolerance = 1e-12 * std::max(1.0, right.norm());
  for (std::size_t turn = 0; turn < 30 * columns; ++turn) {
    const Eigen::VectorXd gradient = scaled.transpose() * (right - scaled * x);
    Eigen::Index best = -1;
    for (Eigen::Index j = 0; j < n; ++j)
      if (free[static_cast<std::size_t>(j)] == 0 && gradient[j] > tolerance &&
          (best < 0 || gradient[j] > gradient[best]))
        best = j;
    if (best < 0) break;
    free[static_cast<std::size_t>(best)] = 1;
    Eigen::VectorXd next = solve();
    while (true) {
      double step = 1;
      for (Eigen::Index j = 0; j < n; ++j)
        if (free[static_cast<std::size_t>(j)] != 0 && next[j] <= 0) step = std::min(step, x[j] / (x[j] - next[j]));
      if (step >= 1) break;
      x += step * (next - x);
      for (Eigen::Index j = 0; j < n; ++j)
        if (free[static_cast<std::size_t>(j)] != 0 && x[j] <= tolerance)
          free[static_cast<std::size_t>(j)] = 0, x[j] = 0;
      next = solve();
    }
    x = next;
  }
  std::vector<double> result(columns);
  for (std::size_t j = 0; j < columns; ++j) {
    const auto at = static_cast<Eigen::Index>(j);
    result[j] = scale[at] > 0 ? std::max(0.0, x[at]) / scale[at] : 0;
  }
  return result;
}

SizeTerms terms_of(std::string_view operation) {
  if (operation == "linear" || operation == "conv2d") return SizeTerms::Waves;
  return operation == "attention" ? SizeTerms::Work : SizeTerms::Values;
}

std::size_t least_sizes(SizeTerms terms) {
  return 2 * coefficients_of(terms);
}

std::optional<TimeFormula> fitted(const std::vector<MeasuredSize>& sizes, SizeTerms terms, int sms,
                                  double floor_ns_per_value) {
  if (sizes.size() < least_sizes(terms)) return std::nullopt;
  return best_of(sizes, {.terms = terms, .floor_ns_per_value = terms == SizeTerms::Waves ? floor_ns_per_value : 0},
                 sms);
}

std::vector<double> covariance_of(const std::vector<MeasuredSize>& sizes, const TimeFormula& f, int sms) {
  const std::size_t all = coefficients_of(f.terms);
  const Row theta = coefficients_in(f);
  std::vector<std::size_t> free;
  for (std::size_t j = 0; j < all; ++j)
    if (theta[j] > 0) free.push_back(j);
  const auto p = static_cast<Eigen::Index>(free.size());
  std::vector<double> entries;
  Eigen::Index n = 0;
  double squares = 0;
  for (const MeasuredSize& size : sizes) {
    const Row row = terms_at(f, size.size, sms);
    const double at = sum_of_terms(row, f);
    if (at <= 0 || at < f.floor_ns_per_value * size.size.values) continue;
    const double weight = weight_of(size), off = std::log(size.ns / at);
    squares += weight * off * off, ++n;
    for (const std::size_t j : free)  // of the coefficient's logarithm: of one size, whatever its unit
      entries.push_back(std::sqrt(weight) * row[j] * theta[j] / at);
  }
  if (p == 0 || n <= p) return {};
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> jacobian(entries.data(), n, p);
  const Eigen::FullPivLU<Eigen::MatrixXd> products(jacobian.transpose() * jacobian);
  if (!products.isInvertible()) return {};
  const Eigen::MatrixXd inverse = products.inverse() * (squares / static_cast<double>(n - p));
  std::vector<double> triangle;
  for (std::size_t i = 0; i < all; ++i)
    for (std::size_t j = i; j < all; ++j) {
      const auto a = std::ranges::find(free, i), b = std::ranges::find(free, j);
      triangle.push_back(
          a == free.end() || b == free.end() ? 0 : inverse(a - free.begin(), b - free.begin()) * theta[i] * theta[j]);
    }
  return triangle;
}

void split_errors(const std::vector<Residual>& residuals, double& common, double& independent) {
  common = independent = 0;
  if (residuals.empty()) return;
  struct Group {
    double sum = 0, squares = 0;
    std::size_t count = 0;
  };
  std::map<std::int64_t, Group> groups;
  for (const Residual& r : residuals) {
    Group& group = groups[r.group];
    group.sum += r.value, group.squares += r.value * r.value, ++group.count;
  }
  double within = 0, between = 0, all = 0;
  for (const auto& [key, group] : groups) {
    const double means = group.sum * group.sum / static_cast<double>(group.count);
    within += std::max(0.0, group.squares - means), between += means, all += group.squares;
  }
  const auto n = static_cast<double>(residuals.size()), g = static_cast<double>(groups.size());
  if (groups.size() == residuals.size()) {
    independent = std::sqrt(all / n);
    return;
  }
  const double inside = within / (n - g);
  independent = std::sqrt(inside);
  common = std::sqrt(std::max(0.0, between / g - inside) / (n / g));
}

FormulaErrors cross_validated(const std::vector<MeasuredSize>& sizes, const TimeFormula& formula, int sms) {
  std::vector<std::int64_t> widths, rows;
  for (const MeasuredSize& size : sizes) {
    widths.push_back(width_of(size.size));
    rows.push_back(size.size.depth == 0 ? std::llround(size.size.values) : size.size.rows);
  }
  const std::vector<Residual> by_width = unseen_residuals(sizes, formula, sms, dealt(widths));
  const std::vector<Residual> by_rows = unseen_residuals(sizes, formula, sms, dealt(rows));
  FormulaErrors errors;
  split_errors(by_width.empty() ? by_rows : by_width, errors.common, errors.independent);
  std::vector<double> off;
  for (const auto* list : {&by_width, &by_rows})
    for (const Residual& r : *list) {
      const double relative = std::exp(-r.value) - 1;
      off.push_back(std::abs(relative));
      errors.bias += relative;
    }
  if (off.empty()) return errors;
  std::ranges::sort(off);
  const auto n = static_cast<double>(off.size());
  errors.bias /= n;
  for (const double each : off)
    errors.mean += each / n;
  errors.p95 = off[static_cast<std::size_t>(std::ceil(0.95 * n)) - 1];
  return errors;
}

void fit(MeasuredDevice& device) {
  for (MeasuredCollective& each : device.collectives) {
    each.formula = fitted(each.sizes, SizeTerms::Values, 0, 0);
    each.errors = each.formula ? cross_validated(each.sizes, *each.formula, 0) : FormulaErrors{};
    each.covariance = each.formula ? covariance_of(each.sizes, *each.formula, 0) : std::vector<double>();
  }
  const auto fit_one = [](MeasuredSeries& series, double floor) {
    series.formula = fitted(series.sizes, terms_of(series.operation), series.sms, floor);
    series.covariance =
        series.formula ? covariance_of(series.sizes, *series.formula, series.sms) : std::vector<double>();
    series.errors = series.formula ? cross_validated(series.sizes, *series.formula, series.sms) : FormulaErrors{};
  };
  for (MeasuredSeries& series : device.series)
    if (terms_of(series.operation) != SizeTerms::Waves) fit_one(series, 0);
  for (MeasuredSeries& series : device.series) {
    if (terms_of(series.operation) != SizeTerms::Waves) continue;
    double floor = 0;
    for (const MeasuredSeries& copy : device.series)
      if (copy.operation == "copy" && copy.virtual_devices == series.virtual_devices && copy.busy == series.busy &&
          copy.formula)
        floor = copy.formula->per_value_ns * static_cast<double>(weight_bytes(series.precision).value) / 4;
    fit_one(series, floor);
  }
}

}  // namespace pipewright::calibrate
