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

// A small Llama, or another type with as many key heads as heads, with one line replaced or added.
inline std::string hf_llama(const std::string& more = "", const std::string& type = "llama") {
  return "{\n \"model_type\": \"" + type +
         "\", \"hidden_size\": 64, \"intermediate_size\": 128,\n \"num_hidden_layers\": 4, \"num_attention_heads\": "
         "8,\n "
         "\"vocab_size\": 1000, \"max_position_embeddings\": 512" +
         (type == "llama" ? "" : ", \"num_key_value_heads\": null") + (more.empty() ? "" : ",\n " + more) + "\n}";
}

}  // namespace pipewright::tests
