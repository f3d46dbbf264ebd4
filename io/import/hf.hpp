// Hugging Face configurations (config.json) as transformers.
//
// Read: llama, mistral, mixtral, qwen2, qwen3, qwen2_moe, qwen3_moe, gemma, gemma2, gemma3_text, gpt2, gpt_neox,
// gpt_oss, deepseek_v2, deepseek_v3, mpt, nemotron, nemotron_h, olmo2, bert, t5, vit. One that wraps a text model
// (`text_config`) gives that part. Refused: any other model_type, a missing or wrong field, and fields of experts or of
// compressed attention that its model_type does not have: a sparse model never becomes a dense one silently.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/families/transformer.hpp"
#include "core/model/trained_as.hpp"

namespace pipewright::io {

struct HfOptions {
  std::optional<std::int64_t> sequence_length;  // default: the longest that the configuration states
  std::optional<std::int64_t> target_length;    // of a decoder behind an encoder; default: sequence_length
  std::int64_t next_token_modules = 0;          // of those that the configuration states, how many are built
  bool flash = true;                            // attention in one kernel; else materialised
};

// A configuration as a description and what it left out, a sentence per entry.
struct HfConfig {
  Transformer transformer;
  TrainedAs trained_as;
  std::vector<std::string> notes;
};

// Throws InputError, "file:line:column: field: value law, way out".
HfConfig parse_hf_config(const std::string& text, const std::string& file, const HfOptions& options);

// The model; its `source` names the file, its sha256 and what was left out, its `form` the family that describes it.
Model read_hf_config(const std::string& path, const HfOptions& options);

std::vector<std::string_view> hf_model_types();

}  // namespace pipewright::io
