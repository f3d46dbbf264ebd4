#include "io/read/read_ops.hpp"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "core/model/families/described.hpp"
#include "io/text/quote.hpp"

namespace pipewright::io {
namespace {

std::vector<std::string_view> operator_names() {
  return mapped<std::string_view>(operator_rules(), &OperatorRule::name);
}

// One operator: `op` names it, `keys_of_others` are skipped.
OpText read_op(Reader& reader, const At& at, const std::vector<std::string_view>& keys_of_others, std::string& text) {
  OpText op;
  op.place = at.yaml.place;
  const Yaml* name = at.yaml.find("op");
  if (!name) {
    reader.errors.add(at.yaml.place, path(at), "says no op; write e.g. op: relu");
    return op;
  }
  std::string chosen;
  if (!read_value(reader, at.child("op", *name), chosen)) return op;
  op.rule = find_operator(chosen);
  if (!op.rule) reader.errors.add(name->place, path(at) + ".op", unknown_name(chosen.substr(0, 64), operator_names()));
  text += "op: " + chosen;
  for (const auto& [key, value] : at.yaml.map) {
    const bool of_other = std::ranges::find(keys_of_others, key.text) != keys_of_others.end() || key.text == "op";
    if (of_other) continue;
    std::string written;
    if (!read_value(reader, at.child(key.text, value), written)) continue;
    text += ", " + key.text + ": " + written;
    op.arguments.emplace(key.text, Placed<std::string>{written, value.place});
  }
  return op;
}

void read_from(Reader& reader, const At& at, OpText& op, std::string& text) {
  if (!is_list(reader, at, "a list of names")) return;
  text += ", from: [";
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    std::string name;
    if (!read_value(reader, at.entry(i), name)) continue;
    text += (i > 0 ? ", " : "") + yaml_string(name);
    op.from.push_back({name, at.yaml.list[i].place});
  }
  text += "]";
}

// `from: [input, x]` or, by default, what came before.
std::vector<LayerBuilder::Value> taken_by(const OpText& op, const std::map<std::string, LayerBuilder::Value>& named,
                                          const std::vector<LayerBuilder::Value>& before, const std::string& path) {
  if (op.from.empty()) return before;
  std::vector<LayerBuilder::Value> values;
  for (const auto& [name, place] : op.from) {
    const auto found = named.find(name);
    if (found == named.end()) {
      auto known = mapped<std::string>(named, [](const auto& entry) { return entry.first; });
      throw InputError(place, path + ".from: " + unknown_name(name.substr(0, 64), known));
    }
    values.push_back(found->second);
  }
  return values;
}

SectionDoc parameters_doc(std::string name, std::span<const FamilyParameter> parameters, const FieldDoc& first) {
  static std::deque<std::string> texts;  // what the views of the documentation point to
  const auto keep = [](std::string text) -> std::string_view { return texts.emplace_back(std::move(text)); };
  SectionDoc doc{std::move(name), {first}};
  for (const FamilyParameter& parameter : parameters) {
    const std::string otherwise = !parameter.choices.empty() ? std::string(words_of(parameter.choices).front())
                                  : parameter.otherwise      ? std::to_string(*parameter.otherwise)
                                                             : std::string();
    const bool stated =
        parameter.meaning.find("default:") != std::string_view::npos;  // in words, where 0 stands for it
    doc.fields.push_back(
        {parameter.name, keep(takes(parameter)),
         keep(std::string(parameter.meaning) + (otherwise.empty() || stated ? "" : "; default: " + otherwise)),
         parameter.letters.empty() && parameter.listed.empty() && otherwise.empty()});
  }
  return doc;
}

}  // namespace

LayerOps read_ops(Reader& reader, const At& layer, const std::vector<std::string_view>& layer_keys) {
  LayerOps ops;
  const Yaml* list = layer.yaml.find("ops");
  if (!list) {
    ops.ops.push_back(read_op(reader, layer, layer_keys, ops.text));
    return ops;
  }
  if (layer.yaml.find("op")) {
    reader.errors.add(list->place, path(layer), "op and ops exclude each other; keep one of them");
    return ops;
  }
  for (const auto& [key, value] : layer.yaml.map)
    if (key.text != "ops" && std::ranges::find(layer_keys, key.text) == layer_keys.end())
      unknown_key(reader, layer, key, [&] {
        auto known = layer_keys;
        known.push_back("ops");
        return known;
      }());
  const At at = layer.child("ops", *list);
  if (!is_list(reader, at, "a list of operators")) return ops;
  if (list->list.empty()) reader.errors.add(list->place, path(at), "no operators; a layer needs at least one");
  ops.text = "ops: [";
  for (std::size_t i = 0; i < list->list.size(); ++i) {
    const At here = at.child(static_cast<std::ptrdiff_t>(i), list->list[i]);
    if (!is_map(reader, here, "a map, e.g. {op: relu}")) continue;
    std::string text;
    OpText op = read_op(reader, here, {"as", "from"}, text);
    if (const Yaml* as = here.yaml.find("as")) {
      if (read_value(reader, here.child("as", *as), op.as)) text += ", as: " + yaml_string(op.as);
      if (op.as == "input" || op.as.rfind("input.", 0) == 0)
        reader.errors.add(as->place, path(here) + ".as", "\"input\" is the layer's input; use another name");
    }
    if (const Yaml* from = here.yaml.find("from")) read_from(reader, here.child("from", *from), op, text);
    ops.text += (i > 0 ? ", {" : "{") + text + "}";
    ops.ops.push_back(std::move(op));
  }
  ops.text += "]";
  return ops;
}

BuiltLayer build_layer(const LayerOps& ops, const std::vector<InputShape>& inputs, const std::string& path) {
  LayerBuilder builder;
  std::vector<LayerBuilder::Value> before;
  std::map<std::string, LayerBuilder::Value> named;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const InputShape& input = inputs[i];
    before.push_back(input.tokens ? builder.tokens(input.shape[0]) : builder.input(input.shape, !input.model_input));
    named.emplace(i == 0 ? "input" : "input." + std::to_string(i), before.back());
  }
  for (std::size_t i = 0; i < ops.ops.size(); ++i) {
    const OpText& op = ops.ops[i];
    const std::string here = ops.text.rfind("ops", 0) == 0 ? path + ".ops." + std::to_string(i) : path;
    const std::vector<LayerBuilder::Value> x = taken_by(op, named, before, here);
    const auto count = static_cast<int>(x.size());
    if (count < op.rule->inputs_least || count > op.rule->inputs_most)
      throw InputError(op.place, here,
                       fmt::format("{} takes {} input{}, not {}; name them with {}", op.rule->name,
                                   op.rule->inputs_least == op.rule->inputs_most
                                       ? std::to_string(op.rule->inputs_least)
                                       : fmt::format("{} to {}", op.rule->inputs_least, op.rule->inputs_most),
                                   op.rule->inputs_most == 1 ? "" : "s", count,
                                   ops.ops.size() > 1 ? "from: [...]" : "inputs: [...]"));
    const FamilyValues values = check_arguments(op.rule->parameters, op.arguments, here, op.place);
    try {
      before = {op.rule->build(builder, x, values)};
    } catch (const InputError& error) {
      throw InputError(op.place, here, error.what());
    }
    if (!op.as.empty() && !named.emplace(op.as, before.front()).second)
      throw InputError(op.place, here + ".as", "\"" + op.as + "\" stands above already; use another name");
  }
  BuiltLayer built;
  built.output = builder.shape(before.front());
  built.work = builder.finish({before.front()});
  return built;
}

std::vector<SectionDoc> operator_docs() {
  return mapped<SectionDoc>(operator_rules(), [&](const OperatorRule& rule) {
    return parameters_doc("model.layers (op: " + std::string(rule.name) + ")", rule.parameters,
                          {"op", rule.name, rule.summary, true});
  });
}

std::vector<SectionDoc> family_docs() {
  std::vector<SectionDoc> docs;
  for (const Family& family : families()) {
    SectionDoc& doc =
        docs.emplace_back(parameters_doc("model (family: " + std::string(family.name) + ")", family.parameters,
                                         {"family", family.name, family.summary, true}));
    doc.fields.push_back({"name", "text", "for reports; default: by the family", false});
    doc.fields.push_back({"source", "text", "where the numbers come from, for reports", false});
    if (is_transformer(family))
      doc.fields.push_back({"trained_as", "map", "see model.trained_as; default: unknown", false});
  }
  return docs;
}

}  // namespace pipewright::io
