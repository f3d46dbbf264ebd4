// model: explicit layers, a family, a Hugging Face configuration, a file of its own, or a PipeDream profile.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/folds.hpp"
#include "core/model/families/described.hpp"
#include "core/model/families/transformer_families.hpp"
#include "io/import/pieces.hpp"
#include "io/import/pipedream.hpp"
#include "io/read/model_forms.hpp"
#include "io/read/read_ops.hpp"
#include "io/read/read_scenario.hpp"
#include "io/read/trained_as.hpp"
#include "io/text/quantity.hpp"
#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

constexpr std::int64_t kMostLayers = 1'000'000;  // what `repeat` may ask for in all; beyond any network in use

constexpr std::array<std::string_view, 6> kForms = {"layers", "file", "pipedream_profile", "pieces", "family", "hf"};

// ---- one layer ------------------------------------------------------------------------------------------------------

// A layer as written: `repeat` stands for a chain of layers, `inputs` are names.
struct LayerText {
  Layer layer;
  std::int64_t repeat = 1;
  std::optional<std::vector<std::string>> inputs;
  std::vector<YamlPlace> input_places;
  LayerOps ops;  // instead of figures
};

void read_parameters(Reader& reader, const At& at, LayerText& text) {
  const std::string* figure = scalar(reader, at, "a count or a size");
  if (!figure) return;
  const Parsed<std::int64_t> count = parse_parameters(*figure);
  if (!count.value) return reader.error(at, count.why);
  const bool number = parse_number(*figure).value.has_value();
  if (at.yaml.quoted && number)
    return reader.error(at, "is text (in quotes) where a count is needed; remove the quotes");
  text.layer.parameters = *count.value;
}

void read_inputs(Reader& reader, const At& at, LayerText& text) {
  if (!is_list(reader, at, "a list of layer names")) return;
  text.inputs.emplace();
  for (std::size_t i = 0; i < at.yaml.list.size(); ++i) {
    const At here = at.entry(i);
    std::string name;
    if (!read_value(reader, here, name)) continue;
    text.inputs->push_back(name);
    text.input_places.push_back(here.yaml.place);
  }
}

constexpr Field<LayerText> kLayer[] = {
    {"name", "text", "unique; default: layer<number>", inside<&LayerText::layer, &Layer::name>},
    {"inputs", "list of layer names",
     "where its inputs come from; [] is the model's own input; default: the layer before", read_inputs,
     write_as<&LayerText::inputs>},
    {"forward", "time", "for model.batch samples", inside<&LayerText::layer, &Layer::forward>},
    {"backward", "time", "whole backward = backward_input + backward_weight",
     inside<&LayerText::layer, &Layer::backward>},
    {"backward_input", "time", "gradient of the input", inside<&LayerText::layer, &Layer::backward_input>},
    {"backward_weight", "time", "gradient of the weights", inside<&LayerText::layer, &Layer::backward_weight>},
    {"activation", "size", "output tensor for model.batch samples; default: 0 B",
     inside<&LayerText::layer, &Layer::activation>},
    {"stash", "size", "kept from forward to backward; default: the activation",
     inside<&LayerText::layer, &Layer::stash>},
    {"parameters", "count (7e9, 1.5M), or size of the fp32 weights (6 MB, 2048 bytes)",
     "does not scale with the batch; default: 0", read_parameters,
     [](YamlText& out, std::string_view key, const LayerText& text) {
       write_as<&Layer::parameters>(out, key, text.layer);
     }},
    {"states", "size",
     "weights, gradients and optimizer states of the layer on one device, as measured; default: counted from "
     "parameters",
     inside<&LayerText::layer, &Layer::states>},
    {"flops", "work", "of the forward for model.batch samples; the backward counts twice that",
     inside<&LayerText::layer, &Layer::flops>},
    {"op", "name of an operator",
     "what the layer computes, instead of figures: its parameters are keys next to it, see below",
     [](Reader&, const At&, LayerText&) {}},
    {"ops", "list of {op: ..., as: name, from: [names]}",
     "several operators: each takes the result of the one before, or what `from` names: `input`, `input.1` (the "
     "layer's inputs), or an `as` above",
     [](Reader&, const At&, LayerText&) {}},
    {"repeat", "whole number >= 1", "that many such layers in a chain: name.0, name.1, ...; default: 1",
     read_as<&LayerText::repeat, AtLeast1>},
};

// The whole backward and its two parts: what is not given follows from the others.
void complete_backward(Reader& reader, const At& at, Layer& layer) {
  const auto refuse = [&](const char* law) { reader.errors.add(at.yaml.place, path(at) + law); };
  auto [input, weight, whole] = std::tie(layer.backward_input, layer.backward_weight, layer.backward);
  if (!input && !weight) return;
  if (input && weight) {
    const Time sum = *input + *weight;  // each at most 2^62 ns: no overflow
    if (sum.value > kLargest) return refuse(".backward: overflows: the longest time is 2^62 ns; write smaller parts");
    if (whole && *whole != sum)
      return refuse(".backward: is not backward_input + backward_weight; leave one of the three out");
    whole = sum;
    return;
  }
  const Time part = input ? *input : *weight;
  if (!whole) return refuse(".backward: is missing where a part of it is stated; write backward, or both parts");
  if (part > *whole) return refuse(".backward: is less than a part of it");
  (input ? weight : input) = *whole - part;
}

bool follows_from_operators(std::string_view key) {
  return key == "activation" || key == "stash" || key == "parameters" || key == "states" || key == "flops";
}

// A layer of operators: its own keys, then the operators with all other keys. Figures follow from the operators.
void read_op_layer(Reader& reader, const At& at, LayerText& text) {
  auto own = mapped<std::string_view>(kLayer, &Field<LayerText>::key);
  Yaml plain;
  plain.type = Yaml::Type::Map, plain.place = at.yaml.place;
  for (const auto& [key, value] : at.yaml.map) {
    if (follows_from_operators(key.text))
      reader.errors.add(key.place, path(at) + "." + key.text + ": follows from the operators; leave it out");
    else if (std::ranges::find(own, key.text) != own.end())
      plain.map.emplace_back(key, value);
  }
  read_fields<LayerText>(reader, At{plain, at.parent, at.key, at.item}, kLayer, text);
  text.ops = read_ops(reader, at, own);
  text.layer.op = text.ops.text;
}

// ---- all layers -----------------------------------------------------------------------------------------------------

struct Graph {
  std::vector<Layer> layers;
  std::unordered_map<std::string, LayerId> by_name;  // looked up only; of a repeated layer: its last instance
};

// Adds the layers that one entry of the list stands for.
void add_layers(Reader& reader, const At& at, const LayerText& text, Graph& graph) {
  const auto total = static_cast<std::int64_t>(graph.layers.size()) + text.repeat;
  if (total > kMostLayers)
    return reader.errors.add(at.yaml.place, path(at) + ".repeat",
                             fmt::format("{} makes more than {} layers in all; use fewer", text.repeat, kMostLayers));
  for (std::int64_t i = 0; i < text.repeat; ++i) {
    Layer layer = text.layer;
    if (text.repeat > 1) layer.name += fmt::format(".{}", i);
    if (const auto before = static_cast<LayerId>(graph.layers.size()); before > 0 && (i > 0 || !text.inputs))
      layer.inputs = {before - 1};
    const auto id = static_cast<LayerId>(graph.layers.size());
    if (!graph.by_name.emplace(layer.name, id).second)
      reader.errors.add(at.yaml.place, path(at),
                        fmt::format("a layer {} stands above already; give each its own name", in_quotes(layer.name)));
    graph.layers.push_back(std::move(layer));
  }
  if (text.repeat == 1) return;
  if (!graph.by_name.emplace(text.layer.name, static_cast<LayerId>(graph.layers.size()) - 1).second)
    reader.errors.add(
        at.yaml.place, path(at),
        fmt::format("a layer {} stands above already; give each its own name", in_quotes(text.layer.name)));
}

void resolve_inputs(Reader& reader, const At& at, const LayerText& text, LayerId first, Graph& graph) {
  if (!text.inputs) return;
  std::vector<LayerId>& inputs = graph.layers[first].inputs;
  inputs.clear();
  std::unordered_set<int> seen;  // looked up only
  for (std::size_t i = 0; i < text.inputs->size(); ++i) {
    const std::string& name = (*text.inputs)[i];
    const auto producer = graph.by_name.find(name);
    if (producer == graph.by_name.end())
      reader.errors.add(text.input_places[i], path(at) + ".inputs",
                        fmt::format("no layer is called {}; write the name of one, or [] for the model's own input",
                                    in_quotes(name)));
    else if (seen.insert(producer->second).second)
      inputs.push_back(producer->second);
    else
      reader.errors.add(text.input_places[i], path(at) + ".inputs",
                        fmt::format("{} stands there twice; once is enough", in_quotes(name)));
  }
}

// Builds the works of layers that state operators, in order, each from the shapes before it. Equal ones are shared.
void add_works(Model& model, const std::vector<LayerText>& texts) {
  std::vector<InputShape> outputs(model.layers.size());
  std::map<std::pair<std::string, std::string>, std::pair<std::int32_t, Shape>> known;  // by text and inputs
  InputShape input;
  input.model_input = true;
  input.tokens = model.tokens.has_value();
  input.shape.rank = static_cast<int>(model.input_shape.size());
  std::ranges::copy(model.input_shape, input.shape.dim.begin());
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    Layer& layer = model.layers[i];
    if (layer.work == -1) continue;
    const auto text = static_cast<std::size_t>(-2 - layer.work);
    const std::string path = fmt::format("model.layers.{}", text);
    std::vector<InputShape> inputs;
    if (layer.inputs.empty()) inputs.push_back(input);
    for (const LayerId producer : layer.inputs)
      inputs.push_back(outputs[static_cast<std::size_t>(producer)]);
    std::string shapes;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (inputs[k].shape.rank == 0)
        throw InputError(
            layer.place,
            inputs[k].model_input
                ? path +
                      ": the shape of the model's input is not known; give model.input_shape, e.g. [3, 224, 224], or "
                      "model.input_tokens"
                : fmt::format("{}: the output of layer {} has no known shape; describe that layer by operators, too",
                              path, in_quotes(model.layers[layer.inputs[k]].name)));
      shapes += (inputs[k].tokens ? "tokens " : "") + core::text(inputs[k].shape) +
                (inputs[k].model_input ? " input, " : ", ");
    }
    const auto key = std::pair(texts[text].ops.text, shapes);
    auto found = known.find(key);
    if (found == known.end()) {
      BuiltLayer built = build_layer(texts[text].ops, inputs, path);
      found = known.emplace(key, std::pair(static_cast<std::int32_t>(model.works.size()), built.output)).first;
      model.works.push_back(std::move(built.work));
    }
    layer.work = found->second.first;
    outputs[i].shape = found->second.second;
    outputs[i].model_input = false;
  }
  if (input.shape.rank > 0) {
    (input.tokens ? model.input_amount.fixed : model.input_amount.values) =
        input.shape.elements() * (input.tokens ? 8 : 1);
  }
}

void read_layers(Reader& reader, const At& at, Model& model) {
  if (!is_list(reader, at, "a list of layers")) return;
  if (at.yaml.list.empty()) return reader.errors.add(at.yaml.place, path(at), "no layers; a model needs at least one");
  const std::size_t errors_before = reader.errors.count();
  const bool keep_origins = std::exchange(reader.keep_origins, false);
  Graph graph;
  std::vector<LayerText> texts(at.yaml.list.size());
  std::vector<LayerId> first(texts.size());
  for (std::size_t i = 0; i < texts.size() && !reader.errors.full(); ++i) {
    const At here = at.entry(i);
    texts[i].layer.place = here.yaml.place;
    const bool operators = here.yaml.is(Yaml::Type::Map) && (here.yaml.find("op") || here.yaml.find("ops"));
    if (operators)
      read_op_layer(reader, here, texts[i]);
    else
      read_fields<LayerText>(reader, here, kLayer, texts[i]);
    texts[i].layer.work = operators ? -2 - static_cast<std::int32_t>(i) : -1;  // its text, until `add_works`
    if (texts[i].layer.name.empty()) texts[i].layer.name = fmt::format("layer{}", i);
    complete_backward(reader, here, texts[i].layer);
    first[i] = static_cast<LayerId>(graph.layers.size());
    if (texts[i].repeat >= 1) add_layers(reader, here, texts[i], graph);
  }
  reader.keep_origins = keep_origins;
  if (reader.errors.count() > errors_before) return;
  for (std::size_t i = 0; i < texts.size() && !reader.errors.full(); ++i)
    resolve_inputs(reader, at.entry(i), texts[i], first[i], graph);
  if (reader.errors.count() > errors_before) return;
  try {
    model.layers = in_topological_order(std::move(graph.layers));
    add_works(model, texts);
  } catch (const InputError& error) {
    reader.errors.add(error);  // names a layer on the cycle by its place
  }
}

// ---- the forms ------------------------------------------------------------------------------------------------------

void read_input_shape(Reader& reader, const At& at, Model& model) {
  std::vector<std::int64_t> shape;
  if (!read_value(reader, at, shape)) return;
  const bool good = !shape.empty() && shape.size() <= 3 &&
                    std::ranges::all_of(shape, [](std::int64_t n) { return n >= 1 && n <= 1'000'000; });
  if (!good)
    return reader.errors.add(
        at.yaml.place,
        path(at) +
            ": needs one to three whole numbers from 1 to 1000000, e.g. [3, 224, 224] (channels, height, width)");
  if (!model.input_shape.empty()) return reader.error(at, "and input_tokens exclude each other; keep one of them");
  model.input_shape = shape;
}

struct TokensOfSample {
  const char* operator()(std::int64_t tokens) const {
    return tokens >= 1 && tokens <= kLargestCount ? "" : "must be from 1 to 1000000000";
  }
};

constexpr Field<Model> kExplicit[] = {
    {"name", "text", "for reports; default: the name of its file", member<&Model::name>},
    {"batch", "whole number >= 1", "samples for which the figures of every layer hold; default: 1",
     [](Reader& reader, const At& at, Model& model) {
       read_as<&Model::batch, AtLeast1>(reader, at, model);
       model.batch_stated = true;
     },
     [](YamlText& out, std::string_view key, const Model& model) {
       if (model.batch_stated) out.line(key, value_text(model.batch));
     }},
    {"input", "size", "the model's own input tensor for model.batch samples; default: 0 B (unknown)",
     read_as<&Model::input>,
     [](YamlText& out, std::string_view key, const Model& model) {
       if (model.input_shape.empty()) out.line(key, value_text(model.input));
     }},
    {"input_shape", "list of whole numbers", "of one sample, for layers that state operators: [3, 224, 224]",
     read_input_shape,
     [](YamlText& out, std::string_view key, const Model& model) {
       if (!model.input_shape.empty() && !model.tokens) out.line(key, value_text(model.input_shape));
     }},
    {"input_tokens", "whole number >= 1", "tokens of one sample, for layers that state operators",
     [](Reader& reader, const At& at, Model& model) {
       std::int64_t tokens = 0;
       if (!read_lawful<TokensOfSample>(reader, at, tokens)) return;
       if (!model.input_shape.empty()) return reader.error(at, "and input_shape exclude each other; keep one of them");
       model.input_shape = {tokens}, model.tokens = tokens;
     },
     [](YamlText& out, std::string_view key, const Model& model) {
       if (!model.input_shape.empty() && model.tokens) out.line(key, value_text(*model.tokens));
     }},
    {"measured_pieces", "true | false",
     "its layers are chunks that were measured elsewhere, one by one; default: false",
     changed<&Model::measured_pieces>},
    {"source", "text", "where the figures come from", changed<&Model::source>},
    {"layers", "list of layers", "in any order that names allow; see model.layers", read_layers, Need::Required},
};

struct ProfileText {
  std::string file;
  std::optional<std::int64_t> batch;
  std::optional<Bytes> output;
  std::string name;
};

constexpr Field<ProfileText> kModelProfile[] = {
    {"pipedream_profile", "path of a graph.txt", "layers, times and sizes as profiled", member<&ProfileText::file>,
     Need::Required},
    {"batch", "whole number >= 1", "samples it was profiled with; default: derived from the input tensor",
     member<&ProfileText::batch, AtLeast1>},
    {"name", "text", "for reports; default: the name of the profile", member<&ProfileText::name>},
};

constexpr Field<ProfileText> kModelPieces[] = {
    {"pieces", "path of a table or JSON", "chunks of a pipeline, each measured by itself on its ranks",
     member<&ProfileText::file>, Need::Required},
    {"batch", "whole number >= 1", "samples of a micro-batch that was measured; default: what the file says, else 1",
     member<&ProfileText::batch, AtLeast1>},
    {"output", "size", "of what a chunk sends to the next, where the file does not say; default: 0 B",
     member<&ProfileText::output>},
    {"name", "text", "for reports; default: the name of the file", member<&ProfileText::name>},
};

constexpr Field<std::string> kModelFile[] = {
    {"file", "path", "of a model file, whose one key is model:",
     [](Reader& reader, const At& at, std::string& file) { read_value(reader, at, file); }, Need::Required},
};

void read_file_form(Reader& reader, const At& at, const std::string& file, Model& model) {
  if (file.empty()) return;
  if (reader.files_deep >= kMostFilesDeep)
    return reader.error(at, "is named by files that name each other in a circle; write the layers in one of them");
  const Yaml value = read_reference(reader, file, "model", at.yaml.place);
  if (value.is(Yaml::Type::Null)) return;
  ++reader.files_deep;
  read_model_section(reader, At{value, at.parent, at.key, at.item}, model);
  --reader.files_deep;
  if (!model.name.empty()) return;
  model.name = printable(std::filesystem::path(file).stem().string());
  if (reader.keep_origins) reader.origins["model.name"] = Place{file, 0, 0};
}

Model profile_of(const std::string& path, const ProfileText& text) {
  return read_pipedream_profile(path, text.batch);
}
Model pieces_of(const std::string& path, const ProfileText& text) {
  Model model = read_pieces(path, text.batch);
  for (LayerId i = 0; i + 1 < std::ssize(model.layers) && text.output; ++i)
    if (model.layers[i].activation == Bytes{}) model.layers[i].activation = *text.output;
  return model;
}

// A file that somebody measured, with what it does not say next to its name.
void read_profile_form(Reader& reader, const At& at, std::string_view key, std::span<const Field<ProfileText>> fields,
                       Model (*read)(const std::string& path, const ProfileText& text), Model& model) {
  const std::size_t errors_before = reader.errors.count();
  ProfileText text;
  read_fields<ProfileText>(reader, at, fields, text);
  const Yaml* file = at.yaml.find(key);
  if (reader.errors.count() > errors_before || !file) return;
  try {
    const std::string path = relative_to(file->place, text.file);
    model = read(path, text);
    if (!text.name.empty()) model.name = text.name;
    came_from(reader, path, model);
  } catch (const InputError& error) {
    reader.errors.add(file->place, fmt::format("{}.{}", path(at), key), error.what());
  }
}

// A family: every other key is one of its parameters.
bool has_parameter(const Family& family, std::string_view key) {
  return std::ranges::any_of(family.parameters,
                             [&](const FamilyParameter& parameter) { return parameter.name == key; });
}

// Whose text may begin as YAML's own signs do.
bool is_letters(const Family& family, std::string_view key) {
  return std::ranges::any_of(family.parameters, [&](const FamilyParameter& parameter) {
    return parameter.name == key && !parameter.letters.empty();
  });
}

bool takes_list(const Family& family, std::string_view key) {
  return std::ranges::any_of(family.parameters, [&](const FamilyParameter& parameter) {
    return parameter.name == key && !parameter.listed.empty();
  });
}

void read_family_form(Reader& reader, const At& at, Model& model) {
  const Yaml& chosen = *at.yaml.find("family");
  std::string name;
  if (!read_value(reader, at.child("family", chosen), name)) return;
  const Family* family = find_family(name);
  if (!family) {
    auto known = mapped<std::string_view>(families(), &Family::name);
    return reader.errors.add(chosen.place, path(at) + ".family", unknown_name(name.substr(0, 64), known));
  }
  FamilyArguments arguments;
  std::string title, source;
  std::optional<TrainedAs> trained;
  const std::size_t errors_before = reader.errors.count();
  for (const auto& [key, value] : at.yaml.map) {
    const At here = at.child(key.text, value);
    if (reader.keep_origins) reader.origins[path(here)] = value.place;
    if (key.text == "family") continue;
    if (key.text == "trained_as" && is_transformer(*family)) {
      const Yaml* positions = at.yaml.find("positions");
      const bool rotary = family->name == kDecoderFamily.name && !(positions && positions->scalar == "none");
      read_trained_as(reader, here, rotary, trained.emplace());
      continue;
    }
    std::string text;
    if (!(takes_list(*family, key.text) ? read_argument(reader, here, text) : read_value(reader, here, text))) continue;
    if (!has_parameter(*family, key.text) && !meant_by(key.text).empty())
      unknown_key(reader, at, key, {});
    else if (key.text == "name")
      title = text;
    else if (key.text == "source")
      source = text;
    else
      arguments.emplace(key.text, Placed<std::string>{text, value.place});
  }
  if (reader.errors.count() > errors_before) return;
  try {
    model = build_family(*family, arguments, at.yaml.place);
    if (!title.empty()) model.name = title;
    if (!source.empty()) model.source = source;
    if (trained) keep_trained_as(model, *trained);
  } catch (const InputError& error) {
    reader.errors.add(error);
  }
}

void read_map(Reader& reader, const At& at, Model& model) {
  if (const Yaml* family = at.yaml.find("family");
      family && at.yaml.find("layers") && at.yaml.find("layers")->is(Yaml::Type::List))
    return reader.errors.add(family->place, path(at), "family and a list of layers exclude each other; keep one");
  std::vector<const YamlKey*> forms;
  const bool family = at.yaml.find("family") != nullptr;
  for (const auto& [key, value] : at.yaml.map)
    if (is_model_form(key.text) && !(family && key.text == "layers")) forms.push_back(&key);
  if (forms.size() > 1)
    return reader.errors.add(
        forms[1]->place, path(at),
        fmt::format("{} and {} exclude each other; keep one of them", forms[0]->text, forms[1]->text));
  if (forms.empty())
    return reader.errors.add(at.yaml.place, path(at),
                             "says nothing of its layers; write a name of configs/models, layers: [...], family: "
                             "<name>, hf: <path>, file: <path>, pieces: <path> or pipedream_profile: <path>");
  if (forms[0]->text == "layers") return read_fields<Model>(reader, at, kExplicit, model);
  if (forms[0]->text == "family") return read_family_form(reader, at, model);
  if (forms[0]->text == "hf") return read_hf_form(reader, at, model);
  if (forms[0]->text == "pipedream_profile")
    return read_profile_form(reader, at, "pipedream_profile", kModelProfile, profile_of, model);
  if (forms[0]->text == "pieces") return read_profile_form(reader, at, "pieces", kModelPieces, pieces_of, model);
  std::string file;
  read_fields<std::string>(reader, at, kModelFile, file);
  if (!file.empty()) read_file_form(reader, at, relative_to(at.yaml.find("file")->place, file), model);
}

}  // namespace

bool read_argument(Reader& reader, const At& at, std::string& text) {
  if (!at.yaml.is(Yaml::Type::List)) return read_value(reader, at, text);
  std::vector<std::string> words;
  if (!read_value(reader, at, words)) return false;
  text = fmt::format("[{}]", fmt::join(words, ", "));
  return true;
}

bool is_model_form(std::string_view key) {
  return std::ranges::find(kForms, key) != kForms.end();
}

void read_model_section(Reader& reader, const At& at, Model& model) {
  model.place = at.yaml.place;
  if (at.yaml.is(Yaml::Type::Scalar)) return read_file_form(reader, at, referenced_file(reader, at, "model"), model);
  if (is_map(reader, at, "a name or a map")) read_map(reader, at, model);
}

// Layers in flow style, one per line, so that a large model stays readable.
void write_model_section(YamlText& out, const Model& model) {
  const bool built = !model.form.empty() && (model.form.front().first == "family" || model.form.front().first == "hf");
  if (built) out.line("name", value_text(model.name));
  if (!built) write_fields<Model>(out, kExplicit, model);
  const Family* family = built ? find_family(model.form.front().second) : nullptr;
  for (const auto& [key, value] : model.form)
    out.line(key, family != nullptr && is_letters(*family, key) ? yaml_string(value) : value);
  if (built && model.form.front().first == "family") write_changed<&Model::source>(out, "source", model);
  if (built) return;
  out.open("layers");
  for (LayerId i = 0; i < std::ssize(model.layers); ++i) {
    LayerText text;
    text.layer = model.layers[i];
    const bool chain = i == 0 ? text.layer.inputs.empty() : text.layer.inputs == std::vector<LayerId>{i - 1};
    if (!chain) {
      text.inputs.emplace();
      for (const LayerId input : text.layer.inputs)
        text.inputs->push_back(model.layers[input].name);
    }
    YamlText fields(nullptr, {});
    for (const Field<LayerText>& field : kLayer)
      if (text.layer.op.empty() || !follows_from_operators(field.key)) field.write(fields, text);
    std::string line = fields.text();
    line.pop_back();
    if (!text.layer.op.empty()) line += "\n" + text.layer.op;
    for (std::size_t end = line.find('\n'); end != std::string::npos; end = line.find('\n', end))
      line.replace(end, 1, ", ");
    out.item("{" + line + "}", text.layer.place);
  }
  out.close();
}

std::vector<SectionDoc> model_docs() {
  std::vector<SectionDoc> docs = {document<Model>("model (layers)", kExplicit),
                                  document<LayerText>("model.layers", kLayer),
                                  document<std::string>("model (file)", kModelFile),
                                  hf_form_doc(),
                                  document<ProfileText>("model (profile)", kModelProfile),
                                  document<ProfileText>("model (pieces)", kModelPieces)};
  for (const auto& more : {family_docs(), trained_as_docs(), operator_docs()})
    docs.insert(docs.end(), more.begin(), more.end());
  return docs;
}

}  // namespace pipewright::io
