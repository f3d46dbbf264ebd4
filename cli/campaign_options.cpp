#include "cli/campaign_options.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/campaign_text.hpp"
#include "io/quantity.hpp"
#include "io/value_rules.hpp"

namespace pipewright {
namespace {

Parsed<double> some_amount(std::string_view text) {
  Parsed<double> amount = parse_amount(text);
  if (!amount.value && text.starts_with('-')) amount.why += "; write more than 0, e.g. 15T";
  return amount;
}

// What was given, if it was; refused where it is no such value.
template <class T>
bool given(const Arguments& arguments, const char* option, Parsed<T> (*parse)(std::string_view), std::string& text) {
  if (!arguments.has(option)) return false;
  text = only_value(arguments, option);
  if (const Parsed<T> parsed = parse(text); !parsed.value)
    throw InputError(fmt::format("{}: \"{}\" {}", option, text.substr(0, 64), parsed.why));
  return true;
}

// Whether a change of a whole section, campaign={length: 1T tokens, ...}, says something of this key of it.
bool says(std::string_view change, std::string_view key) {
  const std::size_t dot = key.find('.');
  if (!change.starts_with(std::string(key.substr(0, dot)) + "=")) return false;
  const std::string last = std::string(key.substr(dot + 1)) + ":";
  for (std::size_t at = 0; (at = change.find(last, at)) != std::string_view::npos; ++at)
    if (std::string_view("{, =\"'").find(change[at - 1]) != std::string_view::npos) return true;
  return false;
}

// Of settings that --set has, one of this key would be overruled silently.
void refuse_both(const Arguments& arguments, const std::string& option, const std::string& set) {
  const std::string key = set.substr(0, set.find('='));
  for (const std::string& other : arguments.all("--set"))
    if ((other.starts_with(key + "=") && other != set) || says(other, key))
      throw InputError(fmt::format("{}: --set {} says another; keep one of them", option, other.substr(0, 64)));
}

// "campaign.length=15T tokens", or "".
std::string length(const Arguments& arguments) {
  std::string set, first;
  for (const char* word : {"tokens", "samples", "epochs"}) {
    const std::string option = std::string("--") + word;
    std::string text;
    if (!given(arguments, option.c_str(), some_amount, text)) continue;
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

std::string with_campaign_as_given(std::string message, const Arguments& arguments) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> keys = {{{"--tokens", "length"},
                                                                                  {"--samples", "length"},
                                                                                  {"--epochs", "length"},
                                                                                  {"--price", "price_per_hour"},
                                                                                  {"--mtbf", "mtbf"},
                                                                                  {"--checkpoint", "checkpoint"},
                                                                                  {"--restart", "restart"},
                                                                                  {"--seed", "seed"}}};
  for (const auto& [option, key] : keys) {
    if (!arguments.has(option)) continue;
    const std::string value = arguments.last(option, ""), given = fmt::format("{} {}", option, value);
    const std::string change =
        fmt::format("--set campaign.{}={}{}", key, value, key == "length" ? fmt::format(" {}", option.substr(2)) : "");
    for (std::size_t at = 0; (at = message.find(change, at)) != std::string::npos; at += given.size())
      message.replace(at, change.size(), given);
  }
  return message;
}

std::vector<std::string> settings(const Arguments& arguments) {
  std::vector<std::string> set = arguments.all("--set");
  if (std::string text = length(arguments); !text.empty()) {
    refuse_both(arguments, "--" + text.substr(text.rfind(' ') + 1), text);
    set.push_back(std::move(text));
  }
  std::string text;
  const auto add = [&](const char* option, const char* key) {
    set.push_back(fmt::format("{}={}", key, text));
    refuse_both(arguments, option, set.back());
  };
  if (given(arguments, "--price", PriceRule::parse, text)) add("--price", "campaign.price_per_hour");
  if (given(arguments, "--mtbf", MtbfRule::parse, text)) add("--mtbf", "campaign.mtbf");
  if (given(arguments, "--checkpoint", CheckpointRule::parse, text)) add("--checkpoint", "campaign.checkpoint");
  if (given(arguments, "--restart", RestartRule::parse, text)) add("--restart", "campaign.restart");
  if (given(arguments, "--seed", parse_count, text)) add("--seed", "campaign.seed");
  if (given(arguments, "--fit", FitRule::parse, text)) add("--fit", "plan.fit");
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
    refuse_both(arguments, "--ask", set.back());
  }
  return set;
}

}  // namespace pipewright
