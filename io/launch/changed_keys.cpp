#include "io/launch/changed_keys.hpp"

#include <algorithm>
#include <cctype>

#include "io/yaml/changes.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright {
namespace {

Yaml sections(const Scenario& scenario) {
  YamlText text(nullptr, {});
  text.open("training");
  write_training_section(text, scenario.training);
  text.close();
  text.open("plan");
  write_plan_section(text, scenario.plan);
  text.close();
  return parse_yaml(text.text(), "");
}

// Which needs no quotes: "1f1b", which is written with them lest it be taken for a number.
bool is_name(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

}  // namespace

std::vector<std::string> changed_keys(const Scenario& from, const Scenario& to) {
  std::vector<std::string> changes;
  const Yaml before = sections(from), after = sections(to);
  for (const char* section : {"training", "plan"}) {
    const Yaml &was = *before.find(section), &is = *after.find(section);
    const std::string prefix = std::string(section) + ".";
    for (const auto& [key, value] : was.map)
      if (!is.find(key.text)) changes.push_back(prefix + key.text + "=null");
    for (const auto& [key, value] : is.map) {
      const Yaml* old = was.find(key.text);
      const std::string text = flow_text(value);
      if (old && flow_text(*old) == text) continue;
      const bool name = value.is(Yaml::Type::Scalar) && is_name(value.scalar);
      changes.push_back(prefix + key.text + "=" + (name ? value.scalar : text));
    }
  }
  return changes;
}

}  // namespace pipewright
