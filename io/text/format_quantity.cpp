#include "io/text/format_quantity.hpp"

#include <array>
#include <cmath>

#include <fmt/format.h>

namespace pipewright::io {
namespace {

struct ShownUnit {
  double size;
  std::string_view name;
};
constexpr std::array<ShownUnit, 4> kShownTimes{{{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}}};
constexpr std::array<ShownUnit, 5> kShownSizes{
    {{1, "B"}, {1024, "KiB"}, {1048576, "MiB"}, {1073741824, "GiB"}, {1099511627776, "TiB"}}};
constexpr std::array<ShownUnit, 5> kRates{{{1, "B/s"}, {1e3, "kB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}, {1e12, "TB/s"}}};
constexpr std::array<ShownUnit, 5> kShownCounts{{{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "B"}, {1e12, "T"}}};

// Largest unit in which the value, once rounded to `digits`, is at least 1.
template <std::size_t N>
const ShownUnit& shown_unit(double value, const std::array<ShownUnit, N>& units, int digits) {
  const double just_below = 1 - 0.5 * std::pow(10.0, -digits);
  std::size_t best = 0;
  for (std::size_t i = 1; i < N; ++i)
    if (std::fabs(value) >= units[i].size * just_below) best = i;
  return units[best];
}

// Decimals that show `digits` significant ones, counted after rounding: 9.996 has one fewer than 9.99.
int decimals_for(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const std::string scientific = fmt::format("{:.{}e}", value, digits - 1);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  return std::max(0, digits - 1 - exponent);
}

template <std::size_t N>
std::string in_unit(double value, const std::array<ShownUnit, N>& units, int digits) {
  const ShownUnit& unit = shown_unit(value, units, digits);
  const bool whole = unit.size == 1;
  return (whole ? fmt::format("{:.0f}", value) : significant(value / unit.size, digits)) +
         (unit.name.empty() ? "" : " ") + std::string(unit.name);
}

}  // namespace

std::string exact_seconds(Time time) {
  const bool negative = time.value < 0;
  const std::uint64_t ns = negative ? -static_cast<std::uint64_t>(time.value) : static_cast<std::uint64_t>(time.value);
  return fmt::format("{}{}.{:09d}", negative ? "-" : "", ns / 1'000'000'000, ns % 1'000'000'000);
}

std::string significant(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  return fmt::format("{:.{}f}", value, decimals_for(value, digits));
}

std::string short_time(Time time, int digits) {
  return time.value == 0 ? "0 s" : in_unit(static_cast<double>(time.value), kShownTimes, digits);
}

std::string brief(double value) {
  std::string text = significant(value, 4);
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string brief_time(Time time) {
  if (time.value == 0) return "0 s";
  const auto value = static_cast<double>(time.value);
  const ShownUnit& unit = shown_unit(value, kShownTimes, 4);
  return brief(value / unit.size) + " " + std::string(unit.name);
}

std::string short_bytes(Bytes bytes) {
  return in_unit(static_cast<double>(bytes.value), kShownSizes, 3);
}

std::string short_count(double count) {
  return in_unit(count, kShownCounts, 3);
}

std::string short_bandwidth(Bandwidth bandwidth) {
  return std::isfinite(bandwidth.value) ? in_unit(bandwidth.value, kRates, 3) : "no limit";
}

std::string percent(double share) {
  const double value = 100 * share, size = std::fabs(value);
  if (value > 0 && value < 0.005) return "<0.01 %";
  const int decimals = size >= 99.95 || size < 0.005 ? 0 : size < 0.995 ? 2 : 1;
  return fmt::format("{:.{}f} %", value, decimals);
}

std::string whole_percent(double share) {
  return share > 0 && share < 0.005 ? "<1 %" : fmt::format("{:.0f} %", 100 * share);
}

std::string signed_percent(double share) {
  return fmt::format("{:+.1f} %", 100 * share);
}

Scale time_scale(Time largest) {
  const double value = static_cast<double>(largest.value);
  const ShownUnit& unit = shown_unit(value, kShownTimes, 4);
  return {unit.size, std::string(unit.name), unit.size == 1 ? 0 : decimals_for(value / unit.size, 4)};
}

Scale bytes_scale(Bytes largest) {
  const double value = static_cast<double>(largest.value);
  const ShownUnit& unit = shown_unit(value, kShownSizes, 3);
  return {unit.size, std::string(unit.name), unit.size == 1 ? 0 : decimals_for(value / unit.size, 3)};
}

std::string in_scale(std::int64_t value, const Scale& scale) {
  if (value == 0) return "0";
  const double figure = static_cast<double>(value) / scale.unit;
  const double smallest = std::pow(10.0, -scale.decimals);  // that is not shown as zero
  return figure > 0 && figure < smallest / 2 ? fmt::format("<{:.{}f}", smallest, scale.decimals)
                                             : fmt::format("{:.{}f}", figure, scale.decimals);
}

int display_width(std::string_view text) {
  int width = 0;
  for (const char c : text)
    width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // continuation bytes take no column
  return width;
}

}  // namespace pipewright::io
