// model: {hf: config.json}: a Hugging Face configuration, by its path.
#include <algorithm>
#include <array>
#include <filesystem>

#include "core/model/families/described.hpp"
#include "core/model/families/lora.hpp"
#include "io/import/hf.hpp"
#include "io/read/model_forms.hpp"
#include "io/read/read_scenario.hpp"
#include "io/read/trained_as.hpp"
#include "io/text/utf8.hpp"
#include "io/yaml/flat_values.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

struct HfText : HfOptions {
  std::string file;
  std::string name;
  FamilyArguments lora;  // of the family that describes it
};

void read_lora_argument(Reader& reader, const At& at, HfText& text) {
  std::string value;
  if (read_argument(reader, at, value))
    text.lora.emplace(std::string(at.key), Placed<std::string>{value, at.yaml.place});
}

// The same model with adapters.
Model with_lora(const Model& plain, const FamilyArguments& lora) {
  const Family* family = plain.form.front().first == "family" ? find_family(plain.form.front().second) : nullptr;
  const auto takes_lora = [](const FamilyParameter& parameter) { return parameter.name == kLoraRank.name; };
  if (family == nullptr || std::ranges::none_of(family->parameters, takes_lora))
    throw InputError(
        lora.begin()->second.place, "model." + lora.begin()->first,
        "adapters are built in decoders that a family of models describes, and this is none; leave it out");
  FamilyArguments arguments = lora;
  for (const auto& [key, value] : plain.form)
    if (key != "family" && key != "trained_as") arguments.emplace(key, Placed<std::string>{value, {}});
  Model model = build_family(*family, arguments, plain.place);
  model.name = plain.name, model.source = plain.source;
  keep_trained_as(model, trained_as(plain));
  return model;
}

constexpr Field<HfText> kHf[] = {
    {"hf", "path of a config.json, or name", "a transformer as Hugging Face configures it; a name of configs/models/hf",
     member<&HfText::file>, Need::Required},
    {"sequence_length", "whole number >= 1", "tokens of a sample; default: the longest that the file states",
     read_as<&HfOptions::sequence_length, AtLeast1>},
    {"target_length", "whole number >= 1", "tokens of a decoder behind an encoder; default: sequence_length",
     read_as<&HfOptions::target_length, AtLeast1>},
    {"attention", "flash | materialised", "one kernel that keeps no scores, or separate products; default: flash",
     [](Reader& reader, const At& at, HfText& text) {
       std::string word;
       if (!read_value(reader, at, word)) return;
       constexpr std::array<std::string_view, 2> known = {"flash", "materialised"};
       if (std::ranges::find(known, word) == known.end())
         return reader.error(at, unknown_name(word.substr(0, 64), known));
       text.flash = word == "flash";
     }},
    {"next_token_modules", "whole number >= 1",
     "how many of the configuration's are built (DeepSeek-V3); default: none",
     read_as<&HfOptions::next_token_modules, AtLeast1>},
    {kLoraRank.name, "whole number >= 1", kLoraRank.meaning, read_lora_argument},
    {"lora_targets", "list of names",
     "of decoders: linear layers beside which adapters stand, as the family names them", read_lora_argument},
    {"name", "text", "for reports; default: the name of the file, or of its folder", member<&HfText::name>},
    {"trained_as", "map", "in place of what the file states: see model.trained_as", [](Reader&, const At&, HfText&) {}},
};

// A name of the config folders, or a path.
std::string hf_file(const Reader& reader, const Yaml& at, const std::string& text) {
  const std::string path = relative_to(at.place, text);
  std::error_code absent;
  if (text.find('/') != std::string::npos || text.ends_with(".json") || std::filesystem::exists(path, absent))
    return path;
  std::vector<std::string> known;
  for (const std::string& file : config_files("models", reader.options)) {
    if (!file.ends_with(".json")) continue;
    known.push_back(printable(std::filesystem::path(file).stem().string()));
    if (known.back() == text) return file;
  }
  if (known.empty()) return path;  // which then says that it is not there
  throw InputError(unknown_name(std::string_view(text).substr(0, 64), known));
}

}  // namespace

void read_hf_form(Reader& reader, const At& at, Model& model) {
  const std::size_t errors_before = reader.errors.count();
  HfText text;
  read_fields<HfText>(reader, at, kHf, text);
  const Yaml* file = at.yaml.find("hf");
  if (reader.errors.count() > errors_before || !file) return;
  try {
    const std::string path = hf_file(reader, *file, text.file);
    model = read_hf_config(path, text);
    model.place = at.yaml.place;
    if (!text.lora.empty()) model = with_lora(model, text.lora);
    for (Layer& layer : model.layers)
      layer.place = model.place;
    if (!text.name.empty()) model.name = text.name;
    if (const Yaml* said = at.yaml.find("trained_as")) {
      TrainedAs trained = trained_as(model);
      const auto transformer = described(model);
      const bool rotary =
          model.form.front().first == "hf" || (transformer && transformer->positions == Transformer::Positions::Rotary);
      read_trained_as(reader, at.child("trained_as", *said), rotary, trained);
      keep_trained_as(model, trained);
    }
    came_from(reader, path, model);
  } catch (const InputError& error) {
    if (error.first().key.starts_with("model.lora")) return reader.errors.add(error);
    reader.errors.add(file->place, path(at) + ".hf", error.what());
  }
}

SectionDoc hf_form_doc() {
  return document<HfText>("model (hf)", kHf);
}

void came_from(Reader& reader, const std::string& file, const Model& model) {
  if (!reader.keep_origins) return;
  YamlText text(nullptr, {});
  text.open("model");
  if (model.form.empty()) {  // a profile: layers have places of their own, and there may be many
    Model head = model;
    head.layers.clear();
    write_model_section(text, head);
  } else {
    write_model_section(text, model);
  }
  text.close();
  const Place from{std::filesystem::path(file).lexically_normal().string(), 0, 0};
  for (const auto& [key, value] : flat_lines(text.text()))
    reader.origins.try_emplace(key, from);
}

}  // namespace pipewright::io
