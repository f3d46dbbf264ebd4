#include "io/text/quantity.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/folds.hpp"
#include "core/ids.hpp"
#include "io/text/errors.hpp"
#include "io/text/letters.hpp"
#include "io/text/trimmed.hpp"

namespace pipewright::io {
namespace {

// Which unit was meant by one that is none: "Gbit/s" -> "Gb/s", "gib" -> "GiB", "100 gb/s" -> "GB/s" or "Gb/s".
//
// A suggestion keeps the first letter of what was typed, whatever its case: that letter is the power of ten (k, M, G),
// and a suggestion that changes it would be wrong by a factor of 1000 and accepted without another word. "bit" and
// "byte" written out, and an upper-case B, tell bits and bytes apart; where nothing does, both are named.

constexpr std::size_t kLongest = 16;  // of a unit that somebody could have meant

void replace_end(std::string& text, std::string_view end, std::string_view with) {
  if (lower(text).ends_with(end)) text.replace(text.size() - end.size(), end.size(), with);
}

// The words and abbreviations in use, in our spelling but for upper and lower case: "Gbits/s", "Gbps" -> "Gb/s".
std::string spelled(std::string_view typed, bool per_second) {
  std::string text(typed);
  std::string rate;
  if (per_second) {
    replace_end(text, "/sec", "/s");
    replace_end(text, "ps", "/s");
    replace_end(text, "flops", "flop/s");
    if (text.ends_with("/s")) rate = "/s", text.resize(text.size() - 2);
  }
  replace_end(text, "flops", "flop");
  replace_end(text, "bits", "b");
  replace_end(text, "bit", "b");
  replace_end(text, "bytes", "B");
  replace_end(text, "byte", "B");
  for (const std::string_view second : {"seconds", "second", "secs", "sec"})
    replace_end(text, second, "s");
  return text + rate;
}

// "Gbit", and "Gb" with its prefix in the right case: bits, whatever else is near.
bool means_bits(std::string_view typed) {
  if (lower(typed).find("bit") != std::string::npos) return true;
  constexpr std::string_view prefixes = "kMGT";
  return typed.size() == 2 && prefixes.find(typed[0]) != std::string_view::npos && typed[1] == 'b';
}

using Units = std::vector<std::string_view>;

template <class Keep>
Units kept(const Units& units, const Keep& keep) {
  Units result;
  std::ranges::copy_if(units, std::back_inserter(result), keep);
  return result;
}

// Of several that differ in upper and lower case only: the one with the very same letters behind the prefix, provided
// that the prefix is right as well ("Gbps") or the letter is a B, which nobody types for a bit ("gB/s").
Units narrowed(const Units& units, std::string_view text) {
  if (const Units exact = kept(units, [&](std::string_view unit) { return unit.starts_with(text); }); !exact.empty())
    return exact;
  if (text.find('B', 1) == std::string_view::npos) return units;
  const Units bytes = kept(units, [](std::string_view unit) { return unit.find('B') != std::string_view::npos; });
  return bytes.empty() ? units : bytes;
}

// ` did you mean "GB/s" or "Gb/s"?`, or "" when nothing is near. `units`: those of the wanted kind.
std::string unit_suggestion(std::string_view typed, std::span<const std::string_view> units) {
  if (typed.empty() || typed.size() > kLongest) return {};
  const bool per_second = units.front().ends_with("/s");
  const std::string text = spelled(typed, per_second), small = lower(text);
  const bool bits = means_bits(typed);
  const Units same_prefix = kept({units.begin(), units.end()}, [&](std::string_view unit) {
    const bool of_bits = unit.find('b') != std::string_view::npos;
    return lower(unit)[0] == small[0] && (!bits || of_bits);
  });
  Units meant = kept(same_prefix, [&](std::string_view unit) { return lower(unit) == small; });
  if (meant.empty()) meant = kept(same_prefix, [&](std::string_view unit) { return lower(unit).starts_with(small); });
  meant = narrowed(meant, text);
  if (meant.empty()) {
    const std::string near = nearest(text, same_prefix);
    if (near.empty()) return {};
    return fmt::format(" did you mean \"{}\"?", near);
  }
  return fmt::format(" did you mean \"{}\"?", fmt::join(meant, "\" or \""));
}

__extension__ typedef __int128 Wide;

// value in base units = number * factor * 10^power / divisor
struct UnitRule {
  std::string_view name;
  std::int64_t factor;
  int power = 0;
  int divisor = 1;
};

enum class DimensionRule { Time, Bytes, Bandwidth, Flops, FlopRate, Power };

constexpr UnitRule kTimes[] = {{"ns", 1}, {"us", 1, 3}, {"ms", 1, 6}, {"s", 1, 9}, {"min", 60, 9}, {"h", 3600, 9}};
constexpr UnitRule kSizes[] = {{"B", 1},
                               {"kB", 1, 3},
                               {"MB", 1, 6},
                               {"GB", 1, 9},
                               {"TB", 1, 12},
                               {"KiB", std::int64_t{1} << 10},
                               {"MiB", std::int64_t{1} << 20},
                               {"GiB", std::int64_t{1} << 30},
                               {"TiB", std::int64_t{1} << 40}};
constexpr UnitRule kBandwidths[] = {{"B/s", 1},
                                    {"kB/s", 1, 3},
                                    {"MB/s", 1, 6},
                                    {"GB/s", 1, 9},
                                    {"TB/s", 1, 12},
                                    {"KiB/s", std::int64_t{1} << 10},
                                    {"MiB/s", std::int64_t{1} << 20},
                                    {"GiB/s", std::int64_t{1} << 30},
                                    {"TiB/s", std::int64_t{1} << 40},
                                    {"b/s", 1, 0, 8},
                                    {"kb/s", 1, 3, 8},
                                    {"Mb/s", 1, 6, 8},
                                    {"Gb/s", 1, 9, 8},
                                    {"Tb/s", 1, 12, 8}};
constexpr UnitRule kFlops[] = {{"FLOP", 1},      {"kFLOP", 1, 3},  {"MFLOP", 1, 6}, {"GFLOP", 1, 9},
                               {"TFLOP", 1, 12}, {"PFLOP", 1, 15}, {"EFLOP", 1, 18}};
constexpr UnitRule kFlopRates[] = {{"FLOP/s", 1},      {"kFLOP/s", 1, 3},  {"MFLOP/s", 1, 6}, {"GFLOP/s", 1, 9},
                                   {"TFLOP/s", 1, 12}, {"PFLOP/s", 1, 15}, {"EFLOP/s", 1, 18}};
constexpr UnitRule kPowers[] = {{"W", 1}, {"kW", 1, 3}, {"MW", 1, 6}};

struct DimensionInfo {
  std::string_view name;     // with its article
  std::string_view example;  // with a number of its own: the user's digits behind a guessed unit could be far off
  std::span<const UnitRule> units;
};
constexpr DimensionInfo kDimensions[] = {{"a time", "2.5 ms", kTimes},
                                         {"a size", "25 MB", kSizes},
                                         {"a bandwidth", "450 GB/s", kBandwidths},
                                         {"an amount of work", "40 GFLOP", kFlops},
                                         {"a FLOP rate", "312 TFLOP/s", kFlopRates},
                                         {"a power", "400 W", kPowers}};

const DimensionInfo& info(DimensionRule dimension) {
  return kDimensions[at(dimension)];
}

const UnitRule* find_unit(std::span<const UnitRule> units, std::string_view name) {
  const auto unit = std::ranges::find_if(units, [&](const UnitRule& u) { return u.name == name; });
  return unit == units.end() ? nullptr : &*unit;
}

// A decimal number taken apart: mantissa * 10^power. At most 24 digits, so that products stay in 128 bits.
struct Decimal {
  Wide mantissa = 0;
  int power = 0;
  std::string_view text;  // as written
};

constexpr int kMostDigits = 24;
constexpr int kLargestPower = 400;  // beyond any double: what lies there overflows or is 0

// Why the head of `text` is not a plain decimal number, where there are digits or signs of one; else "".
std::string odd_number(std::string_view text) {
  if (text.empty()) return "";
  if (text[0] == '-') return "is negative; write 0 or more";
  if (text[0] == '+') return "starts with a plus sign; leave it out";
  std::string lower(text.substr(0, 4));
  for (char& c : lower)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.starts_with(".nan") || lower.starts_with("nan")) return "is not a number (NaN); write a finite one";
  if (lower.starts_with(".inf") || lower.starts_with("inf")) return "is infinite; write a finite number";
  if (text[0] == '.') return "starts with a point; write 0 before it";
  return "";
}

struct SplitQuantity {
  Decimal number;
  std::string_view unit;
  std::string why;
  bool no_number = false;  // `why` is but that
  bool negative = false;
};

// Length of digits ["." digits] ["e" ["+"|"-"] digits] at the head of `text`.
std::size_t number_length(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t begin = i;
    while (i < text.size() && is_digit(text[i]))
      ++i;
    return i > begin;
  };
  if (!digits()) return 0;
  if (i + 1 < text.size() && text[i] == '.' && is_digit(text[i + 1])) ++i, digits();
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const std::size_t before = i++;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (!digits()) i = before;
  }
  return i;
}

std::string bad_form(std::string_view text, std::size_t length) {
  if (text.size() > 1 && text[0] == '0' && is_digit(text[1])) {
    const std::size_t nonzero = std::min(text.find_first_not_of('0'), text.size() - 1);
    return fmt::format("starts with a zero, which some readers take for octal; write {}",
                       in_quotes(text.substr(is_digit(text[nonzero]) ? nonzero : nonzero - 1)));
  }
  if (text.starts_with("0x") || text.starts_with("0X")) return "is hexadecimal; write decimal digits";
  if (text.starts_with("0b") || text.starts_with("0o")) return "is not a decimal number; write decimal digits";
  if (length < text.size() && (text[length] == '_' || text[length] == ',' || text[length] == '\''))
    return "has a separator in the number; write the digits without it";
  if (length < text.size() && text[length] == '.')
    return text.substr(0, length).find_first_of("eE") == std::string_view::npos
               ? "has a point without digits after it; leave it out"
               : "has a fraction as its power of ten; write a whole number behind the e";
  return {};
}

// Takes digits, point and exponent apart. Zeros at the end are moved into the power: they cost no digits.
std::string fill(Decimal& decimal) {
  int digits = 0, pending_zeros = 0;
  bool fraction = false;
  std::size_t i = 0;
  for (; i < decimal.text.size() && decimal.text[i] != 'e' && decimal.text[i] != 'E'; ++i) {
    const char c = decimal.text[i];
    if (c == '.') {
      fraction = true;
      continue;
    }
    if (fraction) --decimal.power;
    if (c == '0') {
      pending_zeros += decimal.mantissa != 0;
      continue;
    }
    digits += pending_zeros + 1;
    if (digits > kMostDigits) return fmt::format("has more than {} digits; round it", kMostDigits);
    for (; pending_zeros > 0; --pending_zeros)
      decimal.mantissa *= 10;
    decimal.mantissa = decimal.mantissa * 10 + (c - '0');
  }
  decimal.power += pending_zeros;
  if (i < decimal.text.size()) {
    std::string_view exponent = decimal.text.substr(i + 1);
    if (exponent.front() == '+') exponent.remove_prefix(1);
    int power = 0;
    const auto [end, error] = std::from_chars(exponent.data(), exponent.data() + exponent.size(), power);
    if (error != std::errc() || std::abs(power) > kLargestPower) return "has an exponent that is too large; shorten it";
    decimal.power += power;
  }
  return {};
}

SplitQuantity split(std::string_view text) {
  SplitQuantity result;
  text = trimmed(text, kBlanks);
  if (text.size() > 1000) return result.why = "is too long for a number", result;
  const std::size_t length = number_length(text);
  if (length == 0) {
    result.why = odd_number(text), result.negative = text.starts_with('-');
    if (result.no_number = result.why.empty(); result.no_number)
      result.why = text.empty() ? "is empty" : "is not a number";
    return result;
  }
  if (result.why = bad_form(text, length); !result.why.empty()) return result;
  result.number.text = text.substr(0, length);
  result.why = fill(result.number);
  result.unit = trimmed(text.substr(length), kBlanks);
  return result;
}

std::string unit_names(const DimensionInfo& wanted) {
  auto names = mapped<std::string_view>(wanted.units, &UnitRule::name);
  return fmt::format("{}", fmt::join(names, " "));
}

// "900 GB" where a bandwidth is needed is "900 GB/s", "25 MB/s" as a size is "25 MB"; for other kinds there is no such
// neighbour of the same magnitude.
std::string_view neighbour(std::string_view unit, const DimensionInfo& wanted) {
  const auto found = std::ranges::find_if(wanted.units, [&](const UnitRule& each) {
    const std::string_view name = each.name;
    return (name.ends_with("/s") && name.substr(0, name.size() - 2) == unit) ||
           (unit.ends_with("/s") && unit.substr(0, unit.size() - 2) == name);
  });
  return found == wanted.units.end() ? std::string_view() : found->name;
}

std::string wrong_unit(const SplitQuantity& split, DimensionRule dimension) {
  const DimensionInfo& wanted = info(dimension);
  if (split.unit.empty() && dimension == DimensionRule::Bandwidth)  // an eighth of it, or eightfold, is easily meant
    return "has no unit; write e.g. \"400 Gb/s\" (bits) or \"50 GB/s\" (bytes)";
  if (split.unit.empty()) return fmt::format("has no unit; write e.g. \"{}\"", wanted.example);
  for (const DimensionInfo& other : kDimensions) {
    if (!find_unit(other.units, split.unit)) continue;
    const std::string_view near = neighbour(split.unit, wanted);
    return fmt::format("is {}, but {} is needed; write e.g. \"{}\"", other.name, wanted.name,
                       near.empty() ? std::string(wanted.example) : fmt::format("{} {}", split.number.text, near));
  }
  auto names = mapped<std::string_view>(wanted.units, &UnitRule::name);
  return fmt::format("has the unknown unit {};{} units of {}: {}", in_quotes(split.unit),
                     unit_suggestion(split.unit, names), wanted.name, unit_names(wanted));
}

// number * factor * 10^power / divisor, rounded once, halves up; nothing when it is larger than kLargest.
std::optional<std::int64_t> exact(const Decimal& number, const UnitRule& unit) {
  Wide value = number.mantissa * unit.factor;  // < 10^24 * 3.6e3 (h), or * 2^40: below 2^121
  int power = number.power + unit.power;
  if (value == 0) return 0;
  for (; power > 0; --power) {
    value *= 10;
    if (value / unit.divisor > kLargest) return std::nullopt;
  }
  Wide divisor = unit.divisor;
  for (; power < 0; ++power) {
    divisor *= 10;
    if (divisor > (Wide{1} << 122)) return 0;  // value / divisor < 1/2
  }
  const Wide quotient = value / divisor, rest = value % divisor;
  const Wide rounded = quotient + (2 * rest >= divisor);
  if (rounded > kLargest) return std::nullopt;
  return static_cast<std::int64_t>(rounded);
}

// number * factor * 10^power / divisor as the nearest double: the power of ten goes into the text before it is
// converted, the factors that remain are powers of two.
std::optional<double> inexact(const Decimal& number, const UnitRule& unit) {
  const std::string_view mantissa = number.text.substr(0, number.text.find_first_of("eE"));
  int power = unit.power;
  if (mantissa.size() < number.text.size()) {
    std::string_view exponent = number.text.substr(mantissa.size() + 1);
    if (exponent.front() == '+') exponent.remove_prefix(1);
    int stated = 0;
    std::from_chars(exponent.data(), exponent.data() + exponent.size(), stated);
    power += stated;
  }
  const std::string text = fmt::format("{}e{}", mantissa, power);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  value *= static_cast<double>(unit.factor) / unit.divisor;
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

template <class T>
Parsed<T> parse(std::string_view text, DimensionRule dimension) {
  const SplitQuantity parts = split(text);
  if (!parts.why.empty()) {
    if (parts.no_number)
      return {
          {}, fmt::format("{}; write {}, e.g. \"{}\"", parts.why, info(dimension).name, info(dimension).example), true};
    return {{}, parts.why, false, parts.negative};
  }
  std::string_view name = parts.unit;
  if (name == "\u00b5s" || name == "\u03bcs") name = "us";
  const UnitRule* unit = find_unit(info(dimension).units, name);
  if (!unit) return {{}, wrong_unit(parts, dimension)};
  if constexpr (std::is_same_v<typename T::rep, std::int64_t>) {
    if (const auto value = exact(parts.number, *unit)) return {T{*value}, {}};
    return {{},
            dimension == DimensionRule::Time ? "overflows: the longest time is 2^62 ns (146 years); write a smaller one"
                                             : "overflows: the largest size is 2^62 B (4 EiB); write a smaller one"};
  } else {
    if (const auto value = inexact(parts.number, *unit)) return {T{*value}, {}};
    return {{}, "overflows: it is not a finite number; write a smaller one"};
  }
}

constexpr UnitRule kCounts[] = {{"", 1}, {"k", 1, 3}, {"M", 1, 6}, {"G", 1, 9}};
constexpr std::int64_t kBytesPerParameter = 4;  // fp32

std::string billions_or_bytes(std::string_view number) {
  const bool exponent = number.find_first_of("eE") != std::string_view::npos;
  const std::string_view shown = exponent ? "8" : number;
  return fmt::format("may be billions or bytes; write e.g. {0}e9, \"{0} GB\" or \"{0} bytes\"", shown);
}

// value / 10^power as an exact decimal without zeros at the end.
std::string shifted(std::int64_t value, int power) {
  std::string digits = fmt::format("{:0{}}", value, power + 1);
  if (power == 0) return digits;
  digits.insert(digits.size() - at(power), ".");
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

constexpr std::int64_t kPowersOfTen[] = {1, 1'000, 1'000'000, 1'000'000'000, 1'000'000'000'000};

// The largest unit in which the shortest decimal is at most 4 digits longer than a whole number would be, and which
// reads back to the very same double.
template <class T>
std::string shortest(T quantity, Parsed<T> (*parse_text)(std::string_view), std::span<const UnitRule> units) {
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    if (unit->divisor != 1 || unit->factor != 1) continue;
    const double scaled = quantity.value / std::pow(10.0, unit->power);
    if (scaled < 1 && unit->power > 0) continue;
    const std::string text = fmt::format("{:.12g} {}", scaled, unit->name);
    if (const auto back = parse_text(text).value; back && back->value == quantity.value) return text;
  }
  return fmt::format("{} {}", quantity.value, units.front().name);
}

}  // namespace

Parsed<Time> parse_time(std::string_view text) {
  return parse<Time>(text, DimensionRule::Time);
}
Parsed<Bytes> parse_bytes(std::string_view text) {
  return parse<Bytes>(text, DimensionRule::Bytes);
}
Parsed<Bandwidth> parse_bandwidth(std::string_view text) {
  return parse<Bandwidth>(text, DimensionRule::Bandwidth);
}
Parsed<Flops> parse_flops(std::string_view text) {
  return parse<Flops>(text, DimensionRule::Flops);
}
Parsed<FlopRate> parse_flop_rate(std::string_view text) {
  return parse<FlopRate>(text, DimensionRule::FlopRate);
}
Parsed<Power> parse_power(std::string_view text) {
  return parse<Power>(text, DimensionRule::Power);
}

Parsed<std::int64_t> parse_count(std::string_view text) {
  const SplitQuantity parts = split(text);
  if (parts.no_number) return {{}, parts.why + "; write a whole number, e.g. 8", true};
  if (!parts.why.empty()) return {{}, parts.why, false, parts.negative};
  if (!parts.unit.empty())
    return {{}, fmt::format("is not a whole number; write it without {}, e.g. 8", in_quotes(parts.unit))};
  if (!std::ranges::all_of(parts.number.text, is_digit))
    return {{}, "is not a whole number; write digits only, e.g. 8"};
  if (const auto value = exact(parts.number, {"", 1})) return {*value, {}};
  return {{}, "overflows: the largest number is 2^62; write a smaller one"};
}

Parsed<std::int64_t> parse_parameters(std::string_view text) {
  const SplitQuantity parts = split(text);
  if (parts.no_number)
    return {{}, parts.why + "; write a count or the size of the fp32 weights, e.g. 1.5M or \"6 MB\"", true};
  if (!parts.why.empty()) return {{}, parts.why, false, parts.negative};
  if (const UnitRule* unit = find_unit(kCounts, parts.unit)) {
    const bool whole = parts.number.mantissa == 0 || parts.number.power + unit->power >= 0;
    if (!whole) return {{}, "is not a whole number of parameters; write the count, e.g. 1.5M or 1500000"};
    if (const auto value = exact(parts.number, *unit)) return {*value, {}};
    return {{}, "overflows: the largest number is 2^62; write a smaller one"};
  }
  if (parts.unit == "B") return {{}, billions_or_bytes(parts.number.text)};
  const UnitRule* unit = find_unit(kSizes, parts.unit == "bytes" ? "B" : parts.unit);
  if (!unit)
    return {{},
            fmt::format("has the unknown unit {}; a count takes k M G (1.5M), a size of the fp32 weights bytes kB MB "
                        "GB TB KiB MiB GiB TiB",
                        in_quotes(parts.unit))};
  const auto bytes = exact(parts.number, *unit);
  if (!bytes) return {{}, "overflows: the largest size is 2^62 B (4 EiB); write a smaller one"};
  if (*bytes % kBytesPerParameter != 0)
    return {{}, "is not a whole number of fp32 weights (4 B each); write their count"};
  return {*bytes / kBytesPerParameter, {}};
}

Parsed<double> parse_number(std::string_view text) {
  const SplitQuantity parts = split(text);
  if (parts.no_number) return {{}, parts.why + "; write e.g. 0.5", true};
  if (!parts.why.empty()) return {{}, parts.why, false, parts.negative};
  if (parts.unit == "%") return {{}, "is a percentage; write it as a fraction: 90 % is 0.9"};
  if (!parts.unit.empty()) return {{}, fmt::format("is not a plain number; leave out {}", in_quotes(parts.unit))};
  if (const auto value = inexact(parts.number, {"", 1})) return {*value, {}};
  return {{}, "overflows: it is not a finite number; write a smaller one"};
}

Parsed<std::int64_t> parse_scaled(std::string_view text, int power_of_ten) {
  const SplitQuantity parts = split(text);
  if (!parts.why.empty()) return {{}, parts.why, false, parts.negative};
  if (!parts.unit.empty()) return {{}, fmt::format("has {} after the number", in_quotes(parts.unit))};
  if (const auto value = exact(parts.number, {"", 1, power_of_ten})) return {*value, {}};
  return {{}, "overflows"};
}

std::string to_text(Time time) {
  constexpr std::array<std::string_view, 4> names = {"ns", "us", "ms", "s"};
  std::size_t unit = 3;
  while (unit > 0 && time.value < kPowersOfTen[unit])
    --unit;
  return fmt::format("{} {}", shifted(time.value, static_cast<int>(3 * unit)), names[unit]);
}

std::string to_text(Bytes bytes) {
  constexpr std::array<std::string_view, 5> decimal = {"B", "kB", "MB", "GB", "TB"};
  constexpr std::array<std::string_view, 5> binary = {"B", "KiB", "MiB", "GiB", "TiB"};
  for (std::size_t unit = 4; unit > 0 && bytes.value > 0; --unit) {
    if (bytes.value % kPowersOfTen[unit] == 0)
      return fmt::format("{} {}", bytes.value / kPowersOfTen[unit], decimal[unit]);
    if (bytes.value % (std::int64_t{1} << (10 * unit)) == 0)
      return fmt::format("{} {}", bytes.value >> (10 * unit), binary[unit]);
  }
  return fmt::format("{} B", bytes.value);
}

std::string to_text(Bandwidth bandwidth) {
  return shortest(bandwidth, parse_bandwidth, kBandwidths);
}
std::string to_text(Flops flops) {
  return shortest(flops, parse_flops, kFlops);
}
std::string to_text(FlopRate rate) {
  return shortest(rate, parse_flop_rate, kFlopRates);
}
std::string to_text(Power power) {
  return shortest(power, parse_power, kPowers);
}

}  // namespace pipewright::io
