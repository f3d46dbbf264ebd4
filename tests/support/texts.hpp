// What tests ask of a text.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace pipewright::tests {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Checks that a message has a part, and shows all of it where it has not.
inline void holds(const std::string& message, const std::string& part) {
  INFO(message);
  CHECK(contains(message, part));
}

inline std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    result.push_back(line);
  return result;
}

}  // namespace pipewright::tests
