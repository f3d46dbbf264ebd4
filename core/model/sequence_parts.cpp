#include "core/model/sequence_parts.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.hpp"

namespace pipewright::core {
namespace {

// What computes each row of a tensor from the same row of others; attention apart.
constexpr std::array<std::string_view, 17> kRowByRow = {
    "linear", "embedding", "learned_table", "layer_norm", "rms_norm", "relu",     "tanh",  "sigmoid",      "gelu",
    "silu",   "gated",     "softmax",       "add",        "concat",   "multiply", "slice", "cross_entropy"};

std::int64_t tokens_of(const Model& model) {
  for (const Layer& layer : model.layers)
    if (const Program* program =
            layer.work < 0 ? nullptr : model.works[static_cast<std::size_t>(layer.work)].program.get())
      for (const ProgramStep& step : program->steps)
        if (const auto* core = std::get_if<AttentionCore>(&step.spec)) return core->queries;
  return 0;
}

void refuse(const Layer& layer, const std::string& why) {
  throw InputError(layer.place, "", "layer \"" + layer.name + "\" cannot be run with a shared sequence: " + why);
}

Program of_part(Program program, const Layer& layer, std::int64_t tokens, int parts) {
  std::vector<char> losses(program.tensors.size());
  for (ProgramStep& step : program.steps) {
    losses[static_cast<std::size_t>(step.output)] = step.operation == "cross_entropy";
    if (auto* core = std::get_if<AttentionCore>(&step.spec)) {
      if (core->queries != tokens || core->keys != tokens)
        refuse(layer, "its attention is not over the " + std::to_string(tokens) + " tokens of the sequence");
      core->parts = parts, core->queries = core->keys = tokens / parts;
    } else if (std::ranges::find(kRowByRow, step.operation) == kRowByRow.end()) {
      refuse(layer, std::string(step.operation) + " reads more than one token at a time; use context_parallel: 1");
    }
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    Shape& shape = program.tensors[t].shape;
    if (losses[t] != 0) continue;
    if (shape.rank < 1 || shape.rank > 2 || shape[0] != tokens)
      refuse(layer, "a tensor of " + text(shape) + " does not have a row for each of " + std::to_string(tokens) +
                        " tokens; use context_parallel: 1");
    shape.dim[0] /= parts;
  }
  return program;
}

}  // namespace

Model of_parts(const Model& model, int parts) {
  Model of_each = model;
  const std::int64_t tokens = tokens_of(model);
  std::vector<char> done(model.works.size());
  for (const Layer& layer : model.layers) {
    if (layer.work < 0) continue;
    const auto work = static_cast<std::size_t>(layer.work);
    const Program* const program = model.works[work].program.get();
    if (program == nullptr || std::exchange(done[work], 1) != 0) continue;
    of_each.works[work].program = SharedProgram(of_part(*program, layer, tokens, parts));
  }
  return of_each;
}

}  // namespace pipewright::core
