#include "io/writers/shape.hpp"

#include <utility>

#include "core/check.hpp"
#include "io/writers/json_text.hpp"

namespace pipewright {

JsonMember::JsonMember(std::string_view written, JsonShape form)
    : key(written.substr(0, written.size() - (written.ends_with('?') ? 1 : 0))),
      shape(std::move(form)),
      required(!written.ends_with('?')) {}

namespace shape {
namespace {

JsonShape of(JsonShape::Kind kind) {
  JsonShape made;
  made.kind = kind;
  return made;
}

JsonShape around(JsonShape::Kind kind, std::vector<JsonShape> parts) {
  JsonShape made = of(kind);
  made.parts = std::move(parts);
  return made;
}

}  // namespace

JsonShape any() {
  return of(JsonShape::Kind::Any);
}
JsonShape flag() {
  return of(JsonShape::Kind::Flag);
}
JsonShape whole() {
  return of(JsonShape::Kind::Whole);
}
JsonShape number() {
  return of(JsonShape::Kind::Number);
}
JsonShape text() {
  return of(JsonShape::Kind::Text);
}

JsonShape one_of(std::vector<std::string> words) {
  JsonShape made = of(JsonShape::Kind::Words);
  made.words = std::move(words);
  return made;
}

JsonShape list(JsonShape each) {
  return around(JsonShape::Kind::List, {std::move(each)});
}
JsonShape map(JsonShape each) {
  return around(JsonShape::Kind::Map, {std::move(each)});
}
JsonShape maybe(JsonShape that) {
  return around(JsonShape::Kind::Either, {std::move(that), of(JsonShape::Kind::Null)});
}
JsonShape either(std::vector<JsonShape> alternatives) {
  return around(JsonShape::Kind::Either, std::move(alternatives));
}

JsonShape object(std::vector<JsonMember> members) {
  JsonShape made = of(JsonShape::Kind::Object);
  made.members = std::move(members);
  return made;
}

JsonShape with(JsonShape form, std::vector<JsonMember> more) {
  PP_CHECK(form.kind == JsonShape::Kind::Object);
  for (JsonMember& member : more)
    form.members.push_back(std::move(member));
  return form;
}

JsonShape bare_document(std::string_view schema, std::vector<JsonMember> members) {
  return with(object({{"schema", one_of({std::string(schema)})}}), std::move(members));
}

JsonShape document(std::string_view schema, std::vector<JsonMember> members) {
  const JsonShape tool = object({{"name", one_of({"pipewright"})}, {"version", text()}});
  return with(bare_document(schema, {{"tool", tool}}), std::move(members));
}

JsonShape layer_range() {
  return object({{"first", whole()}, {"last", whole()}});
}

JsonShape compared(JsonShape each) {
  return object({{"predicted", each}, {"measured", each}});
}

}  // namespace shape

namespace {

void write_keywords(JsonText& json, const JsonShape& form);

void write_schema(JsonText& json, const JsonShape& form) {
  json.open('{');
  write_keywords(json, form);
  json.close();
}

void write_object(JsonText& json, const JsonShape& form) {
  json.field("type", "object").key("properties").open('{');
  std::vector<std::string> required;
  for (const JsonMember& member : form.members) {
    write_schema(json.key(member.key), member.shape);
    if (member.required) required.push_back(member.key);
  }
  json.close();
  if (!required.empty()) json.field("required", required);
  json.field("additionalProperties", false);
}

void write_keywords(JsonText& json, const JsonShape& form) {
  switch (form.kind) {
    case JsonShape::Kind::Any: return;
    case JsonShape::Kind::Null: json.field("type", "null"); return;
    case JsonShape::Kind::Flag: json.field("type", "boolean"); return;
    case JsonShape::Kind::Whole: json.field("type", "integer"); return;
    case JsonShape::Kind::Number: json.field("type", "number"); return;
    case JsonShape::Kind::Text: json.field("type", "string"); return;
    case JsonShape::Kind::Words: json.field("enum", form.words); return;
    case JsonShape::Kind::List: write_schema(json.field("type", "array").key("items"), form.parts.front()); return;
    case JsonShape::Kind::Map:
      write_schema(json.field("type", "object").key("additionalProperties"), form.parts.front());
      return;
    case JsonShape::Kind::Object: write_object(json, form); return;
    case JsonShape::Kind::Either:
      json.key("anyOf").open('[');
      for (const JsonShape& each : form.parts)
        write_schema(json, each);
      json.close();
      return;
  }
}

}  // namespace

std::string json_schema(std::string_view title, const JsonShape& form) {
  JsonText json;
  json.open('{').field("$schema", "http://json-schema.org/draft-07/schema#").field("title", title);
  write_keywords(json, form);
  json.close();
  return std::move(json).text();
}

}  // namespace pipewright
