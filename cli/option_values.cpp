#include "cli/option_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/check.hpp"
#include "io/text/errors.hpp"
#include "io/text/quantity.hpp"

namespace pipewright::cli {
namespace {

[[noreturn]] void refuse(std::string_view option, std::string_view text, const std::string& what,
                         std::string_view example) {
  throw InputError(Place{}, std::string(option),
                   fmt::format("{} is not {}; write e.g. {} {}", in_quotes(text), what, option, example));
}

constexpr int kNarrowestLine = 40, kWidestLine = 1000, kDefaultWidth = 100;

bool set_and_true(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

}  // namespace

std::optional<std::int64_t> digits(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size() && !text.starts_with('-');
  return whole ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> option_number(const Arguments& arguments, std::string_view option, Range range,
                                          std::string_view example) {
  const std::string text = arguments.last(option, "");
  if (text.empty() && !arguments.has(option)) return std::nullopt;
  const auto value = digits(text);
  if (!value || !range.holds(*value))
    refuse(option, text,
           range.most == kLargest ? fmt::format("a whole number of at least {}", range.least)
                                  : fmt::format("a whole number from {} to {}", range.least, range.most),
           example);
  return value;
}

std::vector<int> option_numbers(const Arguments& arguments, std::string_view option, std::string_view otherwise) {
  const std::string text = arguments.last(option, otherwise);
  std::vector<int> numbers;
  for (const std::string& part : parts_of(text)) {
    const auto value = digits(part);
    if (!value || !Range{1, INT32_MAX}.holds(*value))
      refuse(option, text, "a list of whole numbers of at least 1", "1,2,8");
    numbers.push_back(static_cast<int>(*value));
  }
  return numbers;
}

Time option_time(const Arguments& arguments, std::string_view option, std::string_view otherwise) {
  const std::string text = arguments.has(option) ? only_value(arguments, option) : std::string(otherwise);
  Parsed<Time> time = parse_time(text);
  const auto unit = std::min(text.find_first_not_of("0123456789. "), text.size());
  if (const std::string_view name = std::string_view(text).substr(unit); name == "d" || name == "day" || name == "days")
    if (const Parsed<double> days = parse_number(std::string_view(text).substr(0, unit));
        days.value && *days.value < 5e4)
      time.value = Time{std::llround(*days.value * 86400e9)};
  if (!time.value || *time.value <= Time{}) refuse(option, text, "a time above 0", otherwise);
  return *time.value;
}

double option_percentage(const Arguments& arguments, std::string_view option, std::string_view otherwise,
                         bool or_zero) {
  const std::string text = arguments.last(option, otherwise);
  const bool percent = text.ends_with('%');
  const Parsed<double> value = parse_number(std::string_view(text).substr(0, text.size() - (percent ? 1 : 0)));
  const bool zero = value.value && *value.value == 0;
  if (!value.value || *value.value < 0 || *value.value > 1000 || (zero ? !or_zero : !percent))
    refuse(option, text, "a percentage", otherwise);
  return *value.value / 100;
}

std::size_t option_word(const Arguments& arguments, std::string_view option, std::string_view otherwise,
                        std::span<const std::string_view> known) {
  const std::string word = arguments.last(option, otherwise);
  const auto found = std::ranges::find(known, word);
  if (found == known.end()) throw InputError(Place{}, std::string(option), unknown_name(word, known));
  return static_cast<std::size_t>(found - known.begin());
}

void refuse_options(const Arguments& arguments, std::initializer_list<std::string_view> options, std::string_view why) {
  for (const std::string_view option : options)
    if (arguments.has(option)) throw InputError(fmt::format("{}{}", option, why));
}

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string only_value(const Arguments& arguments, std::string_view option) {
  const std::vector<std::string> values = arguments.all(option);
  for (const std::string& value : values)
    if (value != values.front())
      throw InputError(Place{}, std::string(option),
                       fmt::format("\"{}\" and \"{}\" are given; keep one of them", values.front().substr(0, 64),
                                   value.substr(0, 64)));
  return arguments.last(option, "");
}

std::string with_option_as_given(std::string message, const Option& option, const std::string& change,
                                 const Arguments& arguments) {
  const std::string given =
      std::string(option.name) + (option.value.empty() ? "" : " " + arguments.last(option.name, ""));
  const std::string set = "--set " + change;
  for (std::size_t at = 0; (at = message.find(set, at)) != std::string::npos; at += given.size())
    message.replace(at, set.size(), given);
  return message;
}

bool use_colour(const Arguments& arguments) {
  constexpr std::array<std::string_view, 3> known = {"auto", "always", "never"};
  const std::size_t when = option_word(arguments, "--color", known.front(), known);
  if (when > 0) return when == 1;
  if (set_and_true("CLICOLOR_FORCE") || set_and_true("FORCE_COLOR")) return true;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool refused =
      (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::strcmp(term, "dumb") == 0);
  return !refused && isatty(STDOUT_FILENO) == 1;
}

int output_width(const Arguments& arguments) {
  if (const auto width = option_number(arguments, "--width", {kNarrowestLine, kWidestLine}, "100"))
    return static_cast<int>(*width);
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::clamp(static_cast<int>(size.ws_col), kNarrowestLine, kWidestLine);
  return kDefaultWidth;
}

}  // namespace pipewright::cli
