#include "io/yaml/value_rules.hpp"

#include <string>

#include <fmt/format.h>

namespace pipewright {
namespace {

constexpr Time kYear{365LL * 24 * 3600 * 1'000'000'000};
constexpr double kLargestPrice = 1e9;

// What is wrong, and in place of the general advice this rule's.
template <class T>
Parsed<T> refused(const std::string& why, std::string_view needed) {
  return {{}, fmt::format("{}; write {}", why.substr(0, why.find("; write ")), needed)};
}

// Of a good value: "" or what law it breaks.
template <class T>
Parsed<T> checked(Parsed<T> parsed, std::string_view needed, const auto& broken) {
  if (!parsed.value) return refused<T>(parsed.why, needed);
  const std::string_view law = broken(*parsed.value);
  return law.empty() ? parsed : refused<T>(std::string(law), needed);
}

std::string_view up_to_a_year(Time time) {
  return time > kYear ? "is more than a year" : "";
}
std::string_view some_time(Time time) {
  return time > Time{} ? "" : "must be more than 0";
}
std::string_view some_time_up_to_a_year(Time time) {
  return time > Time{} ? up_to_a_year(time) : some_time(time);
}

}  // namespace

Parsed<double> PriceRule::parse(std::string_view text) {
  return checked(parse_number(text), needed, [](double price) -> std::string_view {
    if (!(price > 0)) return "must be more than 0";
    return price < kLargestPrice ? "" : "is not a price of one device for an hour";
  });
}

Parsed<Time> MtbfRule::parse(std::string_view text) {
  return checked(parse_time(text), needed, some_time);
}

Parsed<Power> PowerRule::parse(std::string_view text) {
  return checked(parse_power(text), needed,
                 [](Power power) -> std::string_view { return power.value > 0 ? "" : "must be more than 0"; });
}

Parsed<double> FitRule::parse(std::string_view text) {
  if (!text.ends_with('%')) return {{}, fmt::format("has no %; write {}", needed)};
  text.remove_suffix(1);
  while (text.ends_with(' '))
    text.remove_suffix(1);
  Parsed<double> percent = checked(parse_number(text), needed, [](double value) -> std::string_view {
    if (!(value > 0)) return "must be more than 0 %";
    return value <= 100 ? "" : "is more than certain";
  });
  if (percent.value) *percent.value /= 100;
  return percent;
}

Parsed<Time> CheckpointRule::parse(std::string_view text) {
  return checked(parse_time(text), needed, some_time_up_to_a_year);
}

Parsed<Time> RestartRule::parse(std::string_view text) {
  return checked(parse_time(text), needed, up_to_a_year);
}

Parsed<Time> IntervalRule::parse(std::string_view text) {
  return checked(parse_time(text), needed, some_time_up_to_a_year);
}

}  // namespace pipewright
