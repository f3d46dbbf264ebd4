#include "cli/campaign_options.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/option_values.hpp"
#include "core/check.hpp"
#include "io/read/campaign_text.hpp"
#include "io/text/quantity.hpp"
#include "io/yaml/value_rules.hpp"

namespace pipewright::cli {
namespace {

// "" where `parse` takes the text.
template <auto& parse>
std::string why_not(std::string_view text) {
  const auto parsed = parse(text);
  return parsed.value ? "" : parsed.why;
}

constexpr std::string_view kLength = "campaign.length";  // "15T tokens": three options say it

struct KeyOption {
  std::string_view option, key;
  std::string (*why_not)(std::string_view text);
};
constexpr std::array<KeyOption, 9> kKeyOptions = {{{"--tokens", kLength, why_not<parse_amount>},
                                                   {"--samples", kLength, why_not<parse_amount>},
                                                   {"--epochs", kLength, why_not<parse_amount>},
                                                   {"--price", "campaign.price_per_hour", why_not<kPriceRule>},
                                                   {"--mtbf", "campaign.mtbf", why_not<kMtbfRule>},
                                                   {"--checkpoint", "campaign.checkpoint", why_not<kCheckpointRule>},
                                                   {"--restart", "campaign.restart", why_not<kRestartRule>},
                                                   {"--seed", "campaign.seed", why_not<parse_count>},
                                                   {"--fit", "plan.fit", why_not<kFitRule>}}};

std::string change_of(const KeyOption& each, const std::string& text) {
  return fmt::format("{}={}{}", each.key, text, each.key == kLength ? fmt::format(" {}", each.option.substr(2)) : "");
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
void refuse_both(const Arguments& arguments, std::string_view option, const std::string& set) {
  const std::string key = set.substr(0, set.find('='));
  for (const std::string& other : arguments.all("--set"))
    if ((other.starts_with(key + "=") && other != set) || says(other, key))
      throw InputError(Place{}, std::string(option),
                       fmt::format("--set {} says another; keep one of them", other.substr(0, 64)));
}

void check_questions(const std::string& all) {
  constexpr std::array<std::string_view, 4> known = {"cost", "energy", "goodput", "spread"};
  for (const std::string& name : parts_of(all))
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw InputError(Place{}, "--ask", unknown_name(name.substr(0, 64), known));
}

}  // namespace

std::string campaign_option(const Arguments& arguments) {
  for (const Option& option : kCampaignOptions)
    if (arguments.has(option.name)) return std::string(option.name);
  return "";
}

std::string with_campaign_as_given(std::string message, const Arguments& arguments) {
  for (const KeyOption& each : kKeyOptions)
    if (arguments.has(each.option))
      message = with_option_as_given(std::move(message), {.name = each.option, .value = "VALUE"},
                                     change_of(each, arguments.last(each.option, "")), arguments);
  return message;
}

std::vector<std::string> settings(const Arguments& arguments) {
  std::vector<std::string> set = arguments.all("--set");
  const auto add = [&](std::string_view option, std::string change) {
    refuse_both(arguments, option, change);
    set.push_back(std::move(change));
  };
  std::string_view length;  // the option that says it
  for (const KeyOption& each : kKeyOptions) {
    if (!arguments.has(each.option)) continue;
    const std::string text = only_value(arguments, each.option);
    if (const std::string why = each.why_not(text); !why.empty())
      throw InputError(Place{}, std::string(each.option), fmt::format("\"{}\" {}", text.substr(0, 64), why));
    if (each.key == kLength && !length.empty())
      throw InputError(Place{}, std::string(each.option), fmt::format("{} is given, too; give one of them", length));
    if (each.key == kLength) length = each.option;
    add(each.option, change_of(each, text));
  }
  if (arguments.has("--ask")) {
    const std::string all = only_value(arguments, "--ask");
    check_questions(all);
    add("--ask", "campaign.ask=[" + all + "]");
  }
  return set;
}

}  // namespace pipewright::cli
