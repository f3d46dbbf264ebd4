// Configurations of Hugging Face: the shipped ones, and what reading a text gives.
#pragma once

#include <cstdlib>
#include <string>

#include "io/import/hf.hpp"
#include "tests/io/scratch.hpp"

namespace pipewright::tests {

inline std::string shipped(const std::string& name) {
  return std::string(std::getenv("PIPEWRIGHT_SOURCE")) + "/configs/models/hf/" + name + ".json";
}

inline std::string hf_refusal(const std::string& text, const HfOptions& options = {}) {
  return message_of([&] { parse_hf_config(text, "config.json", options); });
}

inline Transformer parsed_hf(const std::string& text, const HfOptions& options = {}) {
  return parse_hf_config(text, "config.json", options).transformer;
}

}  // namespace pipewright::tests
