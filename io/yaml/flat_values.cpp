#include "io/yaml/flat_values.hpp"

#include <algorithm>

#include "io/yaml/sections.hpp"

namespace pipewright::io {

KeysAndValues flat_lines(const std::string& yaml) {
  KeysAndValues values;
  std::vector<std::string> path;
  std::size_t items = 0;
  for (std::size_t begin = 0; begin < yaml.size();) {
    const std::size_t end = std::min(yaml.find('\n', begin), yaml.size());
    const std::string line = yaml.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size()), depth = indent / 2;
    if (depth > path.size() || indent == line.size()) continue;
    path.resize(depth);
    const bool item = line.substr(indent).starts_with("- ");
    const std::size_t colon = item ? indent + 1 : line.find(':', indent);
    if (colon == std::string::npos) continue;
    if (!item) items = 0;
    path.push_back(item ? std::to_string(items++) : line.substr(indent, colon - indent));
    std::string key;
    for (const std::string& part : path)
      key += (key.empty() ? "" : ".") + part;
    if (item) path.pop_back();
    const std::size_t value = item ? colon + 1 : colon + 2;
    if (value >= line.size()) continue;
    std::string text = line.substr(value);
    const bool quoted = text.size() > 1 && text.front() == '"' && text.back() == '"';
    if (quoted && text.find('"', 1) == text.size() - 1) text = text.substr(1, text.size() - 2);  // for people
    values.emplace_back(key, std::move(text));
  }
  return values;
}

KeysAndValues flat_values(const Scenario& scenario) {
  YamlText text(nullptr, {});
  for (const Field<Scenario>& field : scenario_fields())
    if (field.key != "name" && field.key != "description" && field.key != "version") field.write(text, scenario);
  KeysAndValues values = flat_lines(text.text());
  std::erase_if(values, [](const auto& each) {
    return each.first.ends_with(".source") || each.first == "model.name" || each.first == "cluster.name" ||
           each.first.ends_with(".device.name");
  });
  return values;
}

}  // namespace pipewright::io
