#include "cli/time_limit.hpp"

#include <string>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/quantity.hpp"

namespace pipewright {

double time_limit(const Arguments& arguments) {
  std::string text = arguments.last("--time-limit", "10s");
  const auto unit = text.find_first_not_of("0123456789.");
  if (unit != std::string::npos && unit > 0 && text[unit] != ' ') text = text.substr(0, unit) + " " + text.substr(unit);
  const Parsed<Time> time = parse_time(text);
  if (!time.value || *time.value <= Time{})
    throw InputError(fmt::format("--time-limit: \"{}\" is no time above 0; write e.g. --time-limit 30s",
                                 arguments.last("--time-limit", "")));
  return seconds(*time.value);
}

}  // namespace pipewright
