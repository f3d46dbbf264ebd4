#include "core/cost/operation_size.hpp"

#include <algorithm>
#include <variant>

namespace pipewright::core {
namespace {

std::int64_t elements(const Shape& shape) {
  std::int64_t product = 1;
  for (int i = 0; i < shape.rank; ++i)
    product *= shape[i];
  return product;
}
std::int64_t width(const Shape& shape) {
  return shape[shape.rank - 1];
}

struct View {
  const Program& program;
  const ProgramStep& step;
  std::int64_t samples;
  const ProgramTensor& tensor(std::int32_t number) const { return program.tensors[static_cast<std::size_t>(number)]; }
  const Shape& in() const { return tensor(step.inputs.front()).shape; }
  const Shape& out() const { return tensor(step.output).shape; }
  template <class Spec>
  const Spec* spec() const {
    return std::get_if<Spec>(&step.spec);
  }
};

bool looks_up(const View& v) {
  return v.spec<Embedding>() != nullptr;
}

OperationSize linear_size(const View& v, MeasuredPass pass) {
  const std::int64_t in = width(v.in()), out = width(v.out()), rows = v.samples * (elements(v.in()) / in);
  switch (pass) {
    case MeasuredPass::Forward: return {1, rows, out, in};
    case MeasuredPass::InputGradient: return {1, rows, in, out};
    case MeasuredPass::WeightGradient: return {1, out, in, rows};
  }
  return {};
}

OperationSize conv_size(const View& v, const Conv2d& c, MeasuredPass pass) {
  const std::int64_t g = c.groups, in = v.in()[0] / g, out = v.out()[0] / g, window = c.kernel_height * c.kernel_width;
  const std::int64_t before = v.samples * v.in()[1] * v.in()[2], after = v.samples * v.out()[1] * v.out()[2];
  switch (pass) {
    case MeasuredPass::Forward: return {g, after, out, in * window};
    case MeasuredPass::InputGradient: return {g, before, in, out * window};
    case MeasuredPass::WeightGradient: return {g, out, in * window, after};
  }
  return {};
}

OperationSize products_of(const View& v, MeasuredPass pass) {
  if (v.spec<Linear>() != nullptr) return linear_size(v, pass);
  if (const auto* const conv = v.spec<Conv2d>()) return conv_size(v, *conv, pass);
  if (const auto* const a = v.spec<AttentionCore>())
    return {v.samples * a->heads, a->queries, a->keys, a->key_size + a->value_size};
  const Shape& shape = v.tensor(v.step.inputs.front()).indices ? v.out() : v.in();
  return {1, v.samples * (elements(shape) / width(shape)), width(shape), 0};
}

// Parameters that the step's weight gradient adds to; 0: it trains none. Of an embedding the whole table.
std::int64_t trained_values(const Program& program, const ProgramStep& step) {
  const View v{program, step, 1};
  if (step.inputs.empty()) return 0;
  if (const auto* const linear = v.spec<Linear>())
    return (linear->tied ? 0 : width(v.in()) * linear->features) + (linear->bias ? linear->features : 0);
  if (const auto* const c = v.spec<Conv2d>())
    return c->channels * (v.in()[0] / c->groups) * c->kernel_height * c->kernel_width + (c->bias ? c->channels : 0);
  if (const auto* const norm = v.spec<NormSpec>()) {
    const bool image = norm->kind == Norm::Batch || norm->kind == Norm::Instance;
    const std::int64_t each = image ? v.in()[0] : width(v.in());
    return !norm->affine ? 0 : norm->kind == Norm::Rms || !norm->bias ? each : 2 * each;
  }
  if (const auto* const table = v.spec<Embedding>()) return table->vocabulary * width(v.out());
  if (v.spec<LearnedTable>() != nullptr) return elements(v.out());
  return 0;
}

}  // namespace

std::optional<OperationSize> operation_size(const Program& program, const ProgramStep& step, std::int64_t samples,
                                            MeasuredPass pass) {
  if (step.inputs.empty() || step.output < 0) return std::nullopt;
  const View v{program, step, samples};
  const std::int64_t trained = trained_values(program, step);
  double in = 0, gradients = 0;
  for (const std::int32_t number : step.inputs) {
    const ProgramTensor& tensor = v.tensor(number);
    const double values = tensor.indices ? 0 : static_cast<double>(samples) * tensor.shape.elements();
    in += values;
    if (tensor.needs_gradient && !tensor.indices) gradients += values;
  }
  const double out = static_cast<double>(samples) * v.out().elements();
  if (looks_up(v)) in = out;
  const double parameters = looks_up(v) ? 0 : static_cast<double>(trained);
  OperationSize size = products_of(v, pass);
  switch (pass) {
    case MeasuredPass::Forward: size.values = in + out + parameters; break;
    case MeasuredPass::InputGradient:
      if (gradients == 0) return std::nullopt;
      size.values = in + out + gradients + parameters;
      break;
    case MeasuredPass::WeightGradient:
      if (trained == 0) return std::nullopt;
      size.values = in + out + 2 * parameters;
      break;
  }
  return size;
}

}  // namespace pipewright::core
