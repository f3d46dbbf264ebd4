// Layers that state operators instead of figures. Inside io only.
//
//     - {name: stem, op: conv2d, channels: 64, kernel: 7, stride: 2, padding: 3}
//     - name: block
//       ops:
//         - {op: layer_norm}
//         - {op: linear, features: 4096}
//         - {op: gelu}
//         - {op: linear, features: 1024, as: out}
//         - {op: add, from: [input, out]}
//
// Each of `ops` takes the result of the one before, or what `from` names: `input` (the layer's first input), `input.1`
// (its second), or an `as` above.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/operator_table.hpp"
#include "io/yaml/sections.hpp"

namespace pipewright::io {

struct OpText {
  const OperatorRule* rule = nullptr;
  FamilyArguments arguments;
  Place place;
  std::string as;
  std::vector<Placed<std::string>> from;
};

// The operators of one layer, and the same as YAML on one line ("op: relu", "ops: [{op: ...}, ...]").
struct LayerOps {
  std::vector<OpText> ops;
  std::string text;
};

// Reads them from the layer's map; `layer_keys` belong to the layer itself, every other key to its `op`.
LayerOps read_ops(Reader& reader, const At& layer, const std::vector<std::string_view>& layer_keys);

// What a layer is given: the shape of one sample; tokens are numbers.
struct InputShape {
  Shape shape;
  bool tokens = false;  // token numbers
  bool model_input = false;
  bool operator==(const InputShape&) const = default;
};

// The layer's work and the shape of its output. Throws InputError at the operator that does not fit.
struct BuiltLayer {
  Work work;
  Shape output;
};
BuiltLayer build_layer(const LayerOps& ops, const std::vector<InputShape>& inputs, const std::string& path);

std::vector<SectionDoc> operator_docs();  // one section per operator
std::vector<SectionDoc> family_docs();    // one section per family

}  // namespace pipewright::io
