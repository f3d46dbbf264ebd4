// Models, devices and clusters that a file names: found in the config folders, or by path.
#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/read/read_file.hpp"
#include "io/read/read_scenario.hpp"
#include "io/text/utf8.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

std::string stem(const std::string& path) {
  return printable(std::filesystem::path(path).stem().string());
}

bool is_path(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".yaml") || text.ends_with(".yml") ||
         text.ends_with(".json");
}

void add_files(const std::string& folder, std::string_view ending, std::map<std::string, std::string>& by_name) {
  std::error_code absent;  // a folder of the search path may have no such kind
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent))
    if (entry.path().extension() == ending) by_name.emplace(entry.path().stem().string(), entry.path().string());
}

// A config.json named where a model file could be: what `{hf: FILE}` says.
Yaml as_hf_form(const std::string& file, const YamlPlace& named_at) {
  std::error_code failed;
  const std::filesystem::path absolute = std::filesystem::absolute(file, failed);
  Yaml form, path;
  path.type = Yaml::Type::Scalar, path.quoted = true, path.place = named_at;
  path.scalar = failed ? file : absolute.lexically_normal().string();
  form.type = Yaml::Type::Map, form.place = named_at;
  form.map.emplace_back(YamlKey{"hf", named_at}, std::move(path));
  return form;
}

Yaml read_anew(Reader& reader, const std::string& file, std::string_view kind, const YamlPlace& named_at) {
  if (kind == "model" && file.ends_with(".json")) return as_hf_form(file, named_at);
  Yaml none;
  std::string text;
  try {
    text = read_file(file);
  } catch (const InputError& error) {
    reader.errors.add(named_at, error.what());
    return none;
  }
  try {
    Yaml root = parse_yaml(text, file);
    const Place place = root.place;
    if (!root.is(Yaml::Type::Map)) {
      reader.errors.add(place, fmt::format("this is not a {} file: its top key must be {}:", kind, kind));
      return none;
    }
    for (const auto& [key, value] : root.map)
      if (key.text != kind && key.text != "version")
        reader.errors.add(key.place,
                          fmt::format("unknown key {}; a {} file holds one map, {}:", in_quotes(key.text), kind, kind));
    if (const Yaml* version = root.find("version")) check_version(reader, At{root}.child("version", *version));
    Yaml* value = root.find(kind);
    if (value) return std::move(*value);
    reader.errors.add(place, fmt::format("this is not a {} file: its top key must be {}:", kind, kind));
  } catch (const InputError& error) {
    reader.errors.add(error);
  }
  return none;
}

}  // namespace

std::vector<std::string> config_files(const std::string& kind, const ReadOptions& options) {
  std::map<std::string, std::string> by_name;
  for (const std::string& folder : options.config_path) {
    add_files(folder + "/" + kind, ".yaml", by_name);
    if (kind == "models") add_files(folder + "/models/hf", ".json", by_name);
  }
  std::vector<std::string> files;
  for (const auto& [name, file] : by_name)
    files.push_back(file);
  return files;
}

std::string relative_to(const YamlPlace& place, const std::string& path) {
  return path.starts_with('/') || !place.source ? path : place.source->folder + path;
}

std::string referenced_file(Reader& reader, const At& at, std::string_view kind) {
  const std::string& name = at.yaml.scalar;
  if (is_path(name)) return relative_to(at.yaml.place, name);
  if (reader.known_files) {
    const auto found = reader.known_files->by_name.find({std::string(kind), name});
    if (found != reader.known_files->by_name.end()) return found->second;
  }
  std::vector<std::string> known;
  for (const std::string& file : config_files(std::string(kind) + "s", reader.options)) {
    known.push_back(stem(file));
    if (known.back() != name) continue;
    if (reader.known_files) reader.known_files->by_name[{std::string(kind), name}] = file;
    return file;
  }
  const std::string hint =
      known.empty() ? fmt::format("unknown {} {}; no config folder holds any {}", kind, in_quotes(name), kind)
                    : unknown_or_begun(std::string_view(name).substr(0, 64), known);
  reader.errors.add(
      at.yaml.place, path(at),
      fmt::format("{}; a path needs a \"/\" or must end in .yaml{}", hint, kind == "model" ? " or .json" : ""));
  return {};
}

Yaml read_yaml(const std::string& path, const ReadOptions& options) {
  const auto found = options.texts.find(path);
  if (found == options.texts.end()) return read_yaml(path);
  if (found->second.size() > kLargestInput)
    throw InputError(Place{path, 0, 0}, fmt::format("is larger than {} MiB; name a smaller one", kLargestInput >> 20));
  return parse_yaml(found->second, path);
}

void check_version(Reader& reader, const At& at) {
  std::int64_t version = 0;
  if (read_value(reader, at, version) && version != 1) reader.error(at, "is not a known version; write version: 1");
}

Yaml read_reference(Reader& reader, const std::string& file, std::string_view kind, const YamlPlace& named_at) {
  if (!reader.known_files) return read_anew(reader, file, kind, named_at);
  const std::pair key(std::string(kind), file);
  if (const auto found = reader.known_files->by_path.find(key); found != reader.known_files->by_path.end())
    return found->second;
  const std::size_t errors_before = reader.errors.count();
  Yaml value = read_anew(reader, file, kind, named_at);
  if (reader.errors.count() == errors_before) reader.known_files->by_path[key] = value;
  return value;
}

}  // namespace pipewright::io
