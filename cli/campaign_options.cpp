#include "cli/campaign_options.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/campaign_text.hpp"
#include "io/quantity.hpp"

namespace pipewright {
namespace {

// The quantity's own advice, in the words of this option: 0 is refused, and its values are of hours, not milliseconds.
std::string advice(std::string why, bool zero_is_good, std::string_view example) {
  const auto replace = [&](std::string_view part, const std::string& with) {
    if (const std::size_t at = why.find(part); at != std::string::npos) why.replace(at, part.size(), with);
  };
  if (!zero_is_good) replace("write 0 or more", "write more than 0");
  if (!example.empty()) replace("\"2.5 ms\"", fmt::format("\"{}\"", example));
  return why;
}

// What was given, if it was; refused where it is no such value.
template <class T>
bool given(const Arguments& arguments, const char* option, Parsed<T> (*parse)(std::string_view), std::string& text,
           bool zero_is_good = false, std::string_view example = "") {
  if (!arguments.has(option)) return false;
  text = only_value(arguments, option);
  if (const Parsed<T> parsed = parse(text); !parsed.value)
    throw InputError(
        fmt::format("{}: \"{}\" {}", option, text.substr(0, 64), advice(parsed.why, zero_is_good, example)));
  return true;
}

// Of settings that --set has, one of this key would be overruled silently.
void refuse_both(const Arguments& arguments, const std::string& option, const std::string& set) {
  const std::string key = set.substr(0, set.find('=') + 1);
  for (const std::string& other : arguments.all("--set"))
    if (other.starts_with(key) && other != set)
      throw InputError(fmt::format("{}: --set {} says another; keep one of them", option, other.substr(0, 64)));
}

// "campaign.length=15T tokens", or "".
std::string length(const Arguments& arguments) {
  std::string set, first;
  for (const char* word : {"tokens", "samples", "epochs"}) {
    const std::string option = std::string("--") + word;
    std::string text;
    if (!given(arguments, option.c_str(), parse_amount, text)) continue;
    if (!set.empty()) throw InputError(fmt::format("{}: {} is given, too; give one of them", option, first));
    set = fmt::format("campaign.length={} {}", text, word), first = option;
  }
  return set;
}

}  // namespace

std::string only_value(const Arguments& arguments, std::string_view option) {
  const std::vector<std::string> values = arguments.all(option);
  for (const std::string& value : values)
    if (value != values.front())
      throw InputError(fmt::format("{}: \"{}\" and \"{}\" are given; keep one of them", option,
                                   values.front().substr(0, 64), value.substr(0, 64)));
  return arguments.last(option, "");
}

std::string campaign_option(const Arguments& arguments) {
  for (const Option& option : kCampaignOptions)
    if (arguments.has(option.name)) return std::string(option.name);
  return "";
}

std::vector<std::string> settings(const Arguments& arguments) {
  std::vector<std::string> set = arguments.all("--set");
  if (std::string text = length(arguments); !text.empty()) {
    refuse_both(arguments, "--" + text.substr(text.rfind(' ') + 1), text);
    set.push_back(std::move(text));
  }
  std::string text;
  const auto add = [&](const char* option, const char* key) {
    set.push_back(fmt::format("campaign.{}={}", key, text));
    refuse_both(arguments, option, set.back());
  };
  if (given(arguments, "--price", parse_number, text)) add("--price", "price_per_hour");
  if (given(arguments, "--mtbf", parse_time, text, false, "50000 h")) add("--mtbf", "mtbf");
  if (given(arguments, "--checkpoint", parse_time, text, false, "60 s")) add("--checkpoint", "checkpoint");
  if (given(arguments, "--restart", parse_time, text, true, "10 min")) add("--restart", "restart");
  if (given(arguments, "--seed", parse_count, text, true)) add("--seed", "seed");
  if (arguments.has("--ask")) {
    constexpr std::array<std::string_view, 4> known = {"cost", "energy", "goodput", "spread"};
    const std::string all = only_value(arguments, "--ask");
    for (std::size_t begin = 0; begin <= all.size();) {
      const std::size_t end = std::min(all.find(',', begin), all.size());
      const std::string name = all.substr(begin, end - begin);
      if (std::find(known.begin(), known.end(), name) == known.end())
        throw InputError("--ask: " + unknown_name(name.substr(0, 64), known));
      begin = end + 1;
    }
    set.push_back("campaign.ask=[" + all + "]");
  }
  return set;
}

}  // namespace pipewright
