#include "io/writers/interval_text.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"

namespace pipewright::io {
namespace {

constexpr std::size_t kMostCauses = 4;

std::string causes_text(const std::vector<RangeCause>& causes) {
  std::string text;
  double rest = 1;
  for (std::size_t i = 0; i < std::min(causes.size(), kMostCauses); ++i) {
    const RangeCause& each = causes[i];
    text += fmt::format("{}{} {}{} ({})", i > 0 ? " · " : "", each.what, percent(each.share),
                        i == 0 ? " of the variance" : "", each.known);
    rest -= each.share;
  }
  if (causes.size() > kMostCauses)
    text += fmt::format(" · {} other{} {}", causes.size() - kMostCauses, causes.size() == kMostCauses + 1 ? "" : "s",
                        percent(std::max(rest, 0.0)));
  return text;
}

std::string halving_text(const SpeedRange& range) {
  if (range.to_halve == 1) return "; that halves the interval";
  if (range.to_halve == 0) return "; no measurement of constants halves it, as the rest is what the model leaves out";
  std::string names;
  int left = range.to_halve;
  for (const RangeCause& each : range.causes)
    if (!each.measure.empty() && left-- > 0) names += (names.empty() ? "" : ", ") + each.what;
  return "; to halve the interval: " + names;
}

}  // namespace

std::string within_90(std::string_view low, std::string_view high) {
  return fmt::format("90 % within {} to {}", low, high);
}

std::vector<std::pair<std::string, std::string>> interval_lines(const Report& report) {
  if (!report.range || report.range->causes.empty()) return {};
  const std::vector<RangeCause>& causes = report.range->causes;
  std::vector<std::pair<std::string, std::string>> lines = {{"interval", causes_text(causes)}};
  const auto measurable = std::ranges::find_if(causes, [](const RangeCause& each) { return !each.measure.empty(); });
  if (measurable == causes.end()) return lines;
  lines.emplace_back("to measure",
                     fmt::format("{}, by {}: {}{}", measurable->what, measurable->measure,
                                 within_90(short_time(measurable->fastest, 4), short_time(measurable->slowest, 4)),
                                 halving_text(*report.range)));
  return lines;
}

std::string memory_within_90(const MemoryNeed& need) {
  const Bytes low = std::min(quantile(need, 0.05), need.with_reserve);
  const Bytes high = std::max(quantile(need, 0.95), need.with_reserve);
  const Bytes width = need.high - need.low, by_allocator = need.rounding + need.fragmentation;
  if (width == Bytes{}) return {};
  if (width <= by_allocator && ratio(high - low, need.with_reserve) < 0.02) return {};  // of no use to anybody
  if (width <= by_allocator)  // the model states what it keeps
    return within_90(short_bytes(low), short_bytes(high)) + " (what the allocator adds)";
  const double allocator = ratio(by_allocator, width);
  return fmt::format("{} (activations {}, allocator {} of its width)", within_90(short_bytes(low), short_bytes(high)),
                     percent(1 - allocator), percent(allocator));
}

}  // namespace pipewright::io
