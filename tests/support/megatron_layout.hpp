// A layout of Megatron-LM (io/launch/launch.hpp) as its chunks: for well-formed ones, to read back what was written.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "io/launch/launch.hpp"

inline std::vector<pipewright::io::LayoutChunk> chunks_of_layout(std::string layout) {
  for (const char* const repeated : {R"(\(([^)]*)\)\*(\d+))", R"((\w)\*(\d+))"})
    for (std::smatch found; std::regex_search(layout, found, std::regex(repeated));) {
      std::string all;
      for (int i = std::stoi(found[2]); i > 0; --i)
        all += found[1];
      layout = found.prefix().str() + all + found.suffix().str();
    }
  std::vector<pipewright::io::LayoutChunk> chunks(1);
  for (const char c : layout) {
    REQUIRE(std::string("|tEL,").find(c) != std::string::npos);
    if (c == '|') chunks.emplace_back();
    if (c == 't') ++chunks.back().blocks;
    if (c == 'E') chunks.back().embedding = true;
    if (c == 'L') chunks.back().head = true;
  }
  return chunks;
}
