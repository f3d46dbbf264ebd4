// JSON that is read. nlohmann-json parses; what is wrong with a text, or with a value in it, is said here in words of
// our own, with file, line and column, or the path of the value:
//
//     r.json:3:14: not valid JSON: a comma stands before "}"; take it out
//     r.json: workers[2].busy_s is "x", not a number; write one with pipewright simulate SCENARIO -o FILE.json
//
// Tests: tests/io/json_input_test.cpp
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/check.hpp"

namespace pipewright::io {

using Json = nlohmann::json;

// Throws InputError at the place of what is not JSON, and where values are more than `deepest` deep. `way_out` follows
// the message.
Json parse_json(std::string_view text, const std::string& file, const std::string& way_out = "", int deepest = 64);

// A value of a document, with its path. Each reader throws InputError where the value is missing or of another kind.
class JsonValue {
 public:
  // The whole document; `json` must outlive it. `way_out` follows every message.
  JsonValue(const Json& json, const std::string& file, const std::string& way_out);

  JsonValue at(std::string_view key) const;  // of a map
  bool has(std::string_view key) const;
  std::vector<JsonValue> items() const;                        // of a list
  std::vector<std::pair<std::string, JsonValue>> map() const;  // of a map, by key
  bool is_null() const { return json_->is_null(); }
  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }

  std::string text() const;
  bool flag() const;
  double number() const;
  std::int64_t whole() const;
  std::optional<double> number_or_null() const;

  // As the field that it is read into.
  template <class T>
  requires(std::same_as<T, std::string> || std::same_as<T, bool> || std::same_as<T, double> || std::same_as<T, int> ||
           std::same_as<T, std::int64_t>)
  operator T() const {
    if constexpr (std::same_as<T, std::string>)
      return text();
    else if constexpr (std::same_as<T, bool>)
      return flag();
    else if constexpr (std::same_as<T, double>)
      return number();
    else {
      const std::int64_t value = whole();
      if (!std::in_range<T>(value)) not_a("a whole number of this size");
      return static_cast<T>(value);
    }
  }

  [[noreturn]] void refuse(const std::string& why) const;  // "workers[2].busy_s " + why

 private:
  struct Source {
    std::string file, way_out;
  };
  JsonValue(const Json& json, std::string path, std::shared_ptr<const Source> source);
  [[noreturn]] void not_a(const std::string& kind) const;

  const Json* json_;
  std::string path_;
  std::shared_ptr<const Source> source_;
};

}  // namespace pipewright::io
