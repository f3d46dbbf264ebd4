#include "runtime/interpreter.hpp"

#include <map>

#include "core/check.hpp"
#include "runtime/data.hpp"

namespace pipewright {
namespace {

std::int64_t samples_of_copy(const Plan& plan) {
  return (plan.micro_batches - 1) * plan.micro_batch_size + plan.last_micro_batch_size;
}

}  // namespace

std::int64_t first_sample(const Plan& plan, std::int64_t step, CopyId copy, MicroBatchId m) {
  return (step * plan.data_parallel + copy) * samples_of_copy(plan) + m * plan.micro_batch_size;
}

void set_initial_weights(const ChunkCode& code, std::uint64_t seed, std::byte* weights) {
  std::map<LayerId, int> number;
  for (const CodeParameter& parameter : code.parameters) {
    auto* const values = reinterpret_cast<float*>(weights + parameter.offset);
    const int n = number[parameter.layer]++;
    for (std::int64_t i = 0; i < parameter.tensor.elements; ++i)
      values[i] = initial_value(parameter.tensor, seed, parameter.layer, n, i);
  }
}

StepArguments Interpreter::arguments(const CodeStep& step, const Place& place) {
  const auto& at = place.frame->at;
  const auto block = [&](int b) -> std::byte* { return b < 0 ? nullptr : at[static_cast<std::size_t>(b)]; };
  const auto parameters = static_cast<std::size_t>(step.parameters);
  inputs_.resize(step.inputs.size()), parameters_.resize(parameters), parameter_gradients_.resize(parameters);
  StepArguments a;
  a.program = step.program, a.step = step.step, a.samples = place.samples;
  for (std::size_t i = 0; i < step.inputs.size(); ++i)
    inputs_[i] = block(step.inputs[i]);
  a.inputs = {inputs_.data(), step.inputs.size()};
  a.output = block(step.output);
  a.output_gradient = block(step.output_gradient);
  for (int p = 0; p < step.parameters; ++p) {
    const std::int64_t offset = place.code->parameters[static_cast<std::size_t>(step.first_parameter + p)].offset;
    parameters_[static_cast<std::size_t>(p)] = reinterpret_cast<const float*>(place.weights + offset);
    parameter_gradients_[static_cast<std::size_t>(p)] = reinterpret_cast<float*>(place.gradients + offset);
  }
  a.parameters = {parameters_.data(), static_cast<std::size_t>(step.parameters)};
  a.saved = block(step.saved);
  a.loss_scale = place.loss_scale;
  return a;
}

void Interpreter::compute(const Instruction& i, const Place& place) {
  const auto at = [&](int b) { return place.frame->at[static_cast<std::size_t>(b)]; };
  const auto bytes = [&](int b) { return place.code->blocks[static_cast<std::size_t>(b)][place.size]; };
  switch (i.verb) {
    case Verb::Add:
      backend_.add(reinterpret_cast<float*>(at(i.block)), reinterpret_cast<const float*>(at(i.other)),
                   bytes(i.block) / 4);
      return;
    case Verb::Copy: backend_.copy(at(i.block), at(i.other), {bytes(i.block)}); return;
    case Verb::Zero: backend_.zero(at(i.block), {bytes(i.block)}); return;
    default: break;
  }
  const CodeStep& step = place.code->steps[static_cast<std::size_t>(i.step)];
  StepArguments a = arguments(step, place);
  const auto scratch = [&](Pass pass) -> void* {
    const int b = step.scratch[static_cast<std::size_t>(pass)];
    return b < 0 ? nullptr : at(b);
  };
  if (i.verb == Verb::Forward) {
    a.workspace = scratch(Pass::Forward);
    if (step.labels >= 0) a.labels = reinterpret_cast<const std::int64_t*>(at(step.labels));
    backend_.forward(a);
  } else if (i.verb == Verb::InputGradient) {
    input_gradients_.resize(step.input_gradients.size());
    for (std::size_t t = 0; t < step.input_gradients.size(); ++t)
      input_gradients_[t] = step.input_gradients[t] < 0 ? nullptr : at(step.input_gradients[t]);
    a.input_gradients = {input_gradients_.data(), step.input_gradients.size()};
    a.workspace = scratch(Pass::InputGradient);
    backend_.input_gradient(a);
  } else {
    PP_CHECK(i.verb == Verb::WeightGradient);
    a.parameter_gradients = {parameter_gradients_.data(), static_cast<std::size_t>(step.parameters)};
    a.workspace = scratch(Pass::WeightGradient);
    backend_.weight_gradient(a);
  }
}

void scale(std::byte* values, std::int64_t count, float factor) {
  if (factor == 1) return;
  auto* const each = reinterpret_cast<float*>(values);
  for (std::int64_t i = 0; i < count; ++i)
    each[i] *= factor;
}

}  // namespace pipewright
