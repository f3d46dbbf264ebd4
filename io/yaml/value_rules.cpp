#include "io/yaml/value_rules.hpp"

#include <string>

#include <fmt/format.h>

namespace pipewright::io {
namespace {

constexpr Time kYear{365LL * 24 * 3600 * 1'000'000'000};

template <class T>
std::string_view more_than_0(T value) {
  return value > T{} ? "" : "must be more than 0";
}
std::string_view up_to_a_year(Time time) {
  return time > kYear ? "is more than a year" : "";
}
std::string_view some_time_up_to_a_year(Time time) {
  return time > Time{} ? up_to_a_year(time) : more_than_0(time);
}

Parsed<double> parse_percentage(std::string_view text) {
  if (!text.ends_with('%')) return {{}, "has no %"};
  text.remove_suffix(1);
  Parsed<double> percent = parse_number(text.substr(0, text.find_last_not_of(' ') + 1));
  if (percent.value) *percent.value /= 100;
  return percent;
}

}  // namespace

// What is wrong, and in place of the general advice the rule's.
template <class T>
Parsed<T> ValueRule<T>::operator()(std::string_view text) const {
  const Parsed<T> parsed = read(text);
  const std::string why = parsed.value ? std::string(broken(*parsed.value)) : parsed.why;
  if (why.empty()) return parsed;
  return {{}, fmt::format("{}; write {}", why.substr(0, why.find("; write ")), needed)};
}
template struct ValueRule<double>;
template struct ValueRule<Time>;
template struct ValueRule<Power>;

constinit const ValueRule<double> kPriceRule{
    "the price of one device for one hour, in one currency throughout, more than 0 and less than 1e9, e.g. 2.50",
    parse_number, [](double price) -> std::string_view {
      return price < 1e9 ? more_than_0(price) : "is not a price of one device for an hour";
    }};
constinit const ValueRule<double> kFitRule{
    "the probability with which a plan must fit, more than 0 %, at most 100 %, e.g. 95%", parse_percentage,
    [](double share) -> std::string_view {
      if (!(share > 0)) return "must be more than 0 %";
      return share <= 1 ? "" : "is more than certain";
    }};
constinit const ValueRule<Time> kMtbfRule{"the mean time between failures of one device, more than 0, e.g. \"50000 h\"",
                                          parse_time, more_than_0<Time>};
constinit const ValueRule<Time> kCheckpointRule{
    "how long training stops while a checkpoint is written, more than 0, at most a year, e.g. \"60 s\"", parse_time,
    some_time_up_to_a_year};
constinit const ValueRule<Time> kRestartRule{
    "the time from a failure until the training goes on, 0 or more, at most a year, e.g. \"10 min\"", parse_time,
    up_to_a_year};
constinit const ValueRule<Time> kIntervalRule{
    "the time of training between two checkpoints, more than 0, at most a year, e.g. \"30 min\"", parse_time,
    some_time_up_to_a_year};
constinit const ValueRule<Power> kPowerRule{"what one device draws at most, more than 0, e.g. \"700 W\"", parse_power,
                                            more_than_0<Power>};

}  // namespace pipewright::io
