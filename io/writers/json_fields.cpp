#include "io/writers/json_fields.hpp"

namespace pipewright::io {

JsonFields& JsonFields::anything(std::string_view name, const std::function<void(JsonText&)>& members) {
  key(name);
  open_map();
  schema_ ? (void)text_.open('{').close() : members(text_);
  close();
  return *this;
}

void JsonFields::key(std::string_view name) {
  text_.key(name);
  if (schema_ && !objects_.back().optional) objects_.back().required.emplace_back(name);
}

void JsonFields::one_of(std::string_view text, const std::vector<std::string_view>& all) {
  if (schema_)
    text_.open('{').field("enum", all).close();
  else
    text_.value(text);
}

void JsonFields::type(std::string_view name) {
  text_.open('{').field("type", name).close();
}

void JsonFields::open_object() {
  text_.open('{');
  if (schema_) open_members();
}

void JsonFields::close_object() {
  if (schema_) close_members();
  text_.close();
}

void JsonFields::alternatives(const JsonEither& either) {
  if (schema_) text_.open('{').key("anyOf").open('[');
  for (const auto* const members : {&either.one, &either.other}) {
    if (!schema_ && (members == &either.one) != either.first) continue;
    open_object();
    (*members)();
    close_object();
  }
  if (schema_) text_.close().close();
}

void JsonFields::open_members() {
  text_.field("type", "object").key("properties").open('{');
  objects_.emplace_back();
}

void JsonFields::close_members() {
  text_.close();
  if (!objects_.back().required.empty()) text_.field("required", objects_.back().required);
  text_.field("additionalProperties", false);
  objects_.pop_back();
}

void JsonFields::open_list() {
  if (schema_)
    text_.open('{').field("type", "array").key("items");
  else
    text_.open('[');
}

void JsonFields::open_map() {
  text_.open('{');
  if (schema_) text_.field("type", "object").key("additionalProperties");
}

void JsonFields::close() {
  text_.close();
}

void JsonFields::open_maybe() {
  if (schema_) text_.open('{').key("anyOf").open('[');
}

void JsonFields::close_maybe(bool there) {
  if (schema_) {
    type("null");
    text_.close().close();
  } else if (!there) {
    text_.null();
  }
}

void JsonDocument::begin(JsonFields& json) const {
  json.word("schema", name, {name});
  if (tool)
    json.object("tool", [&] { json.word("name", "pipewright", {"pipewright"}).field("version", PIPEWRIGHT_VERSION); });
}

std::string JsonDocument::text(const std::function<void(JsonFields&)>& members) const {
  JsonFields json(false);
  json.open_object();
  begin(json);
  members(json);
  json.close_object();
  return std::move(json.text_).text();
}

std::string JsonDocument::schema() const {
  JsonFields json(true);
  JsonText& text = json.text_;
  text.open('{').field("$schema", "http://json-schema.org/draft-07/schema#").field("title", name);
  if (other != nullptr) text.key("anyOf").open('[');
  for (const auto members : {empty, other}) {
    if (members == nullptr) continue;
    if (other != nullptr) text.open('{');
    json.open_members();
    begin(json);
    members(json);
    json.close_members();
    if (other != nullptr) text.close();
  }
  if (other != nullptr) text.close();
  text.close();
  return std::move(text).text();
}

}  // namespace pipewright::io
