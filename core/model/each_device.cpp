#include "core/model/each_device.hpp"

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
constexpr std::array<std::string_view, 18> kRowByRow = {
    "linear", "embedding", "learned_table", "layer_norm", "rms_norm", "relu",     "tanh",  "sigmoid",       "gelu",
    "silu",   "gated",     "softmax",       "add",        "concat",   "multiply", "slice", "cross_entropy", "dropout"};

std::int64_t tokens_of(const Model& model) {
  for (const Layer& layer : model.layers)
    if (const Program* program = layer.work < 0 ? nullptr : model.works[at(layer.work)].program.get())
      for (const ProgramStep& step : program->steps)
        if (const auto* core = std::get_if<AttentionCore>(&step.spec)) return core->queries;
  return 0;
}

// How sequences are cut, as errors say it.
struct Cut {
  const char *with, *whole;
};
constexpr Cut kShared{"with a shared sequence", "use context_parallel: 1"},
    kSliced{"in slices of a sequence", "use slices: 1"};

Program of_part(Program program, const Layer& layer, std::int64_t tokens, int parts, const Cut& cut) {
  const auto refuse = [&](const std::string& why) {
    throw InputError(layer.place, "",
                     "layer \"" + layer.name + "\" cannot be run " + cut.with + ": " + why + "; " + cut.whole);
  };
  std::vector<char> losses(program.tensors.size());
  for (ProgramStep& step : program.steps) {
    losses[at(step.output)] = step.operation == "cross_entropy";
    if (auto* core = std::get_if<AttentionCore>(&step.spec)) {
      if (core->queries != tokens || core->keys != tokens)
        refuse("its attention is not over the " + std::to_string(tokens) + " tokens of the sequence");
      core->parts = parts, core->queries = core->keys = tokens / parts;
    } else if (std::holds_alternative<ExpertRows>(step.spec)) {
      refuse("a token's experts follow from its place in the whole sequence");
    } else if (std::ranges::find(kRowByRow, step.operation) == kRowByRow.end()) {
      refuse(std::string(step.operation) + " reads more than one token at a time");
    }
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    Shape& shape = program.tensors[t].shape;
    if (losses[t] != 0) continue;
    const int rank = program.tensors[t].indices ? 1 : 2;
    if (shape.rank != rank || shape[0] != tokens)
      refuse("a tensor of " + text(shape) + " does not have a row for each of " + std::to_string(tokens) + " tokens");
    shape.dim[0] /= parts;
  }
  return program;
}

Program of_device(const Program& whole, int devices) {
  Program program = whole;
  program.steps.clear();
  std::int64_t experts = 0;
  // Steps behind an exchange read what it made.
  std::vector<std::int32_t> made(whole.tensors.size());
  for (std::size_t t = 0; t < made.size(); ++t)
    made[t] = static_cast<std::int32_t>(t);
  const auto exchange = [&](std::int32_t from, bool back) {
    program.tensors.push_back(whole.tensors[at(from)]);
    const auto to = static_cast<std::int32_t>(program.tensors.size()) - 1;
    program.steps.push_back({"exchange", {from}, to, RowExchange{experts, devices, back}});
    return to;
  };
  for (ProgramStep step : whole.steps) {
    if (step.operation == "combine") made[at(step.inputs[0])] = exchange(step.inputs[0], true);
    for (std::int32_t& input : step.inputs)
      input = made[at(input)];
    if (auto* linear = std::get_if<GroupedLinear>(&step.spec)) linear->groups /= devices;
    const auto* const rows = std::get_if<ExpertRows>(&step.spec);
    program.steps.push_back(step);
    if (rows == nullptr || step.operation != "dispatch") continue;
    experts = rows->experts;
    made[at(step.output)] = exchange(step.output, false);
  }
  return program;
}

Model cut_up(const Model& model, int parts, const Cut& cut) {
  Model of_each = model;
  const std::int64_t tokens = tokens_of(model);
  std::vector<char> done(model.works.size());
  for (const Layer& layer : model.layers) {
    if (layer.work < 0) continue;
    const auto work = at(layer.work);
    const Program* const program = model.works[work].program.get();
    if (program == nullptr || std::exchange(done[work], 1) != 0) continue;
    of_each.works[work].program = SharedProgram(of_part(*program, layer, tokens, parts, cut));
  }
  return of_each;
}

}  // namespace

Model of_parts(const Model& model, int parts) {
  return cut_up(model, parts, kShared);
}

Model of_slices(const Model& model, int slices) {
  if (const std::int64_t tokens = tokens_of(model); tokens % slices != 0)
    throw InputError(model.place, "plan.slices",
                     std::to_string(slices) + " do not cut " + std::to_string(tokens) +
                         " tokens into equal slices; use a number that divides them");
  return cut_up(model, slices, kSliced);
}

Model of_expert_devices(const Model& model, int devices) {
  Model of_each = model;
  for (Work& work : of_each.works)
    if (const Program* const program = work.program.get()) work.program = SharedProgram(of_device(*program, devices));
  return of_each;
}

Model of_each_device(const Model& model, int parts, int expert_devices, int slices) {
  if (slices > 1) return of_slices(model, slices);
  if (parts > 1) return of_parts(model, parts);
  return expert_devices > 1 ? of_expert_devices(model, expert_devices) : model;
}

}  // namespace pipewright::core
