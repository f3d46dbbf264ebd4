// The ending of the format that a path is written in; "": none.
#pragma once

#include <string_view>

#include "io/writers/writers.hpp"

namespace pipewright::tests {

inline std::string_view ending_of(std::string_view path) {
  for (const Writer& writer : writers())
    if (ends_in(path, writer.ending)) return writer.ending;
  return "";
}

}  // namespace pipewright::tests
