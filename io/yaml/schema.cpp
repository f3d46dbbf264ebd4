#include "io/yaml/schema.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/check.hpp"
#include "io/import/run_file.hpp"
#include "io/read/read_sweep.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

using OrderedJson = nlohmann::ordered_json;

// ---- what a key takes, in the words of the tables -------------------------------------------------------------------

constexpr std::string_view kNumber = "^[-+]?[0-9][0-9_.]*([eE][-+]?[0-9]+)?$";
constexpr std::string_view kQuantity = "^[-+]?[0-9.]+([eE][-+]?[0-9]+)? ?[A-Za-zµ%][A-Za-zµ/]*$";
constexpr std::string_view kPercentage = "^[0-9.]+([eE][-+]?[0-9]+)? ?%$";

bool begins(std::string_view text, std::string_view with) {
  return text.starts_with(with);
}

// "a | b, or c": the parts; brackets are not looked into.
std::vector<std::string> alternatives(std::string_view takes) {
  std::vector<std::string> parts(1);
  int deep = 0;
  for (std::size_t i = 0; i < takes.size(); ++i) {
    const char c = takes[i];
    deep += c == '{' || c == '[' || c == '(';
    deep -= c == '}' || c == ']' || c == ')';
    std::size_t skip = 0;
    for (const std::string_view sign : {" | ", ", or ", " or ", ", "})
      if (deep <= 0 && skip == 0 && takes.substr(i).starts_with(sign)) skip = sign.size();
    if (skip == 0) {
      parts.back() += c;
      continue;
    }
    parts.emplace_back();
    i += skip - 1;
  }
  return parts;
}

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end != text.data() ? std::optional(value) : std::nullopt;
}

OrderedJson whole_number(std::string_view atom) {
  OrderedJson number = {{"type", "integer"}};
  const std::string_view rest = atom.substr(std::string_view("whole number").size());
  if (begins(rest, " >= ")) number["minimum"] = static_cast<std::int64_t>(number_in(rest.substr(4)).value_or(0));
  if (const std::size_t dots = rest.find(".."); dots != std::string_view::npos) {
    number["minimum"] = static_cast<std::int64_t>(number_in(rest.substr(1)).value_or(0));
    number["maximum"] = static_cast<std::int64_t>(number_in(rest.substr(dots + 2)).value_or(0));
  }
  return number;
}

// "number > 0", "number in [0, 1)".
OrderedJson number(std::string_view atom) {
  OrderedJson bounds = {{"type", "number"}};
  std::string_view rest = atom.substr(std::string_view("number").size());
  if (begins(rest, " >= ")) bounds["minimum"] = *number_in(rest.substr(4));
  if (begins(rest, " > ")) bounds["exclusiveMinimum"] = *number_in(rest.substr(3));
  if (begins(rest, " in ")) {
    rest.remove_prefix(4);
    const std::size_t comma = rest.find(", ");
    bounds[rest.front() == '[' ? "minimum" : "exclusiveMinimum"] = number_in(rest.substr(1)).value_or(0);
    bounds[rest.back() == ']' ? "maximum" : "exclusiveMaximum"] = number_in(rest.substr(comma + 2)).value_or(0);
  }
  return bounds;
}

// What may stand beside a number: the same as text, and a figure with its source.
void add_figure(OrderedJson& any, OrderedJson as_number, std::string_view pattern) {
  any.push_back(std::move(as_number));
  any.push_back({{"type", "string"}, {"pattern", pattern}});
  any.push_back({{"type", "object"},
                 {"properties",
                  {{"value", OrderedJson::object()},
                   {"source", {{"type", "string"}}},
                   {"provenance", {{"enum", {"assumed", "published", "measured"}}}}}},
                 {"required", {"value"}},
                 {"additionalProperties", false}});
}

bool is_word(std::string_view atom) {
  return !atom.empty() && std::ranges::all_of(atom, [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_';
  });
}

// Everything that the text allows, as the members of an anyOf; `words` collects names. False: the text is not of this
// language, so anything goes.
bool add_atom(std::string_view atom, OrderedJson& any, OrderedJson& words) {
  constexpr std::array<std::string_view, 9> texts = {
      "text", "name", "path", "comparison", "column head", "file name", "key of", "unit of time", "number of a stage"};
  constexpr std::array<std::string_view, 6> quantities = {"time", "size", "bandwidth", "work", "power", "FLOP rate"};
  if (begins(atom, "pipewright.")) return any.push_back({{"const", atom}}), true;
  if (begins(atom, "list")) return any.push_back({{"type", "array"}}), true;
  if (begins(atom, "map") || begins(atom, "{")) return any.push_back({{"type", "object"}}), true;
  if (begins(atom, "whole number")) return add_figure(any, whole_number(atom), kNumber), true;
  if (begins(atom, "count") || begins(atom, "share") || begins(atom, "amount"))
    return add_figure(any, {{"type", "number"}}, ".*[0-9].*"), true;
  if (std::ranges::find(quantities, atom) != quantities.end()) {
    add_figure(any, {{"const", 0}}, kQuantity);
    return true;
  }
  if (std::ranges::any_of(texts, [&](std::string_view text) { return begins(atom, text); }))
    return any.push_back({{"type", {"string", "number"}}}), true;
  if (begins(atom, "percentage")) return any.push_back({{"type", "string"}, {"pattern", kPercentage}}), true;
  if (begins(atom, "number")) return add_figure(any, number(atom), kNumber), true;
  if (atom == "true" || atom == "false" || atom == "yes" || atom == "no") {
    const OrderedJson flag = {{"type", "boolean"}};
    if (std::ranges::find(any, flag) == any.end()) any.push_back(flag);
    words.push_back(atom);
    return true;
  }
  if (!is_word(atom)) return false;
  if (std::ranges::all_of(atom, [](unsigned char c) { return std::isdigit(c) != 0; }))
    words.push_back(static_cast<std::int64_t>(*number_in(atom)));
  words.push_back(atom);
  return true;
}

OrderedJson value_schema(std::string_view takes) {
  takes = takes.substr(0, takes.find(", e.g."));
  // The rest of such a line says what is in the list.
  if ((begins(takes, "list of ") || begins(takes, "map of ")) && takes.find(" or ") == std::string_view::npos)
    return {{"type", begins(takes, "list") ? "array" : "object"}};
  OrderedJson any = OrderedJson::array(), words = OrderedJson::array();
  for (const std::string& atom : alternatives(takes))
    if (!add_atom(atom, any, words)) return OrderedJson::object();
  if (!words.empty()) any.push_back({{"enum", words}});
  return any.size() == 1 ? any.front() : OrderedJson{{"anyOf", any}};
}

// ---- sections -------------------------------------------------------------------------------------------------------

struct Section {
  std::string form;  // "family: gpt"; "" of the only one
  const SectionDoc* doc;
};

// "model (family: gpt)" -> sections["model"], form "family: gpt"; "device.measured.series[]" and
// "cluster.other_nodes.<name>" keep their endings.
using Sections = std::map<std::string, std::vector<Section>>;

Sections by_name(const std::vector<SectionDoc>& docs) {
  Sections sections;
  for (const SectionDoc& doc : docs) {
    const std::size_t bracket = doc.name.find(" (");
    const std::string form =
        bracket == std::string::npos ? "" : doc.name.substr(bracket + 2, doc.name.size() - bracket - 3);
    sections[doc.name.substr(0, bracket)].push_back({form, &doc});
  }
  return sections;
}

class SchemaWriter {
 public:
  explicit SchemaWriter(const std::vector<SectionDoc>& docs) : sections_(by_name(docs)) {}

  // "#/definitions/..." of a section, which is defined by then.
  OrderedJson reference(const std::string& name) {
    if (definitions_.find(name) == definitions_.end()) {
      definitions_[name] = nullptr;  // sections may refer to themselves
      definitions_[name] = section(name);
    }
    std::string escaped;
    for (const char c : name)  // of a JSON pointer in a URI
      escaped += c == '<' ? "%3C" : c == '>' ? "%3E" : c == '[' ? "%5B" : c == ']' ? "%5D" : std::string(1, c);
    return {{"$ref", "#/definitions/" + escaped}};
  }
  bool has(const std::string& name) const { return sections_.find(name) != sections_.end(); }
  const OrderedJson& definitions() const { return definitions_; }

 private:
  OrderedJson section(const std::string& name) {
    const std::vector<Section>& forms = sections_.at(name);
    const auto plain = std::ranges::find_if(forms, [](const Section& each) { return each.form.empty(); });
    if (forms.size() == 1) return object(name, {forms.front().doc});
    OrderedJson any = OrderedJson::array();
    for (const Section& form : forms) {
      std::vector<const SectionDoc*> docs = {form.doc};
      // An operator's keys stand beside those of every layer.
      if (plain != forms.end() && !form.form.empty()) docs.push_back(plain->doc);
      any.push_back(object(name, docs));
    }
    return {{"anyOf", any}};
  }

  OrderedJson object(const std::string& name, const std::vector<const SectionDoc*>& docs) {
    OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
    bool any_key = false;
    for (const SectionDoc* doc : docs)
      for (const FieldDoc& field : doc->fields) {
        if (field.key.find('<') != std::string_view::npos) any_key = true;  // "<key>"
        if (properties.contains(field.key)) continue;
        properties[std::string(field.key)] = value(name, field);
        if (field.required) required.push_back(field.key);
      }
    OrderedJson schema = {{"type", "object"}, {"properties", properties}};
    if (!required.empty()) schema["required"] = required;
    if (!any_key) schema["additionalProperties"] = false;
    return schema;
  }

  // The section that the map under a key is, or its items, or its values.
  std::string section_under(const std::string& section, std::string_view key) const {
    const std::string own = section + "." + std::string(key);
    for (const char* ending : {"", "[]", ".<name>", ".<kind>"})
      if (has(own + ending)) return own + ending;
    const bool top = section == "scenario" || key == "device";
    return top && has(std::string(key)) ? std::string(key) : "";
  }

  OrderedJson value(const std::string& section, const FieldDoc& field) {
    OrderedJson schema = value_schema(field.takes);
    if (const std::string under = section_under(section, field.key); !under.empty())
      put(schema, reference(under), under);
    if (section == "plan" || section == "training") schema = {{"anyOf", {schema, {{"const", "auto"}}}}};
    schema["description"] = field.meaning;
    return schema;
  }

  // In place of "a map" and "a list": maps of this kind.
  static void put(OrderedJson& schema, const OrderedJson& of, const std::string& name) {
    if (schema.contains("anyOf")) {
      for (OrderedJson& each : schema["anyOf"])
        put(each, of, name);
      return;
    }
    const OrderedJson type = schema.value("type", OrderedJson());
    if (type == "array") schema["items"] = of;
    if (type != "object" || schema.contains("properties")) return;
    if (name.ends_with(">"))
      schema["additionalProperties"] = of;
    else
      schema = of;
  }

  Sections sections_;
  OrderedJson definitions_ = OrderedJson::object();
};

}  // namespace

std::string json_schema(std::string_view name) {
  if (std::ranges::find(kSchemaNames, name) == kSchemaNames.end())
    throw InputError("schema: " + unknown_name(name, kSchemaNames));
  const std::string key(name);
  std::vector<SectionDoc> docs = scenario_docs();
  for (SectionDoc& doc : sweep_docs())
    docs.push_back(std::move(doc));
  for (SectionDoc& doc : run_file_docs())
    docs.push_back(std::move(doc));
  SchemaWriter writer(docs);
  OrderedJson schema = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "pipewright " + key}};
  const bool is_run = name == "run";  // "run" is a section of a scenario, too
  const OrderedJson body = writer.reference(is_run ? "run_file" : key);
  if (name == "scenario" || is_run) {
    schema["allOf"] = {body};
  } else {
    schema["type"] = "object";
    schema["properties"] = {{"version", {{"enum", {name == "profile" ? 3 : 1}}}}, {key, body}};
    schema["required"] = {key};
    schema["additionalProperties"] = false;
  }
  schema["definitions"] = writer.definitions();
  return schema.dump(2) + "\n";
}

}  // namespace pipewright::io
