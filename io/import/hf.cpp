#include "io/import/hf.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "core/model/families/transformer_families.hpp"
#include "io/import/hf_types.hpp"
#include "io/import/json_places.hpp"
#include "io/read/read_file.hpp"
#include "io/read/trained_as.hpp"
#include "io/store/sha256.hpp"
#include "io/text/quote.hpp"
#include "io/text/utf8.hpp"
#include "io/yaml/fields.hpp"

namespace pipewright::io {
namespace {

constexpr int kDeepestConfig = 32;  // levels of nesting; configurations have three

// Python writes numbers that JSON has not, bare. They become texts of the same length: where a number is needed that is
// refused, and elsewhere (time_step_limit of Mamba-2) nobody looks.
std::string with_quoted_numbers(std::string text) {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\') ++i;
    if (quoted || std::isalpha(static_cast<unsigned char>(text[i])) == 0) continue;
    std::size_t end = i;
    while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end])) != 0)
      ++end;
    const std::string word = text.substr(i, end - i);
    if (word == "Infinity" && i > 0 && text[i - 1] == '-') --i;
    if (word == "Infinity" || word == "NaN") {
      text.replace(i, end - i, end - i, ' ');
      text[i] = text[i + 2] = '"', text[i + 1] = '?';
    }
    i = end - 1;
  }
  return text;
}

// Throws InputError for what is no JSON, no object or nested too deeply.
Json object_of(const std::string& text, const std::string& file) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) throw InputError(Place{file, 0, 0}, "is empty; a config.json is needed");
  if (text[begin] != '{')
    throw InputError(json_place(text, begin, file),
                     "is not a config.json of Hugging Face, which is one JSON object, {...}; look at its first line");
  return parse_json(with_quoted_numbers(text), file, "copy the file again from its publisher", kDeepestConfig);
}

// "llama3-8b" of configs/llama3-8b.json, "Qwen3-8B" of Qwen3-8B/config.json.
std::string model_name(const std::string& file, const std::string& type) {
  const std::filesystem::path path(file);
  if (path.stem() != "config" && !path.stem().empty()) return printable(path.stem().string());
  const std::string folder = path.parent_path().filename().string();
  return folder.empty() || folder == "." || folder == ".." ? type : printable(folder);
}

}  // namespace

std::vector<std::string_view> hf_model_types() {
  return mapped<std::string_view>(hf_types(), &HfType::name);
}

HfConfig parse_hf_config(const std::string& text, const std::string& file, const HfOptions& options) {
  const Json whole = object_of(text, file);
  const auto places = json_places(text, file);
  const auto inner = whole.find("text_config");
  const bool wraps = inner != whole.end() && inner->is_object();
  HfFields outer(whole, "", places, file);
  HfFields config(wraps ? *inner : whole, wraps ? "text_config." : "", places, file);
  HfConfig out;
  if (!config.has("model_type"))
    throw InputError(Place{file, 0, 0},
                     fmt::format("is not a Hugging Face configuration: {}model_type is missing; name a config.json of "
                                 "a model, e.g. with \"model_type\": \"llama\"",
                                 wraps ? "text_config." : ""));
  const std::string type = config.word("model_type");
  const auto types = hf_types();
  const auto found = std::ranges::find_if(types, [&](const HfType& t) { return t.name == type; });
  if (found == types.end())
    throw InputError(config.place("model_type"),
                     fmt::format("{}model_type: {}", wraps ? "text_config." : "",
                                 unknown_name(printable(type.substr(0, 64)), hf_model_types())));
  if (wraps)
    out.notes.push_back(fmt::format("only the text model of a wrapping configuration ({}) is built",
                                    printable(outer.word("model_type", "no model_type").substr(0, 64))));
  out.transformer.name = model_name(file, type);
  out.transformer.flash = options.flash;
  found->read({config, options, out, type});
  read_hf_trained_as({config, options, out, type});
  config.check_all_read(type);
  const Transformer& t = out.transformer;
  if (options.next_token_modules > 0 && t.stated_modules == 0)
    throw InputError(config.place("model_type"),
                     fmt::format("next_token_modules: {} where model_type {} has none; leave it out",
                                 options.next_token_modules, type));
  if (options.target_length && t.encoder_layers == 0)
    throw InputError(config.place("model_type"),
                     fmt::format("target_length: model_type {} has no encoder in front; leave it out", type));
  return out;
}

Model read_hf_config(const std::string& path, const HfOptions& options) {
  const std::string bytes = read_bytes(path), file = path == "-" ? "standard input" : path;
  const HfConfig config = parse_hf_config(std::string(without_byte_order_mark(bytes)), file, options);
  try {
    Model model = build(config.transformer);
    std::string source = fmt::format("Hugging Face configuration {}, sha256 {}",
                                     printable(std::filesystem::path(file).filename().string()), sha256(bytes));
    for (const std::string& note : config.notes)
      source += "\n" + note;
    if (!model.source.empty()) source += "\n" + model.source.substr(0, model.source.find_last_not_of('\n') + 1);
    model.source = source;
    model.place = Place{file, 0, 0};
    if (const auto form = family_form(config.transformer)) {
      model.form.emplace_back("family", form->family);
      model.form.insert(model.form.end(), form->arguments.begin(), form->arguments.end());
    } else {  // blocks that follow no rule: the configuration itself stays the description
      model.form.emplace_back("hf", yaml_path(std::filesystem::absolute(path).string()));
      model.form.emplace_back("sequence_length", std::to_string(config.transformer.sequence_length));
      if (options.target_length) model.form.emplace_back("target_length", std::to_string(*options.target_length));
      if (options.next_token_modules > 0)
        model.form.emplace_back("next_token_modules", std::to_string(options.next_token_modules));
      if (!options.flash) model.form.emplace_back("attention", "materialised");
    }
    keep_trained_as(model, config.trained_as);
    for (Layer& layer : model.layers)
      layer.place = model.place;
    return model;
  } catch (const InputError& error) {
    throw InputError(Place{file, 0, 0}, error.what());
  }
}

}  // namespace pipewright::io
