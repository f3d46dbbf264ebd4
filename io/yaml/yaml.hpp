// A strict YAML tree with a place for every value. The only includer of yaml-cpp is yaml.cpp.
//
// Refused here, each with file:line:column: duplicate keys, anchors and aliases, merge keys, tags, several documents,
// keys that are no plain text, control characters and bytes that are not UTF-8, more than 64 levels, more than
// 2 million values (and, by read_file, more than 8 MiB).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.hpp"
#include "io/read/read_file.hpp"

namespace pipewright::io {

// What a text was read from. `name` as the user typed it, for messages; paths in the text are relative to `folder`
// ("": the working directory).
struct YamlSource {
  std::string name;
  std::string folder;
  bool is_file = true;  // false: a value of the command line, which has no lines
};

// A tree may have a million nodes: the file name is shared, and a Place is made when somebody asks.
struct YamlPlace {
  std::shared_ptr<const YamlSource> source;
  int line = 0, column = 0;
  operator Place() const;
};

struct Yaml;
struct YamlKey {
  std::string text;
  YamlPlace place;
};

struct YamlEntry;

struct Yaml {
  enum class Type { Null, Scalar, List, Map };
  Type type = Type::Null;
  bool quoted = false;  // scalar written in quotes: text, whatever it looks like
  YamlPlace place;      // of the value
  std::string scalar;
  std::vector<Yaml> list;
  std::vector<YamlEntry> map;  // in file order

  bool is(Type t) const { return type == t; }
  const Yaml* find(std::string_view key) const;
  Yaml* find(std::string_view key);
};

// Not a std::pair, which clang does not let hold what holds a list of it.
struct YamlEntry {
  YamlKey first;
  Yaml second;
};

// A key as a value, for readers of maps whose keys are data.
inline Yaml as_value(const YamlKey& key) {
  Yaml value;
  value.type = Yaml::Type::Scalar, value.place = key.place, value.scalar = key.text;
  return value;
}

constexpr int kDeepestInput = 64;
constexpr std::size_t kMostValues = 2'000'000;

// `file` is used in places, and its folder for the paths inside. Throws InputError with every error found.
Yaml parse_yaml(const std::string& text, const std::string& file);
inline Yaml read_yaml(const std::string& path) {
  return parse_yaml(read_file(path), path);
}

// `--set a.b.c=value`, split. The value is YAML: a scalar, [a list] or {a: map}.
struct Assignment {
  std::vector<std::string> keys;  // {"a", "b", "c"}
  Yaml value;                     // its place is "--set a.b.c=value"
};
Assignment parse_assignment(const std::string& text);

// Replaces or adds; the value null removes the key. List items by number: model.layers.3.forward. Maps on the way are
// made when absent.
void set(Yaml& root, const Assignment& assignment);
inline void set(Yaml& root, const std::string& assignment) {
  set(root, parse_assignment(assignment));
}

}  // namespace pipewright::io
