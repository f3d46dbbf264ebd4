// Fields that a scenario leaves to `pipewright plan`.
//
//   plan: {stages: auto, tensor_parallel: {auto: [1, 2, 4]}, schedule: 1f1b}
#include <algorithm>

#include <fmt/format.h>

#include "io/text/quote.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

constexpr std::string_view kAuto = "auto";

bool says_auto(const Yaml& value) {
  return value.is(Yaml::Type::Scalar) && !value.quoted && value.scalar == kAuto;
}

// {auto: [...]}
bool lists_values(const Yaml& value) {
  return value.is(Yaml::Type::Map) && value.map.size() == 1 && value.map.front().first.text == kAuto;
}

bool read_values(Reader& reader, const At& at, std::vector<std::string>& values) {
  if (!is_list(reader, at, "a list of the values that the field may take")) return false;
  if (at.yaml.list.empty()) {
    reader.error(at, "has no values; list at least one, or write auto for all that make sense");
    return false;
  }
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    const At here = at.entry(i);
    const std::string* text = scalar(reader, here, "a value of the field");
    if (!text) return false;
    if (std::ranges::find(values, *text) != values.end()) {
      reader.error(here, fmt::format("{} stands here twice; list each value once", *text));
      return false;
    }
    values.push_back(*text);
  }
  return true;
}

}  // namespace

Yaml take_open_fields(Reader& reader, const At& at, std::span<const std::string_view> may_be_open, OpenFields& open) {
  Yaml rest = at.yaml;
  if (!rest.is(Yaml::Type::Map)) return rest;
  for (const auto& [key, value] : at.yaml.map) {
    if (std::ranges::find(may_be_open, key.text) == may_be_open.end()) continue;
    if (!says_auto(value) && !lists_values(value)) continue;
    const At here = at.child(key.text, value);
    OpenField field{value.place, {}};
    if (lists_values(value) && !read_values(reader, here.child(kAuto, value.map.front().second), field.among)) continue;
    if (reader.keep_origins) reader.origins[path(here)] = value.place;
    open[key.text] = std::move(field);
  }
  std::erase_if(rest.map, [&](const auto& entry) {
    return std::ranges::find(may_be_open, entry.first.text) != may_be_open.end() &&
           (says_auto(entry.second) || lists_values(entry.second));
  });
  return rest;
}

std::string open_text(const OpenField& field) {
  if (field.among.empty()) return std::string(kAuto);
  std::string list;
  for (const std::string& value : field.among)
    list += (list.empty() ? "" : ", ") + yaml_string(value);
  return fmt::format("{{auto: [{}]}}", list);
}

}  // namespace pipewright::io
