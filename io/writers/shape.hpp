// The form of a JSON document: stated once, beside the function that writes it, and told as JSON Schema (draft-07).
//
//   JsonShape capacity_shape() {
//     using namespace shape;
//     return document("pipewright.capacity/1", {{"scenario", text()}, {"rows", list(row_shape())}});
//   }
//
// Objects are closed: a key that is not stated is refused, and one that is must be there, unless it ends in "?".
// tests/docs/schema_test.py holds the documents that the program writes against them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

struct JsonMember;

struct JsonShape {
  enum class Kind : std::uint8_t { Any, Null, Flag, Whole, Number, Text, Words, List, Map, Object, Either };
  Kind kind = Kind::Any;
  std::vector<std::string> words;   // Words: the texts that it may be
  std::vector<JsonShape> parts;     // List, Map: of each; Either: the alternatives
  std::vector<JsonMember> members;  // Object
};

struct JsonMember {
  std::string key;  // without the "?"
  JsonShape shape;
  bool required = true;
  JsonMember(std::string_view written, JsonShape form);
};

namespace shape {

JsonShape any();
JsonShape flag();
JsonShape whole();   // a whole number
JsonShape number();  // times in seconds, shares, rates
JsonShape text();
JsonShape one_of(std::vector<std::string> words);
JsonShape list(JsonShape each);
JsonShape map(JsonShape each);    // keys are data
JsonShape maybe(JsonShape that);  // or null
JsonShape either(std::vector<JsonShape> alternatives);
JsonShape object(std::vector<JsonMember> members);

// The keys of an object, and more.
JsonShape with(JsonShape form, std::vector<JsonMember> more);

// With "schema", and "tool" as open_document writes it.
JsonShape document(std::string_view schema, std::vector<JsonMember> members);
// With "schema" alone.
JsonShape bare_document(std::string_view schema, std::vector<JsonMember> members);

// A table of names: {"fp32", Precision::Fp32}, ...
template <class Names>
JsonShape of_names(const Names& names) {
  std::vector<std::string> words;
  for (const auto& each : names)
    words.emplace_back(each.first);
  return one_of(std::move(words));
}

// {"first": 0, "last": 5}, inclusive.
JsonShape layer_range();
// A figure of both: {"predicted": ..., "measured": ...}.
JsonShape compared(JsonShape each);

}  // namespace shape

// The schema of a document of that form.
std::string json_schema(std::string_view title, const JsonShape& form);

}  // namespace pipewright
