#include "cli/show_keys.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/errors.hpp"
#include "io/fields.hpp"
#include "io/sections.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright {
namespace {

// What a section's keys begin with on the command line; nothing where --set does not reach it.
std::optional<std::string> prefix_of(std::string_view section) {
  constexpr std::array<std::string_view, 11> as_named = {"cluster",
                                                         "cluster.node",
                                                         "cluster.node.links",
                                                         "cluster.network",
                                                         "training",
                                                         "training.framework",
                                                         "plan",
                                                         "run",
                                                         "campaign",
                                                         "model.trained_as",
                                                         "model.trained_as.rope_scaling"};
  if (std::find(as_named.begin(), as_named.end(), section) != as_named.end()) return std::string(section) + ".";
  if (section == "scenario") return "";
  if (section == "cost.uniform") return "cost.uniform.";
  if (section.starts_with("model (")) return "model.";  // a family, or one of the ways to state a model
  if (section == "model.layers") return "model.layers.<i>.";
  if (section == "device" || section == "device.host" || section == "device.efficiency.<kind>")
    return "cluster.node." + std::string(section) + ".";
  return std::nullopt;
}

}  // namespace

std::vector<ListEntry> settable_keys() {
  std::vector<ListEntry> keys;
  for (const SectionDoc& section : scenario_docs()) {
    const std::optional<std::string> prefix = prefix_of(section.name);
    if (!prefix) continue;
    const bool family = section.name.starts_with("model (");
    for (const FieldDoc& field : section.fields) {
      const std::string key = *prefix + std::string(field.key);
      std::string summary = fmt::format("{}: {}", field.takes, field.meaning);
      if (family) summary = section.name.substr(7, section.name.size() - 8) + "; " + summary;
      const auto same = std::find_if(keys.begin(), keys.end(), [&](const ListEntry& each) { return each.name == key; });
      if (same == keys.end()) keys.push_back({key, summary});
    }
  }
  return keys;
}

std::vector<ListEntry> keys_with(const std::string& part) {
  std::vector<ListEntry> keys = settable_keys();
  std::erase_if(keys, [&](const ListEntry& key) { return key.name.find(part) == std::string::npos; });
  if (keys.empty())
    throw InputError(fmt::format("show keys: no key contains {}; pipewright show keys lists all", in_quotes(part)));
  return keys;
}

std::string key_list(const std::string& part, int width) {
  std::string text;
  for (const ListEntry& key : keys_with(part))
    text += wrapped(padded(key.name, 28) + "  ", key.summary, width);
  return text;
}

}  // namespace pipewright
