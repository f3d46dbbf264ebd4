// Fits the formulas of a measured device (core/cluster/measured_device.hpp) to its sizes, and says how far off they are
// at sizes that they have not seen.
//
// Coefficients are 0 or more and minimise the weighted squares of ln(measured / formula), so that a microsecond and a
// second count alike. Gauss-Newton: with f the formula's value at the present coefficients, one step solves
//
//     min over theta >= 0 of sum w ((terms . theta) / f - 1 - ln(t / f))^2        weights w = 1 / (error^2 + 0.005^2)
//
// by the active sets of Lawson and Hanson [LawsonHanson74]. 0.005 is what sampling stops at: an error that came out
// smaller is luck. Sizes at which the memory's floor is the longer of the two say nothing of the other terms and are
// left out of the sums. The tile of products is the one of kTiles, or of those that the library says it
// took (MeasuredSize::algorithm), that leaves the smallest residual.
//
// Covariance of the coefficients theta at that minimum, for small residuals and a formula that is right [SeberWild89]:
//
//     C = s^2 (J^T W J)^-1,   J = d ln(formula) / d theta,   W = diag(w),   s^2 = sum w ln(t / formula)^2 / (n - p)
//
// over the n sizes that count to the sums and the p coefficients that are not 0: one that is 0 lies on its bound and is
// taken for known. Four sizes, t = d values, d = 0.002 ns, residuals +1, -1, +1, -1 %: (d 0.01)^2 4 / (4 x 3), so
// d +- 0.577 %.                                                       tests/calibrate/fit_test.cpp "by hand: +- 0.577"
//
// Prices do not use it: it holds only where the formula is right, and says nothing of how far a real device is off the
// formula between its sizes. That is what the cross-validation below measures, so its errors are the ones of prices.
//
// Cross-validation: sizes are dealt into five parts by width (columns and depth of a product), and again by rows; each
// part is predicted by what the others say. Of the residuals e = ln(measured / predicted) of the first deal, in groups
// g of one width with means e_g, a one-way analysis of variance gives                                    [Searle92]
//
//     independent^2 = sum (e - e_g)^2 / (N - G)
//     common^2      = max(0, (sum n_g e_g^2 / G - independent^2) / n_0),  n_0 = N / G
//
// about 0 instead of the mean: a formula that is off everywhere has a common error, too.
// Two widths of two sizes with e = {3, 5}, {-5, -3} %: independent^2 = 4 / 2 = 2, common^2 = (2 * 16 * 2 / 2 - 2) / 2 =
// 15, so 1.4 % and 3.9 %.                                                    tests/calibrate/fit_test.cpp "by hand"
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/cluster/measured_device.hpp"

namespace pipewright::calibrate {

// min |A x - b| over x >= 0; a: rows one after another, each as long as x. Lawson and Hanson's active sets.
// {{1, 0}, {0, 1}}, {2, -3}: {2, 0}.
std::vector<double> non_negative_least_squares(const std::vector<double>& a, const std::vector<double>& b,
                                               std::size_t columns);

SizeTerms terms_of(std::string_view operation);

// Sizes that a formula of these terms needs: twice its coefficients.
std::size_t least_sizes(SizeTerms terms);

// Nothing: fewer sizes than that. `floor_ns_per_value`: waves only.
std::optional<TimeFormula> fitted(const std::vector<MeasuredSize>& sizes, SizeTerms terms, int sms,
                                  double floor_ns_per_value);

// Of the coefficients, as in `MeasuredSeries::covariance`. Empty: no more sizes than coefficients, or sizes that do not
// tell two of them apart.
std::vector<double> covariance_of(const std::vector<MeasuredSize>& sizes, const TimeFormula& formula, int sms);

// Of the formula with these terms, on sizes that it was not fitted on. At least `least_sizes`.
FormulaErrors cross_validated(const std::vector<MeasuredSize>& sizes, const TimeFormula& formula, int sms);

// Residuals e in groups of one width, as above. In no group two: all error is independent.
struct Residual {
  std::int64_t group = 0;
  double value = 0;
};
void split_errors(const std::vector<Residual>& residuals, double& common, double& independent);

// Gives every series of the device its formula, errors and covariance. The floor of products is what copying values
// took on such a virtual device with as many busy, by the bytes of their precision; where no copies were measured there
// is none.
void fit(MeasuredDevice& device);

}  // namespace pipewright::calibrate
