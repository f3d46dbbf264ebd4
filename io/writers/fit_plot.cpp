#include "io/writers/fit_plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/text/names.hpp"
#include "io/text/quote.hpp"
#include "io/writers/svg_canvas.hpp"

namespace pipewright::io {
namespace {

constexpr double kReach = 0.3;    // of both plots, to either side
constexpr int kTextColumns = 31;  // characters of the text plot, each 2 %

// formula / measured - 1.
double off(const MeasuredSeries& series, const MeasuredSize& size) {
  return series.formula->at(size.size, series.sms) / size.ns - 1;
}

std::string_view pass_words(MeasuredPass pass) {
  constexpr std::array<std::string_view, 3> all = {"forward", "d input", "d weight"};
  return all[at(pass)];
}

struct FittedFamily {
  std::array<int, kTextColumns> counts{};
  std::size_t sizes = 0, fitted = 0;
  double mean = 0, p95 = 0, bias = 0;  // sums over sizes
};

std::string histogram(const FittedFamily& family) {
  constexpr std::string_view kMarks = " .:+#";
  const int most = *std::ranges::max_element(family.counts);
  std::string text;
  for (int i = 0; i < kTextColumns; ++i) {
    const int count = family.counts[at(i)];
    const auto mark = count == 0 ? 0U : std::min(4U, 1U + static_cast<unsigned>(4 * (count - 1) / std::max(1, most)));
    text += i == kTextColumns / 2 && count == 0 ? '|' : kMarks[mark];
  }
  return text;
}

// "launch one by one": what each takes, and what the first of some takes more, on the whole device.
std::string launches(const MeasuredDevice& device) {
  std::string text;
  for (const MeasuredSeries& series : device.series) {
    if (!series.operation.starts_with("launch ") || series.virtual_devices > 1 || !series.formula) continue;
    text += fmt::format("    {:<38} {:8.3f} us each, {:8.3f} us once\n", series.operation,
                        series.formula->per_value_ns / 1e3, series.formula->fixed_ns / 1e3);
  }
  return text.empty() ? "" : "  launches by the host, on the whole device\n" + text;
}

// Which tiles cuBLASLt took, for how many sizes.
std::string algorithms(const MeasuredDevice& device) {
  std::map<std::tuple<MeasuredPass, Precision, int>, std::map<std::string, int>> tiles;
  for (const MeasuredSeries& series : device.series)
    for (const MeasuredSize& size : series.sizes) {
      if (!size.algorithm) continue;
      const ProductAlgorithm& a = *size.algorithm;
      std::string tile = a.tile_rows > 0 ? fmt::format("{} x {}", a.tile_rows, a.tile_columns) : "unknown tile";
      if (a.split_k > 1) tile += fmt::format(" in {} parts of the depth", a.split_k);
      ++tiles[{series.pass, series.precision, series.sms}][tile];
    }
  std::string text;
  for (const auto& [key, counts] : tiles) {
    const auto& [pass, precision, sms] = key;
    text += fmt::format("    linear {} {}, {} SMs:", pass_words(pass), name(precision), sms);
    for (const auto& [tile, count] : counts)
      text += fmt::format("{} {} ({})", text.back() == ':' ? "" : ",", tile, count);
    text += "\n";
  }
  return text.empty() ? "" : "  tiles of cuBLASLt's algorithms, as it tells them, and for how many sizes\n" + text;
}

std::string collectives(const MeasuredDevice& device) {
  if (device.collectives.empty()) return "";
  std::string text = "  together: alpha of a hop, bus bandwidth, cross-validated error\n";
  for (const MeasuredCollective& each : device.collectives) {
    const std::string whose = each.virtual_devices > 1 ? fmt::format("{} virtual devices", each.members)
                              : each.from != each.to   ? fmt::format("GPU {} to {}", each.from, each.to)
                                                       : fmt::format("{} GPUs", each.members);
    text += fmt::format("    {:<28} {:<20} {:>2} sizes  ", each.operation, whose, each.sizes.size());
    text += each.formula ? fmt::format("{:.3f} us, {:.1f} GB/s, {:.1f} %\n", alpha_ns(each) / 1e3, bus_bandwidth(each),
                                       100 * each.errors.mean)
                         : std::string("too few for a formula\n");
  }
  return text;
}

std::string interference(const MeasuredDevice& device) {
  if (device.interference.empty()) return "";
  std::string text = "  while others run: time / time alone, spread of the time (p95 - p5)\n";
  for (const MeasuredPair& pair : device.interference)
    text += fmt::format("    {:<44} {:<27} {:.3f} ± {:.1f} %, spread {:.1f} %\n",
                        fmt::format("{} {} beside {} {}", pair.operation, name(pair.precision), pair.beside,
                                    name(pair.beside_precision)),
                        pair.virtual_devices == 1 ? std::string("two streams of the whole")
                        : pair.others > 0 ? fmt::format("1 of {}, {} {} busy", pair.virtual_devices, pair.others,
                                                        pair.others == 1 ? "other" : "others")
                                          : fmt::format("1 of {} virtual devices", pair.virtual_devices),
                        pair.slowdown, 100 * pair.error, 100 * pair.spread);
  return text;
}

constexpr double kFitWidth = 400, kFitHeight = 170, kFitLeft = 56, kFitTop = 76, kFitAcross = 64, kFitDown = 58;
constexpr std::size_t kFitsAcross = 2;

constexpr std::string_view kFitStyle = R"svg(<style>
.m{stroke-width:1.2}.g0{fill:#3b78c9;stroke:#3b78c9}.g1{fill:#2e8b57;stroke:#2e8b57}.g2{fill:#b07d00;stroke:#b07d00}.g3{fill:#c0392b;stroke:#c0392b}.hollow{fill:none}
@media(prefers-color-scheme:dark){.g0{fill:#6aa5f0;stroke:#6aa5f0}.g1{fill:#57bd84;stroke:#57bd84}.g2{fill:#f0b849;stroke:#f0b849}.g3{fill:#f0776b;stroke:#f0776b}.hollow{fill:none}}
</style>
)svg";

class FitPlot {
 public:
  explicit FitPlot(const MeasuredDevice& device) : device_(device) {
    for (const MeasuredSeries& series : device.series)
      if (series.formula) panels_[series.operation].push_back(&series);
  }

  std::string draw() {
    canvas_.raw(kFitStyle);
    canvas_.text(12, 24, device_.gpu + ": formulas against measured times", "title", 15);
    canvas_.text(12, 44,
                 "formula / measured - 1 over the measured time; filled: alone, hollow: other virtual devices busy",
                 "quiet", 12);
    legend();
    std::size_t number = 0;
    for (const auto& [operation, series] : panels_)
      panel(number++, operation, series);
    const auto rows = static_cast<double>((number + kFitsAcross - 1) / kFitsAcross);
    return canvas_.document(kFitLeft + kFitsAcross * (kFitWidth + kFitAcross),
                            kFitTop + std::max(1.0, rows) * (kFitHeight + kFitDown),
                            device_.gpu + ": formulas against measured times");
  }

 private:
  void legend() {
    double x = 12;
    for (const auto& [word, precision] : kTrainingPrecisions) {
      mark(x + 4, 58, precision, false, "");
      canvas_.text(x + 12, 62, word, "quiet", 12);
      x += 30 + text_width(word, 12);
    }
  }

  void mark(double x, double y, Precision precision, bool hollow, std::string_view tooltip) {
    const std::string title = tooltip.empty() ? "" : fmt::format("<title>{}</title>", xml(tooltip));
    canvas_.raw(fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"2.6\" class=\"m g{}{}\">{}</circle>\n", coordinate(x),
                            coordinate(y), static_cast<int>(precision), hollow ? " hollow" : "", title));
  }

  void panel(std::size_t number, const std::string& operation, const std::vector<const MeasuredSeries*>& all) {
    const double left = kFitLeft + static_cast<double>(number % kFitsAcross) * (kFitWidth + kFitAcross);
    const double top = kFitTop + 24 + static_cast<double>(number / kFitsAcross) * (kFitHeight + kFitDown);
    double least = 1e300, most = 0, mean = 0, sizes = 0;
    for (const MeasuredSeries* series : all) {
      for (const MeasuredSize& size : series->sizes)
        least = std::min(least, size.ns), most = std::max(most, size.ns);
      const auto n = static_cast<double>(series->sizes.size());
      mean += n * series->errors.mean, sizes += n;
    }
    const double from = std::floor(std::log10(least)), to = std::max(from + 1, std::ceil(std::log10(most)));
    canvas_.text(left, top - 8,
                 fmt::format("{}: {} sizes, cross-validated {:.1f} %", operation, sizes, 100 * mean / sizes), "label",
                 12);
    const auto y_of = [&](double share) {
      return top + kFitHeight * (0.5 - 0.5 * std::clamp(share, -kReach, kReach) / kReach);
    };
    const auto x_of = [&](double ns) { return left + kFitWidth * (std::log10(ns) - from) / (to - from); };
    for (const int percent : {-30, -20, -10, 0, 10, 20, 30}) {
      canvas_.line(left, y_of(percent / 100.0), left + kFitWidth, y_of(percent / 100.0),
                   percent == 0 ? "tick" : "grid");
      if (number % kFitsAcross == 0)
        canvas_.text(12, y_of(percent / 100.0) + 4, percent == 0 ? std::string("0 %") : fmt::format("{:+} %", percent),
                     "quiet", 11);
    }
    for (double power = from; power <= to; ++power) {
      const double x = left + kFitWidth * (power - from) / (to - from);
      canvas_.line(x, top, x, top + kFitHeight, "grid");
      canvas_.text(x - 10, top + kFitHeight + 16, short_time({std::llround(std::pow(10, power))}), "quiet", 11);
    }
    for (const MeasuredSeries* series : all)
      for (const MeasuredSize& size : series->sizes) {
        const double share = off(*series, size);
        mark(x_of(size.ns), y_of(share), series->precision, series->busy > 1,
             fmt::format("{} {}, {} x {} x {} x {}, {} of {} busy: {}, formula {:+.1f} %", pass_words(series->pass),
                         name(series->precision), size.size.count, size.size.rows, size.size.columns, size.size.depth,
                         series->busy, series->virtual_devices, short_time({std::llround(size.ns)}), 100 * share));
      }
  }

  const MeasuredDevice& device_;
  std::map<std::string, std::vector<const MeasuredSeries*>> panels_;
  Canvas canvas_;
};

}  // namespace

std::string fit_table(const MeasuredDevice& device) {
  std::map<std::tuple<std::string, MeasuredPass, Precision>, FittedFamily> families;
  for (const MeasuredSeries& series : device.series) {
    FittedFamily& family = families[{series.operation, series.pass, series.precision}];
    family.sizes += series.sizes.size();
    if (!series.formula) continue;
    const auto n = static_cast<double>(series.sizes.size());
    family.fitted += series.sizes.size();
    family.mean += n * series.errors.mean, family.p95 += n * series.errors.p95, family.bias += n * series.errors.bias;
    for (const MeasuredSize& size : series.sizes) {
      const double place = std::round(off(series, size) / kReach * (kTextColumns / 2)) + kTextColumns / 2;
      ++family.counts[static_cast<std::size_t>(std::clamp(place, 0.0, kTextColumns - 1.0))];
    }
  }
  std::string text = fmt::format(
      "{}: formula against measurement (columns of 2 %, middle: equal), errors of sizes that "
      "a formula was not fitted on\n",
      device.gpu);
  for (const auto& [key, family] : families) {
    const auto& [operation, pass, precision] = key;
    const auto n = static_cast<double>(family.fitted);
    text += fmt::format("  {:<38} {:>6} sizes  ", fmt::format("{} {} {}", operation, pass_words(pass), name(precision)),
                        family.sizes);
    text += family.fitted == 0 ? std::string("too few for a formula\n")
                               : fmt::format("[{}]  mean {:4.1f} %  p95 {:4.1f} %  bias {:+.1f} %\n", histogram(family),
                                             100 * family.mean / n, 100 * family.p95 / n, 100 * family.bias / n);
  }
  text += fmt::format("  one operation measured again and again: +- {:.1f} %\n", 100 * device.repeat_error);
  text += algorithms(device) + launches(device) + interference(device) + collectives(device);
  if (!device.left_out.empty()) text += "  left out:\n";
  for (const std::string& each : device.left_out)
    text += "    " + each + "\n";
  return text;
}

std::string fit_svg(const MeasuredDevice& device) {
  return FitPlot(device).draw();
}

}  // namespace pipewright::io
