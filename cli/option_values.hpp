// Values of options as numbers, times and percentages: one way to read each, one form of what is refused,
//     --top: "many" is not a whole number from 1 to 1000; write e.g. --top 5
// All throw InputError.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "core/units.hpp"

namespace pipewright::cli {

struct Range {
  std::int64_t least = 1, most = kLargest;
  bool holds(std::int64_t value) const { return least <= value && value <= most; }
};

// Decimal digits only; nothing for any other text.
std::optional<std::int64_t> digits(std::string_view text);

// Nothing where neither the command line nor the user has set it. `example`: a value, for the message.
std::optional<std::int64_t> option_number(const Arguments& arguments, std::string_view option, Range range,
                                          std::string_view example);
// "1,2,8" in the order given, each at least 1.
std::vector<int> option_numbers(const Arguments& arguments, std::string_view option, std::string_view otherwise);
// Above 0: "10s", "10 min", "30d". `otherwise` is the example, too.
Time option_time(const Arguments& arguments, std::string_view option, std::string_view otherwise);
// "5%" as 0.05; "0" only where nothing is a value, too.
double option_percentage(const Arguments& arguments, std::string_view option, std::string_view otherwise, bool or_zero);

// One of the words that are known, as its number among them.
std::size_t option_word(const Arguments& arguments, std::string_view option, std::string_view otherwise,
                        std::span<const std::string_view> known);

// "a,b" as a and b, without any further rule.
std::vector<std::string> parts_of(std::string_view text);

// Throws for the first of these that was given: the option, and `why` it does not go here.
void refuse_options(const Arguments& arguments, std::initializer_list<std::string_view> options, std::string_view why);

// Of an option that has one value: what was given, or "". Throws where it was given with two.
std::string only_value(const Arguments& arguments, std::string_view option);

// The message with "--set CHANGE", which stands for this option, as the option was given: "--tokens 15T".
std::string with_option_as_given(std::string message, const Option& option, const std::string& change,
                                 const Arguments& arguments);

// --color auto|always|never. auto: colour on a terminal, unless TERM=dumb or NO_COLOR is set and not empty;
// CLICOLOR_FORCE or FORCE_COLOR, not empty and not 0, ask for it always. Throws InputError.
bool use_colour(const Arguments& arguments);

// --width N; else the terminal's own width; else 100, so that files and pipes always get the same bytes. Throws
// InputError.
int output_width(const Arguments& arguments);

}  // namespace pipewright::cli
