// Formulas fitted to times that are made up from known ones.
#include "calibrate/fit.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

constexpr int kSms = 132;

// Products of the layers of Transformers of seven widths at seven numbers of rows, and sizes round the edges of tiles.
std::vector<OperationSize> products() {
  std::vector<OperationSize> sizes;
  for (const std::int64_t width : {256, 384, 512, 768, 1024, 2048, 4096})
    for (const std::int64_t rows : {64, 127, 129, 512, 1024, 4096, 8200})
      for (const auto& [in, out] : {std::pair(width, width), std::pair(width, 4 * width), std::pair(4 * width, width)})
        sizes.push_back({1, rows, out, in, static_cast<double>(rows * in + rows * out + in * out)});
  return sizes;
}

std::vector<OperationSize> moved_values() {
  std::vector<OperationSize> sizes;
  for (const std::int64_t width : {64, 256, 1024, 4096})
    for (std::int64_t rows = 16; rows <= 1 << 16; rows *= 4)
      sizes.push_back({1, rows, width, 0, static_cast<double>(2 * rows * width)});
  return sizes;
}

// What a device with that formula shows at these sizes: with an error of each size's own, and one of each width.
std::vector<MeasuredSize> planted(const TimeFormula& f, const std::vector<OperationSize>& sizes, double independent,
                                  double common, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<std::pair<std::pair<std::int64_t, std::int64_t>, double>> of_width;
  std::vector<MeasuredSize> measured;
  for (const OperationSize& size : sizes) {
    const std::pair width(size.columns, size.depth);
    auto found = std::find_if(of_width.begin(), of_width.end(), [&](const auto& each) { return each.first == width; });
    if (found == of_width.end()) found = of_width.insert(of_width.end(), {width, common * normal(random)});
    const double ns = f.at(size, kSms) * std::exp(found->second + independent * normal(random));
    measured.push_back({size, ns, 0, 0.005, 0.02, 1, 10, 0});
  }
  return measured;
}

const TimeFormula kProducts = {.terms = SizeTerms::Waves,
                               .fixed_ns = 3'000,
                               .per_wave_ns = 2'500,
                               .per_wave_depth_ns = 20,
                               .tile_rows = 128,
                               .tile_columns = 256,
                               .floor_ns_per_value = 0.001};
const TimeFormula kAttention = {
    .terms = SizeTerms::Work, .fixed_ns = 9'000, .per_flop_ns = 2e-5, .per_value_ns = 0.002};
const TimeFormula kMoves = {.terms = SizeTerms::Values, .fixed_ns = 4'000, .per_value_ns = 0.0015};

std::vector<OperationSize> attentions() {
  std::vector<OperationSize> sizes;
  for (const std::int64_t heads : {4, 8, 16, 32, 64})
    for (const std::int64_t tokens : {64, 128, 256, 512, 1024})
      for (const std::int64_t size : {64, 128, 256})
        sizes.push_back({heads, tokens, tokens, size, static_cast<double>(heads * tokens * size * 2)});
  return sizes;
}

}  // namespace

TEST_CASE("Least squares without negative coefficients") {
  CHECK(non_negative_least_squares({1, 0, 0, 1}, {2, -3}, 2) == std::vector<double>{2, 0});
  // Plain least squares gives (-1, 2) here; of x >= 0, 2 y over (1, 3) fits best with y = 1.4 ... by hand: x = 0,
  // y = (1 * 1 + 2 * 3) / (1 + 4) = 1.4.
  const auto x = non_negative_least_squares({1, 1, 1, 2}, {1, 3}, 2);
  CHECK(x[0] == 0);
  CHECK(x[1] == doctest::Approx(1.4));
  // Columns of very different size.
  const auto far = non_negative_least_squares({1, 1e9, 1, 2e9, 1, 4e9}, {3, 5, 9}, 2);
  CHECK(far[0] == doctest::Approx(1));
  CHECK(far[1] == doctest::Approx(2e-9));
  CHECK(non_negative_least_squares({0, 1, 0, 1}, {2, 2}, 2) == std::vector<double>{0, 2});  // a column of zeros
}

TEST_CASE("Against all sets of free coefficients the active sets find the smallest residual") {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 200; ++round) {
    std::vector<double> a(8 * 3), b(8);
    for (double& each : a)
      each = normal(random);
    for (double& each : b)
      each = normal(random);
    const auto squares = [&](const std::vector<double>& x) {
      double sum = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        double off = -b[i];
        for (std::size_t j = 0; j < 3; ++j)
          off += a[3 * i + j] * x[j];
        sum += off * off;
      }
      return sum;
    };
    const auto found = non_negative_least_squares(a, b, 3);
    // No step along a coefficient, nor between two, makes it smaller.
    const double least = squares(found);
    for (std::size_t j = 0; j < 3; ++j)
      for (const double step : {-1e-4, 1e-4}) {
        auto near = found;
        near[j] = std::max(0.0, near[j] + step);
        CHECK(squares(near) >= least - 1e-12);
      }
    for (const double each : found)
      CHECK(each >= 0);
  }
}

TEST_CASE("Planted formulas are found within 1 % under noise of 1 %") {
  const auto close = [](double found, double planted_value) {
    CHECK(found == doctest::Approx(planted_value).epsilon(0.01));
  };
  const auto waves = fitted(planted(kProducts, products(), 0.01, 0, 1), SizeTerms::Waves, kSms, 0.001);
  REQUIRE(waves.has_value());
  CHECK(waves->tile_rows == 128);
  CHECK(waves->tile_columns == 256);
  close(waves->per_wave_depth_ns, kProducts.per_wave_depth_ns);
  close(waves->fixed_ns + waves->per_wave_ns, kProducts.fixed_ns + kProducts.per_wave_ns);
  close(waves->per_wave_ns, kProducts.per_wave_ns);

  const auto work = fitted(planted(kAttention, attentions(), 0.01, 0, 2), SizeTerms::Work, kSms, 0);
  REQUIRE(work.has_value());
  close(work->fixed_ns, kAttention.fixed_ns);
  close(work->per_flop_ns, kAttention.per_flop_ns);
  close(work->per_value_ns, kAttention.per_value_ns);

  const auto values = fitted(planted(kMoves, moved_values(), 0.01, 0, 3), SizeTerms::Values, kSms, 0);
  REQUIRE(values.has_value());
  close(values->fixed_ns, kMoves.fixed_ns);
  close(values->per_value_ns, kMoves.per_value_ns);
}

TEST_CASE("Without noise the planted formula comes back, whichever tile it has") {
  for (const auto& [rows, columns] : {std::pair(64, 64), std::pair(128, 128), std::pair(256, 256)}) {
    TimeFormula f = kProducts;
    f.tile_rows = rows, f.tile_columns = columns;
    const auto found = fitted(planted(f, products(), 0, 0, 1), SizeTerms::Waves, kSms, f.floor_ns_per_value);
    REQUIRE(found.has_value());
    CHECK(found->tile_rows == rows);
    CHECK(found->tile_columns == columns);
    CHECK(found->fixed_ns == doctest::Approx(f.fixed_ns).epsilon(1e-6));
    CHECK(found->per_wave_ns == doctest::Approx(f.per_wave_ns).epsilon(1e-6));
    CHECK(found->per_wave_depth_ns == doctest::Approx(f.per_wave_depth_ns).epsilon(1e-6));
  }
}

TEST_CASE("A tile that the library tells is tried, too") {
  TimeFormula f = kProducts;
  f.tile_rows = 192, f.tile_columns = 96;  // none of those that are tried anyhow
  auto sizes = planted(f, products(), 0, 0, 1);
  const auto guessed = fitted(sizes, SizeTerms::Waves, kSms, f.floor_ns_per_value);
  REQUIRE(guessed.has_value());
  CHECK(guessed->tile_rows != 192);
  for (MeasuredSize& size : sizes)
    size.algorithm = ProductAlgorithm{0, 192, 96, 1};
  const auto told = fitted(sizes, SizeTerms::Waves, kSms, f.floor_ns_per_value);
  REQUIRE(told.has_value());
  CHECK(told->tile_rows == 192);
  CHECK(told->per_wave_depth_ns == doctest::Approx(f.per_wave_depth_ns).epsilon(1e-6));
  for (MeasuredSize& size : sizes)
    size.algorithm = ProductAlgorithm{1.5, 0, 0, 1};  // it does not tell
  CHECK(*fitted(sizes, SizeTerms::Waves, kSms, f.floor_ns_per_value) == *guessed);
}

TEST_CASE("A term that plays no part gets 0, not a negative coefficient") {
  TimeFormula f = kMoves;
  f.fixed_ns = 0;
  auto measured = planted(f, moved_values(), 0, 0, 1);
  for (MeasuredSize& size : measured)
    if (size.size.values < 1e4) size.ns *= 0.9;  // plain least squares would answer with a negative t0
  const auto found = fitted(measured, SizeTerms::Values, kSms, 0);
  REQUIRE(found.has_value());
  CHECK(found->fixed_ns == 0);
}

TEST_CASE("Fewer sizes than twice the coefficients give no formula") {
  auto sizes = planted(kMoves, moved_values(), 0, 0, 1);
  sizes.resize(3);
  CHECK_FALSE(fitted(sizes, SizeTerms::Values, kSms, 0).has_value());
  sizes = planted(kMoves, moved_values(), 0, 0, 1);
  sizes.resize(4);
  CHECK(fitted(sizes, SizeTerms::Values, kSms, 0).has_value());
}

TEST_CASE("The covariance of one coefficient by hand: +- 0.577 % of it") {
  const TimeFormula f = {.terms = SizeTerms::Values, .fixed_ns = 0, .per_value_ns = 0.002};
  std::vector<MeasuredSize> sizes;
  for (int i = 0; i < 4; ++i) {
    const double values = 1e6 * (i + 1);
    sizes.push_back(
        {{1, 1, 1, 0, values}, 0.002 * values * std::exp(i % 2 == 0 ? 0.01 : -0.01), 0, 0.004, 0.02, 1, 10, 0});
  }
  const std::vector<double> found = covariance_of(sizes, f, kSms);
  REQUIRE(found.size() == 3);
  CHECK(found[0] == 0);  // t0 is 0: it is taken for known
  CHECK(found[1] == 0);
  CHECK(std::sqrt(found[2]) == doctest::Approx(0.002 * 0.01 / std::sqrt(3)));
  sizes.resize(1);
  CHECK(covariance_of(sizes, f, kSms).empty());  // no more sizes than coefficients
}

TEST_CASE("Repeated fits under planted noise scatter as their covariance says") {
  struct Case {
    TimeFormula formula;
    std::vector<OperationSize> sizes;
    int fits;
  };
  TimeFormula waves = kProducts;
  waves.floor_ns_per_value = 0;
  const Case cases[] = {{kMoves, moved_values(), 1000}, {kAttention, attentions(), 400}, {waves, products(), 100}};
  for (const auto& [formula, sizes, fits] : cases) {
    const std::size_t n = coefficients_of(formula.terms), entries = n * (n + 1) / 2;
    std::vector<std::vector<double>> thetas;
    std::vector<double> told(entries);
    for (int seed = 1; seed <= fits; ++seed) {
      const auto measured = planted(formula, sizes, 0.02, 0, static_cast<unsigned>(seed));
      const auto found = fitted(measured, formula.terms, kSms, 0);
      REQUIRE(found.has_value());
      switch (formula.terms) {
        case SizeTerms::Waves: thetas.push_back({found->fixed_ns, found->per_wave_ns, found->per_wave_depth_ns}); break;
        case SizeTerms::Work: thetas.push_back({found->fixed_ns, found->per_flop_ns, found->per_value_ns}); break;
        case SizeTerms::Values: thetas.push_back({found->fixed_ns, found->per_value_ns}); break;
      }
      const std::vector<double> one = covariance_of(measured, *found, kSms);
      REQUIRE(one.size() == entries);
      for (std::size_t i = 0; i < entries; ++i)
        told[i] += one[i] / fits;
    }
    std::vector<double> middle(n), seen;
    for (const auto& theta : thetas)
      for (std::size_t j = 0; j < n; ++j)
        middle[j] += theta[j] / fits;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = i; j < n; ++j) {
        double sum = 0;
        for (const auto& theta : thetas)
          sum += (theta[i] - middle[i]) * (theta[j] - middle[j]);
        seen.push_back(sum / (fits - 1));
      }
    // An empirical covariance c_ij of N normal fits has the standard error sqrt((c_ii c_jj + c_ij^2) / (N - 1)).
    const auto entry = [n](std::size_t i, std::size_t j) { return i * n - i * (i + 1) / 2 + j; };
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = i; j < n; ++j) {
        CAPTURE(static_cast<int>(formula.terms));
        CAPTURE(i);
        CAPTURE(j);
        const double c = told[entry(i, j)];
        const double error = std::sqrt((told[entry(i, i)] * told[entry(j, j)] + c * c) / (fits - 1));
        CHECK(std::abs(seen[entry(i, j)] - c) <= 4 * error);
      }
  }
}

TEST_CASE("Residuals are split into what a width shares and what each size has, by hand") {
  double common = 0, independent = 0;
  split_errors({{1, 0.03}, {1, 0.05}, {2, -0.05}, {2, -0.03}}, common, independent);
  CHECK(independent == doctest::Approx(std::sqrt(2) / 100));
  CHECK(common == doctest::Approx(std::sqrt(15) / 100));
  split_errors({{1, 0.03}, {2, -0.04}}, common, independent);
  CHECK(common == 0);
  CHECK(independent == doctest::Approx(std::sqrt(12.5) / 100));
}

TEST_CASE("Planted errors are found: of each size 1 %, of each width 4 %") {
  double common = 0, independent = 0;
  constexpr int kSeeds = 20;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    const auto measured = planted(kProducts, products(), 0.01, 0.04, seed);
    const auto found = fitted(measured, SizeTerms::Waves, kSms, kProducts.floor_ns_per_value);
    REQUIRE(found.has_value());
    const FormulaErrors errors = cross_validated(measured, *found, kSms);
    common += errors.common / kSeeds, independent += errors.independent / kSeeds;
  }
  CHECK(independent == doctest::Approx(0.01).epsilon(0.15));
  CHECK(common == doctest::Approx(0.04).epsilon(0.15));
}

TEST_CASE("The 90 % band holds 85 to 95 % of sizes that the formula was not fitted on") {
  for (const double common : {0.0, 0.03}) {
    int inside = 0, all = 0;
    for (unsigned seed = 1; seed <= 20; ++seed) {
      std::vector<MeasuredSize> seen, unseen;
      const auto measured = planted(kProducts, products(), 0.02, common, seed);
      for (std::size_t i = 0; i < measured.size(); ++i)  // every third width is held out
        ((i / 21) % 3 == seed % 3 ? unseen : seen).push_back(measured[i]);
      MeasuredSeries series;
      series.operation = "linear", series.sms = kSms, series.sizes = seen;
      series.formula = fitted(seen, SizeTerms::Waves, kSms, kProducts.floor_ns_per_value);
      REQUIRE(series.formula.has_value());
      series.errors = cross_validated(seen, *series.formula, kSms);
      MeasuredDevice device;
      device.series = {series};
      for (const MeasuredSize& size : unseen) {
        const auto price = measured_price(device, {"linear"}, size.size);
        if (price->beyond > 0) continue;  // its band is wider
        inside += std::abs(std::log(size.ns / price->ns)) <= 1.645 * price->error();
        ++all;
      }
    }
    INFO("common error ", common, ": ", inside, " of ", all);
    REQUIRE(all > 500);
    CHECK(inside >= 0.85 * all);
    CHECK(inside <= 0.95 * all);
  }
}

TEST_CASE("A whole device: products get the floor that copies show, by the bytes of their precision") {
  MeasuredDevice device;
  MeasuredSeries copies, linear;
  copies.operation = "copy", copies.sms = kSms;
  copies.sizes =
      planted({.terms = SizeTerms::Values, .fixed_ns = 2'000, .per_value_ns = 0.002}, moved_values(), 0, 0, 1);
  linear.operation = "linear", linear.precision = Precision::Bf16, linear.sms = kSms;
  linear.sizes = planted(kProducts, products(), 0, 0, 1);
  MeasuredSeries few = copies;
  few.operation = "gelu", few.sizes.resize(2);
  device.series = {linear, copies, few};
  fit(device);
  REQUIRE(device.series[0].formula.has_value());
  CHECK(device.series[0].formula->floor_ns_per_value == doctest::Approx(0.001));
  CHECK(device.series[0].errors.mean < 1e-6);
  CHECK(device.series[0].covariance.size() == 6);
  CHECK(device.series[2].covariance.empty());
  CHECK_FALSE(device.series[2].formula.has_value());
}
