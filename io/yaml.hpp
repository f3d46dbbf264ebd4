// A strict YAML tree with a place for every value. The only includer of yaml-cpp is yaml.cpp.
//
// Refused here, each with file:line:column: duplicate keys, anchors and aliases, merge keys, tags, several documents,
// more than 8 MiB, more than 64 levels, keys that are no plain text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.hpp"

namespace pipewright {

struct Yaml {
  enum class Type { Null, Scalar, List, Map };
  Type type = Type::Null;
  Place place;          // of the value
  bool quoted = false;  // scalar written in quotes: text, whatever it looks like
  std::string scalar;
  std::vector<Yaml> list;
  std::vector<std::pair<Placed<std::string>, Yaml>> map;  // in file order; place of the key

  const Yaml* find(std::string_view key) const;
  Yaml* find(std::string_view key);
};

constexpr std::size_t kLargestInput = std::size_t{8} << 20;
constexpr int kDeepestInput = 64;

// Whole file as text. "-": standard input. Refuses directories, devices, sockets, a FIFO without a writer, files over
// `limit`. Throws InputError with the path and a way out.
std::string read_file(const std::string& path, std::size_t limit = kLargestInput);

Yaml parse_yaml(const std::string& text, const std::string& file);  // `file` is used in places only

// `--set a.b.c=value`: replaces or adds. The value is YAML (a scalar, or {flow: map}); `place` of the new values names
// "--set a.b.c". List items by number: model.layers.3.forward.
void set(Yaml& root, const std::string& assignment);

}  // namespace pipewright
