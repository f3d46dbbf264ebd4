#include "io/study_record.hpp"

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/json_input.hpp"
#include "io/quote.hpp"
#include "io/sha256.hpp"
#include "io/writers/json_text.hpp"
#include "io/writers/shapes.hpp"

namespace pipewright {
namespace {

constexpr std::string_view kRecord = "pipewright.study-record/1", kStudy = "pipewright.study/1";

// A document of that schema, handed to `read`; what is wrong with it as an InputError.
template <class Read>
auto parsed(const std::string& text, const std::string& file, std::string_view schema, const Read& read) {
  const std::string way_out = "delete it to regenerate the record";
  const Json json = parse_json(text, file, way_out);
  if (!json.is_object() || !json.contains("schema") || json["schema"] != Json(std::string(schema)))
    throw InputError(Place{file, 0, 0},
                     fmt::format("is not a {} document; it is not a result of `pipewright accuracy`", schema));
  return read(JsonValue(json, file, way_out));
}

template <class T>
void write_map(JsonText& json, std::string_view key, const std::map<std::string, T>& values) {
  json.key(key).open('{');
  for (const auto& [name, value] : values)
    json.field(name, value);
  json.close();
}

}  // namespace

double StudyRecord::figure(const std::string& key, double otherwise) const {
  const auto found = figures.find(key);
  return found == figures.end() ? otherwise : found->second;
}

std::string StudyRecord::word(const std::string& key) const {
  const auto found = words.find(key);
  return found == words.end() ? "" : found->second;
}

std::string study_record_json(const StudyRecord& record) {
  JsonText json;
  json.open('{').field("schema", kRecord).field("dry_run", record.dry_run).field("settings", record.settings);
  json.field("part", record.part).field("name", record.name).field("attempt", record.attempt);
  json.field("status", record.status).field("reason", record.reason);
  write_map(json, "words", record.words);
  write_map(json, "figures", record.figures);
  write_map(json, "lists", record.lists);
  json.close();
  return std::move(json).text();
}

StudyRecord parse_study_record(const std::string& text, const std::string& file) {
  return parsed(text, file, kRecord, [](const JsonValue& json) {
    StudyRecord record;
    record.dry_run = json.at("dry_run"), record.settings = json.at("settings");
    record.part = json.at("part"), record.name = json.at("name"), record.attempt = json.at("attempt");
    record.status = json.at("status"), record.reason = json.at("reason");
    for (const auto& [key, value] : json.at("words").map())
      record.words[key] = value.text();
    for (const auto& [key, value] : json.at("figures").map())
      if (!value.is_null()) record.figures[key] = value.number();  // null: not a number
    for (const auto& [key, values] : json.at("lists").map()) {
      std::vector<double>& list = record.lists[key];
      for (const JsonValue& value : values.items())
        list.push_back(value.number());
    }
    return record;
  });
}

std::string study_hash(const StudySettings& settings) {
  std::string all;
  for (const auto& [name, value] : settings)
    all += json_string(name) + ":" + json_string(value) + "\n";
  return sha256(all);
}

std::string study_settings_json(const StudySettings& settings, bool dry_run) {
  JsonText json;
  json.open('{').field("schema", kStudy).field("dry_run", dry_run).field("hash", study_hash(settings));
  write_map(json, "settings", settings);
  json.close();
  return std::move(json).text();
}

StudySettings parse_study_settings(const std::string& text, const std::string& file) {
  return parsed(text, file, kStudy, [](const JsonValue& json) {
    StudySettings settings;
    for (const auto& [key, value] : json.at("settings").map())
      settings[key] = value.text();
    return settings;
  });
}

JsonShape study_record_shape() {
  using namespace shape;
  return bare_document(kRecord, {{"dry_run", flag()},
                                 {"settings", text()},
                                 {"part", whole()},
                                 {"name", text()},
                                 {"attempt", whole()},
                                 {"status", text()},
                                 {"reason", text()},
                                 {"words", map(text())},
                                 {"figures", map(maybe(number()))},
                                 {"lists", map(list(maybe(number())))}});
}

JsonShape study_settings_shape() {
  using namespace shape;
  return bare_document(kStudy, {{"dry_run", flag()}, {"hash", text()}, {"settings", map(text())}});
}

}  // namespace pipewright
