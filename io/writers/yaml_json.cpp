#include "io/writers/yaml_json.hpp"

#include <charconv>
#include <cmath>

#include "io/yaml.hpp"

namespace pipewright {
namespace {

// -12, 1.5e3; not "+1", "01", ".5", "1_000", "0x10", "nan", which JSON does not have.
bool looks_like_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const auto digits = [&] {
    const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count > 0;
  };
  if (text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9') return false;
  if (!digits()) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!digits()) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (!digits()) return false;
  }
  return text.empty();
}

template <class Number>
bool write_number(JsonText& json, std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  json.value(number);
  return true;
}

void write_scalar(JsonText& json, const Yaml& value) {
  const std::string& text = value.scalar;
  if (value.quoted) return json.value(text), void();
  if (text == "true" || text == "false") return json.value(text == "true"), void();
  if (text == "null" || text == "~") return json.null(), void();
  if (looks_like_number(text) && (write_number<std::int64_t>(json, text) || write_number<double>(json, text))) return;
  json.value(text);
}

}  // namespace

void write_yaml(JsonText& json, const Yaml& tree) {
  switch (tree.type) {
    case Yaml::Type::Null: json.null(); return;
    case Yaml::Type::Scalar: write_scalar(json, tree); return;
    case Yaml::Type::List:
      json.open('[');
      for (const Yaml& each : tree.list)
        write_yaml(json, each);
      json.close();
      return;
    case Yaml::Type::Map:
      json.open('{');
      for (const YamlEntry& entry : tree.map)
        write_yaml(json.key(entry.first.text), entry.second);
      json.close();
      return;
  }
}

}  // namespace pipewright
