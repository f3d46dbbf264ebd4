// The model types of Hugging Face configurations that are known: what each field of theirs says of a transformer.
// Inside io/import only.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "io/import/hf.hpp"
#include "io/import/hf_fields.hpp"

namespace pipewright::io {

// One configuration, on its way to a transformer.
struct HfReading {
  HfFields& config;
  const HfOptions& options;
  HfConfig& out;
  std::string type;
  Transformer& model = out.transformer;
};

struct HfType {
  std::string_view name;
  void (*read)(const HfReading&);
};
std::span<const HfType> hf_types();  // by name

// Blocks of one part each, Mamba-2 mixers and experts of nemotron_h. `transformer` has the rest.
void read_hf_hybrid(const HfReading& reading);

// Layers of two blocks each, a gated delta net or attention and then a feed-forward or experts, of qwen3_next and its
// successors. `transformer` has the rest, by layer.
void read_hf_delta(const HfReading& reading);

// What every type states beside its shapes: rotary base and scaling, epsilon of the norms. `transformer` is read.
void read_hf_trained_as(const HfReading& reading);

}  // namespace pipewright::io
